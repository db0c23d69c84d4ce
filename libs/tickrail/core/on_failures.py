"""What becomes of a job whose launches fail for good, or that has not succeeded for too long."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from tickrail.core.documents import Reader, type_name
from tickrail.core.durations import format_duration, parse_duration
from tickrail.core.errors import Problem

MAX_CHANNELS = 5
"""So many channels a job may name."""
MAX_PAUSE_AFTER = 1000
SHORTEST_EXPECTED: Final = timedelta(minutes=1)
LONGEST_EXPECTED: Final = timedelta(days=400)
"""Between these a job may expect its successes."""
_CHANNEL_EXPECTED: Final = "webhook:<name of a secret> or kafka:<topic>"
_NAMES: Final = {
    "webhook": re.compile(r"[a-z0-9][a-z0-9._-]{0,127}"),
    "kafka": re.compile(r"(?!\.{1,2}$)(?!__)[A-Za-z0-9._-]{1,249}"),
}


class ChannelKind(StrEnum):
    """How a notice goes out; the name of the kind of target that carries it."""

    WEBHOOK = "webhook"
    KAFKA = "kafka"


class Channel(NamedTuple):
    """Where notices go. `name`: of the secret that holds the hook, or the topic."""

    kind: ChannelKind
    name: str

    def __str__(self) -> str:
        """As it is written."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class OnFailures:
    """What a job wants.

    Attributes:
        pause_after: it pauses itself after so many launches in a row that ended dead or abandoned;
            None: never.
        notify: who is told.
        expect_success_every: those are told, too, when the job has not succeeded for so long;
            None: nobody looks.
    """

    pause_after: int | None = None
    notify: tuple[Channel, ...] = ()
    expect_success_every: timedelta | None = None

    def document(self) -> dict[str, Any]:
        """As it is written."""
        every = self.expect_success_every
        return {
            "pause_after": self.pause_after,
            "notify": [str(c) for c in self.notify],
            "expect_success_every": None if every is None else format_duration(every),
        }


def parse_channel(text: object) -> Channel | None:
    """The channel that a text means; None: it means none."""
    if not isinstance(text, str):
        return None
    kind, colon, name = text.partition(":")
    pattern = _NAMES.get(kind)
    if not colon or pattern is None or not pattern.fullmatch(name):
        return None
    return Channel(ChannelKind(kind), name)


def read_channels(reader: Reader, field: str) -> tuple[Channel, ...]:
    """A list of channels, each once; problems go to the reader."""
    if not reader.has(field):
        return ()
    raw = reader.raw(field)
    if not isinstance(raw, list):
        reader.problem(field, f"is {type_name(raw)}", "a list of channels")
        return ()
    if len(raw) > MAX_CHANNELS:
        reader.problem(field, f"has {len(raw)} entries", f"at most {MAX_CHANNELS}")
        return ()
    found: dict[Channel, None] = {}
    for i, text in enumerate(raw):
        channel, where = parse_channel(text), f"{reader.pointer}/{field}/{i}"
        if channel is None:
            reader.problems.append(Problem(where, "is not a channel", _CHANNEL_EXPECTED))
        elif channel in found:
            reader.problems.append(Problem(where, f"names {text} again", "each channel once"))
        else:
            found[channel] = None
    return tuple(found)


def read_on_failures(reader: Reader) -> OnFailures | None:
    """The member `on_failures`; problems go to the reader. None: nothing is wanted."""
    if not reader.has("on_failures"):
        return None
    r = reader.child("on_failures")
    after = r.whole("pause_after", 1, low=1, high=MAX_PAUSE_AFTER) if r.has("pause_after") else None
    found = OnFailures(after, read_channels(r, "notify"), _expected(r))
    reader.absorb(r)
    return None if found == OnFailures() else found


def _expected(r: Reader) -> timedelta | None:
    name = "expect_success_every"
    if not r.has(name):
        return None
    return r.duration(name, SHORTEST_EXPECTED, low=SHORTEST_EXPECTED, high=LONGEST_EXPECTED)


def expected_every(document: object) -> timedelta | None:
    """How often a canonical `on_failures` expects a success; None: never."""
    text = document.get("expect_success_every") if isinstance(document, Mapping) else None
    return parse_duration(text) if isinstance(text, str) else None


def channels_of(document: object) -> Iterator[tuple[int, Channel]]:
    """The channels of a canonical `on_failures`, each with its place in the list."""
    if not isinstance(document, Mapping):
        return
    notify = document.get("notify")
    for i, text in enumerate(notify if isinstance(notify, Sequence) else ()):
        if (channel := parse_channel(text)) is not None:
            yield i, channel
