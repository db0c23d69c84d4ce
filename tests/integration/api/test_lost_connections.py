"""A connection that ends in the middle of a request's transaction: nothing half done, and on."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from tests.support.api import World, webhook

from tickrail.store.engine import ApiTransaction

pytestmark = pytest.mark.integration
JOB = webhook("nightly")
KILL = "select pg_terminate_backend(%s)"


@pytest.mark.parametrize("before_commit", [False, True])
def test_a_connection_killed_inside_a_transaction_costs_one_request(
    world: World, monkeypatch: pytest.MonkeyPatch, *, before_commit: bool
) -> None:
    """The connections are in autocommit mode and not tried before use: neither may show here."""
    finish = ApiTransaction.finish
    killed = []

    def finish_after_all(self: ApiTransaction) -> None:
        """The job is written by now, its audit entry is or is not, the commit comes."""
        makes = bool(self._entries)
        if before_commit:
            finish(self)
        if makes and not killed:
            pid = self.base.execute(text("select pg_backend_pid()")).scalar_one()
            killed.append(pid)
            world.database.rows(KILL, pid)
        if not before_commit:
            finish(self)

    monkeypatch.setattr(ApiTransaction, "finish", finish_after_all)
    answer = world.acme.post("/v1/jobs", JOB, expect=503)
    assert answer["code"] == "unavailable"
    assert len(killed) == 1
    counts = "select (select count(*) from jobs), (select count(*) from job_versions)"
    assert world.database.rows(counts) == [(0, 0)]
    assert world.database.rows("select from audit_log where action = 'job.create'") == []
    assert world.acme.post("/v1/jobs", JOB, expect=201)["name"] == "nightly"
    assert world.database.rows(counts) == [(1, 1)]
