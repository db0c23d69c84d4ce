from __future__ import annotations

from dataclasses import replace

from tests.support.stepped import Counted

from tickrail.core.ids import Epoch, Partition
from tickrail.engine.lease_watch import LeaseWatch
from tickrail.engine.ownership_state import OwnershipResult, OwnershipStatus

MEMBER = OwnershipStatus(
    identity="s-1", trusted=True, owned={Partition(1): Epoch(5)}, lease_remaining=6.0,
    members={"s-1": 1.0}, unowned=0, drained=False, drains_ignored=False, refused="",
    clock_skew=0.0,
)  # fmt: skip


class Steps:
    """An ownership whose state is set by the test, before and after each renewal."""

    def __init__(self) -> None:
        self.now = self.after = MEMBER
        self.result = OwnershipResult(frozenset(), frozenset(), 1.5)

    def run_once(self) -> OwnershipResult:
        return self.result

    def renew_once(self) -> float:
        self.now = self.after
        return 0.7

    def status(self) -> OwnershipStatus:
        return self.now


def counts(metrics: Counted) -> dict[tuple[str, ...], int]:
    return dict(metrics.counts)


def test_changes_are_counted_by_partition() -> None:
    steps, metrics = Steps(), Counted()
    watch = LeaseWatch(steps, metrics, 9.0)
    assert watch.run_once() == 1.5
    assert counts(metrics) == {}
    p = [Partition(n) for n in range(5)]
    steps.result = OwnershipResult(frozenset(p[:3]), frozenset(p[3:]), 0.5)
    assert watch.run_once() == 0.5
    assert counts(metrics) == {
        ("ownership_changes_total", "gained"): 3,
        ("ownership_changes_total", "lost"): 2,
    }


def test_a_lease_that_was_nearly_lost_is_counted_once_each_time() -> None:
    steps, metrics = Steps(), Counted()
    watch = LeaseWatch(steps, metrics, 9.0)
    for remaining, total in ((3.1, 0), (2.9, 1), (1.0, 1), (6.0, 1), (2.0, 2)):
        steps.now = steps.after = replace(MEMBER, lease_remaining=remaining)
        assert watch.renew_once() == 0.7
        assert metrics.counts["lease_nearly_lost_total",] == total, remaining
    assert metrics.counts["leases_lost_total",] == 0


def test_a_renewal_just_in_time_was_nearly_too_late() -> None:
    steps, metrics = Steps(), Counted()
    steps.now = replace(MEMBER, lease_remaining=0.5)
    LeaseWatch(steps, metrics, 9.0).renew_once()
    assert counts(metrics) == {("lease_nearly_lost_total",): 1}


def test_a_lease_is_lost_when_a_member_that_owns_is_none_or_another() -> None:
    steps, metrics = Steps(), Counted()
    watch = LeaseWatch(steps, metrics, 9.0)
    watch.renew_once()
    gone = replace(MEMBER, identity="", owned={}, lease_remaining=0.0, trusted=False)
    steps.after = gone
    watch.renew_once()
    assert counts(metrics) == {("leases_lost_total",): 1}
    steps.after = replace(MEMBER, identity="s-2", owned={})
    watch.renew_once()
    steps.after = replace(MEMBER, identity="s-3", owned={})
    watch.renew_once()
    assert counts(metrics) == {("leases_lost_total",): 1}, "one that owned nothing lost nothing"
