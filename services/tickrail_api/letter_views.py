"""Dead letters as the documents of the API."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from tickrail.core.dead_letters import error_text
from tickrail.core.definition import instant_text
from tickrail.core.ports_api import AttemptRecord
from tickrail.core.ports_letters import LetterRecord
from tickrail.store.letters import UndecodableRow
from tickrail_api.views import attempt_document, launch_document

UNDECODABLE = "undecodable"


def letter_document(letter: LetterRecord) -> dict[str, Any]:
    """A dead launch in a list."""
    x = letter.launch
    return {
        "kind": "launch",
        "id": str(x.id),
        "reason": letter.reason.value,
        "state": x.state.value,
        "error": error_text(x.result),
        "job": {"id": str(x.job), "name": x.job_name, "version": x.job_version},
        "queue": x.queue,
        "scheduled_at": instant_text(x.scheduled_at),
        "died_at": instant_text(letter.died_at),
        "attempt": x.attempt,
        "failures": x.failures,
        "redrive_count": x.redrive_count,
        "published": letter.published,
    }


def message_document(row: UndecodableRow) -> dict[str, Any]:
    """A message that could not be read, in a list."""
    return {
        "kind": UNDECODABLE,
        "id": row.id,
        "reason": UNDECODABLE,
        "error": row.error,
        "queue": row.queue,
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "size": row.size,
        "died_at": instant_text(row.at),
    }


def inspected_launch(
    letter: LetterRecord,
    attempts: Sequence[AttemptRecord],
    definition: Mapping[str, Any],
    *,
    own: bool,
    payload: object,
) -> dict[str, Any]:
    """A dead launch with all that is known of it.

    Args:
        letter: the dead letter.
        attempts: how its attempts ended.
        definition: its job's, as the launch has it; secrets stand in it by their names.
        own: whether it has a payload of its own.
        payload: that payload.
    """
    launch = launch_document(letter.launch)
    return {
        **letter_document(letter),
        "launch": launch,
        "last_response": launch["result"],
        "attempts": [attempt_document(a) for a in attempts],
        "target": definition.get("target"),
        "payload": payload if own else definition.get("payload"),
        "payload_own": own,
    }


def inspected_message(row: UndecodableRow) -> dict[str, Any]:
    """A message that could not be read, with its value."""
    text: str | None = None
    raw: str | None = None
    try:
        text = row.value.decode()
    except UnicodeDecodeError:
        raw = base64.b64encode(row.value).decode()
    value = {"text": text, "base64": raw, "truncated": row.size > len(row.value)}
    return {**message_document(row), "value": value}
