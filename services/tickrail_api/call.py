"""One request, as the routes see it: who asks, for which tenant, with which document.

Writes go through `write`, which keeps the answer under the Idempotency-Key in the transaction of
the effect; a request whose answer is kept never reaches its route.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, cast
from urllib.parse import unquote

import orjson
from fastapi import Depends, Request
from starlette.responses import Response

from tickrail.core.clock import Clock
from tickrail.core.errors import ForbiddenError, InvalidInputError, MalformedError, Problem
from tickrail.core.ids import TenantId
from tickrail.engine.backfill_requests import BackfillRequests
from tickrail.engine.calendars import Calendars
from tickrail.engine.explain import Explainer
from tickrail.engine.job_rules import Precondition
from tickrail.engine.jobs import Jobs
from tickrail.engine.launches import Launches
from tickrail.engine.members import MemberDirectory
from tickrail.engine.operations import OperationRunner, Operations
from tickrail.engine.pauses import Pauses
from tickrail.engine.redrive import Redrives
from tickrail.formats import decode_icalendar
from tickrail.runtime.look import Look
from tickrail.store.engine import ApiDatabase, ApiTransaction
from tickrail.store.idempotency import StoredAnswer, claim_key, find_answer, keep_answer
from tickrail.store.tenancy import Caller
from tickrail_api.auth import Authenticator, Principal
from tickrail_api.bodies import parse_body
from tickrail_api.problems import unknown_parameter

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_ETAG = re.compile(r'"([1-9]\d{0,8})"')
_TENANT_HEADER = "Tickrail-Tenant"


@dataclass(frozen=True, slots=True)
class Parts:
    """What the routes are served by."""

    database: ApiDatabase
    clock: Clock
    authenticator: Authenticator
    jobs: Jobs
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


@dataclass(frozen=True, slots=True)
class Answer:
    """A JSON answer before it is sent."""

    document: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        """As the framework sends it."""
        return _response(self.stored())

    def stored(self) -> StoredAnswer:
        """As it is kept."""
        body = b"" if self.document is None else orjson.dumps(self.document)
        return StoredAnswer(self.status, dict(self.headers), body)


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
            actor=f"key:{principal.key_id}",
            request_id=request.scope["tickrail.request_id"],
            address=request.client.host if request.client is not None else "",
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
        """The JSON value of the body; None for an empty one.

        Raises:
            MalformedError: it is not JSON within the bounds.
        """
        return parse_body(
            self._request.scope["tickrail.body"], self._request.headers.get("content-type")
        )

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
        with self.parts.database.tenant(self.tenant, self.caller) as tx:
            return tx.egress()

    def write(self, effect: Callable[[ApiTransaction], Answer]) -> Response:
        """Run an effect in a transaction; its answer is kept there if the request has a key.

        Raises:
            InProgressError: the same request is still running.
            IdempotencyMismatchError: the key was used for another one.
        """
        key = self._idempotency_key()
        with self.parts.database.tenant(self.tenant, self.caller) as tx:
            if key is not None:
                claim_key(tx.base, key)
                kept = find_answer(tx.base, key, self._fingerprint())
                if kept is not None:
                    raise ReplayError(kept)
            if self.principal.operator:
                tx.audit("operator.write", f"{self._request.method} {self._request.url.path}"[:500])
            answer = effect(tx)
            stored = answer.stored()
            if key is not None:
                keep_answer(tx.base, key, self._fingerprint(), stored)
        return _response(stored)

    def replay(self) -> None:
        """Answer at once where the answer is kept.

        Raises:
            ReplayError: it is.
            IdempotencyMismatchError: the key was used for another request.
        """
        key = self._idempotency_key()
        if key is None or self._tenant is None:
            return
        with self.parts.database.tenant(self._tenant, self.caller) as tx:
            kept = find_answer(tx.base, key, self._fingerprint())
        if kept is not None:
            raise ReplayError(kept)

    def precondition(self) -> Precondition:
        """If-Match and If-None-Match.

        Raises:
            MalformedError: they hold something else than versions.
        """
        if self._request.headers.get("if-none-match", "").strip() == "*":
            return Precondition(exists=False)
        given = self._request.headers.get("if-match")
        if given is None:
            return Precondition()
        if given.strip() == "*":
            return Precondition(exists=True)
        found = [_ETAG.fullmatch(tag.strip()) for tag in given.split(",")]
        versions = [int(tag[1]) for tag in found if tag is not None]
        if len(versions) != len(found):
            raise MalformedError('If-Match holds versions as answered in ETag, such as "7", or *.')
        return Precondition(frozenset(versions), exists=True)

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


def parts_of(request: Request) -> Parts:
    """What this application was built from."""
    return cast("Parts", request.app.state.parts)


def needs(scope: str | None, *, operator: bool = False) -> Callable[[Request], Call]:
    """The dependency of a route: an authenticated call whose key has a scope.

    Args:
        scope: the scope that is demanded; None: the route demands one itself.
        operator: whether only operators' keys may.
    """

    def authenticated(request: Request) -> Call:
        parts = parts_of(request)
        values = [v for k, v in request.scope["headers"] if k == b"authorization"]
        principal = parts.authenticator.authenticate(values)
        if scope is not None:
            principal.demand(scope)
        if operator and not principal.operator:
            raise ForbiddenError(
                "This is for operators' keys: `tickrail bootstrap` without `--tenant` makes one."
            )
        call = Call(request, parts, principal)
        call.replay()
        return call

    return authenticated


def no_parameters(request: Request) -> None:
    """The dependency of a route that takes no query parameters.

    Raises:
        InvalidInputError: there are some.
    """
    if request.query_params:
        problems: list[Problem] = [unknown_parameter(n, ()) for n in request.query_params]
        raise InvalidInputError("A query parameter is not valid.", problems)


Asks = Annotated[Call, Depends(needs(None))]
Reads = Annotated[Call, Depends(needs("read"))]
Runs = Annotated[Call, Depends(needs("run"))]
Writes = Annotated[Call, Depends(needs("write"))]
Administers = Annotated[Call, Depends(needs("admin"))]
Operates = Annotated[Call, Depends(needs("read", operator=True))]
ChangesInstallation = Annotated[Call, Depends(needs("admin", operator=True))]
