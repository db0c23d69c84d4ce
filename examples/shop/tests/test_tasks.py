"""The shop's tasks and jobs, without any server."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from shop.tasks import app, check_prices, daily_report, forecast, import_orders
from tickrail.sdk.testing import FakeClock, run, run_job

JOBS = sorted((Path(__file__).parent.parent / "jobs").glob("*.yaml"))
WEDNESDAY = datetime(2026, 3, 4, 1, tzinfo=UTC)


def test_the_report_is_of_the_day_of_its_slot() -> None:
    found = run(daily_report, {"currency": "CHF"}, clock=FakeClock(WEDNESDAY))
    assert found.value == {"day": "wed", "orders": 3, "total": "68.40", "currency": "CHF"}
    assert found.log == ["3 orders on wed"]


def test_an_import_tells_how_far_it_is() -> None:
    found = run(import_orders)
    assert found.value == {"imported": 10}
    assert found.progress[0] == {"done": 0, "of": 10}
    assert found.progress[-1] == {"done": 10, "of": 10}


def test_an_import_that_is_cancelled_stops_between_two_orders() -> None:
    found = run(import_orders, {"pause": 60}, timeout=3600, cancel_after=150)
    assert found.state == "cancelled"
    assert found.log == ["stopped after 2: cancelled"]


def test_an_import_without_its_file_is_not_tried_again() -> None:
    found = run(import_orders, {"file": "absent.csv"})
    assert (found.state, found.outcome) == ("dead", "raised_Fail")
    assert len(found.attempts) == 1


def test_prices_are_asked_for_again_when_the_supplier_is_busy() -> None:
    clock = FakeClock()
    found = run(check_prices, {"skus": ["tea", "cup"]}, clock=clock)
    assert found.value == {"tea": "3.99", "cup": "3.99"}
    assert [attempt.outcome for attempt in found.attempts] == ["raised_Retry", "ok"]
    assert 3 < clock.monotonic() < 4


def test_a_forecast_counts_every_round() -> None:
    found = run(forecast, {"rounds": 100})
    assert sum(found.value.values()) == 110


@pytest.mark.parametrize("file", JOBS, ids=lambda file: file.stem)
def test_each_job_calls_a_task_with_what_it_takes(file: Path) -> None:
    document = yaml.safe_load(file.read_text())
    assert document["name"] == file.stem
    assert run_job(app, document).state == "succeeded"
