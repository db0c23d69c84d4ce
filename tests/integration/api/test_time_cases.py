"""Edits, deletes and runs by hand beside a tick on the real store: cases B-11, B-13 and B-17."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
from tests.support.api import Caller, World
from tests.support.stepped import Counted
from tests.support.store_bed import OWNED, PostgresBed, claim_one, end_of, verdict
from tests.support.until import until

from tickrail.core.ids import JobId, LaunchId, TenantId
from tickrail.core.ports import Calendars, DueJob, OpenCount, Planned
from tickrail.core.states import State
from tickrail.engine.tick import JobPlanner, Tick

pytestmark = pytest.mark.integration
MINUTELY = {"cron": "* * * * *"}


class HeldPlanner(JobPlanner):
    """The real planner, which stands still inside the tick's transaction until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go = threading.Event(), threading.Event()

    def plan(
        self,
        jobs: Sequence[DueJob],
        opened: Mapping[JobId, OpenCount],
        calendars: Calendars,
        now: datetime,
        oldest: datetime,
        rooms: dict[TenantId, int],
    ) -> Sequence[Planned]:
        self.reached.set()
        assert self.go.wait(10)
        return super().plan(jobs, opened, calendars, now, oldest, rooms)


class Owner:
    """The owner of all partitions, on the API's database."""

    def __init__(self, bed: PostgresBed) -> None:
        self.bed = bed
        self.store = bed.owner()
        self.metrics = Counted()
        self.tick = Tick(self.store, self.metrics)

    def due_now(self, name: str, minutes: int = 1) -> datetime:
        """Let the job wait for the last full minute (or fifth minute) that has begun; that one."""
        self.bed.conn.execute(
            "update jobs set next_run_at = date_bin(%s, now(), 'epoch') where name = %s",
            [timedelta(minutes=minutes), name],
        )
        found: datetime = self.bed.value("select next_run_at from jobs where name = %s", name)
        return found

    def run(self) -> int:
        """Tick once; how many launches."""
        return len(self.tick.run_once(OWNED).inserted)

    def launches(self, name: str) -> list[tuple[object, ...]]:
        """(scheduled_at, origin's first word, state, version), in order."""
        return self.bed.database.rows(
            "select l.scheduled_at, split_part(l.origin, ':', 1), l.state, l.job_version"
            " from launches l join jobs j on j.id = l.job_id where j.name = %s order by 1, 2",
            name,
        )


@pytest.fixture
def owner(world: World) -> Iterator[Owner]:
    bed = PostgresBed(world.database)
    yield Owner(bed)
    bed.close()


def test_b11_an_edit_counts_at_once_and_the_old_time_is_not_run(acme: Caller, owner: Owner) -> None:
    """The edit lands on the API, the owner is another process: it reads the new next run."""
    acme.create("a", schedule={"cron": "0 0 1 1 *"})
    old = owner.bed.value("select next_run_at from jobs")
    assert owner.run() == 0
    acme.patch("/v1/jobs/name:a", {"schedule": {"cron": "*/5 * * * *"}})
    new = owner.bed.value("select next_run_at from jobs")
    now = owner.bed.now()
    assert now < new <= now + timedelta(minutes=5)
    assert (new.minute % 5, new.second) == (0, 0)
    assert old > new
    slot = owner.due_now("a", minutes=5)
    assert owner.run() == 1
    assert owner.launches("a") == [(slot, "schedule", "due", 2)]


@pytest.mark.parametrize("first", ["tick", "edit"])
def test_b11_an_edit_beside_a_tick_uses_exactly_one_definition(
    acme: Caller, owner: Owner, first: str
) -> None:
    acme.create("a", schedule=MINUTELY)
    slot = owner.due_now("a")
    edit = {"schedule": {"cron": "*/2 * * * *"}}
    planner = HeldPlanner()
    if first == "edit":
        acme.patch("/v1/jobs/name:a", edit)
        assert owner.run() == 0
        # The slot of the old text had not been launched when the edit came: it is recorded.
        assert owner.bed.database.rows("select reason, scheduled_at, count from skips") == [
            ("skipped_by_hand", slot, 1)
        ]
        return
    with ThreadPoolExecutor(2) as pool:
        ticking = pool.submit(owner.store.tick, OWNED, 10, planner)
        assert planner.reached.wait(10)
        editing = pool.submit(acme.patch, "/v1/jobs/name:a", edit)
        until(lambda: waiting(owner) == 1)
        assert not editing.done(), "the edit waits for the tick that has the job"
        planner.go.set()
        assert ticking.result(10).jobs == 1
        editing.result(10)
    assert owner.launches("a") == [(slot, "schedule", "due", 1)]
    assert owner.bed.value("select version from jobs") == 2
    assert owner.bed.value("select next_run_at from jobs").minute % 2 == 0
    assert owner.bed.value("select count(*) from skips") == 0


def waiting(owner: Owner) -> int:
    found: int = owner.bed.value(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    )
    return found


def test_b13_a_running_launch_outlives_its_job_and_nothing_new_comes(
    acme: Caller, owner: Owner
) -> None:
    acme.create("a", schedule=MINUTELY, overlap="allow", misfire={"grace": "10m"})
    owner.due_now("a")
    assert owner.run() == 1
    launch = LaunchId(owner.bed.value("select id from launches"))
    worker = owner.bed.worker()
    claimed = claim_one(owner.bed, worker, launch)
    # The next slot is in the owner's memory when the delete comes.
    slot = owner.bed.value("select scheduled_at from launches")
    before = slot - timedelta(minutes=1)
    owner.bed.conn.execute("update jobs set next_run_at = %s", [before])
    planner = HeldPlanner()
    with ThreadPoolExecutor(2) as pool:
        ticking = pool.submit(owner.store.tick, OWNED, 10, planner)
        assert planner.reached.wait(10)
        deleting = pool.submit(acme.delete, "/v1/jobs/name:a")
        until(lambda: waiting(owner) == 1)
        planner.go.set()
        assert ticking.result(10).jobs == 1
        deleting.result(10)
    acme.delete("/v1/jobs/name:a")  # 204 again
    states = [row[2] for row in owner.launches("a")]
    assert sorted(states) == ["cancelled", "running"]
    assert owner.run() == 0
    ended = worker.finish([end_of(claimed, verdict(claimed, State.SUCCEEDED))])
    assert len(ended.stale) == 0
    assert owner.bed.row(launch).state is State.SUCCEEDED
    assert acme.get(f"/v1/launches/{launch}")["state"] == "succeeded"
    deleted_at = owner.bed.value("select deleted_at from jobs")
    assert owner.bed.value("select max(scheduled_at) from launches") < deleted_at


def test_b13_deletes_at_once_do_not_lock_each_other_out(acme: Caller, owner: Owner) -> None:
    names = [f"a-{n}" for n in range(3)]
    for name in names:
        acme.create(name, schedule=MINUTELY, overlap="allow")
        owner.due_now(name)
    assert owner.run() == 3
    paths = [f"/v1/jobs/name:{name}" for name in names] * 2
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(acme.delete, paths))
    for name in names:
        assert [row[2] for row in owner.launches(name)] == ["cancelled"]
    assert owner.run() == 0


def test_b17_a_run_by_hand_on_a_slot_is_another_launch(acme: Caller, owner: Owner) -> None:
    job = acme.create("a", schedule={"cron": "* * * * * *"}, overlap="allow")
    other = acme.create("b", schedule={"cron": "* * * * * *"}, overlap="allow")
    by_hand = acme.call("POST", f"/v1/jobs/{job['id']}/trigger", expect=201).json()
    second = datetime.fromisoformat(by_hand["scheduled_at"])
    owner.bed.conn.execute("update jobs set next_run_at = %s", [second])
    assert owner.run() >= 2
    assert owner.launches("a")[:2] == [
        (second, "manual", "due", 1),
        (second, "schedule", "due", 1),
    ]
    assert owner.launches("b")[0] == (second, "schedule", "due", 1)
    ids = owner.bed.database.rows("select id from launches where scheduled_at = %s", second)
    assert len(set(ids)) == 3
    # The scheduled launch's own id as the key of a request: another launch, and once.
    slot_id = owner.bed.value(
        "select id from launches where job_id = %s and origin = 'schedule' limit 1", other["id"]
    )
    key = {"Idempotency-Key": str(slot_id)}
    path = f"/v1/jobs/{other['id']}/trigger"
    answers = [acme.call("POST", path, headers=key, expect=201).json()["id"] for _ in range(2)]
    assert answers[0] == answers[1] != str(slot_id)
    assert [row[1] for row in owner.launches("b")].count("manual") == 1
    assert owner.run() >= 0, "the loop goes on"
