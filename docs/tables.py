"""Writes the tables of the documents from the code: `python docs/tables.py [--check]`.

The settings in README.md, docs/metrics.md, docs/errors.md, docs/states.md, docs/outcomes.md and
docs/failpoints.md are never written by hand. With `--check` nothing is written: names the files
that differ from the code and exits 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tickrail.core import errors
from tickrail.core.errors import TickrailError
from tickrail.core.outcomes import FAMILIES, KNOWN, NEVER
from tickrail.core.states import MOVES, PHASE, RETRYING, State
from tickrail.runtime.failpoints import ACTIONS, POINTS
from tickrail.runtime.metrics import METRICS, PREFIX
from tickrail.runtime.settings_table import settings_table

ROOT = Path(__file__).parents[1]
BEGIN = "<!-- settings: written by docs/tables.py -->"
END = "<!-- end of settings -->"
NOTE = "<!-- written by docs/tables.py -->"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def metrics() -> str:
    """Every metric: name, kind, labels, meaning."""
    rows = [
        [f"`{PREFIX}{m.name}`", m.kind, ", ".join(f"`{x}`" for x in m.labels), m.help]
        for m in METRICS
    ]
    return (
        f"{NOTE}\n\n# Metrics\n\n"
        "Each process serves the ones that concern it under `/metrics` on its status port. "
        "Durations are in seconds. No tenant is a label.\n\n"
        + table(["name", "kind", "labels", "meaning"], rows)
    )


def tree(root: type[TickrailError]) -> Iterator[type[TickrailError]]:
    """A class of errors and what is below it, in the order of the source."""
    yield root
    for below in root.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from tree(below)


def error_table() -> str:
    """Every error of the API."""
    rows = [
        [f"`{e.code}`", str(e.status), "yes" if e.retryable else "no", e.title()]
        for e in tree(TickrailError)
    ]
    return (
        f"{NOTE}\n\n# Errors\n\n"
        "Every error is one of these: the `code` of a problem document "
        "(`application/problem+json`), its HTTP status, and whether the same request may succeed "
        "later. `detail` says what is wrong, `errors[]` names each field and what would be "
        "right.\n\n" + table(["code", "status", "try again", "meaning"], rows)
    )


def states() -> str:
    """The states of a launch and who may make which move."""
    moves = [
        [f"`{before}`", f"`{after}`", ", ".join(sorted(a.value for a in actors))]
        for (before, after), actors in MOVES.items()
    ]
    phases = [[f"`{s}`", str(PHASE[s])] for s in State]
    return (
        f"{NOTE}\n\n# States of a launch\n\n"
        f"A launch that is `due` with a failure behind it is shown as `{RETRYING}`. The phase is "
        "the coarse state that the indexes use: 0 held, 1 due, 2 in flight, 3 ended.\n\n"
        + table(["state", "phase"], phases)
        + "\nEvery move there is, and who may make it. A redrive is the one move out of an end.\n\n"
        + table(["from", "to", "who"], moves)
    )


def outcomes() -> str:
    """The outcomes of attempts, as a retry policy names them."""
    rows = [
        [f"`{x.name}`", ", ".join(x.targets) or "any", x.certain, x.again, x.meaning]
        for x in (*FAMILIES, *KNOWN)
    ]
    never = ", ".join(f"`{name}`" for name in sorted(NEVER))
    return (
        f"{NOTE}\n\n# Outcomes of attempts\n\n"
        "What an attempt that failed ended with: in its launch's result, its attempts and dead "
        "letters. A job's `retry.not_on` names outcomes that are never tried again, `retry.on` "
        "those that are although that is usually of no use; `not_on` goes before. What neither "
        "names is tried again as the table says: `on` is no list of all that is. Both take these "
        "names and patterns: `http_404`, `http_4xx`, `http_500-503`, `exit_3`, `exit_64-78`, "
        "`signal_9`, `raised_ValueError` (which holds for the classes below it too). Another word "
        "is refused when the job is made.\n\n"
        "*Certain* is an end of which it is known that the effect did not happen; after one that "
        "is not, a job whose `if_uncertain` is `skip` is not tried again, whatever its policy "
        "says.\n\n"
        + table(["outcome", "targets", "certain", "tried again", "meaning"], rows)
        + f"\nNo policy decides about {never}: a success, an end that was asked for, a run that "
        "its worker gave back.\n"
    )


def failpoints() -> str:
    """The failpoints and what they can do."""
    return (
        f"{NOTE}\n\n# Failpoints\n\n"
        "Places in a running scheduler or worker where a test of faults makes it die, stop or "
        'wait. Off by default; `TICKRAIL_FAILPOINTS="owner.tick.after=stop@3,etcd.claim.after='
        'kill"` acts once at each of these points, the third time and the first time that the '
        "process comes there. A log line `failpoint` says so before it happens.\n\n"
        + table(["action", "meaning"], [[f"`{a}`", what] for a, what in ACTIONS.items()])
        + "\n"
        + table(["point", "where the process is"], [[f"`{p}`", what] for p, what in POINTS.items()])
    )


def readme(text: str) -> str:
    """The README with the settings of the code between its two marks.

    Raises:
        ValueError: a mark is missing.
    """
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"README.md must hold the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{settings_table()}{END}{after}"


def documents(root: Path = ROOT) -> dict[Path, str]:
    """What each document should hold."""
    return {
        root / "README.md": readme((root / "README.md").read_text("utf-8")),
        root / "docs/metrics.md": metrics(),
        root / "docs/errors.md": error_table(),
        root / "docs/states.md": states(),
        root / "docs/outcomes.md": outcomes(),
        root / "docs/failpoints.md": failpoints(),
    }


def behind(root: Path = ROOT) -> list[Path]:
    """Documents that differ from the code."""
    return [
        path
        for path, text in documents(root).items()
        if not path.exists() or path.read_text("utf-8") != text
    ]


def main(args: Sequence[str]) -> int:
    """Write what differs, or only tell."""
    texts = documents()
    paths = behind()
    for path in paths:
        if "--check" not in args:
            path.write_text(texts[path], "utf-8")
        print(f"{path.relative_to(ROOT)} {'differs' if '--check' in args else 'written'}")
    return 1 if paths and "--check" in args else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
