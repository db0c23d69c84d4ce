"""The page of the measured failovers and its plot, from the results of the tries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.failover import KINDS, Kind, broken

Result = Mapping[str, Any]
Results = Mapping[str, Sequence[Result]]

NEIGHBOURS_BAR = 0.25
"""Seconds within which the 99th percentile of the neighbours stays, whatever it is normally."""
COLOURS = {
    "term": "#2a9d55",
    "leader": "#8a6d3b",
    "kill-6-2": "#7b5cc4",
    "kill": "#c0392b",
    "stop": "#1f6fb2",
    "kill-15-5": "#e08e0b",
}

METHOD = """
## How it is measured

- {partitions} partitions, in each a job that is due each second and runs `noop`; one worker. \
Servers on loopback that flush nothing to disk. Every slot counts: none may lack its launch, none \
have two, all launches must succeed.
- Triggers in PostgreSQL note each insert of launches, each update of launches and jobs by a \
scheduler, and each raise of a fence row: the clock at that moment, the connection's application \
name, the launch's epoch, and the fence row as it then was. A write is of a deposed epoch when the \
launch's epoch is not the one of the fence row, or the writer is not the process that the fence \
row names.
- A try begins when all members own partitions, none has moved for 2 s and each one launches. The \
fault follows 3 s later plus a random part of a renewal interval. Its proof: the exit code (-9), \
the state T of the process just after SIGSTOP and just before SIGCONT, 30 s later.
- SIGTERM is sent in the half second before a slot, since else the wait for the next slot is \
measured; half of the SIGSTOPs within 30 ms after a slot, when a transaction may be open.
- The partitions not hit are looked at from the fault until the last one hit launches again, and \
for 3 s at least.
- A rolling restart ends a member by SIGTERM, starts it, and goes on with the next one as soon as \
`/readyz` says 200.
- Leader loss: three etcd nodes; the leader is killed, and started again 5 s after the others' \
leases would have ended.

## The commands

```sh
make failover-report    # all of it, 80 minutes; goes on where it was ended
.venv/bin/python -m loadtest.failover --only stop --results DIR    # one kind, beside others
.venv/bin/python -m loadtest.failover --tries 0 --results DIR --page docs    # only this page
```

`tests/fault/test_failover.py` makes two tries of each kind at the default lease with each change.
"""


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def whole(results: Sequence[Result]) -> list[Result]:
    """Those that came to their end."""
    return [one for one in results if "error" not in one]


def neighbours(results: Sequence[Result]) -> tuple[float, float, int] | None:
    """Due -> record of the partitions not hit: p99 normally, p99 meanwhile, slots meanwhile."""
    during = [delay for one in results for delay in one.get("neighbours", [])]
    normal = [delay for one in results for delay in one["normal"]]
    if not during or not normal:
        return None
    return quantile(normal, 0.99), quantile(during, 0.99), len(during)


def late_neighbours(found: Results) -> list[str]:
    """The kinds of faults that the neighbours noticed, in words."""
    wrong = []
    for name, results in found.items():
        seen = neighbours(whole(results))
        if seen and seen[1] > max(2 * seen[0], NEIGHBOURS_BAR):
            wrong.append(f"{name}: neighbours' p99 {seen[1]:.3f} s, normally {seen[0]:.3f} s")
    return wrong


# -- the tables ------------------------------------------------------------------------------------


def seconds(values: Sequence[float], *shares: float) -> str:
    """These quantiles, in seconds."""
    return " / ".join(f"{quantile(values, share):.2f}" for share in shares)


def row(kind: Kind, results: Sequence[Result]) -> str:
    """A line of the first table."""
    done = whole(results)
    last = [one["last"] for one in done]
    first = [one["times"][0] for one in done]
    bad = sum(1 for one in results if "error" in one or broken(one))
    return (
        f"| {kind.title} | {kind.ttl} / {kind.renew} s | {kind.members} | {len(results)}"
        f" | {seconds(first, 0.5, 0.99, 1)} | **{seconds(last, 0.5, 0.99, 1)}**"
        f" | {kind.bar:g} s | {f'broken in {bad}' if bad else 'held in all'} |"
    )


def account(found: Results) -> list[str]:
    """What the checks over all tries say."""
    done = [one for results in found.values() for one in whole(results)]
    sums = {
        name: sum(one[name] for one in done)
        for name in ("launches", "lost", "doubled", "unfinished", "deposed")
    }
    lines = [
        f"""\
In all {len(done)} tries {sums["launches"]:,} slots were due. Without a launch: {sums["lost"]}; \
with two: {sums["doubled"]}; launches that did not succeed: {sums["unfinished"]}; writes of a \
deposed epoch, or of a process that is not the owner in the fence row: {sums["deposed"]}."""
    ]
    if stopped := whole(found.get("stop", ())):
        opened = sum(1 for one in stopped if one["open"])
        lines.append(
            f"\nOf the {len(stopped)} processes that were frozen for 30 s, {opened} had a"
            " transaction open at that moment (the server ends one that is idle after 2 s). Each of"
            " them, woken up, found its window over, said so, and entered as a new member."
        )
    if lost := whole(found.get("leader", ())):
        moved = sum(one["moved"] for one in lost)
        late = max(one["slowest"] for one in lost)
        lines.append(
            f"\nAfter the loss of etcd's leader the leases live on: {moved} partitions changed"
            f" their owner in {len(lost)} tries, and no slot was later than {late:.2f} s. What the"
            " table shows is the wait for the next slot."
        )
    return lines


def smooth(found: Results) -> list[str]:
    """The second table: what planned work and others' faults do to slots."""
    lines: list[str] = []
    if term := whole(found.get("term", ())):
        times = [time for one in term for time in one["times"]]
        raised = [one["raised"] for one in term]
        lines += [
            f"""\
| SIGTERM of one of two members, {len(times):,} partitions handed over: signal -> first launch by \
the next owner, p50 / p99 / max | {seconds(times, 0.5, 0.99, 1)} s | p99 1 s |""",
            f"""\
| the same: signal -> the last fence row is the next owner's, p50 / p99 / max \
| {seconds(raised, 0.5, 0.99, 1)} s | |""",
        ]
    if rolling := whole(found.get("rolling", ())):
        late = [one["slowest"] for one in rolling]
        took = [one["seconds"] for one in rolling]
        lines.append(
            f"| rolling restart of all three, {len(rolling)} times, {min(took):.0f} to"
            f" {max(took):.0f} s each: due -> record, the latest slot of each, p50 / max"
            f" | {seconds(late, 0.5, 1)} s | 2 s |"
        )
    for name, results in found.items():
        seen = neighbours(whole(results))
        if seen is None:
            continue
        kind = KINDS[name]
        normal, during, slots = seen
        bar = max(2 * normal, NEIGHBOURS_BAR)
        lines.append(
            f"| partitions not hit, {kind.title} ({kind.ttl} / {kind.renew} s): due -> record, p99"
            f" normally / meanwhile ({slots:,} slots) | {normal * 1000:.0f} /"
            f" {during * 1000:.0f} ms | {bar * 1000:.0f} ms{', broken' if during > bar else ''} |"
        )
    return lines


def servers(found: Results) -> str:
    """Which servers ran."""
    versions: dict[str, set[str]] = {}
    for results in found.values():
        for one in whole(results):
            for server, version in one["servers"].items():
                versions.setdefault(server, set()).add(version)
    return ", ".join(f"{server} {' and '.join(sorted(v))}" for server, v in versions.items())


def write_page(folder: Path, found: Results, *, cores: int, remark: str = "") -> None:
    """Write failover.md and failover.svg into the folder.

    Args:
        folder: where to.
        found: the tries by the name of their kind.
        cores: of the machine that they ran on.
        remark: what is to be said besides about these tries.
    """
    done = [one for results in found.values() for one in whole(results)]
    dates = sorted(one["at"][:16].replace("T", " ") for one in done)
    loads = [one["load"] for one in done]
    faults = [
        row(kind, found[name])
        for name, kind in KINDS.items()
        if name in found and name != "rolling" and whole(found[name])
    ]
    nice = min(one["nice"] for one in done)
    priority = f", at a higher priority than the rest (nice {nice})" if nice < 0 else ""
    head = f"""\
# Failover, measured

How long after a fault the partitions that it hit launch again, on real servers and real \
processes, with the lease that a scheduler has by default (10 s, renewed every 3 s) and with two \
others. `make failover-report` makes this page.

{len(done)} tries, {dates[0]} to {dates[-1]} UTC, on {cores} cores that everything shares. \
{servers(found)}. The load average when the faults were made was {min(loads):.1f} to \
{max(loads):.1f}: the machine did other work besides, and kinds of tries ran side by side\
{priority}.

![Share of tries after which all partitions hit launch again, by seconds](failover.svg)

Seconds from the fault to the next launch record of a partition that the hit process owned: of \
the first such partition and of the last one. A launch counts when a later owner made it. The p99 \
of 50 tries is their largest.

| fault | lease / renewal | members | tries | first, p50 / p99 / max | last, p50 / p99 / max \
| bar for the last | in these tries |
|---|---|---|---|---|---|---|---|
"""
    text = "\n".join(
        [
            head + "\n".join(faults),
            "",
            *account(found),
            "",
            "## What others notice, and planned work",
            "",
            "| what | figure | bar |",
            "|---|---|---|",
            *smooth(found),
            *(["", remark] if remark else []),
            METHOD.format(partitions=max(one["partitions"] for one in done)),
        ]
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "failover.md").write_text(text)
    (folder / "failover.svg").write_text(plot(found))


# -- the plot --------------------------------------------------------------------------------------

WIDTH, HEIGHT = 1000, 400
LEFT, RIGHT, TOP, BOTTOM = 56, 350, 20, 52


def plot(found: Results) -> str:
    """The share of tries that were over after so many seconds: a step line for each kind."""
    lines = {
        name: sorted(one["last"] for one in whole(found[name]))
        for name in COLOURS
        if name in found and whole(found[name])
    }
    end = max(2 * math.ceil(max(max(values) for values in lines.values()) / 2 + 0.1), 4)

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / end

    def y(share: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tick in range(0, end + 1, 1 if end <= 8 else 2):
        parts += [
            f'<path d="M{x(tick):.1f} {y(0)}V{y(1)}" stroke="#ddd"/>',
            f'<text x="{x(tick):.1f}" y="{y(0) + 18}" text-anchor="middle">{tick}</text>',
        ]
    for percent in range(0, 101, 25):
        height = y(percent / 100)
        parts += [
            f'<path d="M{LEFT} {height:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>',
            f'<text x="{LEFT - 8}" y="{height + 4:.1f}" text-anchor="end">{percent}%</text>',
        ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">seconds from the fault until'
        " all partitions that it hit launch again</text>"
    )
    for place, (name, values) in enumerate(lines.items()):
        path = f"M{x(0):.1f} {y(0):.1f}"
        for n, value in enumerate(values, 1):
            path += f"H{x(value):.1f}V{y(n / len(values)):.1f}"
        path += f"H{x(end):.1f}"
        kind = KINDS[name]
        lease = "" if name in {"term", "leader"} else f", lease {kind.ttl} / {kind.renew} s"
        left, height = WIDTH - RIGHT + 20, TOP + 16 + 24 * place
        said = f"{kind.title}{lease} ({len(values)})"
        parts += [
            f'<path d="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>',
            f'<path d="M{left} {height - 4}h20" stroke="{COLOURS[name]}" stroke-width="3"/>',
            f'<text x="{left + 28}" y="{height}">{said}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
