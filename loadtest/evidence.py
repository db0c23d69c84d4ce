"""What a load test left: read from the database and from Locust, and turned into figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from loadtest.receiver import Start
from loadtest.verdict import Facts, Launch

LAUNCHES = """
select id::text, job_id::text, origin, state, attempt, failures, max_attempts,
       extract(epoch from scheduled_at)::bigint, extract(epoch from due_at)::float8,
       extract(epoch from created_at)::float8, extract(epoch from started_at)::float8,
       extract(epoch from finished_at)::float8
from launches
"""
SKIPPED = "select job_id::text, sum(count)::bigint from skips group by 1"
VERSIONS = """
select j.id::text, count(*), extract(epoch from j.created_at)::float8
from jobs j join job_versions v on v.job_id = j.id group by j.id
"""
Route = Mapping[str, Any]


def facts(
    url: str,
    expected: dict[str, set[int]],
    last: int,
    said: Sequence[Mapping[str, Any]],
    starts: Sequence[Start],
    webhooks: Collection[str],
) -> Facts:
    """Read the database."""
    with psycopg.connect(url) as conn:
        launches = [Launch(*row) for row in conn.execute(LAUNCHES.encode())]
        skipped = {job: int(n) for job, n in conn.execute(SKIPPED.encode())}
        rows = conn.execute(VERSIONS.encode()).fetchall()
    created = {one["job"] for one in said if one["what"] == "created"}
    return Facts(
        expected,
        {job: made for job, _, made in rows if job in created},
        last,
        launches,
        skipped,
        {job: int(n) for job, n, _ in rows},
        said,
        starts,
        frozenset(webhooks),
    )


# -- figures ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drained:
    """A herd: how many had ended, the second at which it was due, the seconds that it took."""

    launches: int
    due: int
    seconds: float

    @property
    def rate(self) -> float:
        """Launches a second."""
        return self.launches / self.seconds if self.launches else 0.0


def drained(launches: Sequence[Launch], due: datetime) -> Drained:
    """How these launches, all due at one second, drained."""
    at = int(due.timestamp())
    ends = [one.finished for one in launches if one.state == "succeeded" and one.finished]
    return Drained(len(ends), at, max(max(ends, default=at) - at, 0.001))


def quantile(times: Mapping[float, int], share: float) -> float:
    """The time that this share of what was counted did not exceed; 0 where there is nothing."""
    left = share * sum(times.values())
    for time in sorted(times):
        left -= times[time]
        if left <= 0:
            return time
    return 0.0


def lags(launches: Sequence[Launch], of: str) -> Counter[float]:
    """Milliseconds from due to `created`, `started` or `finished`, of first attempts, counted.

    Those that failed are left out, since a retry has a due time and a start of its own. What fails
    is drawn by chance, so the others stand for all.
    """
    ends = [(one, getattr(one, of)) for one in launches if one.attempt == 1]
    return Counter(round((end - one.slot) * 1000, 1) for one, end in ends if end is not None)


def during(launches: Sequence[Launch], herd: Drained) -> list[Launch]:
    """Those that were due while a herd drained."""
    return [one for one in launches if herd.due <= one.slot <= herd.due + herd.seconds]


def quantiles(times: Mapping[float, int]) -> str:
    """p50, p95, p99 and the largest, in words."""
    cuts = " / ".join(f"{quantile(times, share):,.0f}" for share in (0.5, 0.95, 0.99, 1))
    return f"{cuts} ms"


def figures(
    of_day: Sequence[Launch],
    herd: Drained | None,
    alone: Drained | None,
    spent: Mapping[str, float],
    seconds: float,
) -> dict[str, str]:
    """What was measured, in words."""
    names = {"created": "due -> record", "started": "due -> start", "finished": "due -> finish"}
    found = {"launches of the day": f"{len(of_day):,}"}
    for column, name in names.items():
        found[f"{name}, p50 / p95 / p99 / max"] = quantiles(lags(of_day, column))
    if herd:
        found[f"a herd of {herd.launches:,} drained at"] = f"{herd.rate:,.0f}/s"
        others = during(of_day, herd)
        found[
            f"others' due -> start meanwhile ({len(others):,} launches), p50 / p95 / p99 / max"
        ] = quantiles(lags(others, "started"))
    if alone:
        found["as large a herd with nothing besides"] = f"{alone.rate:,.0f}/s"
    shares = ", ".join(f"{n} {s / seconds:.2f}" for n, s in spent.items())
    found["cores used, on average"] = shares
    return found


def series(launches: Sequence[Launch], start: int, seconds: int) -> dict[str, list[float]]:
    """By the second: launches due and started, and the largest lag in ms."""
    found = {name: [0.0] * seconds for name in ("due", "started", "lag")}
    for one in launches:
        due = one.slot - start
        if not 0 <= due < seconds:
            continue
        found["due"][due] += 1
        if one.started is None or one.attempt > 1:
            continue
        found["lag"][due] = max(found["lag"][due], round((one.started - one.slot) * 1000, 1))
        begun = int(one.started) - start
        if 0 <= begun < seconds:
            found["started"][begun] += 1
    return found


def ends(launches: Sequence[Launch], herd: Drained) -> list[float]:
    """Launches of a herd that ended, by the second from its due one on."""
    found = [0.0] * (int(herd.seconds) + 1)
    for one in launches:
        after = int(one.finished) - herd.due if one.finished is not None else -1
        if one.slot == herd.due and 0 <= after < len(found):
            found[after] += 1
    return found


# -- Locust ----------------------------------------------------------------------------------------


def routes(file: Path) -> list[Route]:
    """What Locust measured, by route, the sum of all last; nothing where it wrote nothing.

    The sum's times leave batches out: nobody waits for a thousand jobs as for one.
    """
    stats = json.loads(file.read_text("utf-8")) if file.exists() else []
    found = list(_by_route(stats))
    if not found:
        return []
    whole: Counter[float] = Counter()
    for name, _, _, times in found:
        if "batch" not in name:
            whole.update(times)
    found.append(
        ("all; times without batches", sum(f[1] for f in found), sum(f[2] for f in found), whole)
    )
    return [
        {
            "name": name,
            "requests": requests,
            "failed": failed,
            "p50": quantile(times, 0.5),
            "p99": quantile(times, 0.99),
            "max": max(times, default=0.0),
        }
        for name, requests, failed, times in found
    ]


def _by_route(stats: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, int, int, Counter[float]]]:
    for entry in sorted(stats, key=lambda e: str(e["name"])):
        times = Counter({float(ms): int(n) for ms, n in entry["response_times"].items()})
        yield entry["name"], entry["num_requests"], entry["num_failures"], times
