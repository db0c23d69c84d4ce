"""`tickrail schema`: the JSON schemas of documents in files, for editors that complete them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from tickrail_cli.context import Context, pass_session, shared_options
from tickrail_cli.definitions import CALENDAR, JOB, LIMITS
from tickrail_cli.output import dump

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_COMPONENTS = "#/components/schemas/"
MODELS = {JOB: "NewJob", CALENDAR: "NewCalendar", LIMITS: "NewQueue"}
"""Kind of document -> its model in the API's OpenAPI document."""
_NOT_IN_FILES = ("dry_run", "kinds")
"""What a request may hold and a document of a file does not: `kinds` of a queue are operators'."""
_NUMBERS = ("integer", "number")
_TOLD = ("title", "description", "default", "examples")
_VARIABLE = {"type": "string", "pattern": r"\$\{"}
_NAME = r"^[a-z0-9][a-z0-9._-]{0,127}$"


def schema_of(openapi: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The schema of a kind of document, with all that it refers to inside.

    Args:
        openapi: the API's document.
        kind: a key of `MODELS`, or `any`: whichever the document's `kind` says.
    """
    found: dict[str, Any] = {}
    models = openapi["components"]["schemas"]
    if kind == "any":
        parts = {k: _document(models, k, found) for k in MODELS}
        job = parts.pop(JOB)
        rest: Any = job
        for name, part in parts.items():
            says = {"required": ["kind"], "properties": {"kind": {"const": name}}}
            rest = {"if": says, "then": part, "else": rest}
        schema = {"title": "Definition", **rest}
    else:
        schema = _document(models, kind, found)
    return {"$schema": _DIALECT, **schema, "$defs": found}


def _document(models: Mapping[str, Any], kind: str, found: dict[str, Any]) -> dict[str, Any]:
    """A model as a document of a file: with its kind, its name and the place of its schema."""
    model = _local(models[MODELS[kind]], models, found)
    properties = {
        "$schema": {"type": "string", "description": "Where this schema is, for editors."},
        "kind": {"const": kind, "description": "What the document is; a job where it is left out."},
        "name": {"type": "string", "pattern": _NAME},
        **model["properties"],
    }
    for member in _NOT_IN_FILES:
        properties.pop(member, None)
    needed = ["name", *model.get("required", []), *([] if kind == JOB else ["kind"])]
    required = [name for name in dict.fromkeys(needed) if name in properties]
    return {**model, "properties": properties, "required": required}


def _local(value: Any, models: Mapping[str, Any], found: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """The value with its references into `$defs`, which gets what they name."""
    if isinstance(value, list):
        return [_local(inner, models, found) for inner in value]
    if not isinstance(value, dict):
        return value
    made = {key: _local(inner, models, found) for key, inner in value.items() if key != "$ref"}
    ref = value.get("$ref")
    if isinstance(ref, str) and ref.startswith(_COMPONENTS):
        name = ref.removeprefix(_COMPONENTS)
        if name not in found:
            found[name] = {}  # it may refer to itself
            found[name] = _local(models[name], models, found)
        made["$ref"] = f"#/$defs/{name}"
    return _or_variable(made)


def _or_variable(made: dict[str, Any]) -> dict[str, Any]:
    """A schema that also takes a text with `${NAME}`: what it will hold is not known yet."""
    if "oneOf" in made:  # such a text may be right by several of them
        made["anyOf"] = made.pop("oneOf")
    bound = made.get("type") in _NUMBERS or (made.get("type") == "string" and "pattern" in made)
    if not bound:
        return made
    told = {key: made.pop(key) for key in _TOLD if key in made}
    return {**told, "anyOf": [made, _VARIABLE]}


@click.command("schema")
@click.argument("kind", type=click.Choice([*MODELS, "any"]), default="any")
@shared_options
@pass_session
def schema(session: Context, /, *, kind: str) -> None:
    """Print the JSON schema of documents that `tickrail apply` reads: of KIND, or of any.

    It is made from the API's own document, so it is that of the API's version. No key is needed.
    """
    made = schema_of(session.client().request("GET", "/openapi.json"), kind)
    form = session.output
    click.echo(dump(made, form) if form == "yaml" else json.dumps(made, indent=2))
