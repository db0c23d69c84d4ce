"""The client has a method for every route, a member for every member, a class for every error."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import pytest
from tests.support import shapes
from tests.support.colours import parts
from tests.support.memory_coord import MemoryCoordinator, MemoryEtcd
from tests.support.shapes import Shape

from tickrail.core import errors
from tickrail.core.clock import SystemClock
from tickrail.runtime.metrics import PrometheusMetrics
from tickrail.sdk.client import ApiError, Client, UnexpectedAnswerError, encoding, models
from tickrail.sdk.client.operation import Ask, Listing, Operation, Resource
from tickrail.store.session import DatabaseSettings
from tickrail_api.app import ApiSettings, create_app
from tickrail_api.openapi import openapi_document

PROBES = {"/healthz", "/readyz"}
"""For load balancers."""
PATCHED = {
    "/v1/jobs/{job}": ("NewJob", {"paused"}),
    "/v1/calendars/{name}": ("NewCalendar", {"name"}),
    "/v1/queues/{name}": ("NewQueue", set[str]()),
    "/v1/quotas": ("QuotaSettings", set[str]()),
    "/v1/tenants/{tenant}": ("NewTenant", {"name"}),
}
"""Of each PATCH: the document that it patches, and members that it does not take."""
IN_THE_PATH = {("PUT", "/v1/calendars/{name}"): {"name"}}
"""Members that may stand in the body as well."""
EDGE_CODES = {"method_not_allowed": 405, "timeout": 408}
"""Of errors that no use case raises."""
OK = ("200", "201", "202")
JSON = "application/json"


class Method(NamedTuple):
    """A method of the client."""

    name: str
    offered: Operation[..., Any] | Listing[..., Any]
    hints: Mapping[str, Any]
    ask: Ask[Any]

    @property
    def route(self) -> tuple[str, str]:
        return self.offered.method, self.offered.path

    @property
    def keywords(self) -> Shape:
        """What its keyword arguments may be."""
        for parameter in inspect.signature(self.offered.build).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                [named] = get_args(self.hints[parameter.name])
                return shapes.of_typed_dict(named)
        return Shape()


def resources() -> Iterator[tuple[str, Resource[Any]]]:
    with Client("http://127.0.0.1:1") as client:
        yield from parts(client)


def example(parameter: inspect.Parameter, hint: Any) -> Any:
    """A value of a parameter that must be given."""
    if hint is int:
        return 1
    return [] if get_origin(hint) is Iterable else parameter.name


def methods() -> Iterator[Method]:
    for name, resource in resources():
        for attribute, offered in vars(type(resource)).items():
            if not isinstance(offered, (Operation, Listing)):
                continue
            hints = get_type_hints(offered.build)
            given: dict[str, Any] = {}
            for parameter in list(inspect.signature(offered.build).parameters.values())[1:]:
                if parameter.kind is parameter.VAR_KEYWORD:
                    continue
                if parameter.default is parameter.empty:
                    given[parameter.name] = example(parameter, hints[parameter.name])
            yield Method(f"{name}.{attribute}", offered, hints, offered.ask(resource, **given))


METHODS = list(methods())
ROUTES = sorted({m.route for m in METHODS})
"""Of the client."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    app = create_app(
        ApiSettings(DatabaseSettings("host=127.0.0.1 port=1"), 4),
        SystemClock(),
        PrometheusMetrics(),
        MemoryCoordinator(MemoryEtcd(SystemClock())),
    )
    try:
        return openapi_document(app)
    finally:
        app.state.parts.database.close()


def resolved(document: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in value:
        at: Any = document
        for part in value["$ref"].removeprefix("#/").split("/"):
            at = at[part]
        value = at
    return value


def operation(document: Mapping[str, Any], route: tuple[str, str]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = document["paths"][route[1]][route[0].lower()]
    return found


def successes(document: Mapping[str, Any], route: tuple[str, str]) -> Iterator[Mapping[str, Any]]:
    """The schemas of its answers of success."""
    for status, found in operation(document, route)["responses"].items():
        content = resolved(document, found).get("content", {})
        if status in OK and JSON in content:
            yield content[JSON]["schema"]


def test_every_route_has_a_method_and_every_method_a_route(document: dict[str, Any]) -> None:
    there = {
        (verb.upper(), path)
        for path, item in document["paths"].items()
        if path not in PROBES
        for verb in item
    }
    assert {f"{verb} {path}" for verb, path in there - set(ROUTES)} == set(), "no method"
    assert {m.name for m in METHODS if m.route not in there} == set(), "no route"


def test_every_part_of_a_path_is_given() -> None:
    for method in METHODS:
        assert "{" not in encoding.path_of(method.offered.path, method.ask.parts), method.name


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_the_members_of_requests_are_those_of_the_api(
    document: dict[str, Any], route: tuple[str, str]
) -> None:
    asked = operation(document, route)
    mine = [m for m in METHODS if m.route == route]
    query, body = Shape(), Shape()
    for method in mine:
        given = query if route[0] == "GET" else body
        given.absorb(method.keywords)
        for name in encoding.members_of(method.ask.query):
            query.members.setdefault(name, Shape(anything=True))
        if isinstance(method.ask.document, dict):
            for name in method.ask.document:
                body.members.setdefault(name, Shape(anything=True))
    parameters = Shape({
        p["name"]: shapes.of_schema(document, p["schema"])
        for p in (resolved(document, one) for one in asked.get("parameters", ()))
        if p["in"] == "query"
    })  # fmt: skip
    if route[0] != "GET":  # where a member of the body says the same, that one is used
        parameters.members = {n: s for n, s in parameters.members.items() if n not in body.members}
    assert list(shapes.differences(parameters, query, answer=False)) == []
    wanted, left = _wanted(document, route, asked)
    for name in left:
        wanted.members.pop(name, None)
    assert list(shapes.differences(wanted, body, answer=False)) == []
    if route[0] != "PATCH":
        must = set.intersection(*(m.keywords.required | set(_document(m)) for m in mine))
        assert wanted.required - left <= must


def _document(method: Method) -> Mapping[str, Any]:
    return method.ask.document if isinstance(method.ask.document, dict) else {}


def _wanted(
    document: Mapping[str, Any], route: tuple[str, str], asked: Mapping[str, Any]
) -> tuple[Shape, set[str]]:
    """The body that the API takes, and members of it that the client leaves alone."""
    if route[0] == "PATCH":
        name, left = PATCHED[route[1]]
        return shapes.of_schema(document, {"$ref": f"#/components/schemas/{name}"}), left
    if "requestBody" not in asked:
        return Shape(), set()
    schema = asked["requestBody"]["content"][JSON]["schema"]
    return shapes.of_schema(document, schema), IN_THE_PATH.get(route, set())


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_the_members_of_answers_are_those_of_the_api(
    document: dict[str, Any], method: Method
) -> None:
    [read] = get_args(method.hints["return"])
    found = [shapes.of_schema(document, s) for s in successes(document, method.route)]
    if read is type(None):
        assert found == []
        return
    if isinstance(method.offered, Listing) or get_origin(read) is tuple:
        found = [shape.members["items"] for shape in found]
    client = shapes.of_type(read)
    told = [list(shapes.differences(shape, client, answer=True)) for shape in found]
    assert [] in told, f"nothing that {method.offered.path} answers is so: {told}"


def examples(answer: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    found: Mapping[str, Any] = answer.get("content", {}).get(JSON, {}).get("examples", {})
    return found.values()


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_answers_that_the_document_shows_can_be_read(
    document: dict[str, Any], method: Method
) -> None:
    """By the reader of the method; what the document shows leaves out what it may."""
    shown = [
        example["value"]
        for status, found in operation(document, method.route)["responses"].items()
        if status in OK
        for example in examples(resolved(document, found))
    ]
    [read] = get_args(method.hints["return"])
    assert bool(shown) != (read is type(None))
    if isinstance(method.offered, Listing):
        shown = [item for example in shown for item in example["items"]]
    said = []
    for value in shown:
        try:
            assert method.ask.reads(value) is not None
        except UnexpectedAnswerError as error:
            said.append(str(error))
    assert len(said) < max(len(shown), 1), said


def codes() -> dict[str, type[errors.TickrailError]]:
    found: dict[str, type[errors.TickrailError]] = {}
    open_classes = [errors.TickrailError]
    while open_classes:
        kind = open_classes.pop()
        if kind.__module__ == errors.__name__:
            found.setdefault(kind.code, kind)
            open_classes += kind.__subclasses__()
    return found


def test_every_code_has_a_class_whose_family_is_that_of_the_api() -> None:
    there = codes()
    assert set(ApiError.by_code) == set(there) | set(EDGE_CODES)
    for code, kind in there.items():
        parent = kind.__mro__[1]
        if issubclass(parent, errors.TickrailError) and parent is not errors.TickrailError:
            assert issubclass(ApiError.by_code[code], ApiError.by_code[parent.code]), code


def test_every_model_and_document_is_exported() -> None:
    read = [get_args(m.hints["return"])[0] for m in METHODS]
    for kind in (k for k in read if isinstance(k, type) and issubclass(k, models.Model)):
        assert getattr(models, kind.__name__) is kind


@pytest.mark.parametrize(
    ("api", "client", "said"),
    [
        (Shape({"a": Shape(), "b": Shape()}), Shape({"a": Shape()}), "/: the client lacks b"),
        (Shape({"a": Shape()}), Shape({"a": Shape(), "b": Shape()}), "/: the API lacks b"),
        (Shape({"a": Shape(null=True)}), Shape({"a": Shape()}), "/a: null on one side only"),
        (Shape({"a": Shape()}), Shape({"a": Shape(instant=True)}), "/a: an instant on one"),
        (Shape(variants={"x": Shape()}), Shape({"a": Shape()}), " kind: the client lacks x"),
    ],
)
def test_a_difference_is_seen(api: Shape, client: Shape, said: str) -> None:
    [found] = shapes.differences(api, client, answer=True)
    assert found.startswith(said)


def test_a_word_that_only_one_side_takes_is_seen() -> None:
    api, client = Shape({"a": Shape(words={"x", "y"})}), Shape({"a": Shape(words={"x"})})
    assert len(list(shapes.differences(api, client, answer=False))) == 1
    assert list(shapes.differences(api, client, answer=True)) == []
