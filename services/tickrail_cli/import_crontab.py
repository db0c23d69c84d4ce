"""`tickrail import crontab`: the jobs of a crontab, as cron would run them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import click
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tickrail.core.clock import SystemClock
from tickrail.core.crontab import Crontab, parse_crontab
from tickrail.core.crontab_jobs import SET_TAG, ImportOptions, job_document, job_names
from tickrail.core.schedule import upcoming
from tickrail.core.words import in_words
from tickrail.core.zones import UnknownZoneError, zone, zone_names
from tickrail_cli.confirm import confirm, named, yes_option
from tickrail_cli.preview import OUTPUTS, slot_item

_MAX_FILE = 4 * 1024 * 1024
_OVERLAPS = ("allow", "skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other")
_MISFIRES = ("fire_once", "fire_all", "skip")
_SHOWN_RUNS = 3
_RUN_WIDTH = len("2026-03-01 09:00")


class Api(Protocol):
    """What the import needs of the API's client."""

    def request(self, method: str, path: str, json: object = None) -> Any:  # noqa: ANN401 - any JSON
        """One call."""
        ...

    def pages(self, path: str, params: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """All items of a list."""
        ...


class Session(Protocol):
    """What the command line's main program hands to its commands."""

    output: str | None

    def client(self) -> Api:
        """The client of the API that the settings name."""
        ...


@dataclass(frozen=True)
class _Planned:
    """A job to be made, with what the dry run shows."""

    line: int
    document: dict[str, Any]
    shown: dict[str, Any]


def machine_zone(root: Path = Path("/")) -> str:
    """The time zone of this machine: TZ, then /etc/localtime, then /etc/timezone, then UTC."""
    candidates = [os.environ.get("TZ", "").lstrip(":")]
    link = root / "etc/localtime"
    if link.is_symlink():
        candidates.append(str(link.readlink()).rpartition("zoneinfo/")[2])
    named = root / "etc/timezone"
    if named.is_file():
        candidates.append(named.read_text(encoding="utf-8", errors="replace").strip())
    return next((name for name in candidates if name in zone_names()), "UTC")


@click.group("import")
def import_group() -> None:
    """Make jobs of what another scheduler runs."""


@import_group.command("crontab")
@click.argument("file")
@click.option("--system", is_flag=True, help="Lines name a user before the command.")
@click.option(
    "--tz", "zone_name", metavar="ZONE", help="Zone of all lines; CRON_TZ, this machine's."
)
@click.option("--set", "set_name", metavar="NAME", help="Mark of these jobs; the file's name.")
@click.option("--paused", is_flag=True, help="Make new jobs paused.")
@click.option("--prune", is_flag=True, help="Delete the set's jobs that the file does not have.")
@yes_option
@click.option("--dry-run", is_flag=True, help="Only show what would be made.")
@click.option("--skip-errors", is_flag=True, help="Leave out the lines that cron refuses.")
@click.option("--queue", default="default", show_default=True)
@click.option("--misfire", type=click.Choice(_MISFIRES), default="skip", show_default=True)
@click.option("--overlap", type=click.Choice(_OVERLAPS), default="allow", show_default=True)
@click.option("--max-attempts", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option("--timeout", default="12h", show_default=True)
@click.option(
    "--output", type=click.Choice(OUTPUTS), help="table for people, the rest for programs."
)
@click.pass_obj
def crontab(  # noqa: PLR0913 - click hands over each option by name
    session: Session,
    /,
    *,
    file: str,
    system: bool,
    zone_name: str | None,
    set_name: str | None,
    paused: bool,
    prune: bool,
    yes: bool,
    dry_run: bool,
    skip_errors: bool,
    queue: str,
    misfire: str,
    overlap: str,
    max_attempts: int,
    timeout: str,
    output: str | None,
) -> None:
    """Import the crontab FILE (- for standard input) as jobs of one set.

    Importing again changes nothing; a changed line changes its job. Nothing is imported unless
    every line is clean, or with --skip-errors.
    """
    if zone_name is not None:
        try:
            zone(zone_name)
        except UnknownZoneError as e:
            near = f"; did you mean {' or '.join(e.nearest)}?" if e.nearest else ""
            raise click.ClickException(f"--tz: {e}{near}") from None
    default_zone = machine_zone()
    text = _read(file).decode("utf-8", "surrogateescape")
    found = parse_crontab(text, system=system, default_zone=default_zone, forced_zone=zone_name)
    options = ImportOptions(
        set_name=set_name or ("stdin" if file == "-" else Path(file).name),
        queue=queue,
        overlap=overlap,
        misfire=misfire,
        max_attempts=max_attempts,
        timeout=timeout,
        paused=paused,
    )
    planned = _plan(found, options, SystemClock().now())
    refused = bool(found.errors) and not skip_errors
    answer: dict[str, Any] = {
        "set": options.set_name,
        "zone": zone_name or default_zone,
        "dry_run": dry_run,
        "jobs": [job.shown for job in planned],
        "errors": [
            {"line": e.line, "message": e.message, "expected": e.expected} for e in found.errors
        ],
        "warnings": [
            {"line": n.line, "code": n.code, "message": n.message} for n in found.warnings
        ],
        "disabled": found.disabled,
        "reboot": found.reboot,
        "pruned": [],
    }
    if not refused:
        # A refused line's job would look like one that the file no longer has.
        pruned = prune and not found.errors
        _carry_out(session, planned, answer, prune=pruned, yes=yes, dry_run=dry_run)
    form = output or getattr(session, "output", None) or "table"
    if form == "json":
        click.echo(json.dumps(answer, indent=2))
    elif form == "yaml":
        click.echo(yaml.safe_dump(answer, sort_keys=False), nl=False)
    else:
        _show(answer, refused=refused)
    if prune and found.errors and not refused:
        click.echo("nothing was pruned, since some lines were left out", err=True)
    if refused:
        sys.exit(1)


def _read(file: str) -> bytes:
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(_MAX_FILE + 1)
        else:
            with Path(file).open("rb") as stream:
                raw = stream.read(_MAX_FILE + 1)
    except OSError as e:
        raise click.ClickException(f"{file}: {e.strerror or e}") from None
    if len(raw) > _MAX_FILE:
        raise click.ClickException(f"{file}: longer than {_MAX_FILE} bytes")
    return raw


def _plan(found: Crontab, options: ImportOptions, now: datetime) -> list[_Planned]:
    planned: list[_Planned] = []
    names = job_names(found.entries, options.set_name)
    for entry, name in zip(found.entries, names, strict=True):
        document = job_document(entry, name, options)
        shown = {
            "line": entry.line,
            "name": name,
            "schedule": document["schedule"],
            "words": in_words(entry.schedule),
            "next": [slot_item(slot) for slot in upcoming(entry.schedule, now, _SHOWN_RUNS)],
            "target": document["target"],
            "warnings": [note.message for note in entry.notes],
            "result": "planned",
        }
        planned.append(_Planned(entry.line, document, shown))
    return planned


def _carry_out(
    session: Session,
    planned: list[_Planned],
    answer: dict[str, Any],
    *,
    prune: bool,
    yes: bool,
    dry_run: bool,
) -> None:
    """Make, change and prune; fills in the results."""
    if dry_run and not prune:
        return
    client = session.client()
    tag = f"{SET_TAG}:{answer['set']}"
    there = {job["name"]: job for job in client.pages("/v1/jobs", {"tag": tag})}
    kept = {job.document["name"] for job in planned}
    answer["pruned"] = sorted(there.keys() - kept) if prune else []
    if answer["pruned"] and not dry_run:
        confirm(f"Delete {named('job', answer['pruned'])}?", yes=yes)
    for job in planned if not dry_run else ():
        name = job.document["name"]
        before = there.get(name)
        document = dict(job.document)
        if before is not None:
            document.pop("paused", None)  # only a new job is made paused
        after = client.request("PUT", f"/v1/jobs/name:{quote(name)}", json=document)
        same = before is not None and after.get("version") == before.get("version")
        job.shown["result"] = "unchanged" if same else "changed" if before else "created"
    for name in answer["pruned"] if not dry_run else ():
        client.request("DELETE", f"/v1/jobs/{quote(str(there[name]['id']))}")


def _show(answer: dict[str, Any], *, refused: bool) -> None:
    console = Console()
    table = Table("line", show_lines=True)
    table.add_column("schedule", overflow="fold")
    table.add_column("next runs", no_wrap=True, min_width=_RUN_WIDTH)
    table.add_column("target", overflow="fold")
    table.add_column("warnings", overflow="fold")
    if not answer["dry_run"]:
        table.add_column("result")
    for job in answer["jobs"]:
        command = job["target"]["command"]
        user = f"{command['user']}: " if "user" in command else ""
        row = [
            str(job["line"]),
            job["words"],
            "\n".join(run["local"][:_RUN_WIDTH].replace("T", " ") for run in job["next"]),
            f"{user}{command['shell']}",
            "\n".join(job["warnings"]),
            "refused" if refused else job["result"],
        ]
        table.add_row(*(Text(cell) for cell in row[: len(table.columns)]))
    if answer["jobs"]:
        console.print(table)
    own = {job["line"] for job in answer["jobs"]}
    for warning in answer["warnings"]:
        if warning["line"] not in own:
            _say(console, f"line {warning['line']}: {warning['message']}", "yellow")
    for error in answer["errors"]:
        expected = f" ({error['expected']})" if error["expected"] else ""
        _say(console, f"line {error['line']}: {error['message']}{expected}", "red")
    for name in answer["pruned"]:
        _say(console, f"{'would delete' if answer['dry_run'] else 'deleted'} {name}", "yellow")
    counted = {"jobs": len(answer["jobs"]), "errors": len(answer["errors"])}
    counted |= {"disabled lines": answer["disabled"], "@reboot lines": answer["reboot"]}
    summary = ", ".join(f"{number} {what}" for what, number in counted.items())
    _say(console, f"set {answer['set']}, zone {answer['zone']}: {summary}", "bold")
    if refused:
        _say(console, "nothing imported; --skip-errors leaves the refused lines out", "red")


def _say(console: Console, text: str, style: str) -> None:
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
