"""Traces: off unless asked for, sampled, and their ids in the log."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
import structlog
from tests.support.collector import Collector
from tests.support.until import until

from tickrail.core.errors import SettingsError
from tickrail.core.ports_tracing import NO_TRACER, NOTHING, SpanKind, trace_fields
from tickrail.runtime import log
from tickrail.runtime.settings_fields import Settings
from tickrail.runtime.tracing import Tracing, start_tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOT_KEPT = PARENT[:-1] + "0"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as found:
        yield found


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    out = io.StringIO()
    log.configure("json", "info", "here", stream=out)
    yield out
    root.handlers[:], _ = handlers, root.setLevel(level)
    structlog.configure(**before)
    logging.captureWarnings(capture=False)


def tracing(collector: Collector, sample: float = 1.0, headers: str = "") -> Tracing:
    settings = Settings(
        trace_endpoint=collector.endpoint, trace_sample=sample, trace_headers=headers, name="w-1"
    )
    return start_tracing(settings, "worker")


def test_without_an_endpoint_there_are_none() -> None:
    found = start_tracing(Settings(trace_sample=1), "worker")
    assert (found.tracer, found.on, found.trace_id()) == (NO_TRACER, False, None)
    found.close()


def test_a_missing_package_and_a_bad_header_are_said_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Settings(trace_endpoint="http://127.0.0.1:1/v1/traces", trace_headers="a")
    with pytest.raises(SettingsError, match="not right") as wrong:
        start_tracing(asked, "api")
    assert [p.pointer for p in wrong.value.problems] == ["trace_headers"]
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(SettingsError, match="OpenTelemetry") as missing:
        start_tracing(Settings(trace_endpoint="http://127.0.0.1:1/v1/traces"), "api")
    assert "tickrail[tracing]" in missing.value.problems[0].expected


def test_what_a_caller_keeps_is_kept_and_what_nobody_samples_is_nothing(
    collector: Collector,
) -> None:
    found = tracing(collector, sample=0)
    tracer = found.tracer
    assert tracer.root("a") is NOTHING
    assert tracer.begin("a", None) is NOTHING
    assert tracer.begin("a", None, SpanKind.SERVER) is NOTHING
    assert tracer.begin("a", NOT_KEPT) is NOTHING
    assert tracer.begin("a", "no context") is NOTHING
    span = tracer.begin("a", PARENT, links=[None, PARENT], launch="7", job_name="j", code=None)
    assert span.traceparent is not None
    assert span.traceparent.split("-")[1] == PARENT.split("-")[1]
    span.end("it failed")
    span.end()  # a second time changes nothing
    found.close()
    (kept,) = collector.spans
    assert (kept.parent, kept.error, kept.service) == (
        PARENT[36:52],
        "it failed",
        "tickrail-worker",
    )
    assert kept.attributes == {"tickrail.launch": "7", "tickrail.job.name": "j"}
    assert kept.links == [(PARENT[3:35], PARENT[36:52])]


def test_every_trace_is_kept_where_all_are_sampled(collector: Collector) -> None:
    found = tracing(collector, headers="x-key = a=b, other=c")
    span = found.tracer.root("schedule", job="j")
    assert trace_fields(span.traceparent).keys() == {"trace_id", "span_id"}
    span.end()
    found.close()
    until(lambda: collector.spans)
    assert collector.spans[0].parent == ""
    assert (collector.headers[0]["x-key"], collector.headers[0]["other"]) == ("a=b", "c")


def test_log_lines_carry_the_ids_of_what_they_are_about(
    collector: Collector, logged: io.StringIO
) -> None:
    found = tracing(collector)
    logger = structlog.get_logger("x")
    logger.info("outside")
    request = found.tracer.begin("GET /", None, SpanKind.SERVER)
    with found.tracer.inside(request):
        assert found.trace_id() == trace_fields(request.traceparent)["trace_id"]
        with suppress(KeyError), found.tracer.child("inner") as child:
            logger.info("within")
            raise KeyError("x")
    assert found.trace_id() is None
    request.end()
    found.close()
    outside, within = map(json.loads, logged.getvalue().splitlines())
    assert "trace_id" not in outside
    assert trace_fields(child.traceparent).items() <= within.items()
    inner, outer = collector.spans
    assert (inner.name, inner.parent, inner.error) == ("inner", outer.id, "KeyError: 'x'")
    with NO_TRACER.child("a") as nothing, NO_TRACER.inside(nothing):
        assert nothing is NOTHING
    assert trace_fields("x") == trace_fields(None) == {}
