"""A scheduler is drained by an operator while jobs are due, with real processes and servers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import conninfo
from tests.support.processes import CLOCK, Installation, Service, installation
from tests.support.until import until

from tickrail.sdk.client import Client
from tickrail.store.bootstrap import bootstrap

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PARTITIONS = 16
JOBS = 32
JOB = {"schedule": {"every": "1s"}, "target": {"noop": {}}, "overlap": "allow"}
TTL = 10.0
UNUSED = "scheduler-3"
"""Has weight 0."""


class Operator:
    """An API process with an operator's key, and the command line."""

    def __init__(self, made: Installation) -> None:
        with psycopg.connect(made.admin, autocommit=True) as conn:
            conn.execute("alter role tickrail_api password 'of-this-test'")
        given = dict(made.services["scheduler-1"].environment)
        url = conninfo.make_conninfo(
            made.admin, user="tickrail_api", password="of-this-test"
        )  # fmt: skip
        given |= {"TICKRAIL_DATABASE_URL": url, "TICKRAIL_API_PORT": "0"}
        self.api = Service("api", "api-1", given, made.services["scheduler-1"].log.with_name("api"))
        made.services["api-1"] = self.api
        self.api.start()
        until(self.api.ready, 60)
        address = next(line["api"] for line in self.api.lines() if line["event"] == "serving")
        token = bootstrap(made.admin, CLOCK).token
        kept = {k: v for k, v in given.items() if not k.startswith("TICKRAIL_")}
        self._environment = kept | {"TICKRAIL_API_URL": address, "TICKRAIL_API_KEY": token}
        self.client = Client(address, token)

    def system(self, *words: str, expect: int = 0) -> str:
        """One `tickrail system` command; what it printed."""
        done = subprocess.run(
            [str(Path(sys.executable).with_name("tickrail")), "system", *words],
            env=self._environment, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr

    def undrain(self, name: str) -> None:
        self.client.request("DELETE", f"/v1/system/members/{name}/drain")

    def members(self) -> Mapping[str, Any]:
        """The members by name."""
        return {m["name"]: m for m in self.client.pages("/v1/system/members")}

    def partitions(self) -> list[Any]:
        """The partitions in order."""
        return list(self.client.pages("/v1/system/partitions"))

    def settled(self, *owners: str) -> bool:
        """Whether these members and no others own everything, each a part."""
        items = self.partitions()
        names = {p["owner"]["name"] for p in items if p["state"] == "owned"}
        return len(items) == PARTITIONS and names == set(owners) and _all_owned(items)


def _all_owned(items: list[Any]) -> bool:
    return all(p["state"] == "owned" and p["epoch"] == p["claimed_epoch"] for p in items)


@pytest.fixture(scope="module")
def made() -> Iterator[Installation]:
    with installation(
        schedulers=3,
        workers=0,
        partitions=PARTITIONS,
        environment={"TICKRAIL_LEASE_TTL": f"{TTL:g}", "TICKRAIL_RENEW_EVERY": "3"},
        per_service=lambda name, _: {"TICKRAIL_MEMBER_WEIGHT": "0"} if name == UNUSED else {},
    ) as found:
        yield found


@pytest.fixture(scope="module")
def operator(made: Installation) -> Iterator[Operator]:
    found = Operator(made)
    yield found
    found.client.close()


def test_a_drained_scheduler_gives_all_it_has_to_others_and_no_slot_is_missing(
    made: Installation, operator: Operator
) -> None:
    until(lambda: operator.settled("scheduler-1", "scheduler-2"), 60, every=0.5)
    made.add_jobs(JOBS, JOB)
    until(lambda: made.query("select count(distinct job_id) from launches")[0][0] == JOBS, 30)
    [(began,)] = made.query("select now()")

    assert "is drained and owns nothing" in operator.system("drain", "scheduler-1")
    until(lambda: operator.settled("scheduler-2"), 30, every=0.2)
    members = operator.members()
    assert (members["scheduler-1"]["state"], members["scheduler-1"]["partitions"]) == ("drained", 0)
    assert (members[UNUSED]["weight"], members[UNUSED]["partitions"]) == (0, 0)

    # Cordoned is cordoned: also its next life takes nothing.
    drained = made.services["scheduler-1"]
    assert drained.end() == 0
    drained.start()
    until(lambda: operator.members()["scheduler-1"]["state"] == "drained", 60, every=0.5)
    assert operator.settled("scheduler-2")

    # When the last one is drained too, drains are ignored: that is better than no owner.
    assert "every member is drained" in operator.system("drain", "scheduler-2", expect=1)
    until(lambda: operator.settled("scheduler-1", "scheduler-2"), 30, every=0.2)
    operator.system("undrain", "scheduler-1")
    until(lambda: operator.settled("scheduler-1"), 30, every=0.2)
    operator.undrain("scheduler-2")
    until(lambda: operator.settled("scheduler-1", "scheduler-2"), 30, every=0.2)

    _check_slots(made, began)
    until(lambda: made.services["scheduler-2"].metric("partitions_unowned") == 0, 20, every=0.2)

    # Nobody is left: the API tells it, since no scheduler can.
    for name in ("scheduler-1", "scheduler-2", UNUSED):
        assert made.services[name].end() == 0
    until(lambda: operator.api.metric("partitions_unowned") == PARTITIONS, 20, every=0.5)
    assert operator.api.metric("members") == 0
    assert {p["state"] for p in operator.partitions()} == {"unowned"}


def _check_slots(made: Installation, began: Any) -> None:
    """Each second has its launch, none twice, and none waited for a lease to end."""
    rows = made.query(
        "select count(*), count(distinct (job_id, scheduled_at)),"
        " extract(epoch from max(scheduled_at) - min(scheduled_at))::int,"
        " extract(epoch from max(created_at - scheduled_at))::float"
        " from launches where scheduled_at >= %s group by job_id",
        began,
    )
    assert len(rows) == JOBS
    for count, distinct, seconds, _ in rows:
        assert count == distinct == seconds + 1
    assert max(late for *_, late in rows) < TTL / 3
