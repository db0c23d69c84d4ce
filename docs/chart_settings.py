"""Which settings the chart takes under `settings`; docs/tables.py puts them into its schema."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from tickrail.runtime.settings import variable_of
from tickrail.runtime.settings_fields import Settings

ALSO: Final = frozenset(
    {"TICKRAIL_LOG_FORMAT", "TICKRAIL_PREPARE_STATEMENTS", "TICKRAIL_TRACE_SAMPLE"}
)
"""What the templates set and a process may still be told otherwise: nothing else stands on it."""
_VARIABLE: Final = re.compile(r"\bTICKRAIL_[A-Z_]+\b")


def taken(chart: Path) -> dict[str, str]:
    """By variable what each means: all but secrets and what the chart's templates set themselves.

    Ports and files of the templates are what probes, services and mounts name, queues and drain
    what scalers and grace periods do; a secret would stand in a manifest.
    """
    own = {
        variable
        for path in (chart / "templates").rglob("*")
        if path.is_file()
        for variable in _VARIABLE.findall(path.read_text("utf-8"))
    }
    return {
        variable: info.description or ""
        for name, info in Settings.model_fields.items()
        if info.repr and (variable := variable_of(name)) not in own - ALSO
    }


def schema(text: str, chart: Path) -> str:
    """The schema of the chart's values with the settings of the code in it."""
    document: dict[str, Any] = json.loads(text)
    document["$defs"]["settings"] |= {
        "properties": {
            variable: {"type": ["string", "integer", "boolean"], "description": meaning}
            for variable, meaning in taken(chart).items()
        },
        "additionalProperties": False,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
