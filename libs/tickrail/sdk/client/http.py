"""Senders over HTTP. All that knows the HTTP library is here.

It is loaded with the first client, since loading it takes longer than everything else.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, Self

import httpx

from tickrail.sdk.client.errors import UnreachableError
from tickrail.sdk.client.flow import Lost, Reply, Send
from tickrail.sdk.client.senders import AsyncSender, BlockingSender, Conditions

Wait = Callable[[float], object]
AsyncWait = Callable[[float], Awaitable[object]]
_CONNECT_WITHIN = 5.0
_HOPELESS = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, *_HOPELESS)


class HttpSender(BlockingSender):
    """Sends by HTTP, and blocks."""

    def __init__(self, http: httpx.Client, conditions: Conditions, wait: Wait | None) -> None:
        self._http = http
        self.conditions = conditions
        self._wait: Wait = wait if wait is not None else threading.Event().wait

    @classmethod
    def connect(
        cls, conditions: Conditions, transport: httpx.BaseTransport | None, wait: Wait | None
    ) -> Self:
        """A sender with connections of its own.

        Raises:
            UnreachableError: the URL is none.
        """
        try:
            return cls(httpx.Client(**_settings(conditions), transport=transport), conditions, wait)
        except httpx.InvalidURL as error:
            raise _no_address(conditions, error) from None

    def altered(self, conditions: Conditions) -> Self:
        """The same connections under other conditions."""
        return type(self)(self._http, conditions, self._wait)

    def request(self, step: Send) -> Reply | Lost:
        """Send a request."""
        try:
            return _reply(self._http.request(**_arguments(step, self.conditions)))
        except (httpx.TransportError, httpx.InvalidURL) as error:
            return _lost(error)

    def pause(self, seconds: float) -> None:
        """Wait."""
        self._wait(seconds)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


class AsyncHttpSender(AsyncSender):
    """Sends by HTTP, and awaits."""

    def __init__(
        self, http: httpx.AsyncClient, conditions: Conditions, wait: AsyncWait | None
    ) -> None:
        self._http = http
        self.conditions = conditions
        self._wait: AsyncWait = wait if wait is not None else asyncio.sleep

    @classmethod
    def connect(
        cls,
        conditions: Conditions,
        transport: httpx.AsyncBaseTransport | None,
        wait: AsyncWait | None,
    ) -> Self:
        """A sender with connections of its own.

        Raises:
            UnreachableError: the URL is none.
        """
        try:
            http = httpx.AsyncClient(**_settings(conditions), transport=transport)
        except httpx.InvalidURL as error:
            raise _no_address(conditions, error) from None
        return cls(http, conditions, wait)

    def altered(self, conditions: Conditions) -> Self:
        """The same connections under other conditions."""
        return type(self)(self._http, conditions, self._wait)

    async def request(self, step: Send) -> Reply | Lost:
        """Send a request."""
        try:
            return _reply(await self._http.request(**_arguments(step, self.conditions)))
        except (httpx.TransportError, httpx.InvalidURL) as error:
            return _lost(error)

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await self._wait(seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def _settings(conditions: Conditions) -> dict[str, Any]:
    """What either kind of HTTP client is made with; no proxy of the environment is used."""
    agent = f"tickrail-client/{version('tickrail')}"
    return {
        "base_url": conditions.url,
        "headers": {"Accept": "application/json", "User-Agent": agent},
        "trust_env": False,
    }


def _arguments(step: Send, conditions: Conditions) -> dict[str, Any]:
    headers = {**conditions.headers, **step.headers}
    if step.body is not None:
        headers.setdefault("Content-Type", "application/json")
    return {
        "method": step.method,
        "url": step.path,
        "params": list(step.query) or None,
        "headers": headers,
        "content": step.body,
        "timeout": httpx.Timeout(step.timeout, connect=min(step.timeout, _CONNECT_WITHIN)),
    }


def _reply(answer: httpx.Response) -> Reply:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return Reply(answer.status_code, answer.reason_phrase, headers, answer.content)


def _lost(error: httpx.TransportError | httpx.InvalidURL) -> Lost:
    if isinstance(error, httpx.InvalidURL):
        return Lost(f"that is no address: {error}", sent=False, hopeless=True)
    words = "no answer in time" if isinstance(error, httpx.TimeoutException) else str(error)
    sent = not isinstance(error, _NOT_SENT)
    return Lost(words or type(error).__name__, sent, isinstance(error, _HOPELESS))


def _no_address(conditions: Conditions, error: httpx.InvalidURL) -> UnreachableError:
    return UnreachableError(f"{conditions.url} is not an address: {error}")
