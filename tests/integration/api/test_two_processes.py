"""Several API processes on one database: what one has begun or answered, the others know.

Requests go round the processes as a balancer would send them.
"""

from __future__ import annotations

import signal
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest
from tests.integration.api.test_process import api
from tests.support.api import new_key, webhook
from tests.support.database import Database
from tests.support.until import until

pytestmark = [pytest.mark.integration, pytest.mark.e2e]
AT_ONCE = 20


class Pair:
    """Two processes and a client for each."""

    def __init__(self, database: Database, stack: ExitStack) -> None:
        self.database = database
        self.key = {"Authorization": f"Bearer {new_key(database, 'acme').token}"}
        found = [stack.enter_context(api(database)) for _ in range(2)]
        self.processes = [process for process, _ in found]
        self.clients = [
            stack.enter_context(
                httpx.Client(base_url=line["api"], headers=self.key, timeout=30, trust_env=False)
            )
            for _, line in found
        ]

    def post(self, n: int, path: str, document: object, key: str) -> httpx.Response:
        """A request to the n-th process, round and round."""
        client = self.clients[n % 2]
        return client.post(path, json=document, headers={"Idempotency-Key": key})

    def jobs(self) -> int:
        """How many there are."""
        [(n,)] = self.database.rows("select count(*) from jobs")
        return int(str(n))


@pytest.fixture
def pair(database: Database) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(database, stack)


def test_equal_requests_to_two_processes_make_one_job(pair: Pair) -> None:
    def create(n: int) -> httpx.Response:
        answer = pair.post(n, "/v1/jobs", webhook("a"), "k-1")
        if answer.status_code == 409:
            assert answer.json()["code"] == "in_progress"
            assert int(answer.headers["retry-after"]) == 1
        return answer

    with ThreadPoolExecutor(AT_ONCE) as pool:
        first = list(pool.map(create, range(AT_ONCE)))
    assert {a.status_code for a in first} <= {201, 409}
    assert [a.headers.get("idempotent-replay") for a in first if a.status_code == 201].count(
        None
    ) == 1
    # Each that was told to try again does so once, at the other process.
    last = [a if a.status_code == 201 else create(n + 1) for n, a in enumerate(first)]
    assert Counter(a.status_code for a in last) == {201: AT_ONCE}
    assert len({a.content for a in last}) == 1
    assert len({(a.headers["location"], a.headers["etag"]) for a in last}) == 1
    assert pair.jobs() == 1


def test_a_process_killed_in_the_middle_leaves_the_key_free(pair: Pair) -> None:
    """It holds the key, its statement waits for a lock, and it dies by SIGKILL."""
    pair.clients[0].post("/v1/jobs", json=webhook("a", overlap="allow")).raise_for_status()
    path = "/v1/jobs/name:a/trigger"
    waiting = (
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = %s"
    )
    with pair.database.admin() as holder, ThreadPoolExecutor(1) as pool, holder.transaction():
        holder.execute("select from jobs for update")
        lost = pool.submit(pair.post, 0, path, {}, "k-2")
        until(lambda: pair.database.rows(waiting, pair.database.name) == [(1,)])
        running = pair.post(1, path, {}, "k-2")
        assert (running.status_code, running.json()["code"]) == (409, "in_progress")
        pair.processes[0].send_signal(signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            lost.result(30)

    def answered() -> httpx.Response | None:
        # PostgreSQL sees that its client is gone when the statement has its lock, and undoes it.
        answer = pair.post(1, path, {}, "k-2")
        return answer if answer.status_code != 409 else None

    found: list[httpx.Response] = []
    until(lambda: found.extend(filter(None, [answered()])) or found, 30)
    assert found[0].status_code == 201
    again = pair.post(1, path, {}, "k-2")
    assert again.content == found[0].content
    assert again.headers["idempotent-replay"] == "true"
    assert pair.database.rows("select count(*) from launches") == [(1,)]


def test_many_requests_while_one_of_two_processes_is_killed_make_one_job_each(pair: Pair) -> None:
    """A client that repeats what got no answer, at the process that is left, loses nothing."""
    wanted = [f"job-{n}" for n in range(AT_ONCE)]

    def create(n: int) -> str:
        for attempt in range(n, n + 600):
            try:
                answer = pair.post(attempt, "/v1/jobs", webhook(wanted[n]), f"key-{n}")
            except httpx.TransportError:
                continue
            if answer.status_code == 201:
                return str(answer.json()["id"])
            assert answer.json()["code"] == "in_progress", answer.text
        raise AssertionError(wanted[n])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        ids = [pool.submit(create, n) for n in range(AT_ONCE)]
        until(lambda: pair.jobs() >= 1, every=0.001)
        pair.processes[0].send_signal(signal.SIGKILL)
        made = [one.result(60) for one in ids]
    stored = {str(row[0]) for row in pair.database.rows("select id from jobs")}
    assert stored == set(made)
    assert len(made) == AT_ONCE


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_processes_share_a_port_and_one_leaves_after_it_has_said_so(database: Database) -> None:
    port = str(free_port())
    settings = {"api_port": port, "api_reuse_port": "true", "api_drain_delay": "2"}
    url = f"http://127.0.0.1:{port}"
    key = {"Authorization": f"Bearer {new_key(database, 'acme').token}"}

    def ask() -> int:
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as fresh:
            return fresh.get("/v1/jobs", headers=key).status_code

    def state(line: dict[str, str]) -> httpx.Response:
        return httpx.get(f"{line['status']}/readyz", trust_env=False)

    with api(database, **settings) as (first, told), api(database, **settings) as (_, other):
        assert [state(line).status_code for line in (told, other)] == [200, 200]
        first.send_signal(signal.SIGTERM)
        until(lambda: state(told).status_code == 503)
        assert list(state(told).json()["problems"]) == ["stopping"]
        # It says so, and goes on answering.
        assert {ask() for _ in range(20)} == {200}
        assert first.wait(60) == 0
        assert state(other).status_code == 200
        assert {ask() for _ in range(5)} == {200}
