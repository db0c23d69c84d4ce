"""A fuzz run of the whole API: `python -m tests.fuzz.run [--seconds N] [--cases N]`.

Starts PostgreSQL, etcd, Kafka and an API process, and has schemathesis derive requests from the
OpenAPI document, right ones, wrong ones and sequences of them: as each of two tenants, neither of
which may read what is the other's, as an operator, and with a revoked key. Exits 1 when an answer
is not as the document says, is a 5xx, or when there were fewer cases than wanted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.hooks import KEY_VARIABLE, OWN_VARIABLE, TENANT_VARIABLE
from tests.fuzz.installation import Installation, installation

_ROOT = Path(__file__).parents[2]
_CONFIG = Path(__file__).with_name("schemathesis.toml")
_PROGRAM = str(Path(sys.executable).with_name("schemathesis"))
_HOOKS = {
    "SCHEMATHESIS_HOOKS": "tests.fuzz.hooks",
    "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
    TENANT_VARIABLE: "beta",
}
_GENERATED = re.compile(r"(\d+) generated")
_EVERY_PHASE = "examples,coverage,fuzzing,stateful"
_LEAST_STATUS_OF_OURS = 500


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a run: with whose key, and how much of the time is its own."""

    key: str
    share: float
    arguments: Sequence[str] = ()


ROUNDS = (
    (Part("acme", 0.5), Part("beta", 0.5)),
    # A tenant that an operator suspends sees nothing but that: so operators come after the others.
    # With a revoked key only refusals are right, and nothing can be found.
    (
        Part("operator", 0.5),
        Part(
            "revoked",
            0.5,
            ("--phases", "coverage,fuzzing", "--exclude-checks", "positive_data_acceptance"),
        ),
    ),
)
"""What runs one after another, and in each what runs at once."""
PEERS = ("acme", "beta")
"""Neither reads what the other made."""


@dataclass
class Counts:
    """The requests that a process has answered, from its log."""

    statuses: Counter[int] = field(default_factory=Counter)
    slowest: float = 0.0

    @property
    def requests(self) -> int:
        """How many there were."""
        return sum(self.statuses.values())

    @property
    def broken(self) -> int:
        """How many were answered with 5xx."""
        return sum(n for status, n in self.statuses.items() if status >= _LEAST_STATUS_OF_OURS)


def say(text: str) -> None:
    """A line, at once."""
    print(text, flush=True)  # noqa: T201 - a program


def counted(log: Path) -> Counts:
    """The requests of a log."""
    found = Counts()
    for line in log.read_text().splitlines():
        entry = _entry(line)
        if entry.get("event") == "request":
            found.statuses[int(str(entry["status"]))] += 1
            found.slowest = max(found.slowest, float(str(entry["ms"])))
    return found


def _entry(line: str) -> Mapping[str, object]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def traces(log: Path) -> Iterator[str]:
    """The lines of a log that tell of a failure inside."""
    for line in log.read_text().splitlines():
        if "Traceback" in line or _entry(line).get("level") in {"error", "critical"}:
            yield line[:2000]


def command(part: Part, found: Installation, config: Path, seconds: float, seed: int) -> list[str]:
    """How schemathesis is called for a part."""
    phases = () if "--phases" in part.arguments else ("--phases", _EVERY_PHASE)
    return [
        _PROGRAM, "--no-color", "--config-file", str(config), "run",
        f"{found.url}/openapi.json", "--url", found.url,
        "--max-time", str(max(1, round(seconds))), "--seed", str(seed),
        "--suppress-health-check", "all", "--warnings", "off",
        *phases, *part.arguments,
    ]  # fmt: skip


def configured(part: Part, keys: Mapping[str, str], folder: Path) -> Path:
    """The configuration of a part, beside the file that holds the keys."""
    users = [
        {"name": name, "fixedHeaders": [{"name": "Authorization", "value": f"Bearer {token}"}]}
        for name, token in keys.items()
    ]
    (folder / "keys.json").write_text(json.dumps({"auth": users}))
    peers = f"peers = {json.dumps(PEERS)}\n" if part.key in PEERS else ""
    path = folder / "schemathesis.toml"
    path.write_text(
        f"{_CONFIG.read_text()}\n[auth.wfc]\npath = {json.dumps(str(folder / 'keys.json'))}\n"
        f"user = {json.dumps(part.key)}\n{peers}"
    )
    return path


def fuzz(
    part: Part, found: Installation, seconds: float, seed: int, folder: Path
) -> tuple[bool, int]:
    """Run a part and show what it found; whether that was nothing, and how many cases it had."""
    folder.mkdir()
    config = configured(part, found.keys, folder)
    done = subprocess.run(
        command(part, found, config, seconds, seed),
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            **_HOOKS,
            KEY_VARIABLE: part.key,
            OWN_VARIABLE: json.dumps(found.own),
        },
    )
    say(f"\n== with the key of {part.key}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    cases = _GENERATED.search(done.stdout)
    return done.returncode == 0, int(cases[1]) if cases is not None else 0


def run(seconds: float, cases: int, seed: int, folder: Path, only: str) -> int:
    """Fuzz; the exit code."""
    failed: list[str] = []
    tried = 0
    with installation(folder) as found:
        for pair in ROUNDS:
            parts = [part for part in pair if only in ("", part.key)]
            with ThreadPoolExecutor(len(ROUNDS)) as pool:
                share = seconds * max((p.share for p in parts), default=0)
                right = pool.map(lambda p, s=share: fuzz(p, found, s, seed, folder / p.key), parts)
                for part, (good, generated) in zip(parts, right, strict=True):
                    tried += generated
                    failed += [] if good else [part.key]
        counts = counted(found.log)
        told = list(traces(found.log))
    for line in told[:10]:
        say(line)
    by_status = ", ".join(f"{n} of {status}" for status, n in sorted(counts.statuses.items()))
    say(
        f"\n{tried} cases, {counts.requests} requests answered: {by_status};"
        f" the slowest {counts.slowest:.0f} ms"
    )
    if tried < cases:
        failed.append(f"fewer than {cases} cases")
    if counts.broken or told:
        failed.append(f"{counts.broken} answers of 5xx, {len(told)} lines of failures inside")
    say("fuzz: all is as the document says" if not failed else f"fuzz FAILED: {'; '.join(failed)}")
    return 1 if failed else 0


def main(arguments: Sequence[str]) -> int:
    """Read the command line and fuzz."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=900, help="for all parts together")
    parser.add_argument("--cases", type=int, default=20_000, help="cases at least")
    parser.add_argument("--seed", type=int, default=1, help="of what is tried")
    parser.add_argument(
        "--only", default="", choices=[p.key for r in ROUNDS for p in r], help="one part alone"
    )
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends with it
    with tempfile.TemporaryDirectory(prefix="tickrail-fuzz-") as folder:
        return run(given.seconds, given.cases, given.seed, Path(folder), given.only)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
