"""The two clients: `Client` blocks, `AsyncClient` is awaited."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from tickrail.core.clock import Clock, SystemClock
from tickrail.sdk.client import encoding
from tickrail.sdk.client.errors import MissingKeyError
from tickrail.sdk.client.flow import ENDLESS, Flow, Policy
from tickrail.sdk.client.operation import Ask, Resource, S_co, call, composed, listing
from tickrail.sdk.client.senders import AsyncSender, BlockingSender, Conditions, under

if TYPE_CHECKING:  # what takes time to load is loaded where it is used
    import httpx

    from tickrail.sdk.client.http import AsyncWait, Wait
    from tickrail.sdk.client.resources.access import ApiKeys, AuditLog, Quotas, Usage
    from tickrail.sdk.client.resources.definitions import Calendars, Schedules, Secrets
    from tickrail.sdk.client.resources.installation import Queues, System, Tenants
    from tickrail.sdk.client.resources.jobs import Jobs
    from tickrail.sdk.client.resources.launches import Launches
    from tickrail.sdk.client.resources.work import Backfills, DeadLetters, Operations

TENANT_HEADER = "Tickrail-Tenant"
DEFAULT_URL = "http://127.0.0.1:8080"
TransportT = TypeVar("TransportT")
WaitT = TypeVar("WaitT")

PARTS: Mapping[str, tuple[str, str]] = {
    "jobs": ("jobs", "Jobs"),
    "launches": ("launches", "Launches"),
    "dead_letters": ("work", "DeadLetters"),
    "operations": ("work", "Operations"),
    "backfills": ("work", "Backfills"),
    "calendars": ("definitions", "Calendars"),
    "schedules": ("definitions", "Schedules"),
    "secrets": ("definitions", "Secrets"),
    "queues": ("installation", "Queues"),
    "api_keys": ("access", "ApiKeys"),
    "audit_log": ("access", "AuditLog"),
    "quotas": ("access", "Quotas"),
    "usage": ("access", "Usage"),
    "tenants": ("installation", "Tenants"),
    "system": ("installation", "System"),
}
"""Of each part of the API: the module in `resources`, and the class."""


class Api(Resource[S_co]):
    """What both clients offer: the parts of the API, and calls of any path."""

    jobs: Jobs[S_co]
    launches: Launches[S_co]
    dead_letters: DeadLetters[S_co]
    operations: Operations[S_co]
    backfills: Backfills[S_co]
    calendars: Calendars[S_co]
    schedules: Schedules[S_co]
    secrets: Secrets[S_co]
    queues: Queues[S_co]
    api_keys: ApiKeys[S_co]
    audit_log: AuditLog[S_co]
    quotas: Quotas[S_co]
    usage: Usage[S_co]
    tenants: Tenants[S_co]
    system: System[S_co]

    if not TYPE_CHECKING:  # checkers see the names above and no others

        def __getattr__(self, name: str) -> Resource[Any]:
            """A part of the API; its module is loaded with its first use."""
            if name not in PARTS:
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            module, kind = PARTS[name]
            found = getattr(import_module(f"{__package__}.resources.{module}"), kind)(self.sender)
            setattr(self, name, found)
            return found

        def __dir__(self) -> list[str]:
            return [*super().__dir__(), *PARTS]

    @property
    def url(self) -> str:
        """Where the API is."""
        return self.sender.conditions.url

    def with_tenant(self, tenant: str) -> Self:
        """With an operator's key: a client that works for this tenant, by id or name."""
        return self.with_options(tenant=tenant)

    def with_options(
        self,
        *,
        tenant: str | None = None,
        timeout: float | None = None,
        tries: int | None = None,
        within: float | None = None,
    ) -> Self:
        """A client with the same connections under other conditions; what is None stays.

        Closing one of the two closes the connections of both.

        Args:
            tenant: with an operator's key, the tenant to work for: id or name.
            timeout: seconds to wait for an answer, each try.
            tries: how often a call is tried at most.
            within: seconds that all tries of a call and the pauses between them may take together.
        """
        changed = under(
            self.sender.conditions,
            headers={TENANT_HEADER: encoding.header("tenant", tenant)} if tenant else {},
            timeout=timeout,
            tries=tries,
            within=within,
        )
        other = object.__new__(type(self))
        Api.__init__(other, self.sender.altered(changed))
        return other

    @composed
    def request(
        self,
        method: str,
        path: str,
        json: object = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        within: float | None = None,
    ) -> Flow[Any]:
        """Call any path; the answer's JSON, None where it has none.

        Args:
            method: GET, POST, ...
            path: from the root, such as `/v1/jobs`.
            json: the body.
            params: of the query; a list repeats its name.
            headers: sent with this call. A POST without an `Idempotency-Key` gets one.
            within: seconds that all its tries and the pauses between them may take together, for
                somebody who waits for it.

        Raises:
            ApiError: the API refused it.
            UnreachableError: no answer, or none that is the API's.
        """
        sent = Ask(_as_it_is, method.upper(), path, {}, params or {}, json, headers or {}, within)
        return call(self.sender, sent)

    @listing("")
    def pages(
        self, path: str, params: Mapping[str, Any] | None = None, within: float | None = None
    ) -> Ask[dict[str, Any]]:
        """All items of any list as JSON objects; `within` as for `request`, for each page."""
        return Ask(_as_it_is, "GET", path, query=params or {}, within=within)


def _as_it_is(document: Any) -> Any:  # noqa: ANN401 - any JSON
    return document


def _conditions(
    url: str,
    key: str,
    policy: Policy,
    headers: Mapping[str, str] | None,
    tenant: str | None,
    clock: Clock | None,
) -> Conditions:
    """The conditions of a new client."""
    sent = dict(headers or {})
    if key:
        sent["Authorization"] = f"Bearer {encoding.header('key', key)}"
    if tenant:
        sent[TENANT_HEADER] = encoding.header("tenant", tenant)
    return Conditions(url.rstrip("/"), clock or SystemClock(), policy, sent)


def _named(environ: Mapping[str, str] | None) -> dict[str, str]:
    known = os.environ if environ is None else environ
    return {
        "url": known.get("TICKRAIL_API_URL") or DEFAULT_URL,
        "key": known.get("TICKRAIL_API_KEY", ""),
    }


class Opened(Api[S_co], Generic[S_co, TransportT, WaitT]):
    """A client with connections of its own."""

    def __init__(  # noqa: PLR0913 - conditions of a connection, all with defaults
        self,
        url: str,
        key: str = "",
        timeout: float = 30.0,
        *,
        tenant: str | None = None,
        tries: int = 4,
        within: float = ENDLESS,
        headers: Mapping[str, str] | None = None,
        transport: TransportT | None = None,
        wait: WaitT | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Connections are made when they are needed.

        Args:
            url: where the API is, such as `http://127.0.0.1:8080`.
            key: the API key (`trk_...`), or a token of the issuer; empty for calls that need none.
            timeout: seconds to wait for an answer, each try.
            tenant: with an operator's key, the tenant to work for: id or name.
            tries: how often a call is tried at most.
            within: seconds that all tries of a call and the pauses between them may take together.
            headers: sent with every call.
            transport: another way to send requests, such as through a proxy.
            wait: how to wait between two tries.
            clock: measures how long a call takes.

        Raises:
            UnreachableError: the URL is none.
            ValueError: key or tenant cannot be sent.
        """
        made = _conditions(url, key, Policy(timeout, within, tries), headers, tenant, clock)
        super().__init__(self._connected(made, transport, wait))

    @classmethod
    @abstractmethod
    def _connected(
        cls, conditions: Conditions, transport: TransportT | None, wait: WaitT | None
    ) -> S_co:
        """What sends requests under these conditions."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **more: Any) -> Self:  # noqa: ANN401 - arguments of the class
        """A client of the API that TICKRAIL_API_URL names, with the key of TICKRAIL_API_KEY.

        Args:
            environ: in place of the process's environment.
            more: further arguments of the class; `key` in place of the variable.

        Raises:
            MissingKeyError: neither says a key.
        """
        given = {**_named(environ), **more}
        if not given["key"]:
            raise MissingKeyError(
                "TICKRAIL_API_KEY is not set: put an API key there (`tickrail keys create` makes"
                " one), or give from_environment(key=...)."
            )
        return cls(**given)


class Client(Opened[BlockingSender, "httpx.BaseTransport", "Wait"]):
    """Calls the API and waits for its answers. May be used from several threads; close it."""

    @classmethod
    def _connected(
        cls, conditions: Conditions, transport: httpx.BaseTransport | None, wait: Wait | None
    ) -> BlockingSender:
        from tickrail.sdk.client.http import HttpSender  # noqa: PLC0415 - see above

        return HttpSender.connect(conditions, transport, wait)

    def close(self) -> None:
        """Close the connections."""
        self.sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClient(Opened[AsyncSender, "httpx.AsyncBaseTransport", "AsyncWait"]):
    """Calls the API from an event loop of asyncio; every method is that of `Client`, to await."""

    @classmethod
    def _connected(
        cls,
        conditions: Conditions,
        transport: httpx.AsyncBaseTransport | None,
        wait: AsyncWait | None,
    ) -> AsyncSender:
        from tickrail.sdk.client.http import AsyncHttpSender  # noqa: PLC0415 - see above

        return AsyncHttpSender.connect(conditions, transport, wait)

    async def close(self) -> None:
        """Close the connections."""
        await self.sender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
