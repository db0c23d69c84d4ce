"""What type checkers see of the client: answers of either kind, and mistakes in requests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.tree import ROOT

SAMPLE = """
import threading
import httpx
from datetime import timedelta
from typing import Any
from tickrail.sdk.client import AsyncClient, Client

def blocking(client: Client, loaded: dict[str, Any]) -> None:
    reveal_type(client.jobs.get("name:x"))  # JobAnswer
    reveal_type(client.jobs.list(state=["active"]))  # Pages[Job]
    reveal_type([job.next_run_at for job in client.jobs.list()])  # list[datetime | None]
    reveal_type(client.jobs.delete("x"))  # None
    reveal_type(client.jobs.upcoming("x", n=3))  # tuple[UpcomingSlot, ...]
    reveal_type(client.operations.wait("x", within=60))  # Operation
    reveal_type(client.with_tenant("acme").jobs.get("x").retry.initial)  # timedelta
    reveal_type(client.request("GET", "/v1/jobs"))  # Any
    reveal_type([page.next_cursor for page in client.jobs.list().pages()])  # list[str | None]
    client.jobs.create(name="x", target={"webhook": {"url": "https://example.org"}}, jitter="5s",
        schedule={"every": timedelta(minutes=5)})
    client.jobs.create(**loaded)

async def awaited(client: AsyncClient) -> None:
    reveal_type(client.jobs.get("x"))  # Coroutine[Any, Any, JobAnswer]
    reveal_type(await client.jobs.get("x"))  # JobAnswer
    reveal_type(client.jobs.list())  # AsyncPages[Job]
    reveal_type([job.state async for job in client.jobs.list()])  # list[str]
    reveal_type(await client.operations.wait("x"))  # Operation
    reveal_type(await client.jobs.delete("x"))  # None
    async with client as same:
        reveal_type(same)  # AsyncClient
"""
"""Behind each line, the type that a checker is to see."""
MISTAKES = {
    "client.jobs.get(7)": 'incompatible type "int"; expected "str"',
    "client.jobs.get()": "Too few arguments",
    'client.jobs.create(name="x")': 'Missing named argument "target"',
    'client.jobs.create(nam="x")': 'Unexpected keyword argument "nam"',
    'client.jobs.patch("x", overlap="skipp")': "expected \"Literal['allow', 'skip'",
    'client.jobs.patch("x", schedule={"crn": "* * * * *"})': 'Argument "schedule"',
    'client.jobs.list(state=["activ"])': "Literal['activ']",
    'client.jobs.list(colour="red")': 'Unexpected keyword argument "colour"',
    'client.jobs.backfill("x", until="2026-01-01T00:00:00Z")': 'named argument "from_"',
    'client.launches.get("x").stat': 'has no attribute "stat"',
    'client.launches.get("x").state = "y"': "read-only",
    "client.nothing": 'has no attribute "nothing"',
    'Client("http://x", transport=httpx.AsyncHTTPTransport())': 'expected "BaseTransport | None"',
    'AsyncClient("http://x", wait=threading.Event().wait)': 'Argument "wait" to "AsyncClient"',
    'awaited.jobs.get("x").state': '"Coroutine[Any, Any, JobAnswer]" has no attribute "state"',
    "[job for job in awaited.jobs.list()]": '"AsyncPages[Job]" has no attribute "__iter__"',
}  # fmt: skip
"""Lines that a checker refuses, and part of what it says."""


def check(path: Path, source: str) -> list[str]:
    """What mypy says of a module of users, strictly, by line."""
    path.write_text(source)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"),
            *("--follow-imports=silent", "--cache-dir", str(path.parent / "cache"), str(path)),
        ],
        cwd=ROOT / "libs",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def short(shown: str) -> str:
    """A type without the modules of its parts."""
    return re.sub(r"\b(?:\w+\.)+(\w)", r"\1", shown)


def test_a_checker_sees_answers_and_refuses_mistakes(tmp_path: Path) -> None:
    lines = [
        *SAMPLE.strip().splitlines(),
        "",
        "def wrong(client: Client, awaited: AsyncClient) -> None:",
    ]
    first = len(lines) + 1
    lines += [f"    {line}" for line in MISTAKES]
    said: dict[int, str] = {}
    for line in check(tmp_path / "sample.py", "\n".join(lines) + "\n"):
        place, _, text = line.partition(": ")
        number = int(place.split(":")[1])
        said[number] = said.get(number, "") + text + "\n"
    for number, line in enumerate(lines, 1):
        wanted = line.partition("  # ")[2]
        if wanted:
            [seen] = re.findall(r'Revealed type is "(.*)"', said.pop(number))
            assert short(seen) == wanted, line
    for number, (line, wanted) in enumerate(MISTAKES.items(), first):
        assert wanted in said.pop(number, ""), line
    assert said == {}
