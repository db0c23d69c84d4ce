"""The bounds within which slots that passed during a pause are launched after all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tickrail.core.documents import Reader
from tickrail.core.durations import format_duration
from tickrail.core.policies import CatchUpOrder, Misfire, MisfirePolicy

MAX_COUNT: Final = 10_000
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Slots up to `until` are launched within the bounds of `rules`, however late they are."""

    until: datetime
    rules: Misfire

    def document(self) -> dict[str, Any]:
        """The JSON document (`read_bounds` and `stored_catch_up` read it back)."""
        r = self.rules
        return {
            "until": self.until.isoformat(),
            "max_count": r.max_count,
            "max_age": format_duration(r.max_age),
            "order": r.order.value,
            "per_minute": r.per_minute,
        }


def read_bounds(reader: Reader) -> Misfire:
    """The members `max_count`, `max_age`, `order` and `per_minute`; problems go to the reader."""
    return Misfire(
        policy=MisfirePolicy.FIRE_ALL,
        max_count=reader.whole("max_count", 10, low=1, high=MAX_COUNT),
        max_age=reader.duration("max_age", _DAY, low=timedelta(seconds=1)),
        order=reader.choice("order", CatchUpOrder.OLDEST),
        per_minute=reader.whole("per_minute", 60, low=1, high=100_000),
    )


def stored_catch_up(document: Mapping[str, Any]) -> CatchUp:
    """What `CatchUp.document` wrote.

    Raises:
        InvalidInputError: a damaged document.
    """
    reader = Reader(dict(document))
    until = reader.instant("until")
    rules = read_bounds(reader)
    if until is None:
        reader.problem("until", "is missing", "an instant")
    reader.finish("catch-up")
    return CatchUp(until or datetime.max.replace(tzinfo=UTC), rules)
