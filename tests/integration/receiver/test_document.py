"""The programs of docs/receivers.md do what it says."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import conninfo
from tests.support.api import served
from tests.support.receiving import FRAMEWORKS, serve_flask
from tests.support.servers import Servers
from tests.support.tree import ROOT

pytestmark = pytest.mark.integration


def program(framework: str) -> str:
    """The first program of the document that uses a framework."""
    text = (ROOT / "docs/receivers.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return next(block for block in blocks if f"from {framework} import" in block)


@pytest.fixture
def dsn(stack: Servers) -> Iterator[str]:
    schema = "receiver_document"
    with psycopg.connect(stack.postgres_dsn, autocommit=True) as conn:
        conn.execute(f"create schema {schema}".encode())
        conn.execute(f"create table {schema}.invoices (run text)".encode())
        yield conninfo.make_conninfo(stack.postgres_dsn, options=f"-c search_path={schema}")
        conn.execute(f"drop schema {schema} cascade".encode())


def post(url: str, fence: int) -> tuple[int, str | None, Any]:
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=30)
    headers = {"Idempotency-Key": "launch-1", "Fencing-Token": str(fence)}
    connection.request("POST", "/hooks/invoices", b"{}", headers)
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    return answer.status, answer.getheader("idempotent-replay"), body


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_program_has_one_effect_a_launch(
    framework: str, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", dsn)
    names: dict[str, Any] = {"__name__": "receiver"}
    exec(program(framework), names)
    server = served if framework == "fastapi" else serve_flask
    with server(names["app"]) as url:
        made = {"made": "launch-1"}
        assert post(url, 5) == (200, None, made)
        assert post(url, 5) == (200, "true", made)
        assert post(url, 6) == (200, "true", made)
        status, _, problem = post(url, 5)
        assert (status, problem["status"]) == (412, 412)
    with psycopg.connect(dsn) as conn:
        assert conn.execute("select run from invoices").fetchall() == [("launch-1",)]
