"""The contract of launches that end dead or abandoned: who is told, and which jobs pause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

import pytest
from tests.support.memory_notices import MemoryNoticeStore, add_notices
from tests.support.store_bed import (
    OWNED,
    TENANT,
    Bed,
    MemoryBed,
    PostgresBed,
    claim_one,
    end_of,
    make_job,
    make_launch,
    verdict,
)
from tests.support.stub_planner import StubPlanner

from tickrail.core.ids import JobId, LaunchId, TenantId
from tickrail.core.on_failures import Channel, ChannelKind
from tickrail.core.policies import Retry
from tickrail.core.ports import Publication
from tickrail.core.ports_notice import (
    MOST_A_MINUTE,
    NewNotice,
    NoticeEnd,
    NoticeKind,
    NoticeStore,
    TenantRoom,
)
from tickrail.core.quotas import Quota
from tickrail.core.states import State
from tickrail.core.verdict import retry_verdict
from tickrail.store.notices import PostgresNoticeStore
from tickrail.store.notices import add_notices as add_to_postgres
from tickrail.store.session import Session

OPS = Channel(ChannelKind.WEBHOOK, "ops")
TOPIC = Channel(ChannelKind.KAFKA, "alerts")
BOTH = tuple(ChannelKind)
HOLD = timedelta(seconds=60)
OTHER = TenantId(TENANT.__class__(int=2))


class Kept(NamedTuple):
    """A notice as it is kept."""

    kind: str
    channel: str
    suppressed: int
    state: str
    error: str


class NoticeBed(Protocol):
    """The launches' tables, and the notices."""

    launches: Bed
    store: NoticeStore

    def add(self, notices: Sequence[NewNotice]) -> None: ...

    def kept(self) -> list[Kept]: ...

    def suspend(self, tenant: TenantId, *, over: bool = False) -> None: ...

    def tell_of_quotas(self, tenant: TenantId, *channels: Channel) -> None: ...


class MemoryNotices:
    def __init__(self) -> None:
        self.launches = MemoryBed()
        self.store = MemoryNoticeStore(self.launches.db)

    def add(self, notices: Sequence[NewNotice]) -> None:
        add_notices(self.launches.db, notices, self.launches.now())

    def kept(self) -> list[Kept]:
        return sorted(
            Kept(x.owed.kind, str(x.owed.channel), x.owed.suppressed, x.state, x.error)
            for x in self.launches.db.notices
        )

    def suspend(self, tenant: TenantId, *, over: bool = False) -> None:
        (set.discard if over else set.add)(self.launches.db.suspended, tenant)

    def tell_of_quotas(self, tenant: TenantId, *channels: Channel) -> None:
        self.launches.db.quota_channels[tenant] = channels


class PostgresNotices:
    def __init__(self, bed: PostgresBed) -> None:
        self.launches = bed
        self.store = PostgresNoticeStore(bed.settings)
        self._session = Session(bed.settings)
        bed.conn.execute(
            "insert into tenants (id, name) values (%s, 'one'), (%s, 'two')", [TENANT, OTHER]
        )

    def add(self, notices: Sequence[NewNotice]) -> None:
        with self._session.transaction() as cursor:
            add_to_postgres(cursor, notices)

    def kept(self) -> list[Kept]:
        rows: Any = self.launches.conn.execute(
            "select kind, channel, suppressed, state, error from notices"
        )
        return sorted(Kept(*row) for row in rows)

    def suspend(self, tenant: TenantId, *, over: bool = False) -> None:
        state = "active" if over else "suspended"
        self.launches.conn.execute("update tenants set state = %s where id = %s", [state, tenant])

    def tell_of_quotas(self, tenant: TenantId, *channels: Channel) -> None:
        self.launches.conn.execute(
            "insert into quota_channels (tenant_id, channels) values (%s, %s)",
            [tenant, [str(c) for c in channels]],
        )

    def close(self) -> None:
        self.store.close()
        self._session.close()


@pytest.fixture
def notices(bed: Bed) -> Iterator[NoticeBed]:
    if isinstance(bed, PostgresBed):
        postgres = PostgresNotices(bed)
        yield postgres
        postgres.close()
        return
    yield MemoryNotices()


def failing_job(
    notices: NoticeBed, pause_after: int | None = None, *notify: Channel, state: str = "active"
) -> JobId:
    wanted = {"pause_after": pause_after, "notify": [str(c) for c in notify]}
    return make_job(notices.launches, due_in=60, state=state, on_failures=wanted)


def end(notices: NoticeBed, job: JobId, state: State, ago: int, **columns: Any) -> LaunchId:
    """A launch of the job, whose only attempt ends in this state."""
    bed = notices.launches
    launch = make_launch(bed, job, ago=ago, **columns)
    store = bed.worker()
    claimed = claim_one(bed, store, launch)
    answer = store.finish([end_of(claimed, verdict(claimed, state))])
    assert answer.states == {launch: state}
    store.close()  # type: ignore[attr-defined]
    return launch


def state_of(notices: NoticeBed, job: JobId) -> str:
    return notices.launches.job_row(job).state


def test_so_many_in_a_row_pause_a_job(notices: NoticeBed) -> None:
    job = failing_job(notices, 3, OPS)
    end(notices, job, State.DEAD, 90)
    end(notices, job, State.ABANDONED, 80)
    assert state_of(notices, job) == "active"
    last = end(notices, job, State.DEAD, 70)
    row = notices.launches.job_row(job)
    assert row.state == "paused"
    assert row.next_run_at is not None
    assert {k: row.paused[k] for k in ("by", "reason", "until", "launch")} == {
        "by": "system",
        "reason": "launches in a row that ended dead or abandoned: 3",
        "until": None,
        "launch": str(last),
    }
    kinds = [k.kind for k in notices.kept()]
    assert kinds == ["job.paused", "launch.abandoned", "launch.dead", "launch.dead"]


def test_a_success_among_the_latest_slots_keeps_a_job_going(notices: NoticeBed) -> None:
    job = failing_job(notices, 2)
    end(notices, job, State.DEAD, 90)
    end(notices, job, State.SUCCEEDED, 80)
    end(notices, job, State.DEAD, 70)
    assert state_of(notices, job) == "active"
    # An older slot that is given up late does not follow on the latest one.
    end(notices, job, State.DEAD, 85)
    assert state_of(notices, job) == "active"
    end(notices, job, State.DEAD, 60)
    assert state_of(notices, job) == "paused"


def test_cancelled_and_expired_launches_are_passed_over(notices: NoticeBed) -> None:
    job, bed = failing_job(notices, 2), notices.launches
    end(notices, job, State.DEAD, 90)
    bed.cancel(make_launch(bed, job, ago=80))
    late = make_launch(bed, job, ago=75)
    bed.change(late, state=State.EXPIRED, finished_at=bed.now())
    make_launch(bed, job, ago=65)  # open
    end(notices, job, State.DEAD, 70)
    assert state_of(notices, job) == "paused"


def test_a_job_that_was_resumed_begins_anew(notices: NoticeBed) -> None:
    job, bed = failing_job(notices, 2), notices.launches
    end(notices, job, State.DEAD, 90)
    end(notices, job, State.DEAD, 80)
    assert state_of(notices, job) == "paused"
    bed.advance(1)
    bed.change_job(job, state="active", failures_from=bed.now())
    bed.advance(1)
    end(notices, job, State.DEAD, 70)
    assert state_of(notices, job) == "active"
    end(notices, job, State.DEAD, 60)
    assert state_of(notices, job) == "paused"


@pytest.mark.parametrize("state", ["paused", "finished", "deleted"])
def test_only_an_active_job_pauses_itself(notices: NoticeBed, state: str) -> None:
    job = failing_job(notices, 1, OPS, state=state)
    end(notices, job, State.DEAD, 90)
    row = notices.launches.job_row(job)
    assert (row.state, row.paused) == (state, None)
    assert [k.kind for k in notices.kept()] == ["launch.dead"]


def test_other_ends_and_other_jobs_tell_nobody(notices: NoticeBed) -> None:
    job, bed = failing_job(notices, 1, OPS), notices.launches
    end(notices, job, State.SUCCEEDED, 90)
    end(notices, make_job(bed), State.DEAD, 80)
    launch = make_launch(bed, job, ago=70)
    store = bed.worker()
    claimed = claim_one(bed, store, launch)
    store.finish([end_of(claimed, verdict(claimed, State.DUE, delay=60))])
    bed.cancel(end(notices, job, State.SUCCEEDED, 60))
    stopped = make_launch(bed, job, ago=50)
    claimed = claim_one(bed, store, stopped)
    bed.cancel(stopped)
    store.finish([end_of(claimed, verdict(claimed, State.DEAD))])
    assert bed.row(stopped).state is State.CANCELLED
    assert state_of(notices, job) == "active"
    assert notices.kept() == []


def test_ends_of_one_batch_count_together(notices: NoticeBed) -> None:
    job, bed = failing_job(notices, 3, OPS, TOPIC), notices.launches
    store = bed.worker()
    claims = [claim_one(bed, store, make_launch(bed, job, ago=90 - i)) for i in range(3)]
    store.finish([end_of(c, verdict(c, State.DEAD)) for c in claims])
    assert state_of(notices, job) == "paused"
    channels = [(k.kind, k.channel) for k in notices.kept()]
    assert channels == sorted(
        [("job.paused", str(c)) for c in (OPS, TOPIC)]
        + [("launch.dead", str(c)) for c in (OPS, TOPIC)] * 3
    )


def test_a_lost_worker_pauses_too_unless_somebody_holds_the_job(notices: NoticeBed) -> None:
    bed = notices.launches
    job = make_job(
        bed, retry={"max_attempts": 1}, on_failures={"pause_after": 1, "notify": [str(OPS)]}
    )
    launch = make_launch(bed, job, max_attempts=1)
    claim_one(bed, bed.worker(), launch)
    bed.advance(31)

    def dead(lost: Any) -> Any:
        return retry_verdict(
            retryable=True, certain=False, rerun=True, attempt=lost.attempt,
            failures=lost.failures, retry=Retry(max_attempts=1), spread=0.0,
        )  # fmt: skip

    with held(bed, job):
        assert bed.owner().reap(OWNED, 10, dead).moved == {}
        assert bed.row(launch).state is State.RUNNING
    assert bed.owner().reap(OWNED, 10, dead).moved == {"dead": 1}
    assert state_of(notices, job) == "paused"
    assert [k.kind for k in notices.kept()] == ["job.paused", "launch.dead"]


def test_what_can_never_be_published_is_told(notices: NoticeBed) -> None:
    bed = notices.launches
    job = failing_job(notices, 1, OPS)
    launch = make_launch(bed, job)
    row = bed.row(launch)
    bad = Publication(
        launch, row.scheduled_at, job, row.tenant_id, row.partition, "default", 1, 1, row.due_at
    )
    owner = bed.owner()
    with held(bed, job):
        assert owner.mark_unpublishable(OWNED, [bad], "too_large").marked == 0
    assert owner.mark_unpublishable(OWNED, [bad], "too_large").marked == 1
    assert owner.mark_unpublishable(OWNED, [bad], "too_large").marked == 0
    assert state_of(notices, job) == "paused"
    assert [k.kind for k in notices.kept()] == ["job.paused", "launch.dead"]


class held:  # noqa: N801 - reads as a word
    """Somebody else holds the job's row."""

    def __init__(self, bed: Bed, job: JobId) -> None:
        self._bed = bed
        self._job = job
        self._other: Any = None

    def __enter__(self) -> None:
        if isinstance(self._bed, PostgresBed):
            self._other = self._bed.database.admin()
            self._other.autocommit = False
            self._other.execute("select from jobs where id = %s for update", [self._job])
        elif isinstance(self._bed, MemoryBed):
            self._bed.db.locked_jobs.add(self._job)

    def __exit__(self, *_: object) -> None:
        if isinstance(self._bed, MemoryBed):
            self._bed.db.locked_jobs.clear()
        else:
            self._other.close()


def a_notice(about: str = "job:1", tenant: TenantId = TENANT, *channels: Channel) -> NewNotice:
    return NewNotice(
        tenant, NoticeKind.LAUNCH_DEAD, about, "it is dead", {"n": 1}, channels or (OPS,)
    )


def test_a_storm_is_summed_up(notices: NoticeBed) -> None:
    notices.add([a_notice()] * (MOST_A_MINUTE + 3))
    notices.add([a_notice("job:2"), a_notice("job:1", OTHER)])
    kept = notices.kept()
    assert [k.kind for k in kept].count("launch.dead") == MOST_A_MINUTE + 2
    assert [(k.kind, k.suppressed) for k in kept if k.suppressed] == [("notices.suppressed", 3)]
    first = notices.store.take(BOTH, 100, HOLD)
    assert [n.suppressed for n in first] == [0] * (MOST_A_MINUTE + 2)
    notices.launches.advance(130)
    later = notices.store.take([ChannelKind.WEBHOOK], 100, timedelta(hours=1))
    assert max(n.suppressed for n in later) == 3
    notices.add([a_notice()])
    assert [k.suppressed for k in notices.kept()].count(0) == MOST_A_MINUTE + 3


def test_tenants_go_in_turns(notices: NoticeBed) -> None:
    notices.add([a_notice(f"job:{i}") for i in range(4)])
    notices.launches.advance(1)
    notices.add([a_notice("job:x", OTHER)])
    taken = notices.store.take(BOTH, 2, HOLD)
    assert {n.tenant for n in taken} == {TENANT, OTHER}
    assert [n.attempts for n in taken] == [1, 1]
    assert len(notices.store.take(BOTH, 100, HOLD)) == 3
    assert notices.store.take(BOTH, 100, HOLD) == []


def test_the_oldest_of_a_tenant_go_first(notices: NoticeBed) -> None:
    for about in ("job:3", "job:1", "job:2"):
        notices.add([a_notice(about)])
        notices.launches.advance(1)
    taken = [n.about for _ in range(3) for n in notices.store.take(BOTH, 1, HOLD)]
    assert taken == ["job:3", "job:1", "job:2"]


def test_notices_of_a_tenant_that_is_suspended_wait(notices: NoticeBed) -> None:
    notices.add([a_notice(), a_notice("job:x", OTHER)])
    notices.suspend(TENANT)
    assert [n.tenant for n in notices.store.take(BOTH, 10, HOLD)] == [OTHER]
    notices.suspend(TENANT, over=True)
    assert [(n.tenant, n.attempts) for n in notices.store.take(BOTH, 10, HOLD)] == [(TENANT, 1)]


def test_a_tenant_gets_the_room_that_it_has(notices: NoticeBed) -> None:
    notices.add([a_notice(f"job:{i}") for i in range(4)])
    notices.launches.advance(1)
    notices.add([a_notice(f"job:x{i}", OTHER) for i in range(3)])
    first = notices.store.take(BOTH, 1, HOLD, TenantRoom(2, {TENANT: 1}))
    assert [n.tenant for n in first] == [OTHER]  # whose is younger, but has nothing out
    taken = notices.store.take(BOTH, 100, HOLD, TenantRoom(2, {TENANT: 1, OTHER: 1}))
    assert sorted(n.tenant for n in taken) == [TENANT, OTHER]
    full = TenantRoom(2, {TENANT: 2, OTHER: 5})
    assert notices.store.take(BOTH, 100, HOLD, full) == []
    assert len(notices.store.take(BOTH, 100, HOLD)) == 4


def test_each_kind_of_channel_is_for_those_who_can_send_it(notices: NoticeBed) -> None:
    notices.add([a_notice("job:1", TENANT, OPS, TOPIC)])
    (one,) = notices.store.take([ChannelKind.KAFKA], 10, HOLD)
    assert one.channel == TOPIC
    assert (one.text, one.data, one.about, one.kind) == (
        "it is dead",
        {"n": 1},
        "job:1",
        "launch.dead",
    )
    (two,) = notices.store.take([ChannelKind.WEBHOOK], 10, HOLD)
    assert two.channel == OPS
    assert two.id != one.id


def test_ends_of_deliveries(notices: NoticeBed) -> None:
    notices.add([a_notice("a"), a_notice("b"), a_notice("c")])
    a, b, c = sorted(notices.store.take(BOTH, 10, HOLD), key=lambda n: n.about)
    ends = [
        NoticeEnd(a.id, 1, delivered=True),
        NoticeEnd(b.id, 1, delivered=False, retry=timedelta(seconds=30), error="http_500"),
        NoticeEnd(c.id, 1, delivered=False, error="http_404"),
    ]
    assert notices.store.settle(ends) == 3
    assert notices.store.settle(ends) == 1  # the one that is pending is tried again anew
    states = sorted((k.state, k.error) for k in notices.kept())
    assert states == [("delivered", ""), ("given_up", "http_404"), ("pending", "http_500")]
    notices.launches.advance(31)
    (again,) = notices.store.take(BOTH, 10, HOLD)
    assert (again.id, again.attempts) == (b.id, 2)
    # What comes of the first try after that changes nothing.
    assert notices.store.settle([NoticeEnd(b.id, 1, delivered=True)]) == 0
    notices.launches.advance(61)
    (third,) = notices.store.take(BOTH, 10, HOLD)
    assert (third.id, third.attempts) == (b.id, 3)


def test_a_level_of_a_quota_goes_to_the_channels_of_its_tenant_once(notices: NoticeBed) -> None:
    bed = notices.launches
    owner = bed.owner()
    bed.set_quota(TENANT, Quota.LAUNCHES_PER_DAY, 2)
    bed.set_quota(OTHER, Quota.LAUNCHES_PER_DAY, 2)
    notices.tell_of_quotas(TENANT, OPS, TOPIC)
    for tenant in (TENANT, OTHER):
        for _ in range(3):
            make_job(bed, due_in=-1, tenant=tenant)
    owner.tick(OWNED, 100, StubPlanner())
    owner.tick(OWNED, 100, StubPlanner())
    assert [(k.kind, k.channel) for k in notices.kept()] == [
        ("quota.reached", "kafka:alerts"),
        ("quota.reached", "webhook:ops"),
    ]
    taken = notices.store.take(BOTH, 10, HOLD)
    assert {(n.tenant, n.about) for n in taken} == {(TENANT, "quota:launches_per_day")}
    assert {n.text for n in taken} == {"100 % of the quota launches_per_day are used: 2 of 2"}
    assert {n.data["quota"]["percent"] for n in taken} == {100}
