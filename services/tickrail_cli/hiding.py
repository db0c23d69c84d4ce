"""What is shown of definitions whose texts hold values of variables: what the files say instead.

Such a value is a secret more often than not, and what `diff` and `apply --dry-run` show ends up in
the log of a pipeline. Where a document has `Bearer ${TOKEN}`, this is what is shown; what there was
at this place before is shown as `***` where it was something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tickrail.core.documents import escape
from tickrail.core.masking import MASK, masked
from tickrail.engine.job_rules import same
from tickrail_cli.definitions import Change, Refusal
from tickrail_cli.variables import Hidden

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?")


def shown(change: Change) -> Change:
    """A change as it is shown.

    Of what is deleted no file says where its texts came from: there, what stands under the name of
    a credential is masked.
    """
    if change.item is None:
        return replace(change, before=masked(change.before), after=masked(change.after))
    hidden = change.item.source.hidden
    if not hidden.written:
        return change
    after = _after(change.after, "", hidden)
    before = _before(change.before, change.after, "", hidden)
    return replace(change, before=before, after=after)


def told(refusal: Refusal) -> Refusal:
    """A refusal as it is told: what it quotes of a value is left out."""
    hidden, problem = refusal.source.hidden, refusal.problem
    message = hidden.text(problem.message)
    at = next((text for place, text in hidden.written.items() if place == problem.pointer), None)
    if at is not None:
        message = _QUOTED.sub(lambda _: repr(at), message)
    return replace(refusal, problem=replace(problem, message=message))


def _after(value: Any, pointer: str, hidden: Hidden) -> Any:  # noqa: ANN401 - any JSON
    """What there will be, with what the file says."""
    if pointer in hidden.written:
        return hidden.written[pointer]
    if isinstance(value, str):
        return hidden.text(value)
    changed = {k: _after(v, f"{pointer}/{escape(str(k))}", hidden) for k, v in _inside(value)}
    return _like(value, changed)


def _before(value: Any, after: Any, pointer: str, hidden: Hidden) -> Any:  # noqa: ANN401 - any JSON
    """What there is, with what the file says where it is the same."""
    if pointer in hidden.written:
        return hidden.written[pointer] if same(value, after) else MASK
    if isinstance(value, str):
        return hidden.text(value)
    beside = any(place.rpartition("/")[0] == pointer for place in hidden.written)
    changed: dict[str | int, Any] = {}
    for key, inner in _inside(value):
        place, then = f"{pointer}/{escape(str(key))}", _at(after, key)
        if beside and not isinstance(inner, dict | list) and place not in hidden.written:
            # It may be where the value stood before: under another name, at another place.
            stays = inner in after if isinstance(after, list) else type(then) is type(inner)
            changed[key] = _before(inner, then, place, hidden) if stays else MASK
        else:
            changed[key] = _before(inner, then, place, hidden)
    return _like(value, changed)


def _at(value: Any, key: str | int) -> Any:  # noqa: ANN401 - any JSON
    return dict(_inside(value)).get(key)


def _like(value: Any, changed: Mapping[str | int, Any]) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, list):
        return list(changed.values())
    return dict(changed) if isinstance(value, Mapping) else value


def _inside(value: Any) -> Iterator[tuple[str | int, Any]]:  # noqa: ANN401 - any JSON
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)
