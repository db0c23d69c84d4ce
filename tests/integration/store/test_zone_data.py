"""Zone data on PostgreSQL: what the memory store does not have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from tests.support.stepped import Counted
from tests.support.store_bed import OWNED, PostgresBed, make_job

from tickrail.core.ids import JobId
from tickrail.core.schedule import TZDATA_VERSION
from tickrail.engine.zone_data import ZoneData

pytestmark = pytest.mark.integration
HOUR = timedelta(hours=1)


def apply(bed: PostgresBed, version: str) -> Mapping[str, Any]:
    zones = ZoneData(bed.owner().zone_data, Counted(), version=version)
    zones.run_once(OWNED)
    while zones.busy:
        zones.run_once(OWNED)
    return dict(bed.conn.execute("select partition, tzdata from partitions").fetchall())  # type: ignore[arg-type]


def test_a_new_installation_has_the_present_version_everywhere(bed: PostgresBed) -> None:
    assert bed.value("select tzdata from installation") == TZDATA_VERSION
    assert bed.value("select array_agg(distinct tzdata) from partitions") == [TZDATA_VERSION]


def test_the_installation_keeps_the_highest_version_that_was_in_use(bed: PostgresBed) -> None:
    apply(bed, "2999a")
    assert bed.value("select tzdata from installation") == "2999a"
    assert set(apply(bed, "2998z").values()) == {"2998z"}
    assert bed.value("select tzdata from installation") == "2999a"


def test_calendars_count_and_a_slot_that_one_moves_is_found_again(bed: PostgresBed) -> None:
    noon = (bed.now() + timedelta(days=3)).replace(hour=12, minute=0, second=0, microsecond=0)
    document = {"time_zone": "Etc/GMT-2", "windows": [{"from": "13:30", "to": "15:00"}]}
    make_job(bed)  # its tenant is the calendar's
    bed.set_calendar("lunch", 1, json.dumps(document))
    use = {"exclude": ["lunch"], "on_excluded": "next_allowed"}
    job = make_job(bed, due_in=1, schedule={"cron": "0 12 * * *"}, calendars=use)
    allowed = noon + HOUR
    bed.change_job(job, next_run_at=allowed, last_slot_at=allowed - timedelta(days=1))
    apply(bed, "2999a")
    assert bed.job_row(job).next_run_at == allowed, "12:00 lies in the window until 13:00"
    assert bed.value("select count(*) from tzdata_changes") == 0
    bed.change_job(job, next_run_at=allowed - HOUR)  # as with an older offset of the calendar
    apply(bed, "2999b")
    assert bed.job_row(job).next_run_at == allowed
    assert bed.value("select count(*) from tzdata_changes") == 1


def test_changes_of_more_than_a_year_ago_are_forgotten(bed: PostgresBed) -> None:
    job: JobId = make_job(bed)
    bed.conn.execute(
        "insert into tzdata_changes (job_id, tenant_id, from_version, to_version, changed_at)"
        " select id, tenant_id, 'a', 'b', now() - n * interval '200 days' from jobs,"
        " generate_series(1, 3) n where id = %s",
        [job],
    )
    apply(bed, "2999a")
    assert bed.value("select count(*) from tzdata_changes") == 1
