"""A name in a document that nothing has is told in a sentence, without brackets inside brackets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tickrail.core.errors import InvalidInputError
from tickrail.core.on_failures import Channel, ChannelKind
from tickrail.engine.job_checks import check_surroundings
from tickrail.engine.quota_notices import set_notify

SECRET = (
    "there is no secret 'gone' (the name of an existing secret; `tickrail secrets set` makes one)"
)
QUEUE = "there is no queue 'gone' (an existing queue)"


def transaction() -> Any:
    """One of a tenant without secrets, where one queue is."""
    return SimpleNamespace(
        secrets=SimpleNamespace(missing=frozenset),
        queue_kinds=lambda name: ["webhook"] if name == "default" else None,
        kafka_topics=tuple,
    )


@pytest.mark.parametrize(
    ("queue", "told"),
    [("default", f"/on_failures/notify/0: {SECRET}"), ("gone", f"/queue: {QUEUE}")],
)
def test_of_a_job(queue: str, told: str) -> None:
    plan = SimpleNamespace(queue=queue)
    secrets = [("/on_failures/notify/0", "gone")]
    definition: Any = SimpleNamespace(plan=plan, kind="webhook", topics=[], secrets=secrets)
    with pytest.raises(InvalidInputError) as refused:
        check_surroundings(transaction(), definition, "tickrail")
    assert str(refused.value).splitlines()[-1].strip() == told


def test_of_who_is_told_of_quotas() -> None:
    with pytest.raises(InvalidInputError) as refused:
        set_notify(transaction(), [Channel(ChannelKind.WEBHOOK, "gone")], "tickrail")
    assert str(refused.value).splitlines()[-1].strip() == f"/notify/0: {SECRET}"
