"""The wire format: stable, tolerant, and refused with a reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import orjson
import pytest

from tickrail.bus.codec import (
    decode_dead_letter,
    decode_launch,
    encode_dead_letter,
    encode_launch,
    encode_undecodable,
)
from tickrail.core.messages import (
    HISTORY_BYTES,
    DeadLetter,
    FailedAttempt,
    LaunchMessage,
    UndecodableError,
    UndecodableLetter,
)

SLOT = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
MESSAGE = LaunchMessage(
    launch=UUID("019ca5a1-2000-8abc-8def-0123456789ab"),
    scheduled_at=SLOT,
    job=UUID(int=7),
    tenant=UUID(int=1),
    attempt=3,
    epoch=5 << 48 | 99,
    partition=63,
    trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
)
WIRE = (
    b'{"v":1,"launch":"019ca5a1-2000-8abc-8def-0123456789ab",'
    b'"scheduled_at":"2026-03-01T02:00:00Z","job":"00000000-0000-0000-0000-000000000007",'
    b'"tenant":"00000000-0000-0000-0000-000000000001","attempt":3,"epoch":1407374883553379,'
    b'"partition":63,"trace":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'
)


def changed(**fields: object) -> bytes:
    doc = {**orjson.loads(WIRE), **fields}
    return orjson.dumps({k: v for k, v in doc.items() if v is not Ellipsis})


def test_the_wire_format_is_fixed() -> None:
    assert encode_launch(MESSAGE) == WIRE
    assert decode_launch(WIRE) == MESSAGE


def test_unknown_fields_are_ignored_and_the_trace_may_be_missing() -> None:
    found = decode_launch(changed(more={"x": 1}, trace=...))
    assert found.trace is None
    assert found.launch == MESSAGE.launch


def test_instants_of_other_offsets_come_in_utc() -> None:
    found = decode_launch(changed(scheduled_at="2026-03-01T03:00:00+01:00"))
    assert found.scheduled_at == SLOT
    assert found.scheduled_at.utcoffset() == timedelta(0)
    east = datetime(2026, 3, 1, 3, 0, tzinfo=timezone(timedelta(hours=1)))
    again = LaunchMessage(MESSAGE.launch, east, MESSAGE.job, MESSAGE.tenant, 1, 1, 0)
    assert decode_launch(encode_launch(again)).scheduled_at == SLOT


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (None, "no value"),
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'"x"', "not a JSON object"),
        (b"{}", "field v"),
        (b" " * 70_000, "at most 65536"),
        (b"[" * 2000, "not JSON"),
        (changed(v=2), "version 2"),
        (changed(v=0), "field v"),
        (changed(v="1"), "field v"),
        (changed(v=True), "field v"),
        (changed(launch=...), "field launch is missing"),
        (changed(tenant=...), "field tenant is missing"),
        (changed(attempt=...), "field attempt is missing"),
        (changed(launch="x"), "field launch"),
        (changed(job=7), "field job"),
        (changed(tenant=None), "field tenant"),
        (changed(scheduled_at="yesterday"), "field scheduled_at"),
        (changed(scheduled_at="2026-03-01T02:00:00"), "field scheduled_at"),
        (changed(scheduled_at=1.5), "field scheduled_at"),
        # Instants that lie outside of the years 1 to 9999 in UTC.
        (changed(scheduled_at="9999-12-31T23:59:59-12:00"), "field scheduled_at"),
        (changed(scheduled_at="0001-01-01T00:00:00+14:00"), "field scheduled_at"),
        (changed(attempt=0), "field attempt"),
        (changed(attempt=1.0), "field attempt"),
        (changed(attempt=True), "field attempt"),
        # What PostgreSQL could not be asked for: its numbers have 32 bits.
        (changed(attempt=2**31), "field attempt is not a whole number from 1 to 2147483647"),
        (changed(epoch=-1), "field epoch"),
        (changed(epoch=2**63), "field epoch"),
        (changed(partition="3"), "field partition"),
        (changed(partition=2**31), "field partition"),
        (changed(trace=7), "field trace"),
        (changed(trace="x" * 300), "field trace"),
    ],
)
def test_what_cannot_be_read_says_why(raw: bytes | None, why: str) -> None:
    with pytest.raises(UndecodableError, match=why) as refused:
        decode_launch(raw)
    assert "\n" not in str(refused.value)


def test_the_highest_numbers_are_read() -> None:
    found = decode_launch(changed(attempt=2**31 - 1, partition=2**31 - 1, epoch=2**63 - 1))
    assert (found.attempt, found.partition, found.epoch) == (2**31 - 1, 2**31 - 1, 2**63 - 1)


def letter(**changes: Any) -> DeadLetter:
    values: dict[str, Any] = {
        "launch": MESSAGE.launch,
        "attempt": 3,
        "job": MESSAGE.job,
        "job_name": "nightly",
        "tenant": MESSAGE.tenant,
        "queue": "default",
        "scheduled_at": SLOT,
        "died_at": SLOT + timedelta(seconds=30),
        "reason": "attempts_exhausted",
        "error": "HTTP 500",
        "failures": 3,
        "redrive_count": 1,
        "history": tuple(
            FailedAttempt(n, "http_500", "HTTP 500", SLOT, SLOT + timedelta(seconds=1), "w-1")
            for n in (1, 2, 3)
        ),
        **changes,
    }
    return DeadLetter(**values)


def test_a_dead_letter_comes_back_and_names_itself_in_its_headers() -> None:
    value, headers = encode_dead_letter(letter())
    assert decode_dead_letter(value) == letter()
    assert dict(headers) == {
        "tickrail-kind": b"dead_letter",
        "tickrail-id": f"{MESSAGE.launch}/3".encode(),
        "tickrail-reason": b"attempts_exhausted",
    }


def test_a_long_history_loses_its_middle() -> None:
    history = tuple(FailedAttempt(n, "http_500", "x" * 400, None, None) for n in range(1, 301))
    value, _ = encode_dead_letter(letter(history=history))
    found = decode_dead_letter(value)
    numbers = [a.attempt for a in found.history]
    assert len(value) < HISTORY_BYTES + 2000
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1]) == (1, 300)
    assert orjson.loads(value)["history_omitted"] == 300 - len(numbers)


@pytest.mark.parametrize("field", ["launch", "queue", "died_at", "history", "failures"])
def test_a_dead_letter_without_a_field_is_refused(field: str) -> None:
    doc = orjson.loads(encode_dead_letter(letter())[0])
    del doc[field]
    with pytest.raises(UndecodableError, match=field):
        decode_dead_letter(orjson.dumps(doc))


def test_a_dead_letter_with_nonsense_is_refused() -> None:
    doc = orjson.loads(encode_dead_letter(letter())[0])
    with pytest.raises(UndecodableError):
        decode_dead_letter(orjson.dumps({**doc, "history": [7]}))
    with pytest.raises(UndecodableError):
        decode_dead_letter(orjson.dumps({**doc, "died_at": "9999-12-31T23:59:59-12:00"}))


def test_an_undecodable_message_is_kept_raw() -> None:
    value, headers = encode_undecodable(
        UndecodableLetter("t.launch.default.high", 3, 99, b"\xff\x00{", "not JSON")
    )
    assert value == b"\xff\x00{"
    assert dict(headers) == {
        "tickrail-kind": b"undecodable",
        "tickrail-id": b"t.launch.default.high/3/99",
        "tickrail-reason": b"not JSON",
        "tickrail-source": b"t.launch.default.high",
    }
