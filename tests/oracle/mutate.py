"""Mutation testing of the code that decides about time, outside CI.

    python -m tests.oracle.mutate cron|schedule|plan|timetable|calendars [--show]

Each mutant (a changed operator, constant or call) must be found by a test. mutmut works on a copy
in `.mutation/`, laid out as it wants it; `--show` prints the differences of those that survived.
The figures and the survivors that are no faults are in docs/mutation.md.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = "src/tickrail/core"
GROUPS = {
    "cron": ("cron", "cron_fields", "walk", "recurrence"),
    "schedule": ("schedule", "schedule_document", "schedule_values", "calendar_pattern"),
    "plan": ("plan",),
    "timetable": ("timetable", "catch_up", "policies"),
    "calendars": ("calendars", "local_sets"),
}
TESTS = {
    "cron": ("tests/unit/time",),
    "schedule": ("tests/unit/time",),
    "plan": ("tests/unit/core",),
    "timetable": ("tests/unit/core", "tests/unit/time/test_timetable.py"),
    "calendars": ("tests/unit/time",),
}
LEFT_OUT = (
    "test_cli.py",
    "test_corpus_oracle.py",
    "test_crontab.py",
    "test_host_zone.py",
    "test_machine.py",
    "test_seasons.py",
)
"""Slow ones, and tests of other code: what is left finds what they find."""
SMALLER = {
    "max_examples=300": "max_examples=60",
    "max_examples=80": "max_examples=12",
    "range(10_000)": "range(800)",
}
"""Samples that are smaller in the copy: each survivor is met by every test."""
FRESH = """

import pytest
from tickrail.core import cron, recurrence, zones


@pytest.fixture(autouse=True)
def fresh():
    # A mutant runs in a fork of a process whose caches know the right answers.
    cron._parse.cache_clear()
    recurrence.walker_of.cache_clear()
    zones.zone.cache_clear()
"""
MESSAGES = (
    r"\braise \w*(\.error|Error|_unreadable)\(",
    r"\breturn (f?\"|self\.error)",
    r"return \(",
)
"""Statements that word a mistake: what they say is held by other tests, not letter by letter."""
OTHER_PROCESS = "tests/unit/time/test_cases.py::test_a39_hash_is_stable_over_processes"


def prepare(group: str) -> Path:
    """A copy of the project with the sources in `src`, and mutmut's settings."""
    work = ROOT / ".mutation" / group
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "libs", work / "src", ignore=ignore)
    for name in ("services", "tests"):
        shutil.copytree(ROOT / name, work / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", work)
    with (work / "tests/conftest.py").open("a") as conftest:
        conftest.write(FRESH)
    files = [f"{CORE}/{name}.py" for name in GROUPS[group]]
    arguments = ["-p", "no:cacheprovider", "-o", "pythonpath=. src services", "--timeout=60"]
    for test in sorted((work / "tests/unit").glob("*/test_*.py")):
        if test.name in LEFT_OUT:
            test.unlink()
            continue
        text = test.read_text()
        for big, small in SMALLER.items():
            text = text.replace(big, small)
        test.write_text(text)
    if "tests/unit/time" in TESTS[group]:
        arguments += ["--deselect", OTHER_PROCESS]
    lines = ["[mutmut]", "source_paths=src", "also_copy=services", "track_dependencies=false"]
    lines += ["timeout_multiplier=6.0", _setting("do_not_mutate_patterns", MESSAGES)]
    lines += [_setting("only_mutate", files), _setting("pytest_add_cli_args", arguments)]
    lines += [_setting("pytest_add_cli_args_test_selection", TESTS[group])]
    (work / "setup.cfg").write_text("\n".join(lines) + "\n")
    return work


def _setting(name: str, values: list[str] | tuple[str, ...]) -> str:
    return f"{name}=\n" + "\n".join(f"    {value}" for value in values)


def mutmut(work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """mutmut's own command in the copy."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)


def results(work: Path) -> dict[str, str]:
    """What became of each mutant."""
    listed = mutmut(work, "results", "--all", "true").stdout
    found = (line.strip().rpartition(": ") for line in listed.splitlines() if ": " in line)
    return {name: state for name, _, state in found}


def main() -> int:
    """Run one group and print its score."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--show", action="store_true", help="print the survivors")
    parser.add_argument("--children", default="2", help="processes")
    args = parser.parse_args()
    work = prepare(args.group)
    run = mutmut(work, "run", "--max-children", args.children)
    found = results(work)
    if not found:
        sys.stderr.write(run.stdout[-3000:] + run.stderr[-3000:])
        return 1
    counts = Counter(found.values())
    killed = sum(counts[state] for state in ("killed", "timeout", "caught by type check"))
    sys.stdout.write(
        f"{args.group}: {killed} of {len(found)} mutants found ({killed / len(found):.1%}): "
        f"{dict(counts)}\n"
    )
    for name, state in sorted(found.items()):
        if state not in {"killed", "timeout", "caught by type check"}:
            sys.stdout.write(f"{state}: {name}\n")
            if args.show:
                sys.stdout.write(mutmut(work, "show", name).stdout + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
