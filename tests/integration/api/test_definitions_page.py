"""docs/definitions-as-code.md: its files are read, its commands and its pipeline do as it says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from tests.integration.api.test_calendar_cli import Said, tickrail
from tests.support.api import World
from tests.support.tree import ROOT

from tickrail_cli.schema import schema_of
from tickrail_cli.yaml_documents import parse_stream

pytestmark = pytest.mark.integration
__all__ = ["tickrail"]

PAGE = (ROOT / "docs/definitions-as-code.md").read_text()
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```yaml\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = re.findall(r"^\$ tickrail (.*)$", PAGE, re.MULTILINE)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_its_commands_do_what_it_says(
    world: World, tickrail: Callable[..., Said], files: Path
) -> None:
    assert files.is_dir()
    last = ""
    expected = {"diff": 1}
    for line in COMMANDS:
        words = shlex.split(line.partition(" >")[0])
        code, out, err = tickrail(*words)
        assert (code, err) == (expected.get(words[0], 0), ""), line
        last = out
    assert {job["name"] for job in world.acme.every("/v1/jobs")} == {
        "nightly-invoice-run",
        "poll-orders",
    }
    assert tickrail("diff", "-f", "jobs/")[0] == 0
    assert tickrail("diff", "-f", "exported", "--set", "jobs")[0] == 0
    Draft202012Validator.check_schema(json.loads(last))


def test_its_pipeline_shows_and_applies(
    world: World, tickrail: Callable[..., Said], files: Path
) -> None:
    assert files.is_dir()
    workflow = yaml.safe_load(FILES[".github/workflows/jobs.yml"])
    steps = [step.get("run", "") for step in workflow["jobs"]["jobs"]["steps"]]
    mine = [shlex.split(run)[1:] for run in steps if run.startswith("tickrail ")]
    assert [words[0] for words in mine] == ["apply", "apply"]
    code, out, _ = tickrail(*mine[0])
    assert (code, out.splitlines()[-1]) == (
        0, "set jobs: 3 to create, 1 to change, 0 unchanged, 0 to delete"
    )  # fmt: skip
    assert world.acme.every("/v1/jobs") == []
    code, out, _ = tickrail(*mine[1])
    assert (code, out.splitlines()[-1]) == (
        0, "set jobs: 3 created, 1 changed, 0 unchanged, 0 deleted"
    )  # fmt: skip


def test_its_documents_are_valid_by_the_schema(world: World) -> None:
    made = Draft202012Validator(schema_of(world.answers.document, "any"))
    documents = [
        document.value
        for name in ("jobs/billing.yaml", "jobs/shared.yaml")
        for document in parse_stream(FILES[name], lambda text, _: text)
    ]
    assert len(documents) == 4
    for document in documents:
        assert list(made.iter_errors(document)) == []
        assert not made.is_valid(document | {"colour": "blue"})


def test_a_variable_may_stand_where_its_value_is_bound(world: World) -> None:
    made = Draft202012Validator(schema_of(world.answers.document, "job"))
    for attempts, url, right in [
        ("${ATTEMPTS}", "${URL:-https://example.org}/", True),
        (3, "https://example.org", True),
        ("three", "https://example.org", False),
        (3, "ftp://example.org", False),
        (0, "https://example.org", False),
    ]:
        target = {"webhook": {"url": url}}
        document = {"name": "a", "target": target, "retry": {"max_attempts": attempts}}
        assert made.is_valid(document) is right, document
