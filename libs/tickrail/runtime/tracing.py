"""Traces through OpenTelemetry, sent by OTLP over HTTP. The only user of its packages.

They come with the extra `tracing` and are loaded where an endpoint is set. Spans are gathered and
sent by a thread of their own; where the collector is away, what does not fit is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from tickrail.core.errors import Problem, SettingsError
from tickrail.core.ports_tracing import (
    NO_TRACER,
    NOTHING,
    Attribute,
    Span,
    SpanKind,
    Tracer,
    trace_fields,
)
from tickrail.runtime.log import add_fields
from tickrail.runtime.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OtelSpan

_HEADER: Final = "traceparent"
_FLUSH_MILLIS: Final = 3000
_EXPORT_SECONDS: Final = 5.0


class Tracing:
    """The traces of one process, from `start_tracing` to `close`."""

    def __init__(self, tracer: Tracer, provider: TracerProvider | None = None) -> None:
        self.tracer = tracer
        self._provider = provider

    @property
    def on(self) -> bool:
        """Whether there are any."""
        return self._provider is not None

    def trace_id(self) -> str | None:
        """The id of the trace that this thread works for; None: for none."""
        if self._provider is None:
            return None
        return _present_ids().get("trace_id")

    def close(self) -> None:
        """Send what is gathered, for a moment, and end."""
        if self._provider is not None:
            self._provider.force_flush(_FLUSH_MILLIS)
            self._provider.shutdown()


def start_tracing(settings: Settings, service: str) -> Tracing:
    """The traces of a process; none where no endpoint is set.

    Raises:
        SettingsError: the extra `tracing` is not installed, or a header is none.
    """
    if not settings.trace_endpoint:
        return Tracing(NO_TRACER)
    headers = _headers(settings.trace_headers)
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - an extra
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.sampling import (  # noqa: PLC0415 - as above
            ParentBased,
            TraceIdRatioBased,
        )
    except ModuleNotFoundError as e:
        raise SettingsError(
            "Traces need OpenTelemetry.",
            (
                Problem(
                    "trace_endpoint",
                    f"is set, and the Python package {e.name} is not installed",
                    "the extra `tickrail[tracing]`, or no endpoint",
                ),
            ),
        ) from e
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.trace_sample)),
        resource=Resource.create(
            {
                "service.name": f"tickrail-{service}",
                "service.instance.id": settings.name,
                "service.version": version("tickrail"),
            }
        ),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(
        endpoint=settings.trace_endpoint, headers=headers, timeout=_EXPORT_SECONDS
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    # One line for a batch that is lost, and not one for each try.
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    add_fields(_present_ids)
    return Tracing(OtelTracer(provider), provider)


class OtelTracer:
    """`core.ports_tracing.Tracer`."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import context, trace  # noqa: PLC0415 - an extra
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - as above
            TraceContextTextMapPropagator,
        )

        self._tracer = provider.get_tracer("tickrail", version("tickrail"))
        self._api = trace
        self._context = context
        self._written = TraceContextTextMapPropagator()
        self._kinds = {kind: trace.SpanKind[kind.name] for kind in SpanKind}

    def root(self, name: str, **attributes: Attribute | None) -> Span:
        """The first span of a new trace, if it is sampled."""
        return self._begin(name, self._context.Context(), SpanKind.INTERNAL, attributes)

    def begin(
        self,
        name: str,
        parent: str | None,
        kind: SpanKind = SpanKind.INTERNAL,
        *,
        links: Sequence[str | None] = (),
        at: datetime | None = None,
        **attributes: Attribute | None,
    ) -> Span:
        """A span behind another one; nothing where there is none.

        A server's span begins a trace where its caller did not.
        """
        if parent is None and kind is not SpanKind.SERVER:
            return NOTHING
        above = self._read(parent) if parent else self._context.Context()
        found = [self._api.get_current_span(self._read(link)) for link in links if link]
        return self._begin(
            name, above, kind, attributes,
            links=[self._api.Link(s.get_span_context()) for s in found],
            start_time=None if at is None else int(at.timestamp() * 1e9),
        )  # fmt: skip

    @contextmanager
    def _child(self, name: str, attributes: Mapping[str, Attribute | None]) -> Iterator[Span]:
        if not self._api.get_current_span().is_recording():
            yield NOTHING
            return
        span = self._begin(name, self._context.get_current(), SpanKind.INTERNAL, attributes)
        try:
            with self.inside(span):
                yield span
        except BaseException as e:
            span.end(f"{type(e).__name__}: {e}")
            raise
        span.end()

    def child(self, name: str, **attributes: Attribute | None) -> AbstractContextManager[Span]:
        """A span inside the one that this thread works for, if there is one."""
        return self._child(name, attributes)

    @contextmanager
    def inside(self, span: Span) -> Iterator[None]:
        """What runs in the block, also in tasks and threads that get its context, works for it."""
        if not isinstance(span, OtelSpanOf):
            yield
            return
        token = self._context.attach(self._api.set_span_in_context(span.span))
        try:
            yield
        finally:
            self._context.detach(token)

    def _read(self, traceparent: str) -> Context:
        return self._written.extract({_HEADER: traceparent}, self._context.Context())

    def _begin(
        self,
        name: str,
        above: Context,
        kind: SpanKind,
        attributes: Mapping[str, Attribute | None],
        **more: Any,  # noqa: ANN401 - as OpenTelemetry takes it
    ) -> Span:
        span = self._tracer.start_span(
            name, above, self._kinds[kind], attributes=_named(attributes), **more
        )
        if not span.is_recording():
            return NOTHING
        carrier: dict[str, str] = {}
        self._written.inject(carrier, self._api.set_span_in_context(span, above))
        return OtelSpanOf(span, carrier.get(_HEADER))


class OtelSpanOf:
    """`core.ports_tracing.Span`."""

    __slots__ = ("span", "traceparent")

    def __init__(self, span: OtelSpan, traceparent: str | None) -> None:
        self.span = span
        self.traceparent = traceparent

    def note(self, **attributes: Attribute | None) -> None:
        """Add attributes, `_` in a name for `.`; None is left out."""
        self.span.set_attributes(_named(attributes))

    def end(self, error: str | None = None) -> None:
        """It is over; `error`: it failed, and why."""
        if not self.span.is_recording():
            return
        if error is not None:
            from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - an extra

            self.span.set_status(Status(StatusCode.ERROR, error))
        self.span.end()


def _named(attributes: Mapping[str, Attribute | None]) -> dict[str, Attribute]:
    """As OpenTelemetry names them: `http_route` is `http.route`, what is ours `tickrail.job`."""
    return {_name(name): value for name, value in attributes.items() if value is not None}


def _name(name: str) -> str:
    if name.startswith(_KNOWN):
        return name.replace("_", ".")
    return "tickrail.job.name" if name == "job_name" else f"tickrail.{name}"


_KNOWN: Final = ("http_", "messaging_", "url_")


def _present_ids() -> Mapping[str, str]:
    """The ids of the span that this thread works for."""
    from opentelemetry import trace  # noqa: PLC0415 - an extra

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {
        "trace_id": trace.format_trace_id(context.trace_id),
        "span_id": trace.format_span_id(context.span_id),
    }


def _headers(text: str) -> dict[str, str]:
    """`"a=b, c=d"` -> a mapping.

    Raises:
        SettingsError: a part is no header.
    """
    found: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            problem = Problem("trace_headers", "is not right", "`name=value` with commas")
            raise SettingsError("The settings are not right.", (problem,))
        found[name.strip().lower()] = value.strip()
    return found


__all__ = ["OtelTracer", "Tracing", "start_tracing", "trace_fields"]
