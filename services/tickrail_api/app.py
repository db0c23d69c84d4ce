"""The application: routes, error forms, and the parts they are served by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tickrail.core.clock import Clock
from tickrail.core.errors import Problem, TickrailError
from tickrail.core.ports_metrics import Metrics
from tickrail.core.ports_ownership import Directory
from tickrail.core.target_webhook import Webhook
from tickrail.engine.backfill_requests import BackfillRequests
from tickrail.engine.calendars import CalendarRules, Calendars
from tickrail.engine.explain import Explainer
from tickrail.engine.job_operations import JobWork
from tickrail.engine.job_rules import JobRules
from tickrail.engine.jobs import Jobs
from tickrail.engine.launches import Launches
from tickrail.engine.letter_operations import LetterWork
from tickrail.engine.members import MemberDirectory
from tickrail.engine.operations import OperationRunner, Operations
from tickrail.engine.pauses import Pauses
from tickrail.engine.redrive import Redrives
from tickrail.executors.egress import check_url
from tickrail.executors.egress_policy import EgressPolicy
from tickrail.formats.ics import read_icalendar
from tickrail.runtime.look import Look
from tickrail.store.cipher import SecretCipher
from tickrail.store.engine import ApiDatabase
from tickrail.store.operations import PostgresOperationQueue
from tickrail.store.session import DatabaseSettings
from tickrail_api.auth import Authenticator
from tickrail_api.call import Parts, ReplayError
from tickrail_api.edge import Edge
from tickrail_api.openapi import openapi_document
from tickrail_api.problems import error_response, invalid_query, status_response
from tickrail_api.routes import routers

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
    """

    database: DatabaseSettings
    partitions: int
    history: timedelta = timedelta(days=30)
    pepper: bytes = field(default=b"", repr=False)
    egress: EgressPolicy = field(default_factory=EgressPolicy)
    topic_prefix: str = "tickrail"
    pool_size: int = 16
    cipher: SecretCipher = field(default_factory=lambda: SecretCipher(()), repr=False)


class PathTable:
    """The paths of an application and the methods of each, from its OpenAPI document."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._table: list[tuple[re.Pattern[str], str, list[str]]] | None = None

    def find(self, path: str) -> tuple[str, list[str]] | None:
        """The template of a path and its methods; None: there is no such path."""
        if self._table is None:
            self._table = self._read()
        for pattern, template, methods in self._table:
            if pattern.fullmatch(path):
                return template, methods
        return None

    def _read(self) -> list[tuple[re.Pattern[str], str, list[str]]]:
        known: dict[str, Any] = dict(openapi_document(self._app)["paths"])
        known |= {"/openapi.json": {"get": {}}, "/docs": {"get": {}}}
        table = []
        for template, operations in known.items():
            pattern = re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)))
            methods = [v.upper() for v in _VERBS if v in operations]
            more = ["HEAD"] if "GET" in methods else []
            table.append((pattern, template, [*methods, *more, "OPTIONS"]))
        # A fixed path goes before one with a parameter in its place.
        return sorted(table, key=lambda row: row[1].count("{"))


def create_app(
    settings: ApiSettings, clock: Clock, metrics: Metrics, directory: Directory | None = None
) -> FastAPI:
    """The API; its connections open when they are needed.

    Args:
        settings: what it needs to know.
        clock: the clock.
        metrics: counts what is answered.
        directory: etcd, for `/v1/system`; without it these routes answer 503.

    Close it by `app.state.parts.database.close()`.
    """
    database = ApiDatabase(
        settings.database, clock, pool_size=settings.pool_size, cipher=settings.cipher
    )
    rules = JobRules(
        settings.partitions, settings.history, _target_check(settings.egress), settings.topic_prefix
    )
    pauses = Pauses(rules)
    operations = Operations([JobWork(pauses), LetterWork()], clock)
    app = FastAPI(
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
        authenticator=Authenticator(database, clock, settings.pepper),
        jobs=Jobs(rules, clock),
        pauses=pauses,
        backfills=BackfillRequests(rules, clock),
        operations=operations,
        runner=OperationRunner(PostgresOperationQueue(database), operations),
        launches=Launches(clock),
        redrives=Redrives(),
        calendars=Calendars(CalendarRules(settings.history, read_icalendar), clock),
        members=MemberDirectory(directory),
        explainer=Explainer(directory),
        look=Look("postgresql", database.trouble, clock),
    )
    app.state.routes = []
    for router in routers():
        app.include_router(router)
        app.state.routes += router.routes
    app.add_middleware(Edge, clock=clock, metrics=metrics, paths=PathTable(app).find)
    app.add_exception_handler(TickrailError, _ours)
    app.add_exception_handler(ReplayError, _replay)
    app.add_exception_handler(RequestValidationError, _query)
    app.add_exception_handler(HTTPException, _framework)
    return app


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


def _request_id(request: Request) -> str:
    return str(request.scope["tickrail.request_id"])


def _ours(request: Request, error: Exception) -> Response:
    if not isinstance(error, TickrailError):
        raise error
    return error_response(error, _request_id(request))


def _replay(_: Request, replay: Exception) -> Response:
    if not isinstance(replay, ReplayError):
        raise replay
    return replay.response


def _query(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    route = openapi_document(request.app)["paths"][request.scope["tickrail.template"]]
    parameters = route[request.method.lower()].get("parameters", [])
    known = [p["name"] for p in parameters if p["in"] == "query"]
    return error_response(invalid_query(error.errors(), known), _request_id(request))


def _framework(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return status_response(
        error.status_code, str(error.detail), _request_id(request), error.headers
    )
