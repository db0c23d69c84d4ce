"""The load tests by name: what each loads the installation with, and which bounds it must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Plan:
    """One load test.

    Attributes:
        name: by which it is asked for.
        what: it is, in a sentence.
        seconds: of traffic; the day of the corpus is made so long.
        tenants: of unequal size, the n-th has 1/n of the first one's jobs and users.
        users: of Locust, besides those that make the herd.
        wait: seconds that a user waits between two tasks, from and to.
        launches: slots of the day, together.
        webhooks: share of the day's jobs that call the receiver; the others do nothing.
        herd: one-off jobs of one more tenant that are due at one second.
        alone: drain as large a herd again, with nothing besides, to compare.
        bare: launches and messages of the bounds of PostgreSQL and Kafka.
        max_lag_p99: milliseconds from due to the start of the day's launches.
        max_api_p99: milliseconds of the requests.
        min_drain: the herd's launches a second, as a share of the drain alone.
        apis: API processes.
    """

    name: str
    what: str
    seconds: int
    tenants: int
    users: int
    wait: tuple[float, float]
    launches: int
    webhooks: float = 0.2
    herd: int = 0
    alone: bool = False
    bare: int = 50_000
    max_lag_p99: float = 1000.0
    max_api_p99: float = 500.0
    min_drain: float = 0.8
    apis: int = 1


PLANS: Mapping[str, Plan] = {
    plan.name: plan
    for plan in (
        Plan(
            "short",
            "All of it, small: users of the API, a day in half a minute, a herd.",
            seconds=30, tenants=8, users=6, wait=(0.2, 0.6), launches=1500, herd=2000,
            bare=20_000, max_lag_p99=5000.0, max_api_p99=2000.0,
        ),
        Plan(
            "api",
            "Users of the API at work for five minutes, over 100 tenants of unequal size.",
            seconds=300, tenants=100, users=40, wait=(0.2, 0.8), launches=15_000, apis=2,
        ),
        Plan(
            "herd",
            "100,000 jobs of one tenant due at one second, others' jobs meanwhile.",
            seconds=180, tenants=10, users=2, wait=(0.5, 1.5), launches=3600, herd=100_000,
            alone=True,
        ),
        Plan(
            "day",
            "A day of schedules found in the wild, made an hour long.",
            seconds=3600, tenants=50, users=4, wait=(0.5, 1.5), launches=500_000,
        ),
    )
}  # fmt: skip
FULL = ("api", "herd", "day")
"""Those of `make load-full`, in this order."""
CREATED_A_SECOND = 1500
"""Jobs of the herd that the API makes a second at least, by batches; the herd waits as long."""
LEAD = 8
"""Seconds that Locust needs before its users are there."""


def herd_after(plan: Plan) -> int:
    """Seconds from the begin of the traffic to the second of the herd."""
    return LEAD + -(-plan.herd // CREATED_A_SECOND)


def lasting(plan: Plan, seconds: int) -> Plan:
    """The same plan for so many seconds, with as many slots in each of them."""
    if seconds == plan.seconds:
        return plan
    return replace(
        plan,
        what=f"{plan.what} Here {seconds} s instead of {plan.seconds}.",
        seconds=seconds,
        launches=plan.launches * seconds // plan.seconds,
    )
