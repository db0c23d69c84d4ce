"""What Helm says after an installation."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from tests.helm.conftest import CHART, SETS, env_of, template


def notes(tmp_path: Path, values: str, *more: str) -> str:
    """Notes are shown by an install alone, so they are put into a manifest here."""
    copy = tmp_path / "tickrail"
    shutil.copytree(CHART, copy)
    (copy / "templates/NOTES.txt").rename(copy / "notes")
    (copy / "templates/notes.yaml").write_text(
        'kind: Notes\napiVersion: v1\ntext: {{ tpl (.Files.Get "notes") . | toJson }}\n'
    )
    done = template(values, "--show-only", "templates/notes.yaml", *more, chart=copy)
    assert done.returncode == 0, done.stderr
    (line,) = [ln for ln in done.stdout.splitlines() if ln.startswith("text: ")]
    text = json.loads(line.removeprefix("text: "))
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("values", SETS)
def test_the_notes_give_a_pod_that_makes_the_first_key(tmp_path: Path, values: str) -> None:
    text = notes(tmp_path, values)
    (overrides,) = re.findall(r"--overrides '(.*)'", text)
    pod = json.loads(overrides)["spec"]
    env = env_of(pod)
    assert env["TICKRAIL_DATABASE_URL"]["secretKeyRef"]["key"] == "owner-url"
    assert pod["containers"][0]["args"] == ["bootstrap", "--tenant", "default"]
    assert ("TICKRAIL_KEY_PEPPER" in env) == (values == "available-values.yaml")
    assert ("PGSSLROOTCERT" in env) == (values == "tls-values.yaml")
    assert ("--wait" in text) == (values != "closed-values.yaml")


@pytest.mark.parametrize(
    ("values", "more", "said"),
    [
        ("keda-values.yaml", "networkPolicy.enabled=true", True),
        ("keda-values.yaml", "networkPolicy.enabled=false", False),
        ("keda-values.yaml", "networkPolicy.enabled=true,watchdog.enabled=false", False),
        ("closed-values.yaml", "networkPolicy.watchdogExtra=null", False),
        ("closed-values.yaml", "watchdog.webhook.existingSecret=on-call", False),
        (
            "closed-values.yaml",
            "watchdog.webhook.existingSecret=on-call,networkPolicy.watchdogExtra=null",
            True,
        ),
    ],
)
def test_the_notes_say_when_a_policy_keeps_the_watchdog_from_its_webhook(
    tmp_path: Path, values: str, more: str, said: bool
) -> None:
    text = notes(tmp_path, values, "--set", more)
    assert ("networkPolicy.watchdogExtra" in text) is said
