"""Names that a shell completes: of jobs, calendars, queues and others, asked of the API."""

from __future__ import annotations

import os

import click
from click.shell_completion import CompletionItem

from tickrail_cli.context import Context

_MOST = 100
_PAGE = 500
_WITHIN = 1.5
"""Seconds: whoever presses a key does not wait for longer."""


class Name(click.ParamType[str]):
    """The name of something that the API lists.

    Args:
        path: where the list is.
        prefix_filter: the list's parameter that keeps to names of a beginning, if it has one.
    """

    name = "text"

    def __init__(self, path: str, prefix_filter: str | None = None) -> None:
        self._path = path
        self._prefix_filter = prefix_filter

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        """The names that begin so; none where anything is wrong: a shell cannot show errors."""
        try:
            names = self._names(ctx, incomplete)
        except Exception:  # noqa: BLE001 - see above
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)][:_MOST]

    def _names(self, ctx: click.Context, incomplete: str) -> list[str]:
        given = ctx.find_root().params
        session = Context(
            flags={"api_url": given.get("url"), "api_key": given.get("key")},
            environ=os.environ,
            config=given.get("config"),
            profile=ctx.params.get("profile") or given.get("profile"),
            tenant=given.get("tenant"),
        )
        params: dict[str, str | int] = {"limit": _PAGE}
        if self._prefix_filter is not None:
            params = {"limit": _MOST} | ({self._prefix_filter: incomplete} if incomplete else {})
        try:
            page = session.client().request("GET", self._path, params=params, within=_WITHIN)
        finally:
            session.close()
        return [str(item["name"]) for item in page["items"]]


JOB = Name("/v1/jobs", "name_prefix")
CALENDAR = Name("/v1/calendars")
QUEUE = Name("/v1/queues")
SECRET = Name("/v1/secrets")
TENANT = Name("/v1/tenants")
