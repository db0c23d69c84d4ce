"""/v1/launches/{id}/explain through real rows: each check once as the one that holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import text
from tests.integration.api.test_members import join
from tests.support.api import Caller, World, api_world, webhook
from tests.support.database import new_database

from tickrail.store.tenancy import Caller as By

pytestmark = pytest.mark.integration

EVERYBODY = "00000000-0000-0000-0000-000000000000"


@dataclass
class Scene:
    """A launch of acme's job `a` and what a test does to its surroundings."""

    world: World
    job: str
    launch: str

    def run(self, statement: str, *values: object) -> None:
        self.world.database.run(statement, *values)

    def state(self, state: str, launch: str | None = None, **columns: object) -> None:
        phase = {"held": 0, "due": 1, "queued": 2, "running": 2}.get(state, 3)
        self.run(
            "update launches set state = %s, phase = %s where id = %s",
            state, phase, launch or self.launch,
        )  # fmt: skip
        for name, value in columns.items():
            self.run(f"update launches set {name} = {value} where id = %s", launch or self.launch)

    def other(self, caller: Caller | None = None, **trigger: Any) -> str:
        """Another launch: of the same job, or of one of another tenant's."""
        who, job = caller or self.world.acme, self.job
        if caller is not None:
            caller.call("PUT", "/v1/jobs/name:b", webhook("b"))
            job = "b"
        document = {"overlap": "allow", **trigger}
        made = who.post(f"/v1/jobs/name:{job}/trigger", document, expect=201)
        return str(made["id"])

    def limit(self, tenant: str, scope: str, name: str, **columns: object) -> None:
        names, values = ", ".join(columns), ", ".join(map(str, columns.values()))
        self.run(
            f"insert into limits (tenant_id, scope, name, {names})"
            f" values (%s, %s, %s, {values})",
            tenant, scope, name,
        )  # fmt: skip

    @property
    def acme(self) -> str:
        return self.world.tenant_id("acme")

    def explain(self) -> Any:
        return self.world.acme.get(f"/v1/launches/{self.launch}/explain")


@pytest.fixture(scope="module")
def world(postgres_admin: str, template_database: str) -> Iterator[World]:
    """One for all: a database for each of these cases would take longer than the cases."""
    with new_database(postgres_admin, template_database) as database, api_world(database) as made:
        yield made


CLEAN = (
    "update launches set state = 'cancelled', phase = 3",
    "update queues set paused = false",
    "update tenants set state = 'active'",
    "delete from limits",
    "delete from holds",
    "delete from workers",
)


@pytest.fixture
def scene(world: World) -> Scene:
    for statement in CLEAN:
        world.database.run(statement)
    world.etcd.down = False
    world.etcd.owners.clear()
    join(world, "s-1", *range(4))
    job = f"a{len(world.acme.every('/v1/jobs'))}"
    world.acme.create(job)
    launch = world.acme.post(f"/v1/jobs/name:{job}/trigger", expect=201)["id"]
    return Scene(world, job, launch)


def worker(scene: Scene, **changes: object) -> None:
    columns: dict[str, object] = {
        "id": "'w-1-0a'", "name": "'w-1'", "queues": "'{default}'", "kinds": "'{webhook}'",
        "version": "'1'", "concurrency": 8, **changes,
    }  # fmt: skip
    names, values = ", ".join(columns), ", ".join(map(str, columns.values()))
    scene.run(f"insert into workers ({names}) values ({values})")


def suspended(s: Scene) -> None:
    s.run("update tenants set state = 'suspended' where id = %s", s.acme)


def held(s: Scene) -> None:
    s.state("running", s.other(), worker="'w-7'")
    s.state("held")


def late(s: Scene) -> None:
    s.state("due", start_before="now() - interval '1 second'")


def retried(s: Scene) -> None:
    s.state(
        "due", attempt=2, failures=1, due_at="now() + interval '1 hour'",
        result="""'{"outcome": "http_503"}'""",
    )  # fmt: skip


def paused(s: Scene) -> None:
    s.run("update queues set paused = true where name = 'default'")


def paused_by_the_tenant(s: Scene) -> None:
    s.limit(s.acme, "queue", "default", paused=True, paused_reason="'a bad deploy'")


def tenant_full(s: Scene) -> None:
    s.limit(s.acme, "tenant", "", max_running=1)
    s.state("running", s.other())


def queue_full(s: Scene) -> None:
    """By another tenant's launch, of which only the number is told."""
    s.limit(EVERYBODY, "queue", "default", max_running=1)
    s.state("running", s.other(s.world.beta), worker="'beta-worker'")


def rate_spent(s: Scene) -> None:
    s.limit(
        EVERYBODY, "queue", "default", rate_count=6, rate_seconds=60, tokens=0.1, filled_at="now()"
    )


def key_held(s: Scene) -> None:
    holder = s.other()
    s.state("running", holder, claim=77, worker="'w-9'")
    s.run(
        "insert into holds (tenant_id, scope, name, launch_id, scheduled_at, priority, claim)"
        " select tenant_id, 'key', 'eu', id, scheduled_at, priority, claim from launches"
        " where id = %s",
        holder,
    )
    s.state("due", concurrency_key="'eu'", concurrency_limit=1)


def waits_for_a_place(s: Scene) -> None:
    s.limit(EVERYBODY, "queue", "default", max_running=5)
    s.run(
        "insert into holds (tenant_id, scope, name, launch_id, scheduled_at, priority, attempt,"
        " reason) select %s, 'queue', 'default', id, scheduled_at, priority, attempt,"
        " 'max_running' from launches where id = %s",
        EVERYBODY, s.launch,
    )  # fmt: skip
    s.state("due", due_at="now() + interval '1 minute'")


def unowned(s: Scene) -> None:
    s.world.etcd.owners.clear()


def due(s: Scene) -> None:
    for _ in range(3):
        earlier = s.other(s.world.beta)
        s.state(
            "due", earlier, due_at="now() - interval '1 hour'",
            partition=f"(select partition from launches where id = '{s.launch}')",
        )  # fmt: skip
    s.other(s.world.beta, priority="high")  # of another class


def no_worker(s: Scene) -> None:
    s.state("queued", queued_at="now()", publications=1)
    worker(s, id="'w-2-0b'", queues="'{other}'")
    worker(s, id="'w-3-0c'", seen_at="now() - interval '25 seconds'")


def no_worker_of_the_kind(s: Scene) -> None:
    s.state("queued", queued_at="now()", publications=1)
    worker(s, kinds="'{command}'")


def in_kafka(s: Scene) -> None:
    worker(s)
    s.state("queued", queued_at="now()", publications=2)
    for _ in range(2):
        s.state(
            "queued", s.other(s.world.beta), queued_at="now() - interval '1 minute'",
            partition=f"(select partition from launches where id = '{s.launch}')",
        )  # fmt: skip


def expired_claim(s: Scene) -> None:
    s.state("running", worker="'w-4'", claim_expires_at="now() - interval '1 second'")


def asked_to_stop(s: Scene) -> None:
    s.state(
        "running", worker="'w-4'", claim_expires_at="now() + interval '1 minute'",
        cancel_requested=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "holds", "detail", "until"),
    [
        (held, "overlap", "is running on w-7, and the overlap policy is skip", False),
        (late, "start_deadline", "has passed", True),
        (retried, "retry", "Attempt 2 (1 of 5 failures, the last http_503) is due later", True),
        (paused, "queue", "paused by an operator", False),
        (paused_by_the_tenant, "queue", "paused (a bad deploy)", False),
        (tenant_full, "tenant_cap", "The tenant runs 1 of at most 1.", False),
        (queue_full, "queue_cap", "The queue runs 1 of at most 1.", False),
        (rate_spent, "rate", "The queue may start 6 in 60 s, and has.", True),
        (key_held, "concurrency", "1 of 1 run under the key eu: launch ", False),
        (waits_for_a_place, "due", "waits for a place under a limit", True),
        (unowned, "partition", "No scheduler owns partition", False),
        (due, "relay", "; 3 of class normal of the queue default in its partition", False),
        (no_worker, "worker", "No worker serves the queue default.", False),
        (no_worker_of_the_kind, "worker", "No worker of the queue default runs webhook", False),
        (in_kafka, "kafka", "2 before it in its Kafka partition", False),
        (expired_claim, "claim", "The claim of w-4 has expired", True),
        (asked_to_stop, "cancel", "w-4 has not ended it", False),
    ],
)
def test_what_holds_it(
    scene: Scene, change: Callable[[Scene], None], holds: str, detail: str, until: bool
) -> None:
    change(scene)
    found = scene.explain()
    assert found["launch"] == scene.launch
    assert found["holds"] == holds, found["checks"]
    check = next(c for c in found["checks"] if c["check"] == holds)
    assert check["ok"] is False
    assert detail in check["detail"]
    assert (check["until"] is not None) is until
    # Others' launches, jobs and workers are not named.
    told = str(found)
    foreign = scene.world.database.rows(
        "select id::text from launches where tenant_id = %s", scene.world.tenant_id("beta")
    )
    assert "beta" not in told
    assert [x for (x,) in foreign if str(x) in told] == []


def test_a_suspended_tenant_s_launch_as_the_operator_sees_it(scene: Scene, world: World) -> None:
    suspended(scene)
    operator = world.caller(world.keys["operator"].token, "acme")
    found = operator.get(f"/v1/launches/{scene.launch}/explain")
    assert found["holds"] == "tenant"


def test_what_runs_is_held_by_nothing(scene: Scene) -> None:
    scene.state("running", worker="'w-4'", claim_expires_at="now() + interval '1 minute'")
    found = scene.explain()
    assert (found["state"], found["holds"], found["ended"]) == ("running", None, None)
    claim = next(c for c in found["checks"] if c["check"] == "claim")
    assert claim["ok"] is True
    assert claim["until"] is not None
    assert claim["detail"].startswith("w-4 runs it")


def test_without_etcd_the_owner_is_not_known(scene: Scene, world: World) -> None:
    world.etcd.down = True
    found = scene.explain()
    partition = next(c for c in found["checks"] if c["check"] == "partition")
    assert partition["ok"] is None
    assert found["holds"] == "relay"


def test_how_it_ended(scene: Scene) -> None:
    scene.state(
        "dead", attempt=5, failures=5, started_at="now()", finished_at="now()",
        result="""'{"outcome": "http_500", "message": "the target answered 500"}'""",
    )  # fmt: skip
    found = scene.explain()
    at = found["ended"].pop("at")
    assert at is not None
    assert (found["state"], found["holds"], found["checks"]) == ("dead", None, [])
    assert found["ended"] == {
        "reason": "attempts_exhausted",
        "outcome": "http_500",
        "attempts": 5,
        "detail": "Attempts exhausted after 5 of 5 failures; the last: http_500:"
        " the target answered 500",
    }


def test_another_tenant_s_launch_is_not_there(scene: Scene, world: World) -> None:
    path = f"/v1/launches/{scene.launch}/explain"
    assert world.beta.get(path, expect=404)["code"] == "not_found"
    assert world.acme.get(path, expect=422, deep="yes")["code"] == "invalid"
    # Nor do its numbers come through the function behind it.
    with world.app.state.parts.database.tenant(world.keys["beta"].tenant, By("test")) as tx:
        slot = world.database.rows("select scheduled_at from launches where id = %s", scene.launch)
        keys = {"launch": scene.launch, "at": slot[0][0], "most": 10}
        statement = text("select * from explain_counts(:launch, :at, :most)")
        rows = tx.base.execute(statement, keys).all()
    assert rows == []
