"""The port of traces: spans of one launch, from the call that asked for it to its effect.

A trace crosses processes as a W3C traceparent: in the launch's row, in the Kafka message and its
header, in the call of a target. What is not sampled has none, and no spans: `NOTHING`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

Attribute = str | int | float | bool
_PARTS: Final = 4
TRACEPARENT: Final = "traceparent"
"""The header that carries a context, of HTTP and of Kafka messages."""


class SpanKind(StrEnum):
    """What a span is to those before and behind it."""

    INTERNAL = "internal"
    SERVER = "server"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Span(Protocol):
    """Something that takes time. Safe to use from several threads, one after the other."""

    @property
    def traceparent(self) -> str | None:
        """Its context as W3C writes it; None: nothing is kept of it."""
        ...

    def note(self, **attributes: Attribute | None) -> None:
        """Add attributes, `_` in a name for `.`; None is left out."""
        ...

    def end(self, error: str | None = None) -> None:
        """It is over; `error`: it failed, and why. A second time changes nothing."""
        ...


class Tracer(Protocol):
    """Begins spans. Safe to use from several threads."""

    def root(self, name: str, **attributes: Attribute | None) -> Span:
        """The first span of a new trace, if it is sampled."""
        ...

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
        """A span behind another one, a traceparent; nothing where there is none.

        A server's span begins a trace where its caller did not.

        `links`: spans that it follows from besides. `at`: when it began, if not now.
        """
        ...

    def child(self, name: str, **attributes: Attribute | None) -> AbstractContextManager[Span]:
        """A span of what this thread does now, inside the span that it works for, if there is one.

        It ends with the block, as failed by an error. Log lines in the block carry its ids.
        """
        ...

    def inside(self, span: Span) -> AbstractContextManager[None]:
        """What runs in the block, also in tasks and threads that get its context, works for it.

        The span does not end with the block.
        """
        ...


class NoSpan:
    """Nothing is kept of it."""

    traceparent = None

    def note(self, **attributes: Attribute | None) -> None:
        """Nothing."""

    def end(self, error: str | None = None) -> None:
        """Nothing."""


NOTHING: Final = NoSpan()


class NoTracer:
    """Traces are off."""

    def root(self, name: str, **attributes: Attribute | None) -> Span:
        """Nothing."""
        del name, attributes
        return NOTHING

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
        """Nothing."""
        del name, parent, kind, links, at, attributes
        return NOTHING

    def child(self, name: str, **attributes: Attribute | None) -> AbstractContextManager[Span]:
        """Nothing."""
        del name, attributes
        return nullcontext(NOTHING)

    def inside(self, span: Span) -> AbstractContextManager[None]:
        """Nothing."""
        del span
        return nullcontext()


NO_TRACER: Final = NoTracer()


def trace_fields(traceparent: str | None) -> dict[str, str]:
    """What log lines about a span carry: `trace_id` and `span_id`."""
    parts = traceparent.split("-") if traceparent else []
    if len(parts) != _PARTS:
        return {}
    return {"trace_id": parts[1], "span_id": parts[2]}
