"""docs/client.md and the README: their Python runs as shown, against the real API."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.api import World
from tests.support.colours import parts
from tests.support.dead_api import work
from tests.support.tree import ROOT

from tickrail.sdk import client as package
from tickrail.sdk.client import ApiError, Client, MissingKeyError
from tickrail.sdk.client.errors import UnreachableError
from tickrail.sdk.client.operation import Composed, Listing, Operation

pytestmark = pytest.mark.integration

PAGE = (ROOT / "docs/client.md").read_text()
_KINDS = (Operation, Listing, Composed)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def environment(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the examples find: the variables of a tenant's client, operations that go on."""
    url, ended = str(world.client.base_url), threading.Event()
    monkeypatch.setenv("TICKRAIL_API_URL", url)
    monkeypatch.setenv("TICKRAIL_API_KEY", world.keys["acme"].token)

    def works() -> None:
        while not ended.wait(0.05):
            work(world)

    thread = threading.Thread(target=works)
    thread.start()
    found = {"url": url, "operator_key": world.keys["operator"].token}
    yield found
    ended.set()
    thread.join()
    if isinstance(left := found.get("client"), Client):
        left.close()


def test_the_page_runs_from_top_to_bottom(
    environment: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) >= 8
    for block in blocks:
        exec(compile(block, "docs/client.md", "exec"), environment)
    shown = capsys.readouterr().out
    assert "At 02:00 every day in Europe/Berlin" in shown
    assert "/schedule/every" in shown
    assert "trk_" in shown
    assert environment["names"] == ["nightly-invoice-run"]
    assert environment["operation"].state == "finished"


def test_the_example_of_the_readme_runs(
    environment: dict[str, Any], world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, section = (ROOT / "README.md").read_text().partition("## From a program")
    blocks = BLOCK.findall(section.partition("\n## ")[0])
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "README.md", "exec"), environment)
    [launch] = world.acme.every("/v1/launches", job="name:nightly-invoice-run")
    assert launch["id"] in capsys.readouterr().out


def test_it_names_every_method() -> None:
    with Client("http://127.0.0.1:1") as client:
        there = {
            name: [m for m, v in vars(type(part)).items() if isinstance(v, _KINDS)]
            for name, part in parts(client)
        }
    rows = re.findall(r"^\| `(\w+)` \| (`.*`) \|$", PAGE, re.MULTILINE)
    shown = {name: re.findall(r"`(\w+)`", methods) for name, methods in rows}
    assert {n: sorted(m) for n, m in shown.items()} == {n: sorted(m) for n, m in there.items()}


def test_it_names_every_error() -> None:
    named = set(re.findall(r"`(\w+Error)`", PAGE))
    there = {
        name
        for name, kind in vars(package).items()
        if isinstance(kind, type)
        and issubclass(kind, (ApiError, MissingKeyError, UnreachableError))
    }
    assert there - named == set()
    assert named - there == {"TimeoutError"}
