"""What every command is handed: settings, the API's client, and how to show an answer."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tickrail.core.errors import SettingsError

if TYPE_CHECKING:  # imported where they are used: the help is to be quick
    from rich.console import Console

    from tickrail.runtime.settings import Settings
    from tickrail.sdk.client import Client
    from tickrail_cli.endpoint import Endpoint
    from tickrail_cli.output import Column

OUTPUTS = ("table", "json", "yaml")
CONFIG_FILE = "tickrail.toml"
PATIENCE = 5.0
"""Seconds that a command of an operator waits for one answer: whoever types it wants to know what
does not answer, not wait until it does."""
_ALIKE = 0.5
F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Context:
    """The session of one command line; `ctx.obj`.

    Attributes:
        flags: global flags by setting name; None where not given.
        environ: the environment.
        config: the settings file that was named.
        profile: the stored profile that was named.
        tenant: the tenant that an operator works in.
        output: `table`, `json` or `yaml`.
        utc: whether tables show times in UTC instead of the local zone.
        verbose: whether traces are wanted.
    """

    flags: dict[str, object]
    environ: Mapping[str, str]
    config: Path | None = None
    profile: str | None = None
    tenant: str | None = None
    output: str = "table"
    utc: bool = False
    verbose: bool = False
    _client: Client | None = field(default=None, repr=False)
    _console: Console | None = field(default=None, repr=False)

    def settings(self, flags: Mapping[str, object] | None = None) -> Settings:
        """The settings, with a command's own flags by setting name.

        Raises:
            SettingsError: something in them is unknown or wrong.
        """
        from tickrail.runtime.settings import load_settings  # noqa: PLC0415 - see above

        return load_settings(
            {**self.flags, **(flags or {})}, environ=self.environ, config_file=self.config_file()
        )

    def config_file(self) -> Path | None:
        """The settings file: named by flag or variable, or `tickrail.toml` where there is one."""
        named = self.config or self.environ.get("TICKRAIL_CONFIG")
        if named:
            return Path(named)
        usual = Path(CONFIG_FILE)
        return usual if usual.is_file() else None

    def endpoint(self) -> Endpoint:
        """The API and key of this command line, and where they come from.

        Raises:
            SettingsError: as `settings`; there is no such profile.
        """
        from tickrail_cli.endpoint import file_layer, find_endpoint  # noqa: PLC0415 - see above

        named = self.config or self.environ.get("TICKRAIL_CONFIG")
        file = file_layer(self.config_file(), found=not named)
        return find_endpoint(self.settings(), self.flags, self.environ, self.profile, file)

    def client(self) -> Client:
        """The client of the API that the settings name.

        Raises:
            SettingsError: as `endpoint`; the key is not for that address.
        """
        if self._client is None:
            from tickrail.sdk.client import Client  # noqa: PLC0415 - see above

            settings, found = self.settings(), self.endpoint()
            if found.refused:
                raise SettingsError(found.refused)
            self._client = Client(
                found.url,
                found.key,
                settings.api_timeout,
                headers={"Tickrail-Tenant": self.tenant} if self.tenant else None,
            )
        return self._client

    @property
    def console(self) -> Console:
        """The terminal."""
        if self._console is None:
            from rich.console import Console  # noqa: PLC0415 - see above

            self._console = Console(highlight=False)
        return self._console

    def echo_items(
        self, items: Iterable[Mapping[str, Any]], columns: Iterable[Column], *, empty: str
    ) -> None:
        """Show a list: a table for people, the items as they are for programs.

        Args:
            items: the API's items.
            columns: of the table.
            empty: what to say where the table has no row.
        """
        from tickrail_cli import output  # noqa: PLC0415 - see above

        output.echo_items(self, list(items), list(columns), empty)

    def echo_item(self, item: Mapping[str, Any], columns: Iterable[Column]) -> None:
        """Show one thing: its fields one below the other, or the whole for programs."""
        from tickrail_cli import output  # noqa: PLC0415 - see above

        output.echo_item(self, item, list(columns))

    def time(self, text: str | None) -> str:
        """An instant of the API as people are shown it; `none` where there is none."""
        from tickrail_cli import output  # noqa: PLC0415 - see above

        return output.local_time(text, utc=self.utc) if text else "none"

    def done(self, text: str, answer: object = None) -> None:
        """Say in a sentence what was done; programs get the API's answer instead."""
        if self.output == "table":
            self.console.print(text, markup=False, soft_wrap=True)
        elif answer is not None:
            from tickrail_cli import output  # noqa: PLC0415 - see above

            click.echo(output.dump(answer, self.output))

    def note(self, text: str) -> None:
        """Tell people what they may not have meant; programs find it in the answer."""
        if self.output == "table":
            self.console.print(f"note: {text}", style="yellow", markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Tell everybody on standard error that what is shown is not all."""
        click.echo(f"note: {text}", err=True)

    def close(self) -> None:
        """Close the client."""
        if self._client is not None:
            self._client.close()


pass_session = click.make_pass_decorator(Context)


class NearGroup(click.Group):
    """A group of commands that says which one was probably meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the first word.

        Raises:
            click.UsageError: there is none; names the nearest.
        """
        word = args[0]
        if self.get_command(ctx, word) is None and not word.startswith("-"):
            known = self.list_commands(ctx)
            near = difflib.get_close_matches(word, known, n=2, cutoff=_ALIKE)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
            raise click.UsageError(f"no command {word!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


def shared_options(command: F) -> F:
    """The global flags again, since people write them behind the command too."""
    # Named apart from the argument of commands that are about a tenant.
    tenant = _shared(
        "--tenant", "in_tenant", metavar="NAME", help="With an operator's key: the tenant."
    )
    return options_of_all(tenant(command))


def options_of_all(command: F) -> F:
    """As `shared_options`, for commands that take another `--tenant` or work in none."""
    for option in (
        _shared("--utc", is_flag=True, default=None, help="Show times in UTC."),
        _shared("--output", type=click.Choice(OUTPUTS), help="table, json or yaml."),
        _shared("--profile", metavar="NAME", help="A stored profile."),
        _shared("--key", "api_key", metavar="KEY", help="The API key."),
        _shared("--url", "api_url", metavar="URL", help="The API to speak to."),
    ):
        command = option(command)
    return command


def _shared(*names: str, **attributes: Any) -> Callable[[F], F]:  # noqa: ANN401 - click's own
    """An option that changes the session instead of being handed to the command."""
    return click.option(*names, expose_value=False, callback=_store, **attributes)


def _store(ctx: click.Context, param: click.Parameter, value: object) -> None:
    session: Context = ctx.obj
    name = str(param.name)
    if value is None:
        return
    if name.startswith("api_"):
        session.flags[name] = value
    else:
        setattr(session, name.removeprefix("in_"), value)
