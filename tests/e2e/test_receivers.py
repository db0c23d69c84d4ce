"""One effect for each launch, however often it is delivered: FastAPI and Flask behind the kit.

On the real path. Requests are doubled one after the other and at the same moment, answers are lost,
a worker is killed between the effect and its record, and one is frozen past its claim while its
request is under way. The receivers keep their keys in PostgreSQL; their handlers commit an effect
before they answer. They take no request that is not signed; jobs sign by two secrets, of which the
receivers know the newer one. And a message to a Kafka topic, which tells the same to its readers.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from psycopg import conninfo
from tests.support.doubling import DoublingProxy, Mode, Passed
from tests.support.receiver import Request
from tests.support.receiving import FRAMEWORKS, Handler, Reply, serve
from tests.support.running import Running, data_folder
from tests.support.until import until

from tickrail.bus.config import KafkaSettings
from tickrail.bus.topics import Topics
from tickrail.local.state import STATE_FILE
from tickrail.sdk.receiver import Delivery, PostgresStore, ReceiverRules

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

SLOTS = 9
LEASE = timedelta(seconds=5)
MODES: tuple[Mode, ...] = ("lose", "twice", "at_once")
SECRETS = {"older": "whsec_b2xkZXItc2VjcmV0", "newer": "whsec_bmV3ZXItc2VjcmV0"}
ENDED = ("succeeded", "dead", "abandoned", "cancelled", "expired")


@dataclass
class Side:
    """One framework's receiver, its proxy, and the effects of its handler."""

    framework: str
    dsn: str
    effects: str
    let_go: threading.Event = field(default_factory=threading.Event)
    slow_key: str = ""
    count: int = 0

    def act(self, delivery: Delivery | None, body: bytes) -> Reply:
        """The effect, committed; then, for `slow`, no answer before the worker is dead."""
        assert delivery is not None
        with psycopg.connect(self.dsn) as conn:
            conn.execute(
                f"insert into {self.effects} values (%s, %s, %s)".encode(),
                [delivery.key, delivery.fence, delivery.job],
            )
        if delivery.job.startswith("slow") and not self.slow_key:
            self.slow_key = delivery.key
            assert self.let_go.wait(60)
        return Reply(200, b"effect " + body)

    def mode(self, request: Request) -> Mode:
        """What becomes of the first request of a launch."""
        job = request.header("tickrail-job") or ""
        if job.startswith("doubled"):
            self.count += 1
            return MODES[self.count % len(MODES)]
        return "hold" if job.startswith("late") else "pass"


@dataclass
class World:
    """What ran, when all of it has ended."""

    up: Running
    sides: dict[str, tuple[Side, Handler, DoublingProxy]] = field(default_factory=dict)
    late: dict[str, Passed] = field(default_factory=dict)
    kafka: str = ""

    def launches(self, job: str) -> dict[str, tuple[str, int, dict[str, Any]]]:
        """Launches of a job by id: state, attempt, result."""
        rows = self.up.rows(
            "select l.id::text, l.state, l.attempt, l.result from launches l"
            " join jobs j on j.id = l.job_id where j.name = %s",
            [job],
        )
        return {row[0]: (row[1], row[2], row[3]) for row in rows}

    def effects(self, framework: str, job: str) -> Counter[str]:
        """How many effects each key had."""
        side = self.sides[framework][0]
        with psycopg.connect(side.dsn) as conn:
            query = f"select key from {side.effects} where job = %s"
            return Counter(str(row[0]) for row in conn.execute(query.encode(), [job]).fetchall())

    def passed(self, framework: str, key: str) -> list[Passed]:
        """What reached the receiver under a key, in the order in which it was answered."""
        return [p for p in self.sides[framework][2].passed if p.key == key]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with ExitStack() as stack:
        folder = stack.enter_context(data_folder())
        up = stack.enter_context(Running(folder))
        made = World(up)
        addresses = json.loads((folder / STATE_FILE).read_text())["addresses"]
        dsn = conninfo.make_conninfo(addresses["postgres_dsn"], dbname="postgres")
        for framework in FRAMEWORKS:
            store = PostgresStore(partial(psycopg.connect, dsn), table=f"{framework}_keys")
            store.create_table()
            side = Side(framework, dsn, f"{framework}_effects")
            with psycopg.connect(dsn) as conn:
                conn.execute(
                    f"create table {side.effects} (key text, fence bigint, job text)".encode()
                )
            handler = Handler(side.act)
            rules = ReceiverRules(
                store=store, paths=["/hooks/*"], lease=LEASE, secrets=[SECRETS["newer"]]
            )
            url = stack.enter_context(serve(framework, rules, handler))
            proxy = stack.enter_context(DoublingProxy(url, side.mode))
            made.sides[framework] = (side, handler, proxy)
        made.kafka = addresses["kafka_bootstrap"]
        play(made)
        yield made


def play(world: World) -> None:
    """Everything, until each launch has ended."""
    with world.up.client() as client:
        for name, value in SECRETS.items():
            client.request("PUT", f"/v1/secrets/{name}", json={"value": value})
    for framework in FRAMEWORKS:
        make_job(world, framework, "doubled", scheduled=True)
    send_to_kafka(world)
    kill_between_effect_and_record(world)
    freeze_while_the_request_is_under_way(world)
    open_ = "select from launches where not state = any(%s)"
    due = "select from jobs where next_run_at is not null"
    until(lambda: not world.up.rows(due) and not world.up.rows(open_, [list(ENDED)]), 90, 0.2)


def make_job(world: World, framework: str, name: str, *, scheduled: bool = False) -> dict[str, Any]:
    """A job whose webhook goes to a framework's receiver, through its proxy."""
    document: dict[str, Any] = {
        "name": f"{name}-{framework}",
        "target": {
            "webhook": {
                "url": world.sides[framework][2].url("/hooks/a"),
                "signature": {"secrets": [{"secret": name} for name in SECRETS]},
            }
        },
        "payload": {"n": 1},
        "overlap": "allow",
        "visibility_timeout": "5s",
        "retry": {"max_attempts": 20, "initial": "1s", "multiplier": 1},
    }
    if scheduled:
        document |= {"schedule": {"every": "1s"}, "max_launches": SLOTS}
    with world.up.client() as client:
        return dict(client.request("POST", "/v1/jobs", json=document))


def send_to_kafka(world: World) -> None:
    """A launch of a job whose topic an operator allowed."""
    topics = Topics(KafkaSettings(bootstrap=world.kafka))
    topics.ensure(["orders.due"], 4)
    # What was made just now may be unknown to the broker for a moment.
    until(lambda: topics.partitions(["orders.due"]) == {"orders.due": 4}, 30)
    world.up.rows("update tenants set kafka_topics = '{orders.*}' returning id")
    target = {"kafka": {"topic": "orders.due", "key": "{{ payload.region }}", "partition": 2}}
    document = {"name": "kafka", "target": target, "payload": {"region": "eu"}}
    with world.up.client() as client:
        client.request("POST", "/v1/jobs", json=document)
    trigger(world, "kafka")
    # Before workers are killed.
    until(lambda: [x[0] for x in world.launches("kafka").values()] == ["succeeded"], 60, 0.2)


def trigger(world: World, job: str) -> None:
    with world.up.client() as client:
        client.request("POST", f"/v1/jobs/name:{job}/trigger", json={})


def worker_of(world: World, key: str) -> str:
    """The worker that runs a launch."""
    rows = world.up.rows("select worker from launches where id = %s", [UUID(key)])
    return next(n for n in world.up.processes() if str(rows[0][0]).startswith(n))


def kill_between_effect_and_record(world: World) -> None:
    """The effect is committed, the answer not given: kill -9 the worker that waits for it."""
    sides = [side for side, _, _ in world.sides.values()]
    for framework in FRAMEWORKS:
        make_job(world, framework, "slow")
        trigger(world, f"slow-{framework}")
    until(lambda: all(side.slow_key for side in sides), 90)
    for worker in {worker_of(world, side.slow_key) for side in sides}:
        world.up.kill(worker)
    for side in sides:
        side.let_go.set()


def freeze_while_the_request_is_under_way(world: World) -> None:
    """A worker's requests stay in the network; it is frozen; others run its launches meanwhile."""
    names: dict[str, str] = {}
    partitions: dict[str, dict[int, str]] = {framework: {} for framework in FRAMEWORKS}
    for n in range(100):
        # Launches of one partition go to one worker.
        for framework in FRAMEWORKS:
            job = make_job(world, framework, f"late{n}")
            partitions[framework][job["partition"]] = job["name"]
        both = set.intersection(*(set(found) for found in partitions.values()))
        if both:
            common = both.pop()
            names = {framework: partitions[framework][common] for framework in FRAMEWORKS}
            break
    for name in names.values():
        trigger(world, name)
    proxies = {framework: world.sides[framework][2] for framework in FRAMEWORKS}
    until(lambda: all(proxy.held for proxy in proxies.values()), 90)
    keys = {f: str(proxy.held[0].header("idempotency-key")) for f, proxy in proxies.items()}
    (frozen,) = {worker_of(world, key) for key in keys.values()}
    pid = world.up.processes()[frozen]
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: all(world.passed(f, keys[f]) for f in FRAMEWORKS), 90)
        for framework, proxy in proxies.items():
            world.late[framework] = proxy.release(proxy.held[0])
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_doubled_deliveries_and_lost_answers_have_one_effect(world: World, framework: str) -> None:
    launches = world.launches(f"doubled-{framework}")
    assert len(launches) == SLOTS
    assert {state for state, _, _ in launches.values()} == {"succeeded"}
    assert world.effects(framework, f"doubled-{framework}") == dict.fromkeys(launches, 1)
    proxy = world.sides[framework][2]
    modes = Counter(proxy.modes[key] for key in launches)
    assert modes == dict.fromkeys(MODES, SLOTS // len(MODES))
    for key, (_, attempt, _) in launches.items():
        passed = world.passed(framework, key)
        assert len(passed) >= 2, "it was not delivered twice"
        assert [p.status for p in passed if not p.replayed].count(200) == 1
        assert {p.status for p in passed} <= {200, 409}
        if proxy.modes[key] == "lose":
            assert attempt >= 2
            assert passed[-1].replayed
            assert passed[-1].fence > passed[0].fence


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_requests_that_are_not_signed_have_no_effect(world: World, framework: str) -> None:
    _, handler, proxy = world.sides[framework]
    assert handler.calls
    assert all(delivery is not None and delivery.signed for delivery in handler.calls)
    assert {p.status for p in proxy.passed} <= {200, 409, 412}
    at = urlsplit(proxy.target)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=30)
    connection.request("POST", "/hooks/a", b"{}", {"Idempotency-Key": "forged"})
    assert connection.getresponse().status == 401
    connection.close()
    assert all(delivery is not None and delivery.key != "forged" for delivery in handler.calls)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_worker_killed_between_effect_and_record_repeats_no_effect(
    world: World, framework: str
) -> None:
    job = f"slow-{framework}"
    [(key, (state, attempt, result))] = world.launches(job).items()
    assert (state, result["outcome"]) == ("succeeded", "ok")
    assert attempt >= 2
    assert world.effects(framework, job) == {key: 1}
    passed = world.passed(framework, key)
    assert passed[-1].replayed
    assert passed[-1].fence > min(p.fence for p in passed)
    assert result["body"] == 'effect {"n":1}'


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_request_of_a_frozen_worker_that_comes_late_is_refused(
    world: World, framework: str
) -> None:
    late = world.late[framework]
    assert (late.status, late.replayed) == (412, False)
    [job] = {
        row[0]
        for row in world.up.rows(
            "select j.name from launches l join jobs j on j.id = l.job_id where l.id = %s",
            [UUID(late.key)],
        )
    }
    state, attempt, _ = world.launches(job)[late.key]
    assert (state, attempt >= 2) == ("succeeded", True)
    assert world.effects(framework, job) == {late.key: 1}
    assert late.fence < max(p.fence for p in world.passed(framework, late.key))


def test_a_launch_shows_where_its_message_landed_and_the_message_says_whose_it_is(
    world: World,
) -> None:
    [(key, (state, attempt, result))] = world.launches("kafka").items()
    assert (state, attempt) == ("succeeded", 1)
    with world.up.client() as client:
        launch = client.request("GET", f"/v1/launches/{key}")
    assert launch["result"]["place"] == {"topic": "orders.due", "partition": 2, "offset": 0}
    assert launch["result"]["place"] == result["place"]
    reader = Consumer({"bootstrap.servers": world.kafka, "group.id": "e2e"})
    reader.assign([TopicPartition("orders.due", 2, 0)])
    (message,) = reader.consume(1, 30)
    reader.close()
    assert (message.key(), message.value()) == (b"eu", b'{"region":"eu"}')
    headers = dict(message.headers() or [])
    assert headers["Idempotency-Key"] == key.encode()
    assert headers["Fencing-Token"] == str(launch["claim"]).encode()
    assert headers["Tickrail-Job"] == b"kafka"
