"""Notices kept and taken by several at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest
from tests.support.store_bed import TENANT, PostgresBed
from tests.support.until import until

from tickrail.core.on_failures import Channel, ChannelKind
from tickrail.core.ports_notice import MOST_A_MINUTE, NewNotice, NoticeKind
from tickrail.store.notices import PostgresNoticeStore, add_notices
from tickrail.store.session import Session

pytestmark = pytest.mark.integration
OPS = Channel(ChannelKind.WEBHOOK, "ops")
HOLD = timedelta(seconds=60)
WAITING = (
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    " and datname = current_database()"
)


def a_notice(about: str = "job:1") -> NewNotice:
    return NewNotice(TENANT, NoticeKind.LAUNCH_DEAD, about, "it is dead", {}, (OPS,))


@pytest.fixture
def sessions(bed: PostgresBed) -> Iterator[tuple[Session, Session]]:
    bed.conn.execute("insert into tenants (id, name) values (%s, 'one')", [TENANT])
    made = Session(bed.settings), Session(bed.settings)
    yield made
    for session in made:
        session.close()


def add(session: Session, *notices: NewNotice) -> None:
    with session.transaction() as cursor:
        add_notices(cursor, notices)


def waits(bed: PostgresBed, done: Future[None]) -> None:
    """Until the other one waits for a lock, or is through without."""
    until(lambda: done.done() or bed.value(WAITING) > 0, 30, 0.02)


def test_those_who_tell_of_one_job_count_one_after_the_other(
    bed: PostgresBed, sessions: tuple[Session, Session]
) -> None:
    first, second = sessions
    with ThreadPoolExecutor(1) as pool:
        with first.transaction() as cursor:
            add_notices(cursor, [a_notice()] * MOST_A_MINUTE)
            done = pool.submit(add, second, a_notice())
            waits(bed, done)
        done.result(30)
    kept = bed.conn.execute("select suppressed, count(*) from notices group by 1 order by 1")
    assert kept.fetchall() == [(0, MOST_A_MINUTE), (1, 1)]


def test_those_who_tell_of_many_jobs_wait_for_each_other_in_no_circle(
    bed: PostgresBed, sessions: tuple[Session, Session]
) -> None:
    first, second = sessions
    with ThreadPoolExecutor(1) as pool:
        with first.transaction() as cursor:
            add_notices(cursor, [a_notice("job:1")])
            done = pool.submit(add, second, a_notice("job:2"), a_notice("job:1"))
            waits(bed, done)
            add_notices(cursor, [a_notice("job:2")])
        done.result(30)
    assert bed.value("select count(*) from notices") == 4


def test_what_another_takes_at_this_moment_is_left_to_it(
    bed: PostgresBed, sessions: tuple[Session, Session]
) -> None:
    for about in ("job:1", "job:2", "job:3"):
        add(sessions[0], a_notice(about))
    store = PostgresNoticeStore(bed.settings)
    with bed.database.admin() as other, other.transaction(), ThreadPoolExecutor(1) as pool:
        other.execute("select from notices where about = 'job:2' for update")
        done = pool.submit(store.take, list(ChannelKind), 10, HOLD)
        until(lambda: done.done() or bed.value(WAITING) > 0, 30, 0.02)
        assert done.done(), "it waits for the one who holds a notice"
    assert sorted(n.about for n in done.result(30)) == ["job:1", "job:3"]
    assert [n.about for n in store.take(list(ChannelKind), 10, HOLD)] == ["job:2"]
    store.close()
