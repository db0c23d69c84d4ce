"""`tickrail jobs edit`: a job's document in the user's editor."""

from __future__ import annotations

from typing import Any

import click
import yaml

from tickrail.sdk.client import ApiError
from tickrail_cli.context import Context, pass_session, shared_options
from tickrail_cli.jobs import job_path, jobs, on_job
from tickrail_cli.names import JOB
from tickrail_cli.yaml_documents import dump_yaml, parse_yaml

_HEAD = "# What is not said here is the default. An empty file changes nothing.\n"


@jobs.command("edit")
@click.argument("job", type=JOB)
@shared_options
@pass_session
def edit_job(session: Context, /, *, job: str) -> None:
    """Change JOB in an editor ($VISUAL, $EDITOR): its document, without what is the default.

    The change is refused where somebody else changed the job meanwhile.
    """
    from tickrail_cli.definitions import minimal_job  # noqa: PLC0415 - slow to load

    before = on_job(session, job)
    path, headers = job_path(before["id"]), {"If-Match": f'"{before["version"]}"'}
    text = _HEAD + dump_yaml(minimal_job(before))
    while True:
        edited = click.edit(text, extension=".yaml", require_save=True)
        document = _read(edited)
        if isinstance(document, dict):
            try:
                after = session.client().request("PUT", path, document, headers=headers)
            except ApiError as e:
                problem = str(e)
            else:
                break
        elif document is None:
            session.done("Nothing was changed.", before)
            return
        else:
            problem = document
        click.echo(problem, err=True)
        if not click.confirm("Edit again?", default=True, err=True):
            raise click.ClickException("the job was not changed")
        text = edited or text
    same = after["version"] == before["version"]
    said = "Nothing was changed." if same else f"Changed {after['name']}, version "
    session.done(said if same else f"{said}{after['version']}.", after)


def _read(text: str | None) -> dict[str, Any] | str | None:
    """The document of a text; None for none, a text says what is wrong."""
    try:
        document = None if text is None else parse_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        return f"not valid YAML: {e}"
    return document if document is None or isinstance(document, dict) else "a job is an object"
