"""One request, as the routes see it: who asks, for which tenant, with which document.

Writes go through `write`, which keeps the answer under the Idempotency-Key in the transaction of
the effect; a request whose answer is kept never reaches its route.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Annotated, Any, cast
from urllib.parse import unquote

import orjson
from fastapi import Depends, Request
from starlette.responses import Response

from tickrail.core.clock import Clock
from tickrail.core.errors import (
    ForbiddenError,
    InvalidInputError,
    MalformedError,
    PreconditionFailedError,
    Problem,
)
from tickrail.core.ids import TenantId
from tickrail.engine.backfill_requests import BackfillRequests
from tickrail.engine.calendars import Calendars
from tickrail.engine.explain import Explainer
from tickrail.engine.job_rules import Precondition
from tickrail.engine.job_versions import JobVersions
from tickrail.engine.jobs import Jobs
from tickrail.engine.keys import Keys
from tickrail.engine.launches import Launches
from tickrail.engine.members import MemberDirectory
from tickrail.engine.operations import OperationRunner, Operations
from tickrail.engine.pauses import Pauses
from tickrail.engine.redrive import Redrives
from tickrail.formats import decode_icalendar
from tickrail.runtime.look import Look
from tickrail.store.engine import ApiDatabase, ApiTransaction, EgressChangedError
from tickrail.store.idempotency import StoredAnswer, claim_key, find_answer, keep_answer
from tickrail.store.operator import OperatorTransaction
from tickrail.store.tenancy import BaseTransaction, Caller
from tickrail_api.addresses import TrustedProxies
from tickrail_api.auth import Authenticator, Principal
from tickrail_api.bodies import parse_body
from tickrail_api.limiter import RequestLimiter
from tickrail_api.query import check_given_once, described
from tickrail_api.threads import directly

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_ETAG = re.compile(r'(W/)?"([1-9]\d{0,8})"')
_TENANT_HEADER = "Tickrail-Tenant"


@dataclass(frozen=True, slots=True)
class Parts:
    """What the routes are served by."""

    database: ApiDatabase
    clock: Clock
    authenticator: Authenticator
    limiter: RequestLimiter
    proxies: TrustedProxies
    keys: Keys
    jobs: Jobs
    versions: JobVersions
    pauses: Pauses
    backfills: BackfillRequests
    operations: Operations
    runner: OperationRunner
    launches: Launches
    redrives: Redrives
    calendars: Calendars
    members: MemberDirectory
    explainer: Explainer
    look: Look
    topic_prefix: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A JSON answer before it is sent. `once`: members that are told once and kept nowhere."""

    document: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    once: Sequence[str] = ()

    def response(self) -> Response:
        """As the framework sends it."""
        return _response(self.stored())

    def stored(self) -> StoredAnswer:
        """As bytes."""
        body = b"" if self.document is None else orjson.dumps(self.document)
        return StoredAnswer(self.status, dict(self.headers), body)

    def kept(self) -> StoredAnswer:
        """As it is kept for a repeated request: null where something is told once."""
        if not self.once:
            return self.stored()
        document = {**self.document, **dict.fromkeys(self.once)}
        return Answer(document, self.status, self.headers).stored()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A write that is ready: its effect, and the queues of the jobs that it will make."""

    effect: Callable[[ApiTransaction], Answer]
    queues: Collection[str]


class ReplayError(Exception):
    """Not an error: the request was answered before, and this is the answer."""

    def __init__(self, stored: StoredAnswer) -> None:
        super().__init__("replayed")
        self.response = _response(stored, {"Idempotent-Replay": "true"})


def _response(stored: StoredAnswer, more: Mapping[str, str] | None = None) -> Response:
    kind = "application/json" if stored.body else None
    headers = {**stored.headers, **(more or {})}
    return Response(stored.body or None, stored.status, headers, kind)


class Call:
    """One authenticated request."""

    def __init__(self, request: Request, parts: Parts, principal: Principal) -> None:
        """Find out for which tenant it is; no tenant's data is touched yet.

        Raises:
            ForbiddenError: a tenant's key names another tenant.
            NotFoundError: an operator names a tenant that is not there.
        """
        self.parts = parts
        self.principal = principal
        self._request = request
        self.caller = Caller(
            actor=principal.actor,
            request_id=request.scope["tickrail.request_id"],
            address=request.scope.get("tickrail.address", ""),
        )
        self._tenant = principal.tenant
        named = request.headers.get(_TENANT_HEADER)
        if named is not None:
            if not principal.operator:
                raise ForbiddenError(f"Only an operator's key may send {_TENANT_HEADER}.")
            self._tenant = parts.authenticator.tenant_named(named)
        request.scope["tickrail.caller"] = self.caller.actor

    @property
    def tenant(self) -> TenantId:
        """The tenant whose data this is about.

        Raises:
            ForbiddenError: an operator has named none.
        """
        if self._tenant is None:
            raise ForbiddenError(
                f"An operator's key sees a tenant's data only with {_TENANT_HEADER}: id or name."
            )
        return self._tenant

    @property
    def for_tenant(self) -> bool:
        """Whether this is about a tenant: its own key's, or the one that an operator named."""
        return self._tenant is not None

    def document(self) -> Any:  # noqa: ANN401 - any JSON value
        """The JSON value of the body; None for an empty one, where there need be none.

        Raises:
            MalformedError: it is not JSON within the bounds.
            InvalidInputError: it is empty.
        """
        body = self._request.scope["tickrail.body"]
        if not body and described(self._request)[1].get("requestBody", {}).get("required"):
            problem = Problem("", "is empty", "an object")
            raise InvalidInputError("The body is not valid.", [problem])
        return parse_body(body, self._request.headers.get("content-type"))

    def calendar_document(self) -> Any:  # noqa: ANN401 - as above
        """The document of a calendar: a body of `text/calendar` stands as its `icalendar`.

        Raises:
            MalformedError: neither JSON within the bounds nor text in UTF-8.
        """
        kind = self._request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/calendar":
            return self.document()
        try:
            return {"icalendar": decode_icalendar(self._request.scope["tickrail.body"])}
        except UnicodeDecodeError as e:
            raise MalformedError(f"The iCalendar file is not UTF-8 (byte {e.start}).") from None

    @contextmanager
    def read(self) -> Iterator[ApiTransaction]:
        """A transaction of the tenant for reading; an operator's is audited."""
        with self.parts.database.tenant(self.tenant, self.caller) as tx:
            if self.principal.operator:
                tx.audit("operator.read", f"{self._request.method} {self._request.url.path}"[:500])
            yield tx

    def egress(self) -> Mapping[str, Any] | None:
        """The tenant's egress lists, read before the transaction of a write."""
        return self.parts.database.egress(self.tenant)

    def write_checked(self, prepare: Callable[[Mapping[str, Any] | None], Prepared]) -> Response:
        """As `write`, of what is first held against the tenant's egress lists, which takes a while.

        The lists are those that this process knows. The transaction finds out whether they still
        are the tenant's, and a refusal may be due to old ones: then it is done again with new ones.

        Raises:
            InProgressError, IdempotencyMismatchError: as `write`.
        """
        database = self.parts.database
        egress = database.known_egress(self.tenant)
        while True:
            try:
                prepared = prepare(egress)
            except InvalidInputError:
                known, egress = egress, self.egress()
                if egress == known:
                    raise
                continue
            try:
                return self.write(prepared.effect, prepared.queues, egress)
            except EgressChangedError:
                egress = database.known_egress(self.tenant)

    def write(
        self,
        effect: Callable[[ApiTransaction], Answer],
        queues: Collection[str] = (),
        egress: Mapping[str, Any] | EllipsisType | None = ...,
    ) -> Response:
        """Run an effect in a transaction; its answer is kept there if the request has a key.

        Args:
            effect: what is done.
            queues: of the jobs that it will make.
            egress: by which their targets were checked, if they were.

        Raises:
            InProgressError: the same request is still running.
            IdempotencyMismatchError: the key was used for another one.
        """
        key = self._idempotency_key()
        with self.parts.database.tenant(self.tenant, self.caller, queues, egress) as tx:

            def audited() -> Answer:
                if self.principal.operator:
                    about = f"{self._request.method} {self._request.url.path}"
                    tx.audit("operator.write", about[:500])
                return effect(tx)

            answer = self._once(tx.base, key, audited)
        return answer.response()

    def _once(self, base: BaseTransaction, key: str | None, effect: Callable[[], Answer]) -> Answer:
        """Run an effect unless its answer is kept under the key; else keep it there.

        Raises:
            ReplayError: it is kept.
            InProgressError, IdempotencyMismatchError: as `write`.
        """
        if key is None:
            return effect()
        claim_key(base, key)
        kept = find_answer(base, key, self._fingerprint())
        if kept is not None:
            raise ReplayError(kept)
        answer = effect()
        keep_answer(base, key, self._fingerprint(), answer.kept())
        return answer

    @contextmanager
    def read_here(self) -> Iterator[ApiTransaction | OperatorTransaction]:
        """A transaction for reading: the tenant's, or an operator's who names none."""
        if self.for_tenant:
            with self.read() as tx:
                yield tx
        else:
            with self.parts.database.operator(self.caller) as base:
                yield base

    def write_here(
        self, effect: Callable[[ApiTransaction | OperatorTransaction], Answer]
    ) -> Response:
        """As `write`, for the tenant or, where an operator names none, the installation.

        Raises:
            InProgressError, IdempotencyMismatchError: as `write`.
        """
        return self.write(effect) if self.for_tenant else self.write_installation(effect)

    def write_installation(self, effect: Callable[[OperatorTransaction], Answer]) -> Response:
        """As `write`, of an operator's request that names no tenant.

        Raises:
            ForbiddenError: it names one.
            InProgressError, IdempotencyMismatchError: as `write`.
        """
        if self.for_tenant:
            raise ForbiddenError(f"This is the installation's: leave {_TENANT_HEADER} out.")
        key = self._idempotency_key()
        with self.parts.database.operator(self.caller) as tx:
            answer = self._once(tx.base, key, lambda: effect(tx))
        return answer.response()

    def replay(self) -> None:
        """Answer at once where the answer is kept.

        Raises:
            ReplayError: it is.
            IdempotencyMismatchError: the key was used for another request.
        """
        key = self._idempotency_key()
        if key is None:
            return
        kept: StoredAnswer | None = None
        if self._tenant is not None:
            with self.parts.database.tenant(self._tenant, self.caller) as tx:
                kept = find_answer(tx.base, key, self._fingerprint())
        elif self.principal.operator:
            with self.parts.database.operator(self.caller) as own:
                kept = find_answer(own.base, key, self._fingerprint())
        if kept is not None:
            raise ReplayError(kept)

    def precondition(self) -> Precondition:
        """If-Match and If-None-Match.

        Raises:
            MalformedError: they hold something else than versions.
            PreconditionFailedError: no version that they hold can match.
        """
        unless = self._lines("if-none-match")
        if unless is not None:
            if unless.strip() != "*":
                raise MalformedError("If-None-Match takes * alone: create only.")
            return Precondition(exists=False)
        given = self._lines("if-match")
        if given is None:
            return Precondition()
        if given.strip() == "*":
            return Precondition(exists=True)
        found = [_ETAG.fullmatch(tag.strip()) for tag in given.split(",")]
        tags = [tag for tag in found if tag is not None]
        if len(tags) != len(found):
            raise MalformedError('If-Match holds versions as answered in ETag, such as "7", or *.')
        versions = frozenset(int(tag[2]) for tag in tags if not tag[1])
        if not versions:
            raise PreconditionFailedError(
                'If-Match compares strongly: a weak tag such as W/"7" matches nothing; write "7".'
            )
        return Precondition(versions, exists=True)

    def _lines(self, name: str) -> str | None:
        """A header that is a list: all its lines are one (RFC 9110, 5.3); None: there is none."""
        lines = self._request.headers.getlist(name)
        return ", ".join(lines) if lines else None

    def _idempotency_key(self) -> str | None:
        if self._request.method != "POST":
            return None
        keys = self._request.headers.getlist("idempotency-key")
        if not keys:
            return None
        if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
            raise MalformedError("Idempotency-Key is 1 to 255 visible ASCII characters, sent once.")
        return keys[0]

    def _fingerprint(self) -> bytes:
        url = self._request.url
        about = f"{self._request.method} {unquote(url.path)}?{url.query}\n"
        body = self._request.scope["tickrail.body"]
        return hashlib.sha256(about.encode("utf-8", "replace") + body).digest()


@dataclass(frozen=True, slots=True)
class Demand:
    """What a route demands of a key: a scope (None: it demands one itself), an operator's."""

    scope: str | None
    operators: bool


DEMANDS: dict[Callable[..., object], Demand] = {}
"""By the dependency of the route; the OpenAPI document tells them."""


def parts_of(request: Request) -> Parts:
    """What this application was built from."""
    return cast("Parts", request.app.state.parts)


def identify(request: Request) -> Principal:
    """Who makes a request, and from where, which is noted for the log.

    Raises:
        TickrailError: as `Authenticator.authenticate`.
    """
    parts = parts_of(request)
    values = [v for k, v in request.scope["headers"] if k == b"authorization"]
    address = parts.proxies.client(
        request.client.host if request.client is not None else "",
        request.headers.getlist("x-forwarded-for"),
    )
    request.scope["tickrail.address"] = address
    return parts.authenticator.authenticate(values, address)


def needs(
    scope: str | None, *, operator: bool = False
) -> Callable[[Request], Coroutine[Any, Any, Call]]:
    """The dependency of a route: an authenticated call whose key has a scope.

    Args:
        scope: the scope that is demanded; None: the route demands one itself.
        operator: whether only operators' keys may.
    """

    @directly
    def authenticated(request: Request) -> Call:
        parts = parts_of(request)
        principal = identify(request)
        fields, refused = parts.limiter.admit(principal)
        request.scope["tickrail.fields"].update(fields)
        if refused is not None:
            request.scope["tickrail.caller"] = principal.actor
            raise refused
        if scope is not None:
            principal.demand(scope)
        if operator and not principal.operator:
            raise ForbiddenError(
                "This is for operators' keys: `tickrail bootstrap` without `--tenant` makes one."
            )
        check_given_once(request)
        call = Call(request, parts, principal)
        if scope is not None:  # a route that demands one itself answers by `write`, after that
            call.replay()
        return call

    DEMANDS[authenticated] = Demand(scope, operators=operator)
    return authenticated


Asks = Annotated[Call, Depends(needs(None))]
Reads = Annotated[Call, Depends(needs("read"))]
Runs = Annotated[Call, Depends(needs("run"))]
Writes = Annotated[Call, Depends(needs("write"))]
Administers = Annotated[Call, Depends(needs("admin"))]
Operates = Annotated[Call, Depends(needs("read", operator=True))]
ChangesInstallation = Annotated[Call, Depends(needs("admin", operator=True))]
