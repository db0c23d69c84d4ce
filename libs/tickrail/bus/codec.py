"""Launch messages and dead letters as bytes, and back.

JSON with the major version under `v`; instants are RFC 3339 in UTC. The rules for versions are in
`core/messages.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson

from tickrail.core.messages import (
    HISTORY_BYTES,
    WIRE_VERSION,
    DeadLetter,
    FailedAttempt,
    LaunchMessage,
    UndecodableError,
    UndecodableLetter,
    check_version,
)
from tickrail.core.ports_bus import Headers

HEADER_KIND = "tickrail-kind"
HEADER_ID = "tickrail-id"
HEADER_REASON = "tickrail-reason"
HEADER_SOURCE = "tickrail-source"
KIND_DEAD = b"dead_letter"
KIND_UNDECODABLE = b"undecodable"

_OPTIONS = orjson.OPT_UTC_Z
_MAX_RAW = 1 << 16
_MAX_TRACE = 256
_MOST = (1 << 31) - 1
"""Of an attempt, a count and a partition, as the database keeps them."""
_MOST_EPOCH = (1 << 63) - 1


def encode_launch(m: LaunchMessage) -> bytes:
    """The message as JSON."""
    return orjson.dumps(
        {
            "v": WIRE_VERSION,
            "launch": m.launch,
            "scheduled_at": m.scheduled_at,
            "job": m.job,
            "tenant": m.tenant,
            "attempt": m.attempt,
            "epoch": m.epoch,
            "partition": m.partition,
            "trace": m.trace,
        },
        option=_OPTIONS,
    )


def decode_launch(raw: bytes | None) -> LaunchMessage:
    """Read a launch message.

    Raises:
        UndecodableError: not JSON, a newer major version, a field missing or of the wrong kind.
    """
    doc = _document(raw)
    try:
        return LaunchMessage(
            UUID(doc["launch"]),
            _instant(doc["scheduled_at"]),
            UUID(doc["job"]),
            UUID(doc["tenant"]),
            _number(doc, "attempt", 1),
            _number(doc, "epoch", most=_MOST_EPOCH),
            _number(doc, "partition"),
            _trace(doc.get("trace")),
        )
    except KeyError as error:
        raise UndecodableError(f"field {error.args[0]} is missing") from None
    except UndecodableError:
        raise
    except (ValueError, TypeError, AttributeError, ArithmeticError):
        raise UndecodableError(_which(doc)) from None


def encode_dead_letter(letter: DeadLetter) -> tuple[bytes, Headers]:
    """Value and headers of a dead letter; its history is cut to HISTORY_BYTES.

    The first attempts and the latest stay, those between go first; `history_omitted` counts them.
    """
    history = [_attempt(a) for a in letter.history]
    omitted = 0
    while len(history) > 1 and len(orjson.dumps(history, option=_OPTIONS)) > HISTORY_BYTES:
        del history[len(history) // 2]
        omitted += 1
    value = orjson.dumps(
        {
            "v": WIRE_VERSION,
            "launch": letter.launch,
            "attempt": letter.attempt,
            "job": letter.job,
            "job_name": letter.job_name,
            "tenant": letter.tenant,
            "queue": letter.queue,
            "scheduled_at": letter.scheduled_at,
            "died_at": letter.died_at,
            "reason": letter.reason,
            "error": letter.error,
            "failures": letter.failures,
            "redrive_count": letter.redrive_count,
            "history": history,
            "history_omitted": omitted,
        },
        option=_OPTIONS,
    )
    identity = f"{letter.launch}/{letter.attempt}".encode()
    return value, [
        (HEADER_KIND, KIND_DEAD),
        (HEADER_ID, identity),
        (HEADER_REASON, letter.reason.encode()),
    ]


def decode_dead_letter(raw: bytes | None) -> DeadLetter:
    """Read a dead letter.

    Raises:
        UndecodableError: as for a launch message.
    """
    doc = _document(raw)
    try:
        return DeadLetter(
            launch=UUID(doc["launch"]),
            attempt=_number(doc, "attempt", 1),
            job=UUID(doc["job"]),
            job_name=str(doc["job_name"]),
            tenant=UUID(doc["tenant"]),
            queue=str(doc["queue"]),
            scheduled_at=_instant(doc["scheduled_at"]),
            died_at=_instant(doc["died_at"]),
            reason=str(doc["reason"]),
            error=str(doc["error"]),
            failures=_number(doc, "failures"),
            redrive_count=_number(doc, "redrive_count"),
            history=tuple(_read_attempt(a) for a in doc["history"]),
        )
    except KeyError as error:
        raise UndecodableError(f"field {error.args[0]} is missing") from None
    except UndecodableError:
        raise
    except (ValueError, TypeError, AttributeError, ArithmeticError):
        raise UndecodableError("a field has the wrong kind") from None


def encode_undecodable(letter: UndecodableLetter) -> tuple[bytes, Headers]:
    """Value (the bytes as they came) and headers of a message that could not be read."""
    return letter.raw, [
        (HEADER_KIND, KIND_UNDECODABLE),
        (HEADER_ID, letter.id.encode()),
        (HEADER_REASON, letter.error.encode()[:1024]),
        (HEADER_SOURCE, letter.topic.encode()),
    ]


def _document(raw: bytes | None) -> Mapping[str, Any]:
    if raw is None:
        raise UndecodableError("the message has no value")
    if len(raw) > _MAX_RAW:
        raise UndecodableError(f"the message has {len(raw)} bytes; at most {_MAX_RAW} are read")
    try:
        doc = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise UndecodableError(f"not JSON: {error}") from None
    if not isinstance(doc, dict):
        raise UndecodableError("not a JSON object")
    check_version(doc.get("v"))
    return doc


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("no offset")
    return instant if instant.tzinfo is UTC else instant.astimezone(UTC)


def _trace(value: object) -> str | None:
    if value is None or (isinstance(value, str) and len(value) <= _MAX_TRACE):
        return value
    raise UndecodableError("field trace is not a traceparent")


def _number(doc: Mapping[str, Any], name: str, least: int = 0, most: int = _MOST) -> int:
    value = doc[name]
    if type(value) is not int or not least <= value <= most:
        raise UndecodableError(f"field {name} is not a whole number from {least} to {most}")
    return value


def _which(doc: Mapping[str, Any]) -> str:
    """Name the first field of a launch message that cannot be read."""
    for name in ("launch", "job", "tenant"):
        try:
            UUID(doc[name])
        except (ValueError, TypeError, AttributeError):
            return f"field {name} is not a UUID"
    return "field scheduled_at is not an instant with offset"


def _attempt(a: FailedAttempt) -> dict[str, object]:
    return {
        "attempt": a.attempt,
        "outcome": a.outcome,
        "message": a.message,
        "started_at": a.started_at,
        "finished_at": a.finished_at,
        "worker": a.worker,
    }


def _read_attempt(doc: Mapping[str, Any]) -> FailedAttempt:
    started, finished = doc.get("started_at"), doc.get("finished_at")
    return FailedAttempt(
        _number(doc, "attempt", 1),
        str(doc["outcome"]),
        str(doc["message"]),
        _instant(started) if started is not None else None,
        _instant(finished) if finished is not None else None,
        doc.get("worker"),
    )
