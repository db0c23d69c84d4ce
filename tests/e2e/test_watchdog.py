"""The watchdog process tells its operators when schedulers are gone, and of a row that is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from standardwebhooks import Webhook as Verifier
from tests.support.database import Database
from tests.support.processes import Service
from tests.support.receiver import Receiver, Request, answer
from tests.support.servers import Servers
from tests.support.store_bed import P0, P1, PostgresBed, make_job
from tests.support.until import until

from tickrail.core.ids import JobId

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

RING = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
EVERY, LATE = 1, 5
SOON = 60
"""Seconds within which all must have happened, on a machine that does other things too."""
SLACK = 15.0
"""Seconds beyond the watchdog's own bound that this machine may take."""


@dataclass
class World:
    bed: PostgresBed
    receiver: Receiver
    services: dict[str, Service]

    def alarms(self) -> list[dict[str, Any]]:
        """What operators were told, each by a call whose signature holds."""
        return [verified(request) for request in list(self.receiver.requests)]

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [a for a in self.alarms() if a["type"] == f"tickrail.watchdog.{kind}"]


def verified(request: Request) -> dict[str, Any]:
    headers = {n: request.header(n) or "" for n in
               ("webhook-id", "webhook-timestamp", "webhook-signature")}  # fmt: skip
    found = Verifier(RING).verify(request.body, headers)
    assert found == json.loads(request.body)
    assert request.header("webhook-id") == found["id"]
    return dict(found)


@pytest.fixture
def world(stack: Servers, database: Database, topic_prefix: str, tmp_path: Path) -> Iterator[World]:
    bed = PostgresBed(database)
    bed.conn.execute("update partitions set epoch = 0")
    services: dict[str, Service] = {}
    with Receiver(answer(200, b"ok")) as receiver:
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TICKRAIL_")},
            "TICKRAIL_DATABASE_URL": database.engine_url,
            "TICKRAIL_ETCD_ENDPOINTS": stack.etcd_endpoints,
            "TICKRAIL_ETCD_PREFIX": f"/watchdog-{uuid4().hex[:8]}/",
            "TICKRAIL_KAFKA_BOOTSTRAP": stack.kafka_bootstrap,
            "TICKRAIL_TOPIC_PREFIX": topic_prefix + "w",
            "TICKRAIL_LEASE_TTL": "5",
            "TICKRAIL_RENEW_EVERY": "1.5",
            "TICKRAIL_LOG_FORMAT": "json",
            "TICKRAIL_WATCHDOG_EVERY": str(EVERY),
            "TICKRAIL_WATCHDOG_LATE": str(LATE),
            "TICKRAIL_WATCHDOG_WEBHOOK": f"http://127.0.0.1:{receiver.port}/alarms",
            "TICKRAIL_WATCHDOG_WEBHOOK_SECRET": RING,
        }
        for name in ("scheduler-1", "scheduler-2", "watchdog-1"):
            kind = name.partition("-")[0]
            services[name] = Service(kind, name, environment, tmp_path / f"{name}.log")
            services[name].start()
        try:
            yield World(bed, receiver, services)
        finally:
            for service in services.values():
                if service.alive:
                    service.kill()
            bed.close()


def job_of_each_second(world: World, name: str, **place: Any) -> JobId:
    every = {"every": "1s", "anchor": "2026-01-01T00:00:00Z"}
    job = make_job(world.bed, name=name, schedule=every, overlap="allow", state="paused", **place)
    world.bed.conn.execute(
        "update jobs set state = 'active', updated_at = now(),"
        " next_run_at = date_trunc('second', now()) + interval '1 s' where id = %s",
        [job],
    )
    return job


def launches(world: World, job: JobId) -> int:
    found: int = world.bed.value("select count(*) from launches where job_id = %s", job)
    return found


def test_schedulers_that_are_gone_and_a_row_that_is_wrong_are_told(world: World) -> None:
    dog = world.services["watchdog-1"]
    first, second = (world.services[f"scheduler-{n}"] for n in (1, 2))
    until(lambda: all(s.ready() for s in world.services.values()), SOON)
    here = job_of_each_second(world, "here", partition=P0)
    there = job_of_each_second(world, "there", partition=P1)
    until(lambda: min(launches(world, here), launches(world, there)) > 2, SOON)
    assert world.alarms() == []
    assert dog.metric("watchdog_slots_missing") == 0
    assert dog.metric("watchdog_checked_total") > 0
    # One is dead, the other stands still: nobody says anything, and nothing is launched.
    first.freeze()
    second.kill()
    until(lambda: world.told("raised"), SOON, 0.2)
    alarm = world.told("raised")[0]
    assert LATE <= alarm["data"]["late_seconds"] < LATE + EVERY + SLACK
    assert {j["name"] for j in alarm["data"]["jobs"]} <= {"here", "there"}
    assert {j["wrong"] for j in alarm["data"]["jobs"]} == {"missing"}
    assert dog.metric("watchdog_slots_missing") > 0
    assert dog.metric("watchdog_slots_late_seconds") >= LATE
    assert dog.said("job_wrong", wrong="missing")
    until(lambda: dog.metric("watchdog_alarms_total", outcome="delivered") >= 1, SOON)
    # One of them is back.
    first.thaw()
    until(lambda: world.told("cleared"), SOON, 0.2)
    assert dog.metric("watchdog_slots_missing") == 0
    # The owner is well, and a row says that the job waits until tomorrow.
    with world.bed.conn.transaction():
        world.bed.conn.execute("select from jobs where id = %s for update", [there])
        world.bed.conn.execute(
            "update jobs set next_run_at = next_run_at + interval '1 day' where id = %s", [there]
        )
    until(lambda: len(world.told("raised")) > 1, SOON, 0.2)
    (wrong,) = world.told("raised")[-1]["data"]["jobs"]
    assert (wrong["id"], wrong["wrong"] in ("adrift", "missing")) == (str(there), True)
    assert dog.metric("watchdog_found_total", wrong=wrong["wrong"]) >= 1
    before = launches(world, here)
    until(lambda: launches(world, here) > before, SOON)
    assert dog.end() == 0
