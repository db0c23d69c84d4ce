from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest
import structlog

from tickrail.runtime import log


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    config = structlog.get_config()
    showwarning = warnings.showwarning
    yield
    root.handlers[:] = before
    root.setLevel(level)
    structlog.configure(**config)
    logging.captureWarnings(capture=False)
    warnings.showwarning = showwarning


class Lines:
    def __init__(self, form: str, level: str = "info") -> None:
        self.stream = io.StringIO()
        log.configure(form, level, "scheduler-1", stream=self.stream)

    def json(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


def test_json_lines_have_the_common_keys_first() -> None:
    lines = Lines("json")
    structlog.get_logger().info("ticked", count=3, epoch=7, partition=1, launch="l", job="j")
    text = lines.stream.getvalue()
    [line] = lines.json()
    assert list(line) == [
        *("time", "level", "process", "event", "job", "launch", "partition", "epoch", "count")
    ]
    assert line["process"] == "scheduler-1"
    assert str(line["time"]).endswith("Z")
    assert text.count("\n") == 1


@pytest.mark.parametrize("name", ["uvicorn.error", "uvicorn.access", "alembic.runtime", "any"])
def test_lines_of_libraries_have_the_same_form(name: str) -> None:
    logging.getLogger(name).addHandler(logging.NullHandler())
    logging.getLogger(name).setLevel(logging.NOTSET)  # a server in this process may have raised it
    lines = Lines("json")
    logging.getLogger(name).info("took %s of %d", "x", 2)
    [line] = lines.json()
    assert (line["event"], line["level"], line["process"]) == (
        "took x of 2", "info", "scheduler-1",
    )  # fmt: skip


def test_nothing_below_the_level_and_no_requests_of_http_clients() -> None:
    lines = Lines("json", "warning")
    structlog.get_logger().info("no")
    logging.getLogger("httpx").info("no")
    structlog.get_logger().warning("yes")
    assert [line["event"] for line in lines.json()] == ["yes"]


def test_secrets_are_masked_wherever_they_are() -> None:
    lines = Lines("json")
    structlog.get_logger().info(
        "key trk_abc_hush1-x_y used",
        password="hush2",
        api_key="hush3",
        Authorization="hush4",
        url="postgresql://u:hush5@h/d",
        headers={"X-Token": "hush6", "Accept": "*/*"},
        urls=["https://u:hush7@h/"],
        idempotency_key="shown",
        keys=3,
    )
    [line] = lines.json()
    assert "hush" not in lines.stream.getvalue()
    assert line["idempotency_key"] == "shown"
    assert line["headers"] == {"X-Token": "***", "Accept": "*/*"}
    assert line["keys"] == 3


@pytest.mark.parametrize("ours", [True, False])
def test_an_exception_is_a_field_with_its_trace_and_without_secrets(ours: bool) -> None:
    lines = Lines("json")
    try:
        int("postgresql://u:hush@h/d")
    except ValueError:
        if ours:
            structlog.get_logger().exception("failed")
        else:
            logging.getLogger("alembic").exception("failed")
    [line] = lines.json()
    assert "Traceback" in str(line["exception"])
    assert "'postgresql://u:***@h/d'" in str(line["exception"])


def test_colour_lines_are_one_line_with_pairs() -> None:
    lines = Lines("color")
    structlog.get_logger().warning("server away", server="etcd", error="a b=c")
    text = lines.stream.getvalue()
    assert "server away" in text
    assert 'error=\x1b[0m"a b=c"' in text
    assert text.count("\n") == 1


def test_auto_is_json_where_nobody_looks_on() -> None:
    lines = Lines("auto")
    structlog.get_logger().info("x")
    assert lines.json()[0]["event"] == "x"


def test_what_json_cannot_hold_is_written_all_the_same() -> None:
    lines = Lines("json")
    structlog.get_logger().info("odd", text="\ud800", number=1 << 70, thing=object())
    [line] = lines.json()
    assert line["number"] == str(1 << 70)
    assert line["text"] == "\\ud800"


def test_bound_context_is_on_the_line() -> None:
    lines = Lines("json")
    with structlog.contextvars.bound_contextvars(request_id="r1"):
        logging.getLogger("lib").warning("w")
    assert lines.json()[0]["request_id"] == "r1"
