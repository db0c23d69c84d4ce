"""One statement for many, which a single one of them cannot spoil for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tickrail.core.errors import SetupError, UnavailableError

T = TypeVar("T")
R = TypeVar("R")


def each_apart(
    items: Sequence[T],
    act: Callable[[Sequence[T]], R],
    done: Callable[[Sequence[T], R], None],
    refused: Callable[[T, Exception], None],
    keep: Callable[[Sequence[T]], None],
) -> None:
    """Act on all of them at once; where that is refused, find by halves the one it is for.

    A statement for many fails as a whole. Tried again as a whole it would fail for ever, and all
    that is behind it would wait.

    Args:
        items: in their order, at least one.
        act: done for some of them, and for none of these where it raises.
        done: told of these and of what `act` answered.
        refused: told of one for which `act` raises also when it is alone.
        keep: told, when this raises, of those for which nothing was done, in their order.

    Raises:
        UnavailableError: a server is away, which no item is to blame for.
        SetupError: as little.
    """
    parts = [items]
    try:
        while parts:
            part = parts[-1]
            try:
                answer = act(part)
            except (UnavailableError, SetupError):
                raise
            except Exception as error:  # noqa: BLE001 - whatever an item makes of it
                parts.pop()
                if len(part) == 1:
                    refused(part[0], error)
                else:
                    half = len(part) // 2
                    parts += (part[half:], part[:half])
            else:
                parts.pop()
                done(part, answer)
    except BaseException:
        keep([item for part in reversed(parts) for item in part])
        raise
