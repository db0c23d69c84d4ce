"""`settings` of the values: any setting, but for secrets and what the chart needs itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from tests.helm.conftest import CHART, SETS, Rendered, env_of, rendered

from tickrail.runtime.settings import variable_of
from tickrail.runtime.settings_fields import Settings

TAKEN = json.loads((CHART / "values.schema.json").read_text())["$defs"]["settings"]["properties"]
SET_BY_BOTH = {"TICKRAIL_LOG_FORMAT", "TICKRAIL_PREPARE_STATEMENTS", "TICKRAIL_TRACE_SAMPLE"}


def settings_in(values: dict[str, Any]) -> Iterator[str]:
    """The names under each `settings` of a set of values."""
    for key, value in values.items():
        if key == "settings":
            yield from value
        elif isinstance(value, dict):
            yield from settings_in(value)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("settings.TICKRAIL_STATUS_PORT=9999", "'TICKRAIL_STATUS_PORT' not allowed"),
        ("settings.TICKRAIL_DATABASE_URL=x", "'TICKRAIL_DATABASE_URL' not allowed"),
        ("settings.TICKRAIL_API_KEY=x", "'TICKRAIL_API_KEY' not allowed"),
        ("settings.TICKRAIL_NOPE=1", "at '/settings': additional properties 'TICKRAIL_NOPE'"),
        ("defaults.settings.TICKRAIL_NAME=x", "at '/defaults/settings'"),
        ("api.settings.TICKRAIL_API_PORT=81", "at '/api/settings'"),
        ("scheduler.settings.TICKRAIL_ETCD_PREFIX=/x/", "at '/scheduler/settings'"),
        ("worker.settings.TICKRAIL_KEY_PEPPER=x", "at '/worker/settings'"),
        ("worker.pools.a.settings.TICKRAIL_DRAIN_GRACE=600", "at '/worker/pools/a/settings'"),
        ("watchdog.settings.TICKRAIL_WATCHDOG_WEBHOOK=x", "at '/watchdog/settings'"),
    ],
)
def test_what_the_chart_needs_is_refused_by_its_name(
    refusal: Callable[..., str], given: str, named: str
) -> None:
    assert named in refusal("minimal", "--set", given)


def test_all_others_are_taken() -> None:
    """Judged by what the pods of the five sets are told beside the sets' own `settings`."""
    told = {n for name in SETS for pod in rendered(name).pods().values() for n in env_of(pod)}
    files = [yaml.safe_load((CHART / "ci" / name).read_text()) for name in SETS]
    asked = {n for values in files for n in settings_in(values)}
    secret = {n for n, info in Settings.model_fields.items() if not info.repr}
    known = {variable_of(n) for n in Settings.model_fields.keys() - secret}
    assert asked <= TAKEN.keys() <= known
    refused = known - TAKEN.keys()
    assert refused <= told | {"TICKRAIL_EGRESS_DENY"}
    assert TAKEN.keys() & told == asked | SET_BY_BOTH


def test_a_process_may_keep_more_traces_than_the_others(of: Callable[..., Rendered]) -> None:
    more = of("keda", "--set-string", "api.settings.TICKRAIL_TRACE_SAMPLE=1").pods()
    samples = {name: env_of(pod).get("TICKRAIL_TRACE_SAMPLE") for name, pod in more.items()}
    assert samples["t-tickrail-api"] == "1"
    assert samples["t-tickrail-scheduler"] == "0.1"
