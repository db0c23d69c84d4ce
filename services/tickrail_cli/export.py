"""`tickrail export`: what there is, as files that `tickrail apply` reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tickrail.core.crontab_jobs import SET_TAG
from tickrail_cli.calendars import calendar_path
from tickrail_cli.context import Context, pass_session, shared_options
from tickrail_cli.definitions import CALENDAR, minimal_calendar, minimal_job
from tickrail_cli.jobs import on_job
from tickrail_cli.names import JOB
from tickrail_cli.variables import escaped
from tickrail_cli.yaml_documents import dump_yaml

_PAGE = 500


@click.command("export")
@click.argument("job", type=JOB, nargs=-1)
@click.option("--set", "set_name", metavar="NAME", help="The jobs of this set.")
@click.option("--tag", multiple=True, metavar="KEY:VALUE", help="Jobs with this tag (and that).")
@click.option("--no-calendars", is_flag=True, help="Leave out the calendars that the jobs name.")
@click.option("-o", "--to", "folder", metavar="DIR", help="Write a file for each into this folder.")
@shared_options
@pass_session
def export(
    session: Context,
    /,
    *,
    job: tuple[str, ...],
    set_name: str | None,
    tag: tuple[str, ...],
    no_calendars: bool,
    folder: str | None,
) -> None:
    """Print jobs as documents that `tickrail apply` reads: all, those named, or those of a filter.

    What is the default is left out, and so is what only the running installation knows. Jobs of a
    --set come without the tag that marks it: apply gives it again.
    """
    if job and (set_name or tag):
        raise click.UsageError("name jobs, or say which with --set and --tag, not both")
    answers = list(_answers(session, job, set_name, tag))
    documents = [job_document(answer, set_name) for answer in answers]
    if not no_calendars:
        documents = [*_calendars(session, answers), *documents]
    if folder is not None:
        _write(session, Path(folder), documents, set_name)
    elif session.output == "json":
        session.done("", documents)
    else:
        click.echo("---\n".join(dump_yaml(document) for document in documents), nl=False)


def job_document(answer: Mapping[str, Any], set_name: str | None) -> dict[str, Any]:
    """A job's document; a `$` that `apply` would take for a variable's is escaped."""
    found = minimal_job(answer)
    if set_name is not None and isinstance(found.get("tags"), dict):
        found["tags"] = {k: v for k, v in found["tags"].items() if k != SET_TAG}
        if not found["tags"]:
            del found["tags"]
    if answer.get("state") == "paused":
        found["paused"] = True
    return {key: _escaped(value) for key, value in found.items()}


def _escaped(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return {key: _escaped(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_escaped(inner) for inner in value]
    return escaped(value) if isinstance(value, str) else value


def _answers(
    session: Context, jobs: Sequence[str], set_name: str | None, tags: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    if jobs:
        for job in jobs:
            yield on_job(session, job)
        return
    wanted = [*tags, *([f"{SET_TAG}:{set_name}"] if set_name else [])]
    params: dict[str, Any] = {"limit": _PAGE, "sort": "name"}
    yield from session.client().pages("/v1/jobs", params | ({"tag": wanted} if wanted else {}))


def _calendars(session: Context, answers: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    uses = [answer["calendars"] for answer in answers if answer.get("calendars")]
    names = {name for use in uses for name in (*use["exclude"], *use["include"])}
    for name in sorted(names):
        found = session.client().request("GET", calendar_path(name))
        yield _escaped({"kind": CALENDAR, **minimal_calendar(found)})


def _write(
    session: Context, folder: Path, documents: Sequence[Mapping[str, Any]], set_name: str | None
) -> None:
    files: list[str] = []
    for document in documents:
        inside = folder / "calendars" if document.get("kind") == CALENDAR else folder
        file = inside / f"{document['name']}.yaml"
        try:
            inside.mkdir(parents=True, exist_ok=True)
            file.write_text(dump_yaml(document), "utf-8")
        except OSError as e:
            raise click.ClickException(f"{file}: {e.strerror or e}") from None
        files.append(str(file))
    mark = f"--set {set_name}" if set_name else "--no-set"
    session.done(
        f"Wrote {len(files)} file{'s' * (len(files) != 1)};"
        f" `tickrail apply -f {folder} {mark}` reads them.",
        {"files": files},
    )
