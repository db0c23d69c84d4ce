"""Records that go by their age alone: the old ones, in batches, and none that somebody holds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
from tests.support.store_bed import TENANT, PostgresBed, make_job

from tickrail.core.aged import Aged
from tickrail.store.queries import load
from tickrail.store.session import connect
from tickrail.store.upkeep import PostgresUpkeep

pytestmark = pytest.mark.integration
MONTH = timedelta(days=30)
AGES: Final = (31, 29, 40, 50, 0)
UNLOCKED: Final = (Aged.OPERATOR_ANSWERS, Aged.KEYS, Aged.BUCKETS)
"""The engine may lock none of these."""
TABLES: Final[Mapping[Aged, tuple[str, str, str]]] = {
    Aged.ANSWERS: (
        "idempotency_keys",
        "key",
        "(tenant_id, key, fingerprint, created_at) values (%(tenant)s, %(name)s, '', %(at)s)",
    ),
    Aged.OPERATOR_ANSWERS: (
        "operator_answers",
        "key",
        (
            "(key, fingerprint, status, headers, body, created_at)"
            " values (%(name)s, '', 201, '{}', '', %(at)s)"
        ),
    ),
    Aged.KEYS: (
        "api_keys",
        "id",
        (
            "(id, tenant_id, secret_hash, scopes, revoked_at, expires_at)"
            " values (%(name)s, %(tenant)s, '', '{}', %(at)s, now() + interval '1 year')"
        ),
    ),
    Aged.UNDECODABLE: (
        "undecodable",
        "id",
        (
            '(id, queue, topic, partition, "offset", value, size, error, at)'
            " values (%(name)s, 'default', 't', 0, 1, '', 0, 'not JSON', %(at)s)"
        ),
    ),
    Aged.BACKFILLS: (
        "backfills",
        "reason",
        (
            "(id, tenant_id, job_id, partition, state, from_at, until_at, max_open, total, reason,"
            " finished_at) select gen_random_uuid(), tenant_id, id, 0, 'finished', now(),"
            " now() + interval '1 s', 1, 1, %(name)s, %(at)s from jobs"
        ),
    ),
    Aged.OPERATIONS: (
        "operations",
        "kind",
        (
            "(id, tenant_id, kind, state, request, finished_at)"
            " values (gen_random_uuid(), %(tenant)s, %(name)s, 'finished', '{}', %(at)s)"
        ),
    ),
    Aged.NOTICES: (
        "notices",
        "kind",
        (
            "(tenant_id, kind, about, channel, said, data, minute, created_at)"
            " values (%(tenant)s, %(name)s, 'job:1', 'webhook:ops', '', '{}', %(at)s, %(at)s)"
        ),
    ),
    Aged.WINDOWS: (
        "quota_windows",
        "quota",
        "(tenant_id, quota, starts_at) values (%(tenant)s, %(name)s, %(at)s)",
    ),
    Aged.BUCKETS: (
        "request_buckets",
        "key_id",
        "(tenant_id, key_id, tokens, filled_at) values (%(tenant)s, %(name)s, 1, %(at)s)",
    ),
}


def filled(bed: PostgresBed, what: Aged) -> None:
    """Records of each age, named by it, and one that has no end."""
    table, _, rest = TABLES[what]
    for days in AGES:
        given: dict[str, Any] = {"tenant": TENANT, "name": str(days)}
        given["at"] = bed.now() - timedelta(days=days)
        bed.conn.execute(f"insert into {table} {rest}".encode(), given)


def left(bed: PostgresBed, what: Aged) -> list[int]:
    """The ages of those that are there."""
    table, name, _ = TABLES[what]
    rows = bed.conn.execute(f"select {name} from {table}".encode()).fetchall()
    return sorted(int(str(row[0])) for row in rows)


@pytest.mark.parametrize("what", Aged)
def test_old_records_go_in_batches(bed: PostgresBed, upkeep: PostgresUpkeep, what: Aged) -> None:
    make_job(bed)  # its tenant, too
    filled(bed, what)
    assert upkeep.purge(what, MONTH, 2) == 2
    if what is not Aged.BUCKETS:  # nobody reads them by age
        assert left(bed, what) == [0, 29, 31]
    assert upkeep.purge(what, MONTH, 2) == 1
    assert upkeep.purge(what, MONTH, 2) == 0
    assert left(bed, what) == [0, 29]


@pytest.mark.parametrize(
    ("what", "column"),
    [(Aged.KEYS, "revoked_at"), (Aged.BACKFILLS, "finished_at"), (Aged.OPERATIONS, "finished_at")],
)
def test_what_has_not_ended_stays(
    bed: PostgresBed, upkeep: PostgresUpkeep, what: Aged, column: str
) -> None:
    make_job(bed)
    filled(bed, what)
    table = TABLES[what][0]
    bed.conn.execute(f"update {table} set {column} = null, created_at = '2020-01-01'".encode())
    assert upkeep.purge(what, MONTH, 10) == 0
    assert len(left(bed, what)) == len(AGES)


@pytest.mark.parametrize("what", [what for what in Aged if what not in UNLOCKED])
def test_a_record_that_somebody_holds_is_left_to_them(
    bed: PostgresBed, upkeep: PostgresUpkeep, what: Aged
) -> None:
    make_job(bed)
    filled(bed, what)
    table, name, _ = TABLES[what]
    with bed.database.admin() as other, other.transaction():
        other.execute(f"select from {table} where {name} = '40' for update".encode())
        assert upkeep.purge(what, MONTH, 10) == 2
    assert left(bed, what) == [0, 29, 40]


@pytest.mark.parametrize("what", [what for what in Aged if what is not Aged.BUCKETS])
def test_old_records_are_found_by_their_age(bed: PostgresBed, what: Aged) -> None:
    conn = connect(bed.settings)
    statement = f"explain {load('upkeep')[what.value]}".encode()  # type: ignore[call-overload]
    rows = conn.execute(statement, {"older": MONTH, "most": 10}).fetchall()
    conn.close()
    plan = "\n".join(str(row[0]) for row in rows)
    assert "Seq Scan" not in plan, plan
    assert "Sort" not in plan, plan
