"""Crontabs: files found in the wild, and each rule of cron(8)."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from tests.support.schedules import DATA, rows

from tickrail.core.crontab import Crontab, CrontabEntry, parse_crontab
from tickrail.core.crontab_jobs import ImportOptions, job_document, job_names
from tickrail.core.definition import parse_definition
from tickrail.core.ids import JobId
from tickrail.core.schedule import next_after

NOW = datetime(2026, 3, 1, tzinfo=UTC)
JOB = JobId(UUID(int=1))

FOUND: dict[str, dict[str, object]] = {
    "003": {"notes": [(2, "redirection")]},
    "007": {"notes": [(28, "every_minute")], "disabled": 1},
    "009": {"disabled": 1},
    "011": {"notes": [(19, "not_expanded"), (20, "not_expanded"), (21, "not_expanded")]},
    "015": {"notes": [(4, "every_minute")]},
    "021": {"notes": [(1, "mail")]},
    "031": {"notes": [(3, "mail")], "disabled": 1},
    "033": {"notes": [(2, "reboot"), (3, "reboot"), (9, "reboot")], "disabled": 6, "reboot": 3},
    "035": {
        "notes": [
            (2, "other_option"),
            (3, "other_option"),
            (4, "percent"),
            (4, "other_option"),
            (5, "percent"),
            (5, "other_option"),
            (6, "percent"),
            (6, "other_option"),
        ]
    },
    "041": {"notes": [(5, "tz")], "disabled": 1},
    "043": {"notes": [(1, "no_break_space")], "errors": [1]},
    "045": {"notes": [(5, "no_newline")]},
    "047": {"notes": [(6, "mail"), (9, "either_day"), (10, "either_day")]},
    "049": {"notes": [(9, "quotes"), (18, "quotes")], "disabled": 1},
}
"""What is odd in each file; a file that is not here has nothing."""


def read(name: str, *, system: bool) -> Crontab:
    text = (DATA / "crontabs" / f"{name}.crontab").read_bytes().decode("utf-8", "surrogateescape")
    return parse_crontab(text, system=system, default_zone="UTC")


def one(line: str, *, system: bool = False) -> CrontabEntry:
    found = parse_crontab(line + "\n", system=system, default_zone="UTC")
    assert found.errors == ()
    (entry,) = found.entries
    return entry


def codes(line: str) -> list[str]:
    return [note.code for note in one(line).notes]


def expression(line: str) -> str:
    return one(line).schedule.expression


FILES = rows("crontabs/index.csv")


@pytest.mark.parametrize("row", FILES, ids=[row["file"] for row in FILES])
def test_file(row: dict[str, str]) -> None:
    found = read(row["file"], system=row["kind"] == "system")
    expected = FOUND.get(row["file"], {})
    assert len(found.entries) + len(found.errors) + found.reboot == int(row["active"])
    assert [(note.line, note.code) for note in found.warnings] == expected.get("notes", [])
    assert [error.line for error in found.errors] == expected.get("errors", [])
    assert found.disabled == expected.get("disabled", 0)
    assert found.reboot == expected.get("reboot", 0)
    names = job_names(found.entries, "files")
    assert len(set(names)) == len(names)
    for entry, name in zip(found.entries, names, strict=True):
        document = job_document(entry, name, ImportOptions(set_name=row["file"]))
        definition = parse_definition(document, job=JOB, now=NOW)
        assert definition.name == name
        assert next_after(entry.schedule, NOW) is not None


def test_every_file_is_in_the_index() -> None:
    there = {path.stem for path in (DATA / "crontabs").glob("*.crontab")}
    assert there == {row["file"] for row in FILES}
    assert len(there) == 25


def test_environment_applies_from_its_line_on() -> None:
    found = read("049", system=False)
    first, last = found.entries[0], found.entries[-1]
    assert first.env == (
        ("SHELL", "/bin/bash"),
        ("PATH", "/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/bin:/usr/games"),
        ("DISPLAY", ":0"),
    )
    assert last.env == first.env
    text = "A=1\n0 1 * * * one\nB=2\nA=3\n0 2 * * * two\n"
    one_, two = parse_crontab(text, system=False, default_zone="UTC").entries
    assert one_.env == (("A", "1"),)
    assert two.env == (("A", "3"), ("B", "2"))


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("A=b", "A", "b"),
        ("A = b c  ", "A", "b c"),
        ("A='b c  '", "A", "b c  "),
        ('A="b # c"', "A", "b # c"),
        ("'A' = \"x\"  ", "A", "x"),
        ("A=", "A", ""),
        ('A=""', "A", ""),
        ("A=$HOME/x", "A", "$HOME/x"),
        ("  A=b", "A", "b"),
        ("A=b'c", "A", "b'c"),
        ("A=x=y", "A", "x=y"),
    ],
)
def test_assignment(line: str, name: str, value: str) -> None:
    text = f"{line}\n0 0 * * * true\n"
    (entry,) = parse_crontab(text, system=False, default_zone="UTC").entries
    assert entry.env == ((name, value),)


@pytest.mark.parametrize("line", ["A='b", "A='b' c", "=x", "A B=c"])
def test_what_is_no_assignment_is_refused_as_a_job(line: str) -> None:
    found = parse_crontab(f"{line}\n", system=False, default_zone="UTC")
    assert [(e.line, "time fields" in e.message) for e in found.errors] == [(1, True)]


@pytest.mark.parametrize(
    ("text", "command", "given"),
    [
        ("date", "date", None),
        (r"date +\%d", "date +%d", None),
        ("cat%one%two", "cat", "one\ntwo\n"),
        (r"cat%a\%b", "cat", "a%b\n"),
        ("cat%", "cat", ""),
        ("cat%x%", "cat", "x\n"),
        (r"echo a\b", r"echo a\b", None),
        (r"echo a\\%b", "echo a\\", "b\n"),
        (r"echo 'a\\b' \\\% \x", r"echo 'a\b' \% \x", None),
        (r"cat%a\\%b\\", "cat", "a\\%b\\\\\n"),
        ("echo a\\", "echo a\\", None),
        ("echo   two  blanks ", "echo   two  blanks ", None),
    ],
)
def test_percent(text: str, command: str, given: str | None) -> None:
    entry = one(f"0 0 * * * {text}")
    assert (entry.command, entry.stdin) == (command, given)
    assert ("percent" in [note.code for note in entry.notes]) == (given is not None)


@pytest.mark.parametrize(
    ("line", "expected", "note"),
    [
        ("\t 00  3\t* * 7 x", "00 3 * * 7", None),
        ("0 0 * JAN-mar,Dec sun,1-5 x", "0 0 * JAN-mar,Dec sun,1-5", None),
        ("*/90 * * * * x", "0 * * * *", "wide_step"),
        ("0 */24 * * * x", "0 0 * * *", "wide_step"),
        ("0-59/61 * * * * x", "0 * * * *", "wide_step"),
        ("0 0 */40 * 1 x", "0 0 */31 * 1", "wide_step"),
        ("5 18-23/24 * * * x", "5 18-23/24 * * *", "wide_step"),
        ("1#2 * * * * x", "1 * * * *", "ignored_text"),
        ("0 8 * * FRI-MON x", "0 8 * * FRI-MON", "backwards"),
        ("* 3 * * * x", "* 3 * * *", "every_minute"),
        ("0 0 13 * 5 x", "0 0 13 * 5", "either_day"),
        ("@daily x", "@daily", None),
        ("0 0 * * * root /bin/x", "0 0 * * *", "user_column"),
    ],
)
def test_time_fields(line: str, expected: str, note: str | None) -> None:
    assert expression(line) == expected
    assert codes(line) == ([] if note is None else [note])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("60 * * * * x", "minute (field 1): 60 does not exist"),
        ("* 24 * * * x", "hour (field 2): 24 does not exist"),
        ("1/10 * * * * x", "cron takes a step after * or a range only"),
        ("0 0 * * mon/2 x", "cron takes a step after * or a range only"),
        ("0 1-5,7/2 * * * x", "cron takes a step after * or a range only"),
        ("*/0 * * * * x", "a step is a number"),
        ("*/-5 * * * * x", "a step is a number"),
        ("* * * foo * x", "month (field 4): 'foo' is no month"),
        ("* * L * * x", "day of month (field 3)"),
        ("0 0 * * ? x", "weekday (field 5)"),
        ("H * * * * x", "begins with no time fields"),
        ("* * * *", "has 4 time fields"),
        ("* * * * *", "has no command"),
        ("@daily", "has no command"),
        ("@Daily x", "'@Daily' is not a name that cron knows"),
        ("@every 5m x", "'@every' is not a name"),
        ("CRON_TZ=Mars/Base", "'Mars/Base' is not a time zone"),
        ("0 0 * * * a\0b", "holds a NUL at column 12"),
        ("A=\udce9", "is not UTF-8 at column 3"),
    ],
)
def test_refused_lines(line: str, message: str) -> None:
    found = parse_crontab(f"\n{line}\n", system=False, default_zone="UTC")
    (error,) = found.errors
    assert error.line == 2
    assert message in error.message
    assert found.entries == ()


def test_lines_below_a_zone_that_is_none_are_refused_until_one_that_is() -> None:
    text = "CRON_TZ=Mars\n0 1 * * * a\nCRON_TZ=Asia/Tokyo\n0 1 * * * b\n"
    found = parse_crontab(text, system=False, default_zone="UTC")
    assert [e.line for e in found.errors] == [1, 2]
    assert [(e.command, e.schedule.zone) for e in found.entries] == [("b", "Asia/Tokyo")]


def test_system_lines_name_a_user() -> None:
    entry = one("0 0 * * *\tsvc   /bin/x  y", system=True)
    assert (entry.user, entry.command) == ("svc", "/bin/x  y")
    for line, message in (
        ("0 0 * * * /bin/x", "'/bin/x' is no user name"),
        ("0 0 * * *", "names no user"),
        ("0 0 * * * svc", "has no command"),
    ):
        (error,) = parse_crontab(line + "\n", system=True, default_zone="UTC").errors
        assert message in error.message


def test_zones() -> None:
    text = "0 0 * * * a\nCRON_TZ=Asia/Tokyo\n0 0 * * * b\nTZ=UTC\n0 0 * * * c\n"
    found = parse_crontab(text, system=False, default_zone="Europe/Berlin")
    assert [e.zone for e in found.entries] == ["Europe/Berlin", "Asia/Tokyo", "Asia/Tokyo"]
    assert found.entries[2].env == (("TZ", "UTC"),)
    forced = parse_crontab(
        text, system=False, default_zone="Europe/Berlin", forced_zone="Europe/Paris"
    )
    assert {e.zone for e in forced.entries} == {"Europe/Paris"}


def test_comments_describe_the_jobs_below() -> None:
    text = (
        "# gone\n\n# The backup\n# of the night\n#0 1 * * * old\n"
        "0 0 * * * a\n0 1 * * * b\n\n0 2 * * * c\n"
    )
    found = parse_crontab(text, system=False, default_zone="UTC")
    assert [e.description for e in found.entries] == ["The backup\nof the night"] * 2 + [""]
    assert found.disabled == 1


def test_what_cron_never_fires_is_left_out_with_a_warning() -> None:
    found = parse_crontab("0 0 31 2 * x\n", system=False, default_zone="UTC")
    assert (found.entries, found.errors) == ((), ())
    assert [(note.line, note.code) for note in found.warnings] == [(1, "never_fires")]


def test_what_cron_refuses_and_this_does_not_is_said() -> None:
    text = f"MAILTO=\nA=\nB=''\n0 0 * * * {'x' * 998}\n0 0 * * * {'y' * 999}\n"
    found = parse_crontab(text, system=False, default_zone="UTC")
    assert found.errors == ()
    assert [(n.line, n.code) for n in found.warnings if n.code != "mail"] == [
        (1, "empty_value"),
        (2, "empty_value"),
        (5, "long_line"),
    ]


def test_line_ends() -> None:
    found = parse_crontab("A=1\r\n0 0 * * * x\r\n\r\n0 1 * * * y", system=False, default_zone="UTC")
    assert [e.command for e in found.entries] == ["x", "y"]
    assert found.entries[0].env == (("A", "1"),)
    assert [(n.line, n.code) for n in found.warnings] == [
        (1, "crlf"),
        (2, "crlf"),
        (4, "no_newline"),
    ]


def test_names_are_stable_and_follow_the_command() -> None:
    def named(text: str, set_name: str = "s") -> list[str]:
        entries = parse_crontab(text, system=False, default_zone="UTC").entries
        return job_names(entries, set_name)

    first = named("0 0 * * * /usr/bin/run --all\n0 1 * * * /usr/bin/run --all\n")
    assert first[0].startswith("run-all-")
    assert first[1] == first[0] + "-2"
    assert named("A=1\n5 5 * * * /usr/bin/run --all\n") == first[:1]
    assert named("0 0 * * * /usr/bin/run --some\n") != first[:1]
    assert named("0 0 * * * /usr/bin/run --all\n", "other") != first[:1]
    (odd,) = named("0 0 * * * \u00dc!\n")
    assert odd.startswith("job-")


def test_document_is_as_under_cron() -> None:
    entry = one("HOME=/srv\nSHELL=/bin/bash\n# Note\n*/5 * * * * svc cat%x".strip(), system=True)
    assert job_document(entry, "n", ImportOptions(set_name="tab")) == {
        "name": "n",
        "description": "Note",
        "tags": {"set": "tab"},
        "schedule": {"cron": "*/5 * * * *", "time_zone": "UTC"},
        "overlap": "allow",
        "misfire": {"policy": "skip"},
        "retry": {"max_attempts": 1},
        "timeout": "12h",
        "queue": "default",
        "target": {
            "command": {
                "shell": "cat",
                "env": {"HOME": "/srv", "SHELL": "/bin/bash"},
                "cwd": "/srv",
                "user": "svc",
                "stdin": "x\n",
            }
        },
    }
    other = ImportOptions("tab", queue="q", overlap="skip", misfire="fire_once", paused=True)
    document = job_document(entry, "n", other)
    assert (document["queue"], document["overlap"], document["paused"]) == ("q", "skip", True)
    assert document["misfire"] == {"policy": "fire_once"}
