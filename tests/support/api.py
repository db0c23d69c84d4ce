"""The HTTP API in a test: two tenants with keys, and a client that holds each answer to the
OpenAPI document."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx
from fastapi import FastAPI
from jsonschema import Draft202012Validator
from starlette.types import ASGIApp
from tests.support.database import PARTITIONS, Database
from tests.support.memory_coord import MemoryCoordinator, MemoryEtcd

from tickrail.core.clock import Clock, SystemClock
from tickrail.core.keys import SCOPES
from tickrail.executors.egress_policy import EgressPolicy
from tickrail.runtime.metrics import PrometheusMetrics
from tickrail.store.bootstrap import Bootstrapped, bootstrap
from tickrail.store.cipher import SecretCipher
from tickrail.store.cipher import new_key as new_secret_key
from tickrail.store.session import DatabaseSettings
from tickrail_api.app import ApiSettings, PathTable, create_app
from tickrail_api.openapi import openapi_document
from tickrail_api.server import Bounds, Server, listen

PEPPER = "tests"
SECRET_KEY = new_secret_key()
ALLOWED = "127.0.0.0/8,*.example"
URL = "http://127.0.0.1:9099/hook"
_BOUNDS = Bounds(finish=5)
_made: dict[str, Any] = {}


def webhook(name: str, **fields: Any) -> dict[str, Any]:
    """A job's document, started by hand unless a schedule is given."""
    return {"name": name, "target": {"webhook": {"url": URL}}} | fields


@dataclass
class Answers:
    """Holds answers to the OpenAPI document of an application."""

    document: Mapping[str, Any]
    find: Callable[[str], tuple[str, list[str]] | None]
    seen: set[tuple[str, str, int]] = field(default_factory=set)

    def check(self, method: str, path: str, response: httpx.Response) -> None:
        """Fail unless the answer is one that the document names, of the form it names."""
        status = response.status_code
        assert status < 500 or status == 503, response.text
        kind = response.headers.get("content-type", "")
        if status >= 400:
            if path not in {"/healthz", "/readyz"}:
                assert kind == "application/problem+json", response.text
                self._fits({"$ref": "#/components/schemas/ProblemDocument"}, response.json())
                assert response.json()["status"] == status
                self._named(method, path, response.json())
            return
        found = self.find(path)
        assert found is not None
        operation = self.document["paths"].get(found[0], {}).get(method.lower())
        if operation is None or method in {"HEAD", "OPTIONS"}:
            return
        self.seen.add((method, found[0], status))
        assert str(status) in operation["responses"], f"{method} {found[0]} answered {status}"
        content = operation["responses"][str(status)].get("content")
        if status == 204 or content is None:
            assert response.content == b""
            return
        if kind in content and kind == "application/x-ndjson":
            assert all(line.startswith("{") for line in response.text.splitlines())
            return
        assert kind == "application/json"
        self._fits(content["application/json"]["schema"], response.json())

    def _named(self, method: str, path: str, problem: Mapping[str, Any]) -> None:
        """Fail unless the operation names this error."""
        template, _ = self.find(path) or ("", ())
        operation = self.document["paths"].get(template, {}).get(method.lower())
        if operation is None:
            return
        response = operation["responses"].get(str(problem["status"]))
        assert response is not None, f"{method} {template} answered {problem}"
        named = self.document["components"]["responses"][response["$ref"].split("/")[-1]]
        examples = named["content"]["application/problem+json"]["examples"]
        assert problem["code"] in examples, f"{method} {template} answered {problem}"

    def _fits(self, schema: Mapping[str, Any], value: Any) -> None:
        whole = {**schema, "components": self.document["components"]}
        Draft202012Validator(whole).validate(value)


class Caller:
    """Calls the API with one key; each answer is held to the OpenAPI document."""

    def __init__(
        self, client: httpx.Client, answers: Answers, token: str, tenant: str = ""
    ) -> None:
        self._client = client
        self._answers = answers
        self.token = token
        self._tenant = {"Tickrail-Tenant": tenant} if tenant else {}

    def call(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        expect: int | None = None,
    ) -> httpx.Response:
        """One request; `expect` is the status that it must have."""
        body = raw if raw is not None else None if document is None else json.dumps(document)
        given = {"Authorization": f"Bearer {self.token}", **self._tenant, **(headers or {})}
        if body is not None:
            given.setdefault("Content-Type", "application/json")
        response = self._client.request(
            method, path, content=body, headers=given, params=dict(params) if params else None
        )
        self._answers.check(method, response.request.url.path, response)
        if expect is not None:
            assert response.status_code == expect, response.text
        return response

    def get(self, path: str, *, expect: int = 200, **params: Any) -> Any:
        """The document at a path."""
        return self.call("GET", path, params=params, expect=expect).json()

    def post(self, path: str, document: Any = None, *, expect: int, **headers: str) -> Any:
        """The answer's document; a header's name is written with `_`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.call("POST", path, document, headers=named, expect=expect).json()

    def put(self, path: str, document: Any, *, expect: int = 200) -> Any:
        """The answer's document."""
        return self.call("PUT", path, document, expect=expect).json()

    def patch(self, path: str, document: Any, *, expect: int = 200) -> Any:
        """The answer's document."""
        return self.call("PATCH", path, document, expect=expect).json()

    def delete(self, path: str) -> None:
        """Delete what is at a path."""
        self.call("DELETE", path, expect=204)

    def create(self, name: str, **fields: Any) -> Any:
        """A new job, started by hand unless a schedule is given."""
        return self.post("/v1/jobs", webhook(name, **fields), expect=201)

    def every(self, path: str, **params: Any) -> list[Any]:
        """The items of all pages of a list."""
        found: list[Any] = []
        cursor: str | None = None
        while True:
            page = self.get(path, **params, **({} if cursor is None else {"cursor": cursor}))
            found += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found


@dataclass(frozen=True)
class World:
    """An API with two tenants, `acme` and `beta`, whose keys have every scope; etcd in memory."""

    app: FastAPI
    client: httpx.Client
    database: Database
    answers: Answers
    acme: Caller
    beta: Caller
    operator: Caller
    keys: Mapping[str, Bootstrapped]
    etcd: MemoryEtcd

    def caller(self, token: str, tenant: str = "") -> Caller:
        """A caller with another key."""
        return Caller(self.client, self.answers, token, tenant)

    def key(self, tenant: str | None, *scopes: str) -> Bootstrapped:
        """A new key."""
        return new_key(self.database, tenant, *scopes)

    def past_week(self) -> dict[str, str]:
        """A range of days that the history has room for, as of today."""
        [(low, high)] = self.database.rows(
            "select to_char(now() - interval '9 days', d), to_char(now() - interval '2 days', d)"
            " from (select 'YYYY-MM-DD\"T00:00:00Z\"') as t (d)"
        )
        return {"from": str(low), "until": str(high)}

    def tenant_id(self, tenant: str) -> str:
        """The id of one of the two tenants."""
        return str(self.keys[tenant].tenant)


def new_key(database: Database, tenant: str | None, *scopes: str) -> Bootstrapped:
    """A key, straight in the database."""
    return bootstrap(
        database.owner_url, SystemClock(), tenant=tenant, scopes=scopes or SCOPES, pepper=PEPPER
    )


@contextmanager
def served(app: ASGIApp, bounds: Bounds = _BOUNDS) -> Iterator[str]:
    """The application behind the server that it has in production; its address."""
    listener = listen("127.0.0.1", 0)
    server = Server(app, bounds, SystemClock())
    thread = threading.Thread(target=server.run, args=(listener,), name="api", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
        thread.join(30)


@contextmanager
def api_world(
    database: Database, *, clock: Clock | None = None, **settings: Any
) -> Iterator[World]:
    """The API on a database."""
    etcd = MemoryEtcd(clock or SystemClock())
    settings.setdefault("cipher", SecretCipher([SECRET_KEY]))
    app = create_app(
        ApiSettings(
            DatabaseSettings(database.api_url),
            PARTITIONS,
            pepper=PEPPER.encode(),
            egress=EgressPolicy.parse(ALLOWED),
            **settings,
        ),
        clock or SystemClock(),
        PrometheusMetrics(),
        MemoryCoordinator(etcd),
    )
    # The document is the same for every application and takes half a second to make.
    if not _made:
        _made.update(openapi_document(app))
    app.openapi_schema = _made
    names: tuple[str | None, ...] = ("acme", "beta", None)
    keys = {name or "operator": new_key(database, name) for name in names}
    answers = Answers(openapi_document(app), PathTable(app).find)
    try:
        with served(app) as url, httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
            acme, beta, operator = (
                Caller(client, answers, keys[n].token) for n in ("acme", "beta", "operator")
            )
            yield World(app, client, database, answers, acme, beta, operator, keys, etcd)
    finally:
        app.state.parts.database.close()


def unused_id() -> str:
    """An id that nothing has."""
    return str(uuid4())
