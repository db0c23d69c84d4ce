"""Quotas in the database, as the API's use cases see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tickrail.core.on_failures import Channel
from tickrail.core.quotas import Counted, Quotas, Reached
from tickrail.core.request_rate import Bucket


class QuotaRecords(Protocol):
    """Quotas of the transaction's tenant, and what is used of them."""

    def read(self) -> Quotas:
        """What the tenant may have, as it was first read in this transaction."""
        ...

    def hold_jobs(self, most: int) -> int:
        """How many live jobs there are, counted up to `most`; no other is made until the end.

        Those noted by `add_job` are counted with them. Jobs are made under this lock where there
        is a quota, and counted anew by each transaction.
        """
        ...

    def add_job(self) -> None:
        """One more is made in this transaction."""
        ...

    def hold_launches(self) -> Sequence[Counted]:
        """What is used of the quotas of launches, those that there are; held until the end.

        Call it before a launch is touched: whoever holds it waits for nobody's job.
        """
        ...

    def count_launches(self, held: Sequence[Counted], more: int) -> None:
        """Count launches that were made."""
        ...

    def tell(self, reached: Reached) -> bool:
        """Tell the tenant of a level, in its audit log and on its channels for that.

        False: it was told, in this window.
        """
        ...

    def channels(self) -> Sequence[Channel]:
        """The channels that are told of levels."""
        ...

    def set_channels(self, channels: Sequence[Channel]) -> None:
        """Write them."""
        ...

    def used(self) -> Sequence[Counted]:
        """What is used of the quotas of launches, those that there are; nothing is held."""
        ...

    def running(self) -> tuple[int, int | None]:
        """How many launches run, and how many may at a time."""
        ...

    def live_jobs(self) -> int:
        """How many live jobs there are."""
        ...

    def bucket(self) -> Bucket | None:
        """The tokens for the tenant's requests; None: never used."""
        ...
