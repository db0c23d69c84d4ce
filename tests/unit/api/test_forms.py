"""The forms of schedules and targets in the OpenAPI document are those that the parsers take.

Each example, which has every member of its form, is changed at each place: a member is taken away,
made null, made of another type, or added. The document and the parser say the same of the result,
but where only the parser can tell: what a text means.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, TypeAdapter

from tickrail.core.errors import InvalidInputError
from tickrail.core.schedule_document import FORMS, parse_schedule
from tickrail.core.targets import TARGET_KINDS, parse_target
from tickrail_api.schemas.job import JobDocument
from tickrail_api.schemas.other import PreviewRequest
from tickrail_api.schemas.schedule import SCHEDULES, Schedule
from tickrail_api.schemas.target import TARGETS, Target

NOW = datetime(2026, 3, 1, tzinfo=UTC)
FREE = {"headers", "env", "args", "body", "value"}
"""Members whose members are their owner's own."""
OTHERS: list[Any] = [True, 7, 1.5, "x", [], {}, ["x"], {"x": "y"}]
SCHEMAS = {
    name: Draft202012Validator(TypeAdapter(kind).json_schema(mode="serialization"))
    for name, kind in (("schedule", Schedule), ("target", Target))
}


class Case(NamedTuple):
    """A changed example: of what, where it is changed, and how."""

    of: str
    place: str
    change: str
    document: Any

    def fits(self) -> bool:
        """Whether the OpenAPI document takes it."""
        return SCHEMAS[self.of].is_valid(self.document)

    def refusal(self) -> InvalidInputError | None:
        """What the parser has against it."""
        try:
            if self.of == "schedule":
                parse_schedule(self.document, job=UUID(int=1), now=NOW)
            else:
                parse_target(self.document)
        except InvalidInputError as e:
            return e
        return None


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every member whose name the document knows."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            if key not in FREE:
                yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from places(inner, (*path, i))


def changed(of: str, example: Any) -> Iterator[Case]:
    for path in places(example):
        place = "/".join(map(str, path))

        def at(how: str, value: Any = None, path: Any = path, place: str = place) -> Case:
            document = copy.deepcopy(example)
            here = document
            for step in path[:-1]:
                here = here[step]
            if how == "without":
                del here[path[-1]]
            elif how == "with one more":
                here["zzz"] = value
            else:
                here[path[-1]] = value
            return Case(of, place, how, document)

        yield at("without")
        yield at("with one more", 1)
        yield at("null")
        for other in OTHERS:
            yield at(repr(other), other)


EXAMPLES = [("schedule", one) for one in SCHEDULES] + [("target", one) for one in TARGETS]
CASES = [case for of, one in EXAMPLES for case in changed(of, one)]
TOGETHER = {"webhook/tls/client_certificate", "webhook/tls/client_key"}
"""One is of no use without the other: the parser says so."""
STRUCTURE = ("without", "with one more", "null")


def test_every_form_has_an_example_and_both_take_it() -> None:
    assert {form for one in SCHEDULES for form in one if form in FORMS} == set(FORMS)
    assert {kind for one in TARGETS for kind in one} == set(TARGET_KINDS)
    for of, one in EXAMPLES:
        case = Case(of, "", "", one)
        assert case.fits(), one
        assert case.refusal() is None, one


def test_the_examples_have_every_member_of_their_forms() -> None:
    """So that each is changed, and one that is added to the document is tried, too."""
    for of, kind in (("schedule", Schedule), ("target", Target)):
        whole = TypeAdapter(kind).json_schema(mode="serialization")
        tried = {
            part
            for case in CASES
            if case.of == of and case.change == "null"
            for part in case.place.split("/")
        }
        known = {m for model in whole["$defs"].values() for m in model.get("properties", ())}
        assert known - tried == set()
        assert all(m["additionalProperties"] is False for m in whole["$defs"].values())


@pytest.mark.parametrize(("model", "member"), [(JobDocument, "schedule"), (JobDocument, "target"),
                                               (PreviewRequest, "schedule")])  # fmt: skip
def test_exactly_one_form_is_right(model: type[BaseModel], member: str) -> None:
    whole = model.model_json_schema(mode="serialization")
    schema = whole["properties"][member]
    assert "anyOf" not in schema
    named = [form["$ref"].rpartition("/")[2] for form in schema["oneOf"] if "$ref" in form]
    needed = [tuple(whole["$defs"][name]["required"]) for name in named]
    assert sorted(needed) == sorted(
        {(f,) for f in (FORMS if member == "schedule" else TARGET_KINDS)}
    )


def test_what_the_document_refuses_the_parser_refuses() -> None:
    wrong = [c for c in CASES if not c.fits() and c.refusal() is None]
    assert [(c.place, c.change) for c in wrong] == []


def test_of_members_that_are_there_or_not_both_say_the_same() -> None:
    wrong = [
        c
        for c in CASES
        if c.change in STRUCTURE
        and c.place not in TOGETHER
        and c.fits()
        and c.refusal() is not None
    ]
    assert [(c.place, c.change, str(c.refusal())) for c in wrong] == []


def test_of_types_both_say_the_same() -> None:
    """A text may still be none that is understood, and a list may lack what is needed."""
    wrong = [
        c
        for c in CASES
        if c.change not in (*STRUCTURE, repr("x")) and c.fits() and c.refusal() is not None
    ]
    assert [(c.place, c.change, str(c.refusal())) for c in wrong] == []
