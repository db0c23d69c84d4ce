"""Templates: placeholders, values, what is refused."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from tests.support.runs import make_run

from tickrail.core.templates import (
    MAX_PLACEHOLDERS,
    MissingValueError,
    Room,
    TooMuchError,
    compile_value,
    parse_template,
    render_value,
)

LAUNCH = UUID("01a228bd-c0b0-84da-a9f8-66ce498b6740")
PAYLOAD = {
    "text": "a b",
    "number": 2.5,
    "none": None,
    "yes": True,
    "list": [1, {"deep": "x"}],
    "a-b": {"ü": 1},
    "big": 2**80,
}


def run(payload: Any = PAYLOAD) -> Any:
    return make_run({"noop": {}}, payload=payload, launch_id=LAUNCH)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain } { }}", "plain } { }}"),
        ("{{payload.text}}", "a b"),
        ("<{{ payload.text }}>", "<a b>"),
        ("{{\tpayload.number\n}}", "2.5"),
        ("{{ payload.none }}", "null"),
        ("{{ payload.yes }}", "true"),
        ("{{ payload.list }}", '[1,{"deep":"x"}]'),
        ("{{ payload.list.1.deep }}", "x"),
        ("{{ payload.a-b.ü }}", "1"),
        ("{{ payload.big }}", str(2**80)),
        ("{{ job.name }}/{{ job.id }}", f"nightly/{UUID(int=7)}"),
        ("{{ launch.id }}", str(LAUNCH)),
        ("{{ scheduled_at }}", "2026-03-01T02:00:00Z"),
        ("{{ attempt }}", "2"),
        (r"\{{ payload.text }}", "{{ payload.text }}"),
        (r"\{{{{ payload.text }}", "{{a b"),
        ('{"a":{"b":{{ payload.number }}}}', '{"a":{"b":2.5}}'),
    ],
)
def test_text(text: str, shown: str) -> None:
    assert parse_template(text).render(run(), Room()) == shown


@pytest.mark.parametrize(
    "text",
    [
        "{{ }}",
        "{{",
        "{{ payload",
        "{{ payload.text }",
        "{{ payloads.a }}",
        "{{ payload. }}",
        "{{ payload..a }}",
        "{{ payload.a b }}",
        "{{ launch.number }}",
        "{{ secret.x }}",
        "{{ env.HOME }}",
        "{{ payload.__class__.x }} {{ self }}",
        "{{{ payload.text }}}",
        "{{ payload.text }}" * 201,
        "{{" * 60_000,
        "{{" + "a" * 120_000,
    ],
)
def test_what_is_no_template_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ValueError, match=r"placeholder"):
        parse_template(text)


@pytest.mark.parametrize(
    "path",
    [
        "absent",
        "text.x",
        "list.2",
        "list.-1",
        "list.x",
        "list.99999999999999",
        "none.x",
        "list.1.y",
    ],
)
def test_a_place_that_the_payload_lacks(path: str) -> None:
    template = parse_template(f"{{{{ payload.{path} }}}}")
    with pytest.raises(MissingValueError, match=r"the payload has no "):
        template.render(run(), Room())


def test_names_of_python_are_no_places() -> None:
    with pytest.raises(MissingValueError):
        parse_template("{{ payload.__class__ }}").render(run(), Room())


def test_values_keep_their_kind_where_they_stand_alone() -> None:
    compiled = compile_value(
        {
            "whole": "{{ payload }}",
            "list": ["{{ payload.list }}", "{{ payload.number }}", 7, None],
            "mixed": "n={{ payload.number }}",
            r"\{{ key }}": r"\{{ no }}",
        }
    )
    assert render_value(compiled, run(), Room()) == {
        "whole": PAYLOAD,
        "list": [[1, {"deep": "x"}], 2.5, 7, None],
        "mixed": "n=2.5",
        r"\{{ key }}": "{{ no }}",
    }


def test_what_a_value_holds_is_no_template() -> None:
    assert parse_template("{{ payload.a }}").render(run({"a": "{{ launch.id }}"}), Room()) == (
        "{{ launch.id }}"
    )


@pytest.mark.parametrize(
    "value",
    [
        ["{{ payload }}" * MAX_PLACEHOLDERS] * 50,
        ["{{ payload }}"] * 8_000,
        {"a": {"b": ["<{{ payload.text }}>"] * 8_000}},
    ],
)
def test_a_payload_that_is_named_often_ends_where_there_is_no_room(value: Any) -> None:
    large = run({"text": "x" * 60_000})
    compiled = compile_value(value)
    with pytest.raises(TooMuchError, match="more than 1048576 characters"):
        render_value(compiled, large, Room())


def test_what_has_room_is_put_in() -> None:
    compiled = compile_value(["{{ payload.text }}", "<{{ payload.text }}>"])
    assert render_value(compiled, run(), Room(6)) == ["a b", "<a b>"]
    with pytest.raises(TooMuchError):
        render_value(compiled, run(), Room(5))
