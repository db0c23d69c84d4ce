"""The fence rows: the epoch of each partition's owner, compared where the owner's writes land."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from typing import cast

from tickrail.core.errors import SetupError
from tickrail.core.ids import MAX_GENERATION, Epoch, Partition
from tickrail.core.ports import FenceReport, Owned
from tickrail.core.ports_ownership import RaiseOutcome
from tickrail.store.installation import waits_for_standby
from tickrail.store.queries import load
from tickrail.store.session import Cursor, DatabaseSettings, Session

CLAIMS_STEP = 1_000_000
_CLAIMS_PER_SECOND = 64_000
_CLAIMS_LOCK = 7_241_001


def hold_fence(
    cursor: Cursor, owned: Owned, wanted: Iterable[Partition]
) -> tuple[frozenset[Partition], FenceReport]:
    """Lock the fence rows of these partitions and compare; the ones that this owner may write.

    The lock lasts until the transaction ends, so a takeover waits for it, and a taken over
    partition is seen here.
    """
    partitions = sorted(set(wanted) & owned.keys())
    if not partitions:
        return frozenset(), FenceReport()
    rows = cursor.execute(load("owner")["fence"], {"partitions": partitions}).fetchall()
    held: list[Partition] = []
    higher: list[Partition] = []
    lower: list[Partition] = []
    for partition, stored in cast("list[tuple[Partition, int]]", rows):
        mine = owned[partition]
        (held if stored == mine else higher if stored > mine else lower).append(partition)
    # A row that is gone was lost like a raise; taking the partition again finds out.
    lower += sorted(set(partitions) - {partition for partition, _ in rows})
    return frozenset(held), FenceReport(tuple(higher), tuple(lower))


def advance_claims(cursor: Cursor, step: int = 0) -> None:
    """Move the claim sequence on, past the numbers that a failover may have lost.

    To where the database's clock is: 64,000 numbers belong to each second (48 bits last until
    2109), so what was drawn before is lower, also where earlier moves were lost with it. By `step`
    where the sequence is there already; without a step it stays then, since setting it to where it
    was read would take back what others draw meanwhile. Two at once must not move it: the later
    would set it back, and numbers drawn in between would be drawn again.
    """
    cursor.execute("select pg_advisory_xact_lock(%s)", [_CLAIMS_LOCK])
    cursor.execute(
        "select setval('claims', case when last_value < clock then clock else last_value + %s end)"
        " from claims, lateral (select (extract(epoch from clock_timestamp()) * %s)::int8 as clock)"
        " as numbers where last_value < clock or %s > 0",
        [step, _CLAIMS_PER_SECOND, step],
    )


class PostgresFenceStore:
    """The port `FenceStore` on PostgreSQL; safe to use from several threads."""

    def __init__(self, settings: DatabaseSettings) -> None:
        # A thread that waits here for long would keep the member key, and then the partitions, of a
        # process whose PostgreSQL is away.
        self._session = Session(
            replace(settings, statement_timeout=2.5, idle_timeout=2.5, connect_within=2),
            on_open=self._look_at_standby,
        )
        self.synchronous_standby = False
        """Whether commits wait for a standby, as the last new connection saw it."""

    def _look_at_standby(self, cursor: Cursor) -> None:
        self.synchronous_standby = waits_for_standby(cursor)

    def raise_epoch(self, partition: Partition, epoch: Epoch, owner: str) -> RaiseOutcome:
        """Store the epoch and the owner's name where the stored epoch is lower.

        Raises:
            SetupError: there is no row for this partition.
            UnavailableError: the row stayed locked for 2 s, or the database does not answer.
        """
        with self._session.transaction() as cursor:
            cursor.execute("set local lock_timeout = '2s'")
            row = cursor.execute(
                "select epoch from partitions where partition = %s for no key update", [partition]
            ).fetchone()
            if row is None:
                raise SetupError(f"There is no fence row for partition {partition}.")
            stored = cast("int", row[0])
            if stored > epoch:
                return RaiseOutcome.HIGHER
            if stored == epoch:
                return RaiseOutcome.ALREADY
            cursor.execute(
                "update partitions set epoch = %s, owner = %s, taken_at = now()"
                " where partition = %s",
                [epoch, owner, partition],
            )
            return RaiseOutcome.RAISED

    def highest_epoch(self) -> Epoch:
        """The highest epoch of any partition; 0 when none was ever raised."""
        with self._session.transaction() as cursor:
            row = cursor.execute("select coalesce(max(epoch), 0) from partitions").fetchone()
            return Epoch(cast("int", row[0]) if row else 0)

    def generation(self) -> int:
        """The installation's generation.

        Raises:
            SetupError: the installation row is missing.
        """
        with self._session.transaction() as cursor:
            row = cursor.execute("select generation from installation").fetchone()
            if row is None:
                raise SetupError("The database holds no installation; run `tickrail migrate`.")
            return cast("int", row[0])

    def database_now(self) -> datetime:
        """The present instant by PostgreSQL's clock."""
        with self._session.transaction() as cursor:
            row = cursor.execute("select clock_timestamp()").fetchone()
            return cast("datetime", row[0] if row else None)

    def advance_claims(self) -> None:
        """Move the claim sequence on, past what a failover may have lost."""
        with self._session.transaction() as cursor:
            advance_claims(cursor, CLAIMS_STEP)

    def close(self) -> None:
        """Give the connection back."""
        self._session.close()


def raise_generation(url: str) -> int:
    """Begin a new generation of epochs and claims; its number.

    Raises:
        SetupError: the database holds no installation, or the last generation was reached.
    """
    with closing(Session(DatabaseSettings(url))) as session, session.transaction() as cursor:
        row = cursor.execute(
            "update installation set generation = generation + 1 where generation < %s"
            " returning generation",
            [MAX_GENERATION],
        ).fetchone()
        if row is None:
            raise SetupError(
                f"There is no installation here, or its generation is {MAX_GENERATION}, the last."
            )
        return cast("int", row[0])
