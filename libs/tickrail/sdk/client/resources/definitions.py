"""`client.calendars`, `client.schedules` and `client.secrets`."""

from __future__ import annotations

from typing import Unpack

from tickrail.sdk.client import documents, models
from tickrail.sdk.client.operation import (
    Ask,
    Resource,
    S_co,
    asked,
    listing,
    nothing,
    operation,
)


class Calendars(Resource[S_co]):
    """Named times that jobs leave out, or keep to."""

    @operation("GET", "/v1/calendars/{name}")
    def get(self, name: str) -> Ask[models.Calendar]:
        """Read a calendar."""
        return asked(models.Calendar.read, {"name": name})

    @listing("/v1/calendars")
    def list(self, **query: Unpack[documents.PageQuery]) -> Ask[models.Calendar]:
        """The calendars by name."""
        return asked(models.Calendar.read, query=query)

    @operation("PUT", "/v1/calendars/{name}")
    def put(
        self,
        name: str,
        *,
        if_match: int | None = None,
        create_only: bool = False,
        **calendar: Unpack[documents.NewCalendar],
    ) -> Ask[models.CalendarChange]:
        """Create or replace a calendar; the answer says which runs move.

        `icalendar` takes the text of an iCalendar file. `dry_run` changes nothing.
        """
        return asked(
            models.CalendarChange.read,
            {"name": name},
            body=calendar,
            if_match=if_match,
            create_only=create_only,
        )

    @operation("PATCH", "/v1/calendars/{name}")
    def patch(
        self, name: str, *, if_match: int | None = None, **changes: Unpack[documents.NewCalendar]
    ) -> Ask[models.CalendarChange]:
        """Change parts of a calendar; lists are replaced as a whole."""
        return asked(models.CalendarChange.read, {"name": name}, body=changes, if_match=if_match)

    @operation("DELETE", "/v1/calendars/{name}")
    def delete(self, name: str, *, if_match: int | None = None) -> Ask[None]:
        """Delete a calendar; ConflictError with their names while jobs use it."""
        return asked(nothing, {"name": name}, if_match=if_match)


class Schedules(Resource[S_co]):
    """Schedules, saved or not."""

    @operation("POST", "/v1/schedules/preview")
    def preview(self, **what: Unpack[documents.Preview]) -> Ask[models.Preview]:
        """The next slots of a schedule, in words, with warnings and what differs from a job's."""
        return asked(models.Preview.read, body=what)


class Secrets(Resource[S_co]):
    """Values that targets name as `{"secret": "<name>"}` and nobody reads back."""

    @operation("GET", "/v1/secrets/{name}")
    def get(self, name: str) -> Ask[models.Secret]:
        """Whether a secret is there, and since when it has its value."""
        return asked(models.Secret.read, {"name": name})

    @listing("/v1/secrets")
    def list(self, **query: Unpack[documents.PageQuery]) -> Ask[models.Secret]:
        """The secrets by name, without their values."""
        return asked(models.Secret.read, query=query)

    @operation("PUT", "/v1/secrets/{name}")
    def put(self, name: str, value: str, *, create_only: bool = False) -> Ask[models.Secret]:
        """Keep a value under a name, in place of what was there."""
        return asked(
            models.Secret.read, {"name": name}, body={"value": value}, create_only=create_only
        )

    @operation("DELETE", "/v1/secrets/{name}")
    def delete(self, name: str) -> Ask[None]:
        """Delete a secret; ConflictError with their names while jobs use it."""
        return asked(nothing, {"name": name})
