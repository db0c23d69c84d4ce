"""Faults that are planted into what a load test left: to see that each of them fails the run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import psycopg
from loadtest.receiver import Start

SOME = """
select id from launches
where origin = 'schedule' and state = 'succeeded' and job_id = any(%(jobs)s::uuid[])
order by id limit 1
"""
LAUNCHES = {
    "lost": f"delete from launches where id = ({SOME})",
    "doubled": (
        "insert into launches select (jsonb_populate_record(l,"
        " jsonb_build_object('id', gen_random_uuid()))).*"
        f" from launches l where id = ({SOME})"
    ),
}
"""What is done to the launch of one slot of the day."""
JOURNAL = ("forgotten", "twice")
"""What is done to one attempt that the receiver answered with 200: not noted, noted twice."""
PLANTS: Mapping[str, str] = {
    "lost": "lost", "doubled": "doubled", "forgotten": "effects", "twice": "once",
}  # fmt: skip
"""The faults, and the rule that each breaks."""


def plant_launch(url: str, what: str, jobs: Collection[str]) -> None:
    """Lose or double a launch of one of these jobs.

    Raises:
        ValueError: there is none.
    """
    with psycopg.connect(url) as conn:
        if conn.execute(LAUNCHES[what].encode(), {"jobs": list(jobs)}).rowcount != 1:
            raise ValueError(f"no launch to plant the fault {what}")


def plant_start(starts: Sequence[Start], what: str) -> list[Start]:
    """The receiver's journal with an attempt that was accepted left out, or there twice.

    Raises:
        ValueError: there is none.
    """
    at = next((n for n, start in enumerate(starts) if not start.failed), None)
    if at is None:
        raise ValueError(f"no attempt to plant the fault {what}")
    return [*starts[:at], *([starts[at]] * 2 if what == "twice" else []), *starts[at + 1 :]]
