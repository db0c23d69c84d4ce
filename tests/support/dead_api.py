"""Dead letters in a test of the API: launches that died, straight in the database."""

from __future__ import annotations

import json
from typing import Any

from tests.support.api import Caller, World

from tickrail.engine.operations import OperationRunner


def die(
    world: World,
    launch: str,
    *,
    state: str = "dead",
    ago: float = 60.0,
    attempt: int = 3,
    **result: Any,
) -> None:
    """A launch ended so many seconds ago, after that many attempts."""
    last = {"outcome": "http_500", "message": "it said 500", "code": 500, **result}
    world.database.run(
        "update launches set state = %s, phase = 3, attempt = %s, failures = %s, result = %s,"
        " finished_at = now() - %s * interval '1 s', dead_at = now() - %s * interval '1 s'"
        " where id = %s",
        state, attempt, attempt, json.dumps(last), ago, ago, launch,
    )  # fmt: skip
    world.database.run(
        "insert into attempts (launch_id, scheduled_at, tenant_id, attempt, outcome, certain, code,"
        " message, body) select id, scheduled_at, tenant_id, attempt, %s, true, 500, 'it said 500',"
        " 'sorry' from launches where id = %s on conflict do nothing",
        last["outcome"], launch,
    )  # fmt: skip


def dead_launch(
    world: World, caller: Caller, name: str, *, ago: float = 60.0, **more: Any
) -> dict[str, Any]:
    """A launch by hand that died; its job is made where it is not there."""
    if caller.call("GET", f"/v1/jobs/name:{name}").status_code != 200:
        caller.create(name, overlap="allow", **more.pop("job", {}))
    launch: dict[str, Any] = caller.post(f"/v1/jobs/name:{name}/trigger", expect=201)
    die(world, launch["id"], ago=ago, **more)
    return launch


def runner_of(world: World) -> OperationRunner:
    """Another API process that carries out operations."""
    found: OperationRunner = world.app.state.parts.runner
    return OperationRunner(found._queue, found._operations)


def work(world: World) -> None:
    """Batches until nothing more is to be done at once."""
    runner = runner_of(world)
    while runner.run_once() == 0.0:
        pass
