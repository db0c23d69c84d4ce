"""A client of either kind, called in the same way: what is to be awaited is awaited here."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tickrail.sdk.client import AsyncClient, AsyncPages, Client
from tickrail.sdk.client.client import PARTS
from tickrail.sdk.client.operation import Resource

COLOURS = ("blocking", "async")


class Colour:
    """Makes clients of one kind and calls them."""

    def __init__(self, name: str) -> None:
        self._async = name == "async"
        self._runner = asyncio.Runner()
        self._open: list[Any] = []

    def client(self, url: str, key: str = "", **more: Any) -> Any:
        """A client, closed at the end; `wait` is a plain function for both kinds."""
        if self._async and "wait" in more:
            more["wait"] = _awaited(more["wait"])
        made = (AsyncClient if self._async else Client)(url, key, **more)
        self._open.append(made)
        return made

    def do(self, value: Any) -> Any:
        """What a call of a client answers: at once, or awaited."""
        return self._runner.run(_of(value)) if inspect.isawaitable(value) else value

    def every(self, values: Any) -> list[Any]:
        """All items of a list."""
        if isinstance(values, AsyncPages) or hasattr(values, "__aiter__"):
            return self._runner.run(_listed(values))
        return list(values)

    def close(self) -> None:
        """Close what was made."""
        for made in self._open:
            self.do(made.close())
        self._runner.close()


def parts(client: Client | AsyncClient) -> Iterator[tuple[str, Resource[Any]]]:
    """The parts of a client by name."""
    for name in PARTS:
        yield name, getattr(client, name)


@contextmanager
def colour_of(name: str) -> Iterator[Colour]:
    """A colour for the length of the block."""
    made = Colour(name)
    try:
        yield made
    finally:
        made.close()


async def _of(value: Any) -> Any:
    return await value


async def _listed(values: Any) -> list[Any]:
    return [item async for item in values]


def _awaited(wait: Any) -> Any:
    async def awaited(seconds: float) -> None:
        wait(seconds)

    return awaited
