"""What a program may use: sizes, documents, and a worker's maximum."""

from __future__ import annotations

from typing import Any

import pytest

from tickrail.core.errors import InvalidInputError, SettingsError
from tickrail.core.resource_limits import ResourceLimits, format_size, parse_limits, parse_size
from tickrail.core.target_command import Command
from tickrail.core.targets import parse_target, target_document

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64KiB", 64 << 10),
        ("512MiB", 512 * MIB),
        ("512 mib", 512 * MIB),
        ("2G", 2 << 30),
        ("2GB", 2 << 30),
        ("1TiB", 1 << 40),
        (" 7B ", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1.5GiB", "1PiB", "1e3", "\u0664KiB", "1 2"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="512MiB"):
        parse_size(text)


def command(limits: Any) -> Command:
    found = parse_target({"command": {"argv": ["true"], "limits": limits}})
    assert isinstance(found, Command)
    return found


def test_a_target_s_limits_and_their_document() -> None:
    given = {
        "cpu": "90s",
        "memory": "512MiB",
        "file_size": 1000,
        "open_files": 256,
        "processes": 64,
    }
    target = command(given)
    assert target.limits == ResourceLimits(
        cpu=90, memory=512 * MIB, file_size=1000, open_files=256, processes=64
    )
    document = target_document(target)
    assert document["command"]["limits"] == {  # type: ignore[index]
        "cpu": "1m30s",
        "memory": "512MiB",
        "file_size": "1000B",
        "open_files": 256,
        "processes": 64,
    }
    assert parse_target(document) == target


@pytest.mark.parametrize("limits", [None, {}, {"cpu": None}])
def test_no_limits_are_left_out(limits: object) -> None:
    target = command(limits)
    assert not target.limits
    assert "limits" not in target_document(target)["command"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("limits", "pointer", "expected"),
    [
        ("512MiB", "", "memory"),
        ({"ram": "1GiB"}, "/ram", "known: cpu, memory"),
        ({"cpu": 60}, "/cpu", "1s to 30d"),
        ({"cpu": "0s"}, "/cpu", "1s to 30d"),
        ({"cpu": "1.5s"}, "/cpu", "whole seconds"),
        ({"cpu": "31d"}, "/cpu", "1s to 30d"),
        ({"memory": "lots"}, "/memory", "512MiB"),
        ({"memory": "4KiB"}, "/memory", "at least 1MiB"),
        ({"memory": True}, "/memory", "512MiB"),
        ({"file_size": -1}, "/file_size", "512MiB"),
        ({"open_files": 3}, "/open_files", "from 8"),
        ({"open_files": "256"}, "/open_files", "from 8"),
        ({"processes": 0}, "/processes", "from 1"),
        ({"a/b": 1}, "/a~1b", "known"),
    ],
)
def test_what_is_wrong_is_named(limits: object, pointer: str, expected: str) -> None:
    with pytest.raises(InvalidInputError) as e:
        command(limits)
    (problem,) = e.value.problems
    assert problem.pointer == f"/target/command/limits{pointer}"
    assert expected in problem.expected


def test_a_worker_s_maximum() -> None:
    most = parse_limits(["memory=1GiB", "cpu=1h", "open_files = 100"], "command_limits")
    assert most == ResourceLimits(memory=1 << 30, cpu=3600, open_files=100)
    asked = ResourceLimits(memory=MIB, processes=5)
    assert asked.above(most) is None
    assert asked.within(most) == ResourceLimits(memory=MIB, cpu=3600, open_files=100, processes=5)
    above = ResourceLimits(memory=2 << 30)
    assert above.above(most) == "memory 2GiB is above 1GiB"
    assert ResourceLimits(cpu=7200).above(most) == "cpu 2h is above 1h"


@pytest.mark.parametrize("item", ["memory", "ram=1GiB", "memory=", "cpu=60", "open_files=many"])
def test_a_wrong_setting_is_named(item: str) -> None:
    with pytest.raises(SettingsError, match="command_limits") as e:
        parse_limits([item], "command_limits")
    (problem,) = e.value.problems
    assert problem.pointer == "command_limits"
    assert problem.expected
