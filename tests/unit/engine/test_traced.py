"""Spans are told where their work was done, and not where it was undone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest
from tests.support.stepped import Stepped, failure

from tickrail.core.errors import UnavailableError
from tickrail.core.ports_tracing import NO_TRACER, NOTHING, Span, SpanKind
from tickrail.engine.tick import Tick

CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass(eq=False)
class Noted:
    name: str
    traceparent: str | None
    parent: str | None = None
    links: Sequence[str | None] = ()
    ends: list[str | None] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)

    def note(self, **attributes: Any) -> None:
        self.attributes |= attributes

    def end(self, error: str | None = None) -> None:
        self.ends.append(error)


class NotedTracer:
    """Every trace is kept; contexts are counted."""

    def __init__(self) -> None:
        self.spans: list[Noted] = []

    def _new(
        self, attributes: dict[str, Any], name: str, parent: str | None, *links: str | None
    ) -> Noted:
        context = f"00-{len(self.spans):032x}-{len(self.spans) + 1:016x}-01"
        self.spans.append(Noted(name, context, parent, links, attributes=attributes))
        return self.spans[-1]

    def root(self, name: str, **attributes: Any) -> Span:
        return self._new(attributes, name, None)

    def begin(
        self,
        name: str,
        parent: str | None,
        kind: SpanKind = SpanKind.INTERNAL,
        *,
        links: Sequence[str | None] = (),
        at: datetime | None = None,
        **attributes: Any,
    ) -> Span:
        del kind, at
        return NOTHING if parent is None else self._new(attributes, name, parent, *links)

    def child(self, name: str, **attributes: Any) -> AbstractContextManager[Span]:
        return nullcontext(self._new(attributes, name, None))

    def inside(self, span: Span) -> AbstractContextManager[None]:
        del span
        return nullcontext()

    def named(self, name: str) -> list[Noted]:
        return [s for s in self.spans if s.name == name]


def test_a_tick_whose_commit_is_not_known_of_tells_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, tracer = Stepped(), NotedTracer()
    job = world.job(schedule={"every": "10s"}, overlap="allow")
    world.ticker = Tick(world.store, world.metrics, tracer=tracer)
    written = world.store.tick

    def lost(*given: Any) -> Any:
        written(*given)
        raise UnavailableError("the connection was lost")

    world.advance(10)
    monkeypatch.setattr(world.store, "tick", lost)
    with pytest.raises(UnavailableError):
        world.tick()
    assert [s.ends for s in tracer.spans] == [[]]
    assert tracer.spans[0].attributes["job"] == str(job)
    monkeypatch.undo()
    world.advance(10)
    ticked = world.tick()
    _, second = world.launches(job)
    told = [s for s in tracer.spans if s.ends]
    assert [s.traceparent for s in told] == [second.trace]
    assert [p.trace for p in ticked.inserted] == [second.trace]


def test_a_run_is_behind_its_launch_and_names_its_publication() -> None:
    world, tracer = Stepped(), NotedTracer()
    world.relayer._tracer = tracer
    worker = world.worker()
    worker.runs.tracer = tracer
    worker.take()
    launch, plain = world.launch(trace=CONTEXT), world.launch()
    world.relay()
    (published,) = tracer.named("publish")
    assert (published.parent, published.ends) == (CONTEXT, [])
    world.relay(2)
    assert published.ends == [None]
    worker.take()
    worker.take()
    (claim,), (run,) = tracer.named("claim"), tracer.named("run")
    for span in (claim, run):
        assert (span.parent, list(span.links)) == (CONTEXT, [published.traceparent])
    traces = {r.launch_id: r.trace for r in worker.executor.running}
    assert traces == {launch: run.traceparent, plain: None}
    for running in list(worker.executor.running):
        worker.executor.end(running, failure())
    assert (claim.ends, run.ends) == ([None], ["http_500"])
    assert run.attributes["outcome"] == "http_500"
    traced = next(r for r in worker.executor.started if r.launch_id == launch)
    whose = {
        "job": str(traced.job_id),
        "job_name": traced.job_name,
        "tenant": str(traced.tenant_id),
    }
    assert whose.items() <= run.attributes.items()
    worker.finish()
    # Where traces are off in a process, the context goes on through it.
    world.relayer._tracer = NO_TRACER
    worker.runs.tracer = NO_TRACER
    world.advance(60)
    world.relay(2)
    worker.work()
    assert {r.launch_id: r.trace for r in worker.executor.running} == {launch: CONTEXT, plain: None}
