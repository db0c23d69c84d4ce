"""Operations of the API as values, and how both kinds of client offer them.

A method of a resource is written once: it says what to ask (`Ask`), and stands under
`operation`, `listing` or `composed`. On a blocking client it returns the answer, on an async one
something to await; type checkers see which.
"""

from __future__ import annotations

import functools
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MethodType
from typing import (
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    overload,
)

from tickrail.sdk.client import encoding
from tickrail.sdk.client.errors import (
    RateLimitedError,
    UnavailableError,
    UnexpectedAnswerError,
    UnreachableError,
)
from tickrail.sdk.client.flow import Flow, Pause, Send, decoded, exchange
from tickrail.sdk.client.senders import AsyncSender, BlockingSender, Sender

T = TypeVar("T")
P = ParamSpec("P")
S_co = TypeVar("S_co", bound=BlockingSender | AsyncSender, covariant=True)
_AWAY = (UnreachableError, UnavailableError, RateLimitedError)
_PATIENCE = 60.0


class Resource(Generic[S_co]):
    """A part of the API, of a client of either kind."""

    def __init__(self, sender: S_co) -> None:
        self.sender = sender


class Page(NamedTuple, Generic[T]):
    """A page of a list; `next_cursor` goes on behind it, None: it is the last one."""

    items: tuple[T, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """What is asked of the API.

    Attributes:
        reads: makes the result of the answer's JSON; for a list, of each item.
        method: of the request.
        path: with the names of its parts in braces.
        parts: what stands in the path.
        query: of the request.
        document: its body, or None.
        headers: beside the usual ones.
        within: seconds for all tries, in place of the client's.
    """

    reads: Callable[[Any], T]
    method: str = "GET"
    path: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    document: object = None
    headers: Mapping[str, str] = field(default_factory=dict)
    within: float | None = None


def asked(
    reads: Callable[[Any], T],
    parts: Mapping[str, str] | None = None,
    *,
    query: Mapping[str, Any] | None = None,
    body: Mapping[str, Any] | None = None,
    if_match: int | None = None,
    create_only: bool = False,
    idempotency_key: str | None = None,
) -> Ask[T]:
    """What a method asks; its route is that of the method.

    Args:
        reads: makes the result of the answer's JSON.
        parts: what stands in the path.
        query: keyword arguments that stand in the query.
        body: keyword arguments that are the members of the body; None: no body.
        if_match: the version that the thing must be at.
        create_only: refuse it where there is such a thing already.
        idempotency_key: in place of a new one.
    """
    headers: dict[str, str] = {}
    if if_match is not None:
        headers["If-Match"] = f'"{if_match}"'
    if create_only:
        headers["If-None-Match"] = "*"
    if idempotency_key is not None:
        headers["Idempotency-Key"] = encoding.header("idempotency_key", idempotency_key)
    document = None if body is None else encoding.members_of(body)
    return Ask(reads, "GET", "", parts or {}, query or {}, document, headers)


def nothing(_: object) -> None:
    """Reads an answer that says nothing."""


def call(sender: Sender, ask: Ask[Any]) -> Flow[Any]:
    """Ask, and decode the JSON of the answer; a POST without an Idempotency-Key gets one.

    Raises:
        ApiError: the API refused it.
        UnreachableError: no answer, or none that is the API's.
    """
    conditions = sender.conditions
    headers = dict(ask.headers)
    if ask.method == "POST" and "idempotency-key" not in map(str.lower, headers):
        headers["Idempotency-Key"] = str(uuid.uuid4())
    request = Send(
        ask.method,
        encoding.path_of(ask.path, ask.parts),
        tuple(encoding.query_of(ask.query)),
        headers,
        None if ask.document is None else encoding.body_of(ask.document),
    )
    policy = conditions.policy
    if ask.within is not None:
        policy = replace(policy, within=ask.within)
    reply = yield from exchange(
        conditions.url,
        lambda timeout: replace(request, timeout=timeout),
        policy,
        conditions.clock.monotonic,
    )
    return decoded(conditions.url, reply)


def answer(sender: Sender, ask: Ask[T]) -> Flow[T]:
    """Ask, and read the answer.

    Raises:
        ApiError: the API refused it.
        UnreachableError: no answer, or none that can be read.
    """
    return ask.reads((yield from call(sender, ask)))


def page(sender: Sender, ask: Ask[T], cursor: str | None) -> Flow[Page[T]]:
    """Ask for a page of a list: the first one, or that behind a cursor.

    Raises:
        ApiError: the API refused it.
        UnreachableError: no answer, or none that can be read.
    """
    if cursor is not None:
        ask = replace(ask, query={**ask.query, "cursor": cursor})
    found = yield from call(sender, ask)
    if not isinstance(found, dict) or not isinstance(found.get("items"), list):
        raise UnexpectedAnswerError(f"The answer to GET {ask.path} is no page of a list.")
    following = found.get("next_cursor")
    return Page(tuple(map(ask.reads, found["items"])), following)


def polled(
    sender: Sender,
    ask: Ask[T],
    ended: Callable[[T], bool],
    every: float,
    within: float | None,
) -> Flow[T]:
    """Ask again and again until something has ended.

    An API that answered once and is then away, as while it is restarted, is waited for a minute.

    Args:
        sender: carries it out.
        ask: what to ask.
        ended: whether it has.
        every: seconds between two calls.
        within: seconds in all; None: as long as it takes.

    Raises:
        TimeoutError: it had not ended in time.
        ApiError: the API refused it.
        UnreachableError: no answer, or none that can be read.
    """
    now = sender.conditions.clock.monotonic
    ends = None if within is None else now() + within
    answered: float | None = None
    while True:
        try:
            found = yield from answer(sender, ask)
        except _AWAY as error:
            away = answered is None or now() - answered >= _PATIENCE
            if away or isinstance(error, UnexpectedAnswerError):
                raise
        else:
            answered = now()
            if ended(found):
                return found
        left = every if ends is None else ends - now()
        if left <= 0:
            where = encoding.path_of(ask.path, ask.parts)
            raise TimeoutError(f"{where} had not ended after {within:g} s")
        yield Pause(min(every, left))


class _Listed(Generic[T]):
    """How far a list has been read."""

    def __init__(self, sender: Any, ask: Ask[T]) -> None:  # noqa: ANN401 - either kind of sender
        self._sender = sender
        self._ask = ask
        self._left: deque[T] = deque()
        self._cursor: str | None = None
        self._more = True

    def _next_page(self) -> Flow[Page[T]]:
        return page(self._sender, self._ask, self._cursor)

    def _take(self, found: Page[T]) -> None:
        self._left.extend(found.items)
        self._cursor = found.next_cursor
        self._more = found.next_cursor is not None


class Pages(_Listed[T], Iterator[T]):
    """The items of a list, page after page; `pages()` has the pages themselves."""

    def __next__(self) -> T:
        while not self._left:
            if not self._more:
                raise StopIteration
            self._take(self._sender.run(self._next_page()))
        return self._left.popleft()

    def pages(self) -> Iterator[Page[T]]:
        """The pages that have not been read yet."""
        while self._more:
            found: Page[T] = self._sender.run(self._next_page())
            self._cursor, self._more = found.next_cursor, found.next_cursor is not None
            yield found


class AsyncPages(_Listed[T], AsyncIterator[T]):
    """The items of a list, page after page; `pages()` has the pages themselves."""

    async def __anext__(self) -> T:
        while not self._left:
            if not self._more:
                raise StopAsyncIteration
            self._take(await self._sender.run(self._next_page()))
        return self._left.popleft()

    async def pages(self) -> AsyncIterator[Page[T]]:
        """The pages that have not been read yet."""
        while self._more:
            found: Page[T] = await self._sender.run(self._next_page())
            self._cursor, self._more = found.next_cursor, found.next_cursor is not None
            yield found


class _Method(Generic[P]):
    """A method of a resource; on the class it takes the resource first, as any method does."""

    bound: Callable[..., Any]

    def __call__(self, owner: Resource[Any], /, *args: P.args, **given: P.kwargs) -> Any:  # noqa: ANN401 - a result, or something to await
        return self.bound(owner, *args, **given)


class _Offered(_Method[P], Generic[P, T]):
    """A method that says what to ask, and its route."""

    def __init__(
        self, method: str, path: str, build: Callable[Concatenate[Any, P], Ask[T]]
    ) -> None:
        self.method = method
        self.path = path
        self.build = build
        self.__doc__ = build.__doc__

        @functools.wraps(build)
        def bound(owner: Resource[Any], /, *args: P.args, **given: P.kwargs) -> object:
            return self.done(owner.sender, self.ask(owner, *args, **given))

        self.bound = bound

    def ask(self, owner: object, /, *args: P.args, **given: P.kwargs) -> Ask[T]:
        """What is asked."""
        built = self.build(owner, *args, **given)
        # A method for any path names it itself.
        return replace(built, method=self.method, path=self.path) if self.path else built

    def done(self, sender: Any, ask: Ask[T]) -> object:  # noqa: ANN401 - either kind of sender
        """What the method returns on a client with this sender."""
        return sender.run(answer(sender, ask))


class Operation(_Offered[P, T]):
    """A method that asks once."""

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...
    @overload
    def __get__(self, owner: Resource[BlockingSender], kind: type) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, owner: Resource[AsyncSender], kind: type
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, owner: Resource[Any] | None, kind: type) -> Any:
        return self if owner is None else MethodType(self.bound, owner)


class Listing(_Offered[P, T]):
    """A method that asks for a list, page after page."""

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...
    @overload
    def __get__(self, owner: Resource[BlockingSender], kind: type) -> Callable[P, Pages[T]]: ...
    @overload
    def __get__(self, owner: Resource[AsyncSender], kind: type) -> Callable[P, AsyncPages[T]]: ...
    def __get__(self, owner: Resource[Any] | None, kind: type) -> Any:
        return self if owner is None else MethodType(self.bound, owner)

    def done(self, sender: Any, ask: Ask[T]) -> object:  # noqa: ANN401 - either kind of sender
        """The items."""
        return AsyncPages(sender, ask) if isinstance(sender, AsyncSender) else Pages(sender, ask)


class Composed(_Method[P], Generic[P, T]):
    """A method that asks several times, or waits: it makes a flow."""

    def __init__(self, build: Callable[Concatenate[Any, P], Flow[T]]) -> None:
        self.__doc__ = build.__doc__

        @functools.wraps(build)
        def bound(owner: Resource[Any], /, *args: P.args, **given: P.kwargs) -> object:
            result: object = owner.sender.run(build(owner, *args, **given))
            return result

        self.bound = bound

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...
    @overload
    def __get__(self, owner: Resource[BlockingSender], kind: type) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, owner: Resource[AsyncSender], kind: type
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, owner: Resource[Any] | None, kind: type) -> Any:
        return self if owner is None else MethodType(self.bound, owner)


class _Operation(Protocol):
    def __call__(self, build: Callable[Concatenate[Any, P], Ask[T]], /) -> Operation[P, T]: ...


class _Listing(Protocol):
    def __call__(self, build: Callable[Concatenate[Any, P], Ask[T]], /) -> Listing[P, T]: ...


def operation(method: str, path: str) -> _Operation:
    """The method asks this route."""

    def offered(build: Callable[Concatenate[Any, P], Ask[T]]) -> Operation[P, T]:
        return Operation(method, path, build)

    return offered


def listing(path: str) -> _Listing:
    """The method asks this route for a list."""

    def offered(build: Callable[Concatenate[Any, P], Ask[T]]) -> Listing[P, T]:
        return Listing("GET", path, build)

    return offered


composed = Composed
