"""The application: routes, error forms, and the parts they are served by."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, ExceptionHandler, Receive, Scope, Send

from tickrail.core.clock import Clock
from tickrail.core.errors import Problem, QuotaExceededError, RateLimitedError, TickrailError
from tickrail.core.ports_metrics import Metrics
from tickrail.core.ports_ownership import Directory
from tickrail.core.ports_tracing import NO_TRACER, Tracer
from tickrail.core.target_webhook import Webhook
from tickrail.engine.backfill_requests import BackfillRequests
from tickrail.engine.calendars import CalendarRules, Calendars
from tickrail.engine.explain import Explainer
from tickrail.engine.job_operations import JobWork
from tickrail.engine.job_rules import JobRules, TargetCheck
from tickrail.engine.job_versions import JobVersions
from tickrail.engine.jobs import Jobs
from tickrail.engine.keys import Keys
from tickrail.engine.launches import Launches
from tickrail.engine.letter_operations import LetterWork
from tickrail.engine.members import MemberDirectory
from tickrail.engine.operations import OperationRunner, Operations
from tickrail.engine.pauses import Pauses
from tickrail.engine.redrive import Redrives
from tickrail.executors.egress import UrlChecks, check_url
from tickrail.executors.egress_policy import EgressPolicy
from tickrail.executors.issuer import fetch_document
from tickrail.formats.ics import read_icalendar
from tickrail.runtime.look import Look
from tickrail.store.cipher import SecretCipher
from tickrail.store.engine import ApiDatabase
from tickrail.store.keys import make_key
from tickrail.store.operations import PostgresOperationQueue
from tickrail.store.session import DatabaseSettings
from tickrail_api.addresses import TrustedProxies
from tickrail_api.auth import Authenticator
from tickrail_api.call import Parts, ReplayError, identify
from tickrail_api.edge import ERROR, Edge, EdgeSettings
from tickrail_api.limiter import RequestLimiter
from tickrail_api.oidc import OidcSettings, TokenVerifier
from tickrail_api.openapi import openapi_document
from tickrail_api.problems import error_response, invalid_query, status_response
from tickrail_api.routes import routers
from tickrail_api.threads import directly

_UNREADY = "does not answer as it should; the log says why"
_log = structlog.get_logger("tickrail.api")
_VERBS = ("get", "put", "post", "delete", "patch")


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """What the application needs to know.

    Attributes:
        database: the API role's connection.
        partitions: P of the installation.
        history: how far back a slot may lie and still be recorded.
        pepper: mixed into the hashes of keys.
        egress: what webhooks may reach besides public addresses.
        topic_prefix: first part of the names of Tickrail's own topics.
        pool_size: connections at most.
        cipher: encrypts secrets; without it none can be written.
        edge: how clients are met.
        failures: wrong keys a minute from one address before it is slowed down; 0: any number.
        trusted_proxies: networks whose word is taken for where a request comes from.
        oidc: whose tokens are taken; None: only keys are.
    """

    database: DatabaseSettings
    partitions: int
    history: timedelta = timedelta(days=30)
    pepper: bytes = field(default=b"", repr=False)
    egress: EgressPolicy = field(default_factory=EgressPolicy)
    topic_prefix: str = "tickrail"
    pool_size: int = 16
    cipher: SecretCipher = field(default_factory=lambda: SecretCipher(()), repr=False)
    edge: EdgeSettings = field(default_factory=EdgeSettings)
    failures: int = 0
    trusted_proxies: Sequence[str] = ()
    oidc: OidcSettings | None = None


class PathTable:
    """The paths of an application and the methods of each, from its OpenAPI document."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._fixed: dict[str, tuple[str, list[str]]] = {}
        self._others: list[tuple[re.Pattern[str], str, list[str]]] = []

    def find(self, path: str) -> tuple[str, list[str]] | None:
        """The template of a path and its methods; None: there is no such path."""
        if not self._others:
            self._read()
        # A fixed path goes before one with a parameter in its place.
        fixed = self._fixed.get(path)
        if fixed is not None:
            return fixed
        for pattern, template, methods in self._others:
            if pattern.fullmatch(path):
                return template, methods
        return None

    def _read(self) -> None:
        known: dict[str, Any] = dict(openapi_document(self._app)["paths"])
        known |= {"/openapi.json": {"get": {}}, "/docs": {"get": {}}}
        others = []
        for template, operations in known.items():
            methods = [v.upper() for v in _VERBS if v in operations]
            more = ["HEAD"] if "GET" in methods else []
            taken = [*methods, *more, "OPTIONS"]
            if "{" not in template:
                self._fixed[template] = template, taken
                continue
            pattern = re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)))
            others.append((pattern, template, taken))
        self._others = sorted(others, key=lambda row: row[1].count("{"))


class Dispatch:
    """Takes a request to its route: the edge has found out already which one that is.

    The framework would try one route after the other.
    """

    def __init__(self, app: FastAPI) -> None:
        self._router: ASGIApp = app.router
        self._routes: dict[tuple[str, str], APIRoute] = {
            (route.path_format, method): route
            for route in app.state.routes
            if isinstance(route, APIRoute)
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        route = self._routes.get((scope["tickrail.template"], scope["method"]))
        if route is None:
            await self._router(scope, receive, send)
            return
        _, found = route.matches(scope)
        scope.update(found)
        await route.handle(scope, receive, send)


class Application(FastAPI):
    """The framework without the doors of its own: `Edge` is the outermost one.

    What would stand before it catches what it catches, or is about what is not offered here.
    """

    def build_middleware_stack(self) -> ASGIApp:
        """The edge, the handlers of errors, the routes."""
        handlers: dict[Any, ExceptionHandler] = dict(self.exception_handlers)
        app: ASGIApp = ExceptionMiddleware(AsyncExitStackMiddleware(Dispatch(self)), handlers)
        for made in reversed(self.user_middleware):
            app = made.cls(app, *made.args, **made.kwargs)
        return app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        scope["app"] = self
        await self.middleware_stack(scope, receive, send)


def create_app(
    settings: ApiSettings,
    clock: Clock,
    metrics: Metrics,
    directory: Directory | None = None,
    tracer: Tracer = NO_TRACER,
) -> FastAPI:
    """The API; its connections open when they are needed.

    Args:
        settings: what it needs to know.
        clock: the clock.
        metrics: counts what is answered.
        directory: etcd, for `/v1/system`; without it these routes answer 503.
        tracer: traces requests, and the launches that they make.

    Close it by `app.state.parts.database.close()`.
    """
    database = ApiDatabase(
        settings.database, clock, pool_size=settings.pool_size, cipher=settings.cipher
    )
    rules = JobRules(
        settings.partitions,
        settings.history,
        _target_check(settings.egress),
        settings.topic_prefix,
        _targets_check(settings.egress, clock),
    )
    jobs = Jobs(rules, clock)
    pauses = Pauses(rules)
    operations = Operations([JobWork(pauses), LetterWork()], clock)
    app = Application(
        title="Tickrail",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.parts = Parts(
        database=database,
        clock=clock,
        authenticator=Authenticator(
            database,
            clock,
            settings.pepper,
            most_failures=settings.failures,
            tokens=_verifier(settings.oidc, clock),
        ),
        limiter=RequestLimiter(database, clock, metrics),
        proxies=TrustedProxies(settings.trusted_proxies),
        keys=Keys(lambda: make_key(settings.pepper)),
        jobs=jobs,
        versions=JobVersions(jobs, rules),
        pauses=pauses,
        backfills=BackfillRequests(rules, clock),
        operations=operations,
        runner=OperationRunner(PostgresOperationQueue(database), operations),
        launches=Launches(clock, tracer),
        redrives=Redrives(),
        calendars=Calendars(CalendarRules(settings.history, read_icalendar), clock),
        members=MemberDirectory(directory),
        explainer=Explainer(directory),
        look=Look("postgresql", _public_trouble(database), clock),
        topic_prefix=settings.topic_prefix,
    )
    app.state.metrics = metrics
    app.state.stopping = threading.Event()
    app.state.routes = []
    for router in routers():
        app.include_router(router)
        app.state.routes += router.routes
    paths = PathTable(app).find

    def check_caller(scope: Scope) -> str:
        principal = identify(Request({**scope, "app": app}))
        return str(principal.tenant or principal.actor)

    app.add_middleware(
        Edge, clock=clock, metrics=metrics, paths=paths, check_caller=check_caller,
        settings=settings.edge, tracer=tracer,
    )  # fmt: skip
    app.add_exception_handler(TickrailError, _ours)
    app.add_exception_handler(ReplayError, _replay)
    app.add_exception_handler(RequestValidationError, _query)
    app.add_exception_handler(HTTPException, _framework)
    return app


def _public_trouble(database: ApiDatabase) -> Callable[[], Mapping[str, str]]:
    """What anybody is told who asks what is missing; the log has the servers' own words, once."""
    said: Mapping[str, str] = {}

    def look() -> Mapping[str, str]:
        nonlocal said
        found = database.trouble()
        if found and found != said:
            _log.warning("not_ready", problems=found)
        said = found
        return dict.fromkeys(found, _UNREADY)

    return look


def _verifier(oidc: OidcSettings | None, clock: Clock) -> TokenVerifier | None:
    if oidc is None:
        return None
    return TokenVerifier(oidc, clock, lambda url: fetch_document(url, clock))


def _target_check(egress: EgressPolicy) -> Any:  # noqa: ANN401 - a target of any kind
    def check(target: object, lists: Mapping[str, Any] | None) -> list[Problem]:
        if not isinstance(target, Webhook):
            return []
        try:
            policy = egress.narrowed(lists)
        except ValueError as e:
            return [Problem("/target/webhook/url", f"cannot be checked: {e}", "ask the operator")]
        return check_url(target.example_url, policy)

    return check


def _targets_check(
    egress: EgressPolicy, clock: Clock
) -> Callable[[Mapping[str, Any] | None], TargetCheck]:
    def made(lists: Mapping[str, Any] | None) -> TargetCheck:
        try:
            checks = UrlChecks(egress.narrowed(lists), clock)
        except ValueError:
            one = _target_check(egress)
            return lambda target: one(target, lists)
        return lambda t: checks.check(t.example_url) if isinstance(t, Webhook) else []

    return made


def _request_id(request: Request) -> str:
    return str(request.scope["tickrail.request_id"])


@directly
def _ours(request: Request, error: Exception) -> Response:
    if not isinstance(error, TickrailError):
        raise error
    throttled = isinstance(error, RateLimitedError) and error.quota == "launches"
    if throttled or isinstance(error, QuotaExceededError):
        reason = getattr(error, "quota", "")
        request.app.state.metrics.count("tenant_throttled_total", reason=reason)
    request.scope[ERROR] = error
    return error_response(error, _request_id(request))


@directly
def _replay(_: Request, replay: Exception) -> Response:
    if not isinstance(replay, ReplayError):
        raise replay
    return replay.response


@directly
def _query(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    document = openapi_document(request.app)
    operation = document["paths"][request.scope["tickrail.template"]][request.method.lower()]
    return error_response(invalid_query(error.errors(), document, operation), _request_id(request))


@directly
def _framework(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return status_response(
        error.status_code, str(error.detail), _request_id(request), error.headers
    )
