"""`tickrail preview`: the next runs of a schedule, without a server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import click
import yaml
from rich.console import Console
from rich.table import Table

from tickrail.core.clock import SystemClock
from tickrail.core.errors import InvalidInputError
from tickrail.core.lint import lint
from tickrail.core.schedule import Every, Fold, Gap, MeasuredFrom, Slot, parse_schedule, upcoming
from tickrail.core.words import in_words
from tickrail.core.zones import EPOCH, UnknownZoneError, zone

OUTPUTS = ("table", "json", "yaml")
_POINTERS = {"--tz": "/time_zone", "--gap": "/gap", "--fold": "/fold"}
_BEFORE_ALL = datetime(1, 1, 3, tzinfo=UTC)
_EXPRESSION = re.compile(r"-(?:[^-A-Za-z]|[^-]\S*\s)")


def instant_text(value: datetime) -> str:
    """RFC 3339 in UTC with `Z`."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def one_line(error: InvalidInputError, flags: Mapping[str, str] = MappingProxyType({})) -> str:
    """Every problem of a refused document in one line.

    Args:
        error: what was refused.
        flags: the flags that were given, by the pointer of what they say in the document.
    """
    return "; ".join(
        (f"{flags.get(p.pointer, p.pointer)}: " if p.pointer else "")
        + p.message
        + (f" ({p.expected})" if p.expected else "")
        for p in error.problems
    )


def slot_item(slot: Slot) -> dict[str, Any]:
    """A run as the API shows it."""
    return {"at": instant_text(slot.at), "local": slot.local, "notes": list(slot.notes)}


def local_zone_instant(text: str, zone_name: str) -> datetime:
    """The instant that an option names; without an offset it is a local time of the zone.

    Raises:
        click.ClickException: it cannot be read.
    """
    wrong = f"--from: is {text[:60]!r} (an instant such as 2026-03-01T09:00:00Z, from 1970 to 9999)"
    try:
        value = datetime.fromisoformat(text)
        if value.tzinfo is not None:
            instant = value.astimezone(UTC)
            if instant < EPOCH:
                raise click.ClickException(wrong)
            return instant
    except (ValueError, OverflowError):
        raise click.ClickException(wrong) from None
    document = {"at": text, "time_zone": zone_name}
    try:
        found = parse_schedule(document, job=None, now=EPOCH, stored=True, pointer="--from")
    except InvalidInputError as e:
        raise click.ClickException(one_line(e).replace("--from/at: ", "--from: ")) from None
    slots = [] if found is None else upcoming(found, _BEFORE_ALL, 1)
    if not slots:
        raise click.ClickException(wrong)
    return slots[0].at


def document_of(text: str, zone_name: str | None, gap: str | None, fold: str | None) -> object:
    """The schedule document of an argument: JSON as it is, anything else is cron.

    Raises:
        click.ClickException: JSON that cannot be read.
    """
    if not text.lstrip().startswith("{"):
        document: dict[str, Any] = {"cron": text}
    else:
        try:
            document = json.loads(text)
        except ValueError as e:
            raise click.ClickException(f"the schedule is no JSON document: {e}") from None
    given = {"time_zone": zone_name, "gap": gap, "fold": fold}
    document.update({name: value for name, value in given.items() if value is not None})
    return document


class ExpressionCommand(click.Command):
    """A command whose argument may be an expression that begins with `-`, as `-1 * * * *` does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; an expression is never taken for options."""
        valued = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        before = ["", *args]
        found = [
            i for i, word in enumerate(args) if _EXPRESSION.match(word) and before[i] not in valued
        ]
        if found and "--" not in args:
            args = [word for i, word in enumerate(args) if i not in found] + [
                "--",
                *(args[i] for i in found),
            ]
        return super().parse_args(ctx, args)


@click.command("preview", cls=ExpressionCommand)
@click.argument("schedule")
@click.option("--tz", "zone_name", metavar="ZONE", help="Time zone; UTC where none is named.")
@click.option("--from", "start", metavar="INSTANT", help="Runs after this instant; now.")
@click.option("-n", "count", type=click.IntRange(1, 10_000), default=10, show_default=True)
@click.option("--gap", type=click.Choice([g.value for g in Gap]), help="For missing local times.")
@click.option("--fold", type=click.Choice([f.value for f in Fold]), help="For doubled ones.")
@click.option(
    "--output", type=click.Choice(OUTPUTS), help="table for people, the rest for programs."
)
@click.pass_context
def preview(
    ctx: click.Context,
    /,
    *,
    schedule: str,
    zone_name: str | None,
    start: str | None,
    count: int,
    gap: str | None,
    fold: str | None,
    output: str | None,
) -> None:
    """Show the next runs of SCHEDULE: a cron expression, or a schedule document in JSON."""
    if zone_name is not None:
        try:
            zone(zone_name)
        except UnknownZoneError as e:
            near = f"; did you mean {' or '.join(e.nearest)}?" if e.nearest else ""
            raise click.ClickException(f"--tz: {e}{near}") from None
    now = SystemClock().now() if start is None else local_zone_instant(start, zone_name or "UTC")
    document = document_of(schedule, zone_name, gap, fold)
    try:
        value = parse_schedule(document, job=None, now=now, pointer="")
    except InvalidInputError as e:
        given = {"--tz": zone_name, "--gap": gap, "--fold": fold}
        flags = {_POINTERS[name]: name for name, said in given.items() if said is not None}
        raise click.ClickException(one_line(e, flags)) from None
    if isinstance(value, Every) and value.measured_from is MeasuredFrom.COMPLETION:
        count = 1  # the one after it is known when the run has ended
    slots = [] if value is None else upcoming(value, now, count)
    answer = {
        "items": [slot_item(slot) for slot in slots],
        "words": in_words(value),
        "warnings": [
            {"code": w.code, "message": w.message, "pointer": w.pointer}
            for w in lint(value, now, "")
        ],
    }
    form = output or getattr(ctx.obj, "output", None) or "table"
    if form == "json":
        click.echo(json.dumps(answer, indent=2))
    elif form == "yaml":
        click.echo(yaml.safe_dump(answer, sort_keys=False), nl=False)
    else:
        _show(answer)


def _show(answer: dict[str, Any]) -> None:
    console = Console()
    console.print(answer["words"], style="bold", markup=False, highlight=False, soft_wrap=True)
    table = Table("UTC", "local", "notes", box=None, pad_edge=False)
    for item in answer["items"]:
        table.add_row(item["at"], item["local"], ", ".join(item["notes"]).replace("_", " "))
    console.print(table)
    for warning in answer["warnings"]:
        console.print(f"note: {warning['message']}", style="yellow", markup=False, soft_wrap=True)
