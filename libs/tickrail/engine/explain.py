"""Why a launch stands where it stands."""

from __future__ import annotations

from dataclasses import replace

from tickrail.core.errors import UnavailableError
from tickrail.core.explain import Explanation, explain
from tickrail.core.explain_facts import Facts
from tickrail.core.ids import Partition
from tickrail.core.ports_ownership import Directory


class Explainer:
    """Explains launches. Safe to use from several threads.

    Args:
        directory: the coordination service; None where this process was given none.
    """

    def __init__(self, directory: Directory | None) -> None:
        self._directory = directory

    def explain(self, facts: Facts) -> Explanation:
        """Explain a launch; whether its partition has an owner is asked here, outside of SQL.

        Args:
            facts: as the database has them.
        """
        known, owner = self._owner(facts.partition)
        return explain(replace(facts, owner=owner, owner_known=known))

    def _owner(self, partition: Partition) -> tuple[bool, str | None]:
        if self._directory is None:
            return False, None
        try:
            key = self._directory.snapshot().owners.get(partition)
        except UnavailableError:
            return False, None
        # What no lease ends is nobody's.
        return True, key.identity if key is not None and key.lease else None
