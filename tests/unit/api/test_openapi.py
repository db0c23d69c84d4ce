"""The OpenAPI document: sound by itself, and true to the one validator of jobs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from jsonschema import Draft202012Validator
from pydantic import BaseModel
from tests.support.clock import START, FakeClock

from tickrail.core.definition import parse_definition
from tickrail.core.ids import JobId
from tickrail.core.plan import SkipReason
from tickrail.core.policies import Overlap, Priority
from tickrail.core.states import RETRYING, State
from tickrail.engine.jobs import ANSWER_FIELDS
from tickrail.runtime.metrics import PrometheusMetrics
from tickrail.store.session import DatabaseSettings
from tickrail_api.app import ApiSettings, create_app
from tickrail_api.openapi import openapi_document
from tickrail_api.refusals import tree
from tickrail_api.schemas.job import JobAnswer, JobDocument, Misfire, NewJob, Retry
from tickrail_api.schemas.launch import LedgerSlot

JOB = JobId(UUID(int=1))
VERBS = {"get", "put", "post", "delete", "patch"}


@pytest.fixture(scope="module")
def app() -> Iterator[FastAPI]:
    """An application whose database is never asked."""
    settings = ApiSettings(DatabaseSettings("host=127.0.0.1 port=1"), 4)
    made = create_app(settings, FakeClock(), PrometheusMetrics())
    yield made
    made.state.parts.database.close()


@pytest.fixture(scope="module")
def document(app: FastAPI) -> dict[str, Any]:
    return openapi_document(app)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for verb, operation in item.items():
            yield path, verb, operation


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for child in value.values():
            yield from references(child)
    elif isinstance(value, list):
        for child in value:
            yield from references(child)


def test_the_document_is_sound(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert set(document["info"]) >= {"title", "version", "description"}
    ids = []
    for path, verb, operation in operations(document):
        assert verb in VERBS
        ids.append(operation["operationId"])
        name = operation["operationId"].replace("_", " ").title()
        assert operation["summary"] != name, "a name of the code is no title"
        assert operation["description"].startswith(operation["summary"].split()[0])
        assert len(operation["summary"]) < 90
        assert operation["responses"]
        for status, response in operation["responses"].items():
            assert re.fullmatch(r"[1-5]\d\d", status)
            assert resolved(document, response)["description"]
        named = {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", path))
    assert len(ids) == len(set(ids))
    assert set(document["components"]) == {"schemas", "securitySchemes", "responses"}


def test_a_scope_that_a_route_demands_itself_is_told(document: dict[str, Any]) -> None:
    assert document["paths"]["/v1/api-keys/{id}"]["delete"]["x-tickrail-scope"] == "admin"


def resolved(document: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    """A response, also one that stands among the components."""
    if "$ref" not in response:
        return response
    found: dict[str, Any] = document["components"]["responses"][response["$ref"].split("/")[-1]]
    return found


def test_each_reference_leads_somewhere_and_each_component_is_used(
    document: dict[str, Any],
) -> None:
    wanted = set(references(document))
    for kind in ("schemas", "responses"):
        there = {f"#/components/{kind}/{name}" for name in document["components"][kind]}
        assert {r for r in wanted if r.startswith(f"#/components/{kind}/")} == there
    assert all(r.startswith("#/components/") for r in wanted)
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_each_example_fits_its_schema(document: dict[str, Any]) -> None:
    checked = 0
    for _, _, operation in operations(document):
        responses = [resolved(document, r) for r in operation["responses"].values()]
        bodies = [operation.get("requestBody", {}), *responses]
        for body in bodies:
            for content in body.get("content", {}).values():
                whole = {**content["schema"], "components": document["components"]}
                for example in content.get("examples", {}).values():
                    Draft202012Validator(whole).validate(example["value"])
                    checked += 1
    assert checked >= 20


def test_all_but_the_status_of_the_process_needs_a_key(document: dict[str, Any]) -> None:
    free = {path for path, _, operation in operations(document) if operation["security"] == []}
    assert free == {"/healthz", "/readyz"}
    for path, _, operation in operations(document):
        if path not in free:
            assert operation["security"] == [{"key": []}, {"token": []}]


def codes(document: dict[str, Any], path: str, verb: str) -> dict[str, set[str]]:
    """The codes of errors that an operation names, by status."""
    found = {}
    for status, response in document["paths"][path][verb]["responses"].items():
        if status >= "400":
            content = resolved(document, response)["content"]["application/problem+json"]
            found[status] = set(content["examples"])
    return found


def test_every_operation_names_the_errors_that_it_answers(document: dict[str, Any]) -> None:
    every = {"401": {"unauthenticated"}, "404": {"not_found"}, "413": {"too_large"}}
    for path, verb, operation in operations(document):
        if operation["security"]:
            named = codes(document, path, verb)
            assert {s: c for s, c in named.items() if s in every} == every
            assert {"400", "403", "422", "500", "503"} <= set(named)
    assert "409" not in codes(document, "/v1/jobs", "get")
    assert codes(document, "/v1/jobs", "post")["409"] == {"conflict", "name_taken", "in_progress"}
    assert codes(document, "/v1/jobs/{job}", "delete")["409"] == {"conflict"}
    assert "overlap" in codes(document, "/v1/jobs/{job}/trigger", "post")["409"]
    assert codes(document, "/v1/jobs/{job}", "patch")["412"] == {"precondition_failed"}
    assert "412" not in codes(document, "/v1/launches/{launch}/cancel", "post")


def test_every_error_that_a_request_may_meet_is_named_somewhere(document: dict[str, Any]) -> None:
    named = set()
    for path, verb, operation in operations(document):
        if operation["security"]:
            named |= set().union(*codes(document, path, verb).values())
    assert named == {e.code for e in tree()} - {"settings", "method_not_allowed"}


def test_every_route_says_what_key_it_needs(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        if path.startswith("/v1/"):
            assert re.search(r"[Ss]cope: (read|run|write|admin)\.", operation["description"]), path


def canonical() -> dict[str, Any]:
    """The document of a job that says no more than it must."""
    bare = {"name": "a", "target": {"webhook": {"url": "http://127.0.0.1/"}}}
    return parse_definition(bare, job=JOB, now=START).document()


def test_the_models_have_the_fields_and_the_defaults_of_the_validator() -> None:
    core = canonical()
    made = JobDocument(name="a", target=core["target"])
    # Of the members of a target, null is as if left out: tests/unit/api/test_forms.py.
    bare = made.model_dump() | {"target": made.target.model_dump(exclude_none=True)}
    assert bare == core
    assert list(bare) == list(core)
    for model, part in ((Misfire, "misfire"), (Retry, "retry")):
        assert model().model_dump() == core[part]


def test_an_answer_is_the_definition_and_the_fields_named_so() -> None:
    assert set(JobAnswer.model_fields) == set(canonical()) | ANSWER_FIELDS | {"paused"}
    assert set(NewJob.model_fields) == set(canonical()) | {"paused"}


def test_each_operation_names_the_headers_that_it_reads(document: dict[str, Any]) -> None:
    def headers(path: str, verb: str) -> set[str]:
        parameters = document["paths"][path][verb]["parameters"]
        return {p["name"] for p in parameters if p["in"] == "header"}

    assert headers("/v1/jobs", "get") == {"Tickrail-Tenant"}
    assert headers("/v1/jobs", "post") == {"Tickrail-Tenant", "Idempotency-Key"}
    assert headers("/v1/jobs/{job}", "put") == {"Tickrail-Tenant", "If-Match", "If-None-Match"}
    assert headers("/v1/jobs/{job}/pause", "post") == {
        "Tickrail-Tenant", "If-Match", "Idempotency-Key",
    }  # fmt: skip


def test_an_operation_names_if_match_if_and_only_if_it_looks_at_it(
    app: FastAPI, document: dict[str, Any]
) -> None:
    for route in app.state.routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            looks = ".precondition()" in inspect.getsource(route.endpoint)
            for verb in route.methods or ():
                operation = document["paths"][route.path_format][verb.lower()]
                parameters = operation.get("parameters", ())
                named = {p["name"] for p in parameters} & {"If-Match", "If-None-Match"}
                assert bool(named) == looks, route.path_format


def words(model: type[BaseModel], field: str) -> set[str]:
    """The words that a field's schema allows."""
    schema = model.model_json_schema()["properties"][field]
    found = schema.get("enum") or [w for s in schema["anyOf"] for w in s.get("enum", ())]
    return set(found)


def test_the_words_of_the_models_are_those_of_the_core() -> None:
    assert words(JobDocument, "overlap") == {o.value for o in Overlap}
    assert words(JobDocument, "priority") == {p.value for p in Priority}
    assert {r.value for r in SkipReason} <= words(LedgerSlot, "reason")
    launch = LedgerSlot.model_json_schema()["$defs"]["Launch"]["properties"]["state"]["enum"]
    assert set(launch) == {s.value for s in State} | {RETRYING}
