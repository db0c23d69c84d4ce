"""What schemathesis is told besides the document, so that requests get past the door."""

from __future__ import annotations

import json
import os
import re
import zlib
from typing import Any

import schemathesis
from schemathesis.core.parameters import ParameterLocation

KEY_VARIABLE = "TICKRAIL_FUZZ_KEY"
TENANT_VARIABLE = "TICKRAIL_FUZZ_TENANT"
OWN_VARIABLE = "TICKRAIL_FUZZ_OWN"
_NOBODY = "aaaaaaaaaaaaaaaa"
_OPERATOR = "operator"
_HEADER = "Tickrail-Tenant"


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Let most requests be of a tenant's own key, which names no tenant; an operator names one.

    Each with that header would stop at the door, and the examples and the coverage of the document
    have them all. Every tenth request, and each with a wrong header, keeps what was made for it.
    """
    del context, kwargs
    if case.method != "GET":
        # Who ends a key or a tenant of the run sees nothing but refusals from then on.
        own = json.loads(os.environ[OWN_VARIABLE])
        given = case.path_parameters or {}
        case.path_parameters = {n: _NOBODY if v in own else v for n, v in given.items()}
    if not case.headers or _HEADER not in case.headers or _about_headers(case):
        return
    about = f"{case.method} {case.formatted_path} {case.query} {case.body}"
    if zlib.crc32(about.encode("utf-8", "replace")) % 10 == 0:
        return
    if os.environ.get(KEY_VARIABLE) == _OPERATOR:
        case.headers[_HEADER] = os.environ[TENANT_VARIABLE]
    else:
        del case.headers[_HEADER]


def _about_headers(case: Any) -> bool:
    """Whether a header of a case was made wrong."""
    return case.meta is not None and any(
        where is ParameterLocation.HEADER and component.mode.is_negative
        for where, component in case.meta.components.items()
    )


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Leave out requests that count as right and whose headers are not as the document says.

    The coverage phase makes some: it writes 0 for a header whose pattern excludes that.
    """
    del context
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return True
    patterns = {
        p.name: p.definition.get("schema", {}).get("pattern") for p in case.operation.headers
    }
    return all(
        re.search(patterns[name], str(value)) is not None
        for name, value in (case.headers or {}).items()
        if patterns.get(name)
    )
