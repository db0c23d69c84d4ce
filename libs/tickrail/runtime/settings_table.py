"""The table of settings in Markdown: `python -m tickrail.runtime.settings_table`."""

from __future__ import annotations

import sys

from tickrail.runtime.settings import variable_of
from tickrail.runtime.settings_fields import Settings, default_text


def settings_table() -> str:
    """One row a setting: its variable, its default, its meaning."""
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for name, info in Settings.model_fields.items():
        default = default_text(name)
        shown = f"`{default}`" if default else ""
        lines.append(f"| `{variable_of(name)}` | {shown} | {info.description} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(settings_table())
