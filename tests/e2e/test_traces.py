"""One trace from the call that triggers a job to its effect, over a failure and a retry."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.support.collector import Collector, Kept
from tests.support.database import Database
from tests.support.processes import CLOCK, Service
from tests.support.receiver import Receiver, Request, answer
from tests.support.servers import Servers
from tests.support.until import until

from tickrail.store.bootstrap import bootstrap

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SOON = 60
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SERVER, PRODUCER, CONSUMER = 2, 4, 5
"""Kinds of span, as OTLP numbers them."""


@dataclass
class World:
    collector: Collector
    receiver: Receiver
    services: dict[str, Service]
    api: httpx.Client

    def lines(self, trace: str) -> set[tuple[str, str]]:
        """Which service said what about a trace: (service, event)."""
        return {
            (name, line["event"])
            for name, service in self.services.items()
            for line in service.lines()
            if line.get("trace_id") == trace
        }


def fails_once(receiver: Receiver) -> Any:
    bad, good = answer("500 No"), answer("200 OK")

    def behave(sock: Any, request: Request) -> bool:
        return (bad if len(receiver.requests) < 2 else good)(sock, request)

    return behave


@pytest.fixture
def world(stack: Servers, database: Database, topic_prefix: str, tmp_path: Path) -> Iterator[World]:
    key = bootstrap(database.owner_url, CLOCK, tenant="acme").token
    services: dict[str, Service] = {}
    with Collector() as collector, Receiver() as receiver:
        receiver.behave = fails_once(receiver)
        usual = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TICKRAIL_")},
            "TICKRAIL_ETCD_ENDPOINTS": stack.etcd_endpoints,
            "TICKRAIL_ETCD_PREFIX": f"/traces-{uuid4().hex[:8]}/",
            "TICKRAIL_KAFKA_BOOTSTRAP": stack.kafka_bootstrap,
            "TICKRAIL_KAFKA_GROUP": f"g-{uuid4().hex[:8]}",
            "TICKRAIL_TOPIC_PREFIX": topic_prefix + "t",
            "TICKRAIL_API_PORT": "0",
            "TICKRAIL_LOG_FORMAT": "json",
            "TICKRAIL_EGRESS_ALLOW": "127.0.0.0/8",
            "TICKRAIL_TRACE_ENDPOINT": collector.endpoint,
            "TICKRAIL_TRACE_SAMPLE": "0",
            "TICKRAIL_TRACE_HEADERS": "x-tenant=ours",
        }
        for kind in ("api", "scheduler", "worker"):
            url = database.api_url if kind == "api" else database.engine_url
            own = {**usual, "TICKRAIL_DATABASE_URL": url}
            if kind == "scheduler":
                own["TICKRAIL_TRACE_SAMPLE"] = "1"  # what the schedule launches is traced, too
            services[kind] = Service(kind, kind, own, tmp_path / f"{kind}.log")
            services[kind].start()
        try:
            until(lambda: all(s.ready() for s in services.values()), SOON, 0.1)
            at = next(x["api"] for x in services["api"].lines() if x["event"] == "serving")
            with httpx.Client(base_url=at, headers={"Authorization": f"Bearer {key}"}) as api:
                yield World(collector, receiver, services, api)
        finally:
            for service in services.values():
                if service.alive:
                    service.kill()


def job(world: World, name: str, **more: Any) -> None:
    document = {
        "name": name,
        "target": {"webhook": {"url": f"http://127.0.0.1:{world.receiver.port}/hook"}},
        "retry": {"initial": "1s", "jitter": 0},
        "schedule": None,
        **more,
    }
    world.api.post("/v1/jobs", json=document).raise_for_status()


def ended(world: World, launch: str) -> bool:
    state: str = world.api.get(f"/v1/launches/{launch}").json()["state"]
    return state == "succeeded"


def test_one_trace_from_the_trigger_to_the_effect(world: World) -> None:
    job(world, "traced")
    untraced = world.api.post("/v1/jobs/name:traced/trigger").json()["id"]
    until(lambda: ended(world, untraced), SOON, 0.1)
    assert [r.header("traceparent") for r in world.receiver.requests] == [None, None]
    world.receiver.requests.clear()
    asked = world.api.post("/v1/jobs/name:traced/trigger", headers={"traceparent": CALLER})
    launch, trace, caller = asked.json()["id"], CALLER.split("-")[1], CALLER.split("-")[2]
    until(lambda: ended(world, launch), SOON, 0.1)
    seconds_later = ["publish", "claim", "run"] * 2
    names = ["POST /v1/jobs/{job}/trigger", "launch record", *seconds_later]
    until(lambda: sorted(s.name for s in world.collector.of(trace)) == sorted(names), SOON, 0.2)
    spans = world.collector.of(trace)

    def those(name: str) -> list[Kept]:
        found = [s for s in spans if s.name == name]
        return sorted(found, key=lambda s: s.attributes.get("tickrail.attempt", 0))

    (request,), (record,) = those(names[0]), those("launch record")
    assert (request.parent, request.kind, request.service) == (caller, SERVER, "tickrail-api")
    assert request.attributes["http.response.status.code"] == 201
    assert (record.parent, record.service) == (request.id, "tickrail-api")
    for name, service in (("publish", "scheduler"), ("claim", "worker"), ("run", "worker")):
        both = those(name)
        assert [s.attributes["tickrail.attempt"] for s in both] == [1, 2]
        assert {s.parent for s in both} == {record.id}
        assert {s.attributes["tickrail.launch"] for s in both} == {launch}
        assert {s.service for s in both} == {f"tickrail-{service}"}
    runs, published = those("run"), those("publish")
    for name in ("tickrail.job", "tickrail.job.name", "tickrail.tenant"):
        assert {s.attributes[name] for s in (record, *runs)} == {record.attributes[name]}
    assert record.attributes["tickrail.job.name"] == "traced"
    assert [list(r.links) for r in runs] == [[(trace, p.id)] for p in published]
    assert {p.kind for p in published} == {PRODUCER}
    assert [(r.kind, r.attributes["tickrail.outcome"]) for r in runs] == [
        (CONSUMER, "http_500"),
        (CONSUMER, "ok"),
    ]
    assert ["HTTP 500" in runs[0].error, runs[1].error] == [True, ""]
    # Each call says which span it is of.
    called = [r.header("traceparent") for r in world.receiver.requests]
    assert called == [f"00-{trace}-{r.id}-01" for r in runs]
    assert {("api", "request"), ("worker", "attempt_failed")} <= world.lines(trace)
    assert {h["x-tenant"] for h in world.collector.headers} == {"ours"}
    of_the_schedule(world)


def of_the_schedule(world: World) -> None:
    """What the schedule launches has a trace of its own."""
    world.collector.spans.clear()
    job(world, "scheduled", schedule={"every": "1s"}, overlap="allow")
    until(lambda: any(s.name == "run" for s in world.collector.spans), SOON, 0.2)
    run = next(s for s in world.collector.spans if s.name == "run")
    until(lambda: len(world.collector.of(run.trace)) >= 4, SOON, 0.2)
    (first,) = (s for s in world.collector.of(run.trace) if s.name == "schedule")
    assert (first.parent, first.service) == ("", "tickrail-scheduler")
    assert run.parent == first.id
    for name in ("tickrail.job", "tickrail.tenant"):
        assert run.attributes[name] == first.attributes[name]
