"""What is kept for the next start and the command line, and what a person is shown."""

from __future__ import annotations

import io
import json
import re
import stat
from pathlib import Path

import pytest
from tests.support.clock import FakeClock

from tickrail_cli import home
from tickrail_cli.screen import Lines, colored, screen

URL, KEY = "http://127.0.0.1:8081", "trk_abc_def"


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_passwords_are_made_once_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    made = home.passwords(tmp_path, ("a", "b"))
    home.keep(tmp_path, api_port=8081)
    assert home.passwords(tmp_path, ("a", "b")) == made
    assert len(set(made.values())) == 2
    assert all(len(p) > 20 for p in made.values())
    assert home.read_kept(tmp_path)["api_port"] == 8081
    assert mode(tmp_path / home.KEPT_FILE) == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", '{"passwords": 3}'])
def test_a_damaged_file_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / home.KEPT_FILE).write_text(text)
    assert set(home.passwords(tmp_path, ("a",))) == {"a"}


def test_the_client_file_is_its_owners_alone(tmp_path: Path) -> None:
    home.write_client(tmp_path, api_url=URL, api_key=KEY)
    assert mode(tmp_path / home.CLIENT_FILE) == 0o600
    assert home.read_client(tmp_path) == (URL, KEY)
    assert home.read_client(tmp_path / "nowhere") is None


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_json_line_becomes_one_line_for_a_person() -> None:
    event = {
        "time": "2026-03-02T10:00:00.123Z",
        "level": "info",
        "process": "worker-1",
        "event": "serving",
        "queues": ["default"],
        "note": "two words",
    }
    assert plain(colored(event)) == (
        '10:00:00.123 info    worker-1     serving queues=["default"] note="two words"'
    )


def test_a_line_cannot_move_the_cursor() -> None:
    shown = colored({"event": "a\x1b[2Jb", "x": "\r\x07"})
    assert "\x1b[2J" not in shown
    assert "\r" not in shown
    assert "\x07" not in shown


def test_json_stays_json_and_the_rest_becomes_json() -> None:
    out = io.StringIO()
    lines = Lines(color=False, clock=FakeClock(), stream=out)
    lines("api", '{"event":"serving","process":"api"}')
    lines("api", "Fatal Python error: postgresql://u:secret@h/d")
    lines("api", "   ")
    first, second = out.getvalue().splitlines()
    assert first == '{"event":"serving","process":"api"}'
    assert json.loads(second)["process"] == "api"
    assert "secret" not in second


def test_the_screen_names_address_key_and_three_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = (tmp_path / ".tickrail").resolve()
    text = screen(api=URL, key=KEY, data_dir=folder, addresses={"Kafka": "h:1"}, missing={})
    assert URL in text
    assert f"{URL}/docs" in text
    assert KEY in text
    assert ".tickrail/metrics.json" in text
    assert text.count("tickrail jobs ") == 2
    assert text.count("tickrail launches ") == 1
    assert "TICKRAIL_DATA_DIR" not in text


def test_the_screen_says_what_is_missing_and_where_another_folder_is(tmp_path: Path) -> None:
    text = screen(
        api=URL, key=KEY, data_dir=tmp_path, addresses={}, missing={"worker-1": "it is starting"}
    )
    assert "worker-1: it is starting" in text
    assert f"export TICKRAIL_DATA_DIR={tmp_path}" in text
    assert f"down --data {tmp_path}" in text
