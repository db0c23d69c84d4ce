"""Figures, bounds and reports of the load tests."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from loadtest import report
from loadtest.evidence import Drained, during, ends, lags, quantile, routes, series
from loadtest.load import bounds_of, command_of
from loadtest.machine import processor
from loadtest.plans import FULL, PLANS, herd_after, lasting
from loadtest.receiver import Manner, header
from loadtest.verdict import Launch
from tests.support.tree import ROOT

SLOT = 1_767_744_000


def launch(slot: int, lag: float, attempt: int = 1) -> Launch:
    at = float(slot)
    return Launch(
        "x", "j", "schedule", "succeeded", attempt, 0, 12, slot, at, at, at + lag, at + lag
    )


def result(**more: Any) -> dict[str, Any]:
    return {
        "name": "short",
        "what": "All <of> it.",
        "command": "make load",
        "at": "2026-01-07 10:00 UTC",
        "machine": {"processor": "A, 2 cores"},
        "thresholds": [{"text": "lag: 1 ms (at most 2 ms)", "kept": True}],
        "breaches": [],
        "counts": {"slots": 1000, "lost": 0},
        "figures": {"launches of the day": "10"},
        "series": {"due": [1.0, 2.0], "started": [1.0, 2.0], "lag": [10.0, 20.0]},
        "herd": [5.0, 3.0],
        "api": [{"name": "all", "requests": 5, "failed": 0, "p50": 1.0, "p99": 2.0, "max": 3.0}],
        "bounds": dict.fromkeys(
            ("launches", "commit_p50", "commit_p99", "produced", "consumed", "message_p50",
             "message_p99"), 1.0,
        ),
        **more,
    }  # fmt: skip


API = [{"name": "all", "requests": 10_000, "failed": 0, "p50": 10.0, "p99": 90.0, "max": 300.0}]
HERD = Drained(2000, SLOT, 2.0)


def broken(plan: str, **more: Any) -> set[str]:
    """The bounds that a run breaks, which is good but for what is given."""
    given: dict[str, Any] = {
        "of_day": [launch(SLOT, 0.1)] * 100,
        "herd": replace(HERD, launches=PLANS[plan].herd),
        "alone": HERD if PLANS[plan].alone else None,
        "api": API,
        **more,
    }
    return {t.what for t in bounds_of(PLANS[plan], **given) if not t.kept}


@pytest.mark.parametrize("plan", PLANS)
def test_a_good_run_keeps_every_bound(plan: str) -> None:
    assert broken(plan) == set()


@pytest.mark.parametrize(
    ("plan", "more", "what"),
    [
        ("day", {"of_day": [launch(SLOT, 1.5)] * 100}, "due -> start of the day's launches, p99"),
        ("day", {"api": [{**API[0], "failed": 1}]}, "requests that failed"),
        ("day", {"api": [{**API[0], "p99": 501.0}]}, "the API's answers, p99"),
        ("day", {"api": []}, "requests"),
        ("short", {"herd": replace(HERD, launches=1999)}, "launches of the herd"),
        (
            "short",
            {"of_day": [launch(SLOT, 0.1)] * 10_000 + [launch(SLOT + 9, 0.1)] * 2
             + [launch(SLOT + 1, 5.5)] * 200},
            "others' due -> start while the herd drained, p99",
        ),
        ("herd", {"of_day": [launch(SLOT, 0.1)] * 9}, "others' launches meanwhile"),
        (
            "herd",
            {"herd": Drained(100_000, SLOT, 100.0), "alone": Drained(100_000, SLOT, 79.0)},
            "the herd's rate, of that of a drain alone",
        ),
        ("herd", {"alone": Drained(0, SLOT, 1.0)}, "the herd's rate, of that of a drain alone"),
    ],
)  # fmt: skip
def test_a_bad_figure_breaks_its_bound(plan: str, more: dict[str, Any], what: str) -> None:
    assert what in broken(plan, **more)


def test_lags_are_those_of_first_attempts() -> None:
    found = lags([launch(SLOT, 0.1), launch(SLOT, 0.25), launch(SLOT, 9.0, attempt=2)], "started")
    assert found == {100.0: 1, 250.0: 1}
    assert lags([launch(SLOT, 0.1)._replace(started=None)], "started") == {}


def test_others_are_those_that_were_due_while_the_herd_drained() -> None:
    given = [launch(SLOT + n, 0.1) for n in (-1, 0, 2, 3)]
    assert [one.slot - SLOT for one in during(given, HERD)] == [0, 2]


@pytest.mark.parametrize(
    ("share", "time"), [(0.5, 10.0), (0.89, 10.0), (0.9, 10.0), (0.91, 20.0), (1, 30.0)]
)
def test_a_quantile_is_the_time_that_so_many_did_not_exceed(share: float, time: float) -> None:
    assert quantile({10.0: 90, 20.0: 9, 30.0: 1}, share) == time


def test_a_quantile_of_nothing_is_nothing() -> None:
    assert quantile({}, 0.99) == 0


def test_the_seconds_of_a_run() -> None:
    given = [launch(SLOT, 0.1), launch(SLOT, 1.4), launch(SLOT + 1, 3.0), launch(SLOT + 7, 0)]
    assert series(given, SLOT, 3) == {
        "due": [2.0, 1.0, 0.0],
        "started": [1.0, 1.0, 0.0],
        "lag": [1400.0, 3000.0, 0.0],
    }


def test_the_seconds_in_which_a_herd_ended() -> None:
    given = [launch(SLOT, lag) for lag in (0.2, 0.9, 2.0)] + [launch(SLOT + 1, 0.1)]
    assert ends([*given, launch(SLOT, 0)._replace(finished=None)], HERD) == [2.0, 0.0, 1.0]


def test_what_locust_says_is_summed_and_batches_do_not_count_as_waiting(tmp_path: Path) -> None:
    def entry(name: str, failed: int, times: dict[str, int]) -> dict[str, Any]:
        requests = sum(times.values())
        return {
            "name": name,
            "num_requests": requests,
            "num_failures": failed,
            "response_times": times,
        }

    file = tmp_path / "locust.json"
    batch = entry("POST /v1/jobs/batch", 1, {"900": 2})
    file.write_text(json.dumps([batch, entry("GET /v1/jobs", 0, {"10": 3, "20": 1})]))
    found = routes(file)
    assert [r["name"] for r in found[:2]] == ["GET /v1/jobs", "POST /v1/jobs/batch"]
    assert (found[-1]["requests"], found[-1]["failed"], found[-1]["max"]) == (6, 1, 20.0)
    assert routes(tmp_path / "none.json") == []


def test_a_refused_attempt_is_always_the_same_one() -> None:
    manner = Manner(0.1, 0.2)
    drawn = [manner.of(f"launch-{n}", 1) for n in range(5000)]
    assert drawn == [manner.of(f"launch-{n}", 1) for n in range(5000)]
    assert 0.18 < sum(failed for _, failed in drawn) / 5000 < 0.22
    assert all(0.05 <= seconds <= 0.15 for seconds, _ in drawn)
    assert abs(sum(seconds for seconds, _ in drawn) / 5000 - 0.1) < 0.005
    assert not any(Manner(0, 0).of(f"launch-{n}", 1)[1] for n in range(100))


def test_a_header_is_found_by_its_whole_name() -> None:
    head = b"post / http/1.1\r\nx-tickrail-attempt: 9\r\ntickrail-attempt: 2\r\nhost: a"
    assert header(head, b"tickrail-attempt") == "2"
    assert header(head, b"host") == "a"
    assert header(head, b"tickrail") == ""


def test_the_plots_are_drawings() -> None:
    lines = {"due": [0.0, 5.0, 10.0], "started": [0.0]}
    drawn = ET.fromstring(report.plot("Launches & more", "a second", lines))
    points = [e.attrib["points"].split() for e in drawn if e.tag.endswith("polyline")]
    assert [len(p) for p in points] == [3, 1]
    low, high = (float(p.split(",")[1]) for p in (points[0][0], points[0][2]))
    assert (low, high) == (report.HEIGHT - report.BOTTOM, report.TOP)
    assert "".join(drawn.itertext()).strip().startswith("Launches & more")
    assert ET.fromstring(report.plot("Nothing", "", {})) is not None


def test_the_page_tells_what_is_broken() -> None:
    good = report.page(result())
    assert "<strong>held</strong>" in good
    assert "All &lt;of&gt; it." in good
    assert good.count("<svg") == 3
    assert report.page(result(herd=[])).count("<svg") == 2
    bad = result(breaches=["lost: slot 1"], thresholds=[{"text": "lag 9", "kept": False}])
    assert "<strong>BROKEN: lost: slot 1; lag 9</strong>" in report.page(bad)


def test_a_run_takes_the_place_of_the_one_before() -> None:
    text = "a\n<!-- run: short -->\nold\n<!-- end: short -->\nb\n"
    once = report.put(text, "short", "new")
    assert once == "a\n<!-- run: short -->\nnew\n<!-- end: short -->\nb\n"
    assert report.put(once, "short", "new") == once
    with pytest.raises(ValueError, match="no place for the run day"):
        report.put(text, "day", "new")


def test_the_documents_have_a_place_for_every_run() -> None:
    text = (ROOT / "docs/performance.md").read_text()
    assert re.findall(r"<!-- run: (\w+) -->", text) == list(PLANS)
    for name in PLANS:
        assert "| bound |" in report.put(text, name, report.section(result(name=name)))


def test_a_broken_run_says_so_in_the_documents() -> None:
    bad = result(breaches=["lost: slot 1"], thresholds=[{"text": "lag 9", "kept": False}])
    said = report.section(bad)
    assert "| lag 9 | broken |" in said
    assert "- BROKEN: lost: slot 1" in said
    assert "No invariant" not in said


def test_a_processor_is_named_where_the_system_names_it() -> None:
    text = "processor\t: 0\nmodel name\t: Some Chip @ 2 GHz\nmodel name\t: Some Chip @ 2 GHz\n"
    assert processor(text) == "Some Chip @ 2 GHz"
    assert processor("") != ""


def test_a_shorter_run_has_as_many_slots_in_a_second_and_is_called_so() -> None:
    day = PLANS["day"]
    short = lasting(day, 360)
    assert (short.seconds, short.launches) == (360, day.launches // 10)
    assert lasting(day, day.seconds) == day
    assert command_of(short) == "make load ARGS='day --seconds 360'"
    assert command_of(day) == "make load ARGS='day'"
    assert command_of(PLANS["short"]) == "make load"


def test_every_herd_fits_into_its_run() -> None:
    assert set(FULL) <= set(PLANS)
    for plan in PLANS.values():
        assert herd_after(plan) + plan.herd / 2000 < plan.seconds
