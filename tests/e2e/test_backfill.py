"""A backfill from the command line on the real processes, schedulers killed meanwhile."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from tests.support.running import CLOCK, Running, data_folder, launches_of
from tests.support.until import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

SLOTS = 24 * 60


def test_each_slot_of_the_range_has_its_run_although_schedulers_are_killed() -> None:
    with data_folder() as folder, Running(folder) as up:
        effects = up.folder / "effects"
        effects.touch(mode=0o666)
        document = {
            "name": "minutes",
            "schedule": {"cron": "* * * * *"},
            "overlap": "allow",
            # From the start: a minute that begins before the pause below would be launched, too.
            "paused": True,
            "target": {"command": {"shell": f"echo $TICKRAIL_SCHEDULED_AT >> {effects}"}},
        }
        (up.folder / "job.json").write_text(json.dumps(document))
        made = json.loads(up.cli("jobs", "create", "-f", "job.json", "--output", "json"))
        up.cli("jobs", "pause", "--all", "--watch")
        end = CLOCK.now().replace(hour=0, minute=0, second=0, microsecond=0)
        start = end - timedelta(minutes=SLOTS)
        backfill = json.loads(
            up.cli(
                "jobs", "backfill", "minutes", "--from", start.isoformat(), "--until",
                end.isoformat(), "--max-open", "20", "--output", "json",
            )
        )  # fmt: skip

        def launched() -> int:
            found: int = up.rows("select launched from backfills")[0][0]
            return found

        for name, count in (("scheduler-1", SLOTS // 4), ("scheduler-2", SLOTS // 2)):
            until(lambda count=count: launched() >= count, 60)
            up.kill(name)
        assert launched() < SLOTS, "the kills came too late to prove anything"
        ended = json.loads(
            up.cli("backfills", "get", backfill["id"], "--watch", "--output", "json")
        )
        assert (ended["state"], ended["launches"]) == ("finished", {"succeeded": SLOTS})
        wanted = {start + timedelta(minutes=n) for n in range(SLOTS)}
        assert set(launches_of(up, UUID(made["id"]))) == wanted
        told = Counter(datetime.fromisoformat(at) for at in effects.read_text().split())
        assert {at.astimezone(UTC) for at in told} == wanted
        assert set(told.values()) == {1}
