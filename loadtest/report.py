"""The reports of a load test: an HTML page with plots, and its part of docs/performance.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

Result = Mapping[str, Any]
WIDTH, HEIGHT = 1000, 260
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 30, 40
COLOURS = ("#1f6fb2", "#c0392b", "#2a9d55")
TICKS = 5
PAGE = "performance.md"


def plot(title: str, unit: str, lines: Mapping[str, Sequence[float]]) -> str:
    """Lines over the seconds of a run, as SVG: one value a second."""
    seconds = max((len(values) for values in lines.values()), default=0)
    top = max((v for values in lines.values() for v in values), default=0.0) or 1.0

    def x(second: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * second / max(1, seconds - 1)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top

    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
            f' font-family="sans-serif" font-size="12" role="img" aria-label="{escape(title)}">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="16" font-weight="bold">{escape(title)}</text>',
    ]
    for n in range(TICKS):
        value, second = top * n / (TICKS - 1), (seconds - 1) * n / (TICKS - 1)
        parts += [
            f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>',
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.4g}</text>',
            (
                f'<text x="{x(second):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">'
                f"{max(0, second):.0f} s</text>"
            ),
        ]
    for n, (name, values) in enumerate(lines.items()):
        colour = COLOURS[n % len(COLOURS)]
        points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(values))
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
            (
                f'<text x="{LEFT + 180 * n}" y="{HEIGHT - 6}" fill="{colour}">'
                f"{escape(name)}, {escape(unit)}</text>"
            ),
        ]
    return "\n".join([*parts, "</svg>"])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of HTML."""
    line = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows
    )
    return f"<table>\n<tr>{line}</tr>\n{body}</table>"


def page(result: Result) -> str:
    """The HTML page of a run."""
    broken = [*result["breaches"], *(t["text"] for t in result["thresholds"] if not t["kept"])]
    state = "held" if not broken else "BROKEN: " + "; ".join(broken)
    series = result["series"]
    parts = [
        "<!doctype html>",
        f'<html lang="en"><meta charset="utf-8"><title>Load test {escape(result["name"])}</title>',
        (
            "<style>body{font-family:sans-serif;max-width:1000px;margin:2em auto}"
            "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:2px 8px;"
            "text-align:left}</style>"
        ),
        f"<h1>Load test {escape(result['name'])}</h1>",
        f"<p>{escape(result['what'])} {escape(result['at'])}.</p>",
        f"<p><strong>{escape(state)}</strong></p>",
        "<h2>Thresholds</h2>",
        table(
            ["", "figure and bound"],
            [["kept" if t["kept"] else "BROKEN", t["text"]] for t in result["thresholds"]],
        ),
        "<h2>Invariants</h2>",
        table(["rule", "breaches, or how many were looked at"], _pairs(result["counts"])),
        "<h2>Over time</h2>",
        plot(
            "The day's launches",
            "a second",
            {"due": series["due"], "started": series["started"]},
        ),
        plot("Lag of the day's launches", "ms", {"due to start, largest": series["lag"]}),
        *(
            [plot("The herd, from the second at which it is due", "a second", {"ended": herd})]
            if (herd := result["herd"])
            else []
        ),
        "<h2>Figures</h2>",
        table(["what", "figure"], _pairs(result["figures"])),
        "<h2>The API, by route</h2>",
        table(API_HEAD, api_rows(result["api"])),
        "<p><a href='locust.html'>Locust's own report</a></p>",
        "<h2>Bare servers, same run</h2>",
        table(["what", "figure"], _pairs(bound_figures(result["bounds"]))),
        "<h2>Machine</h2>",
        table(["what", ""], _pairs(result["machine"])),
        "</html>",
    ]
    return "\n".join(parts) + "\n"


API_HEAD = ("route", "requests", "failed", "p50 ms", "p99 ms", "max ms")


def api_rows(routes: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A row for each route of the API."""
    return [
        [r["name"], f"{r['requests']:,}", f"{r['failed']:,}", *(f"{r[k]:,.0f}" for k in KEYS)]
        for r in routes
    ]


KEYS = ("p50", "p99", "max")


def bound_figures(bounds: Mapping[str, float]) -> dict[str, str]:
    """The bounds in words."""
    return {
        "PostgreSQL alone, launch records through all their writes": f"{bounds['launches']:,.0f}/s",
        "PostgreSQL alone, a transaction of one row, p50 / p99": (
            f"{bounds['commit_p50']:.2f} / {bounds['commit_p99']:.2f} ms"
        ),
        "Kafka alone, messages produced": f"{bounds['produced']:,.0f}/s",
        "Kafka alone, messages consumed": f"{bounds['consumed']:,.0f}/s",
        "Kafka alone, a message to its acknowledgement, p50 / p99": (
            f"{bounds['message_p50']:.2f} / {bounds['message_p99']:.2f} ms"
        ),
    }


def _pairs(values: Mapping[str, object]) -> list[list[str]]:
    return [[key, f"{v:,}" if isinstance(v, int) else str(v)] for key, v in values.items()]


# -- docs/performance.md ---------------------------------------------------------------------------


def section(result: Result) -> str:
    """The part of the page that tells of a run."""
    machine = ", ".join(f"{key}: {value}" for key, value in result["machine"].items())
    kept = [f"| {t['text']} | {'kept' if t['kept'] else 'broken'} |" for t in result["thresholds"]]
    breaches = [f"- BROKEN: {what}" for what in result["breaches"]]
    routes = [f"| {' | '.join(row)} |" for row in api_rows(result["api"])]
    return "\n".join(
        [
            f"`{result['command']}`, {result['at']}.",
            "",
            machine[:1].upper() + machine[1:] + ".",
            "",
            "| bound | |",
            "|---|---|",
            *kept,
            "",
            *(breaches or ["No invariant was broken."]),
            "",
            "| what | figure |",
            "|---|---|",
            *(f"| {key} | {value} |" for key, value in result["figures"].items()),
            *(f"| {key} | {value} |" for key, value in bound_figures(result["bounds"]).items()),
            "",
            f"| {' | '.join(API_HEAD)} |",
            f"|{'---|' * len(API_HEAD)}",
            *routes,
        ]
    )


def summary(result: Result) -> str:
    """The figures of a run, a line each."""
    lines = [*result["figures"].items(), *bound_figures(result["bounds"]).items()]
    lines += [(t["text"], "kept" if t["kept"] else "BROKEN") for t in result["thresholds"]]
    return "\n  ".join([result["at"], *(f"{key}: {value}" for key, value in lines)])


def put(text: str, name: str, new: str) -> str:
    """The page's text with a run's part in place of the one between its marks.

    Raises:
        ValueError: the marks of this run are not there.
    """
    begin, end = f"<!-- run: {name} -->", f"<!-- end: {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no place for the run {name}: {begin} ... {end}")
    return f"{before}{begin}\n{new}\n{end}{after}"


def write(folder: Path, result: Result, docs: Path | None) -> None:
    """Write the HTML page into a folder, and the run's part into docs/performance.md."""
    (folder / "report.html").write_text(page(result), "utf-8")
    if docs is not None:
        file = docs / PAGE
        file.write_text(put(file.read_text("utf-8"), result["name"], section(result)), "utf-8")
