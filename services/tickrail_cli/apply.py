"""`tickrail apply` and `tickrail diff`: bring what there is to what files say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.text import Text

from tickrail.core.errors import SettingsError
from tickrail.sdk.client import ApiError, UnreachableError
from tickrail_cli import hiding
from tickrail_cli.confirm import confirm, named, yes_option
from tickrail_cli.context import Context, pass_session, shared_options
from tickrail_cli.definition_apply import Applier, Plan
from tickrail_cli.definition_files import STDIN, read_sources
from tickrail_cli.definitions import JOB, Change, Item, Refusal, counts, diff_lines, items_of
from tickrail_cli.failures import FAILED, WRONG_USE, CompareError
from tickrail_cli.output import printable
from tickrail_cli.watching import bar

F = TypeVar("F", bound=Callable[..., Any])
_STYLES = {"+": "green", "-": "red"}
_ACTIONS = {"created": "green", "changed": "yellow", "deleted": "red"}
_TO_DO = {"created": "to create", "changed": "to change", "deleted": "to delete"}
_DIFFERENT = 1


def file_options(command: F) -> F:
    """The options that say which documents, and of which set they are."""
    for option in (
        click.option(
            "--prune", is_flag=True, help="Delete jobs of the set that no document names."
        ),
        click.option("--no-set", is_flag=True, help="Mark nothing: tags are as documents say."),
        click.option(
            "--set",
            "set_name",
            metavar="NAME",
            help="The set that the jobs are marked with [the name of the folder or file].",
        ),
        click.option(
            "-f",
            "--file",
            "files",
            metavar="PATH",
            multiple=True,
            required=True,
            help="A file, a folder with all in it, or - for standard input; several times.",
        ),
    ):
        command = option(command)
    return command


def set_of(files: Sequence[str], set_name: str | None, *, no_set: bool, prune: bool) -> str | None:
    """The set that the jobs of these files are of; None for none.

    Raises:
        click.UsageError: the flags contradict each other, or a name is needed.
    """
    if no_set:
        if set_name is not None or prune:
            raise click.UsageError("--no-set goes with neither --set nor --prune")
        return None
    if set_name is not None:
        if not set_name:
            raise click.UsageError("--set: give a name, or --no-set")
        return set_name
    if len(files) > 1:
        raise click.UsageError("name the set of several paths: --set NAME (or --no-set)")
    [only] = files
    return "stdin" if only == STDIN else Path(only).resolve().name


@click.command("apply")
@file_options
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@yes_option
@shared_options
@pass_session
def apply(
    session: Context,
    /,
    *,
    files: tuple[str, ...],
    set_name: str | None,
    no_set: bool,
    prune: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Make and change jobs, calendars and limits so that they are as the files say.

    Files hold documents as `tickrail jobs create -f` takes them, in YAML (several to a file) or
    JSON, with ${NAME} for variables. Nothing is written unless every document is valid.
    """
    name = set_of(files, set_name, no_set=no_set, prune=prune)
    items = _items(session, files, name)
    plan = _planned(session, items, name, prune=prune)
    if plan.refusals:
        _refuse(session, name, plan, dry_run=dry_run)
        sys.exit(FAILED)
    if dry_run:
        _show(session, name, plan, dry_run=True)
        return
    doomed = [change.name for change in plan.changes if change.action == "deleted"]
    if doomed:
        confirm(f"Delete {named('job', doomed)}?", yes=yes)
    with bar(session, "applying", len(plan.differences)) as told:
        done = Applier(session.client(), told).carry_out(plan)
    _show(session, name, done, dry_run=False)
    if done.refusals:
        sys.exit(FAILED)


@click.command("diff")
@file_options
@shared_options
@pass_session
def diff(
    session: Context,
    /,
    *,
    files: tuple[str, ...],
    set_name: str | None,
    no_set: bool,
    prune: bool,
) -> None:
    """Show how what there is differs from what the files say.

    Exit codes: 0 it does not differ, 1 it does, 2 it could not be compared, 3 not reachable.
    """
    name = set_of(files, set_name, no_set=no_set, prune=prune)
    try:
        plan = _planned(session, _items(session, files, name), name, prune=prune)
    except Exception as e:
        raise CompareError(e) from e
    if plan.refusals:
        _refuse(session, name, plan, dry_run=True)
        sys.exit(WRONG_USE)
    _show(session, name, plan, dry_run=True)
    if plan.differences:
        sys.exit(_DIFFERENT)


def _items(session: Context, files: Sequence[str], name: str | None) -> tuple[list[Item], Plan]:
    found, refusals = items_of(read_sources(files, session.environ), name)
    return found, Plan(refusals=refusals)


def _planned(
    session: Context, found: tuple[list[Item], Plan], name: str | None, *, prune: bool
) -> Plan:
    """The plan, with what is wrong with the files alone: that is told also without the API."""
    items, refused = found
    try:
        with bar(session, "looking", len(items)) as told:
            plan = Applier(session.client(), told).plan(items, name, prune=prune)
    except (ApiError, UnreachableError, SettingsError) as e:
        if not refused.refusals:
            raise
        session.warn(f"the API was not asked for more: {e}")
        return refused
    there = {_place(r) for r in refused.refusals}
    plan.refusals = refused.refusals + [r for r in plan.refusals if _place(r) not in there]
    return plan


def _place(refusal: Refusal) -> tuple[int, str]:
    return id(refusal.source), refusal.problem.pointer


def _refuse(session: Context, name: str | None, plan: Plan, *, dry_run: bool) -> None:
    if session.output != "table":
        session.done("", _answer(name, Plan([], plan.refusals), dry_run=dry_run))
    _say_refusals(plan.refusals)
    click.echo("nothing was changed", err=True)


def _say_refusals(refusals: Sequence[Refusal]) -> None:
    for refusal in refusals:
        click.echo(printable(str(hiding.told(refusal))), err=True)


def _show(session: Context, name: str | None, plan: Plan, *, dry_run: bool) -> None:
    if session.output != "table":
        session.done("", _answer(name, plan, dry_run=dry_run))
        _say_refusals(plan.refusals)
        return
    for change in plan.differences:
        _say(session, change, whole=dry_run)
    _say_refusals(plan.refusals)
    found = counts(plan.changes)
    words = _TO_DO if dry_run else {}
    said = ", ".join(f"{number} {words.get(action, action)}" for action, number in found.items())
    refused = f", {len(plan.refusals)} refused" if plan.refusals else ""
    session.done(f"{'' if name is None else f'set {name}: '}{said}{refused}")


def _say(session: Context, change: Change, *, whole: bool) -> None:
    kind = "" if change.kind == JOB else f"{change.kind} "
    head = Text(f"{change.action} ", style=_ACTIONS[change.action])
    head.append(f"{kind}{change.name}", style="bold")
    if change.note:
        head.append(f" ({change.note})")
    session.console.print(head, soft_wrap=True)
    for line in diff_lines(hiding.shown(change)) if whole else ():
        text = Text(f"  {printable(line)}", style=_STYLES.get(line[:1], "dim"))
        session.console.print(text, soft_wrap=True)


def _answer(name: str | None, plan: Plan, *, dry_run: bool) -> Mapping[str, Any]:
    """For programs."""
    return {
        "set": name,
        "dry_run": dry_run,
        **counts(plan.changes),
        "items": [
            {
                "kind": change.kind,
                "name": change.name,
                "action": change.action,
                "where": None if change.item is None else change.item.source.where(),
                "before": change.before,
                "after": change.after,
            }
            for change in map(hiding.shown, plan.differences)
        ],
        "errors": [hiding.told(refusal).document() for refusal in plan.refusals],
    }
