"""The API as a process: it starts, serves, says what is wrong, and stops in order."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from psycopg import conninfo
from tests.support.api import PEPPER, new_key, webhook
from tests.support.database import Database
from tests.support.proxy import TcpProxy
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.store.session import DatabaseSettings
from tickrail_api.main import STUCK_AFTER

pytestmark = [pytest.mark.integration, pytest.mark.e2e]
CLOCK = SystemClock()
PROGRAM = str(Path(sys.executable).with_name("tickrail"))


def environment(database_url: str, **settings: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TICKRAIL_")}
    given = {
        "database_url": database_url, "api_port": "0", "log_format": "json", "key_pepper": PEPPER,
        "egress_allow": "127.0.0.0/8", **settings,
    }  # fmt: skip
    return kept | {f"TICKRAIL_{name.upper()}": value for name, value in given.items()}


@contextmanager
def api(
    database: Database, url: str = "", **settings: str
) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A process that serves, and the line in which it says where."""
    with subprocess.Popen(
        [PROGRAM, "api"], env=environment(url or database.api_url, **settings), text=True,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            lines = (json.loads(line) for line in process.stderr)
            yield process, next(line for line in lines if line["event"] == "serving")
        finally:
            process.kill()


def refused(database_url: str, **settings: str) -> tuple[int, str]:
    """The exit code of a process that must not start, and what it said."""
    ended = subprocess.run(
        [PROGRAM, "api"], env=environment(database_url, **settings), text=True,
        stderr=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr


def test_a_process_serves_and_stops_at_a_signal(database: Database) -> None:
    token = new_key(database, "acme").token
    # Without etcd it serves all but /v1/system.
    with api(database, etcd_endpoints="127.0.0.1:1") as (process, line):
        assert line["partitions"] == 4
        with httpx.Client(base_url=line["api"], timeout=30, trust_env=False) as client:
            key = {"Authorization": f"Bearer {token}"}
            made = client.post("/v1/jobs", json=webhook("a"), headers=key)
            assert made.status_code == 201
            assert "server" not in made.headers
            assert client.get("/readyz").json() == {"status": "ok"}
        for path in ("/healthz", "/readyz"):
            assert httpx.get(line["status"] + path, trust_env=False).json() == {"status": "ok"}
        metrics = httpx.get(line["status"] + "/metrics", trust_env=False).text
        assert (
            'tickrail_http_requests_total{method="POST",route="/v1/jobs",status="201"} 1.0'
            in metrics
        )
        assert 'service="api"' in metrics
        assert 'tickrail_server_up{server="etcd"} 0.0' in metrics
        assert "tickrail_partitions_unowned NaN" in metrics
        late = "tickrail_jobs_overdue_seconds 0.0"
        until(lambda: late in httpx.get(line["status"] + "/metrics", trust_env=False).text)
        metrics = httpx.get(line["status"] + "/metrics", trust_env=False).text
        assert 'tickrail_queue_workers{queue="default"} 0.0' in metrics
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_postgresql_that_is_silent_is_told_at_once_and_is_no_reason_to_restart(
    database: Database,
) -> None:
    info = conninfo.conninfo_to_dict(database.api_url)
    with TcpProxy(str(info["host"]), int(str(info["port"]))) as proxy:
        url = conninfo.make_conninfo(database.api_url, host="127.0.0.1", port=proxy.port)
        with (
            api(database, url, etcd_endpoints="127.0.0.1:1") as (_, line),
            httpx.Client(timeout=20, trust_env=False) as client,
        ):
            ready = [line["api"] + "/readyz", line["status"] + "/readyz"]
            assert [client.get(path).status_code for path in ready] == [200, 200]
            proxy.blackhole()
            for path in ready:
                began = CLOCK.monotonic()
                answer = client.get(path)
                assert CLOCK.monotonic() - began < 6
                assert answer.status_code == 503
                assert "no answer for" in answer.json()["problems"]["postgresql"]
            assert client.get(line["status"] + "/healthz").status_code == 200
            proxy.heal()
            until(lambda: client.get(ready[1]).status_code == 200, 60)


def test_no_wait_for_a_silent_postgresql_counts_as_a_loop_that_is_stuck() -> None:
    settings = DatabaseSettings("")
    waits = 10 + 2 * settings.answer_within + 2 * settings.connect_within
    assert waits < STUCK_AFTER


def test_an_answer_under_way_is_finished_at_a_stop(database: Database) -> None:
    """The request waits for a lock; the signal comes; the answer is whole."""
    token = new_key(database, "acme").token
    with api(database) as (process, line):
        url = httpx.URL(line["api"])
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
            key = {"Authorization": f"Bearer {token}"}
            client.post("/v1/jobs", json=webhook("a"), headers=key)
            with database.admin() as holder, holder.transaction():
                holder.execute("select from jobs for update")
                request = (
                    "DELETE /v1/jobs/name:a HTTP/1.1\r\nHost: x\r\n"
                    f"Authorization: Bearer {token}\r\n\r\n"
                )
                connection = socket.create_connection((url.host, url.port or 0), timeout=30)
                connection.sendall(request.encode())
                waiting = (
                    "select count(*) from pg_stat_activity"
                    " where wait_event_type = 'Lock' and datname = %s"
                )
                until(lambda: database.rows(waiting, database.name) == [(1,)])
                process.send_signal(signal.SIGTERM)
        with connection:
            assert connection.recv(4096).startswith(b"HTTP/1.1 204 ")
        assert process.wait(30) == 0


def test_what_keeps_a_process_from_starting_is_named(
    database: Database, empty_database: Database
) -> None:
    code, said = refused("host=127.0.0.1 port=1 dbname=x connect_timeout=2")
    assert (code, "PostgreSQL" in said) == (3, True)
    code, said = refused(empty_database.api_url)
    assert (code, "tickrail migrate" in said) == (1, True)
    code, said = refused(database.api_url, partitions="8")
    assert (code, "TICKRAIL_PARTITIONS" in said) == (2, True)
    code, said = refused(database.api_url, egress_allow="10.0.0.0/99")
    assert (code, "egress_allow" in said) == (2, True)
    code, said = refused(database.api_url, secret_keys="abc")
    assert (code, "TICKRAIL_SECRET_KEYS" in said) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = refused(database.api_url, api_port=str(port))
    assert (code, "api_port" in said, str(port) in said) == (2, True, True)


def test_wrong_credentials_are_named_without_the_password(database: Database) -> None:
    _, said = refused(database.api_url.replace("tickrail_api-in-tests", "wrong-password"))
    assert "credentials" in said or "password authentication failed" in said
    assert "wrong-password" not in said


def test_the_pepper_is_part_of_every_key(database: Database) -> None:
    token = new_key(database, "acme").token
    with (
        api(database, key_pepper="another") as (_, line),
        httpx.Client(base_url=line["api"], timeout=30, trust_env=False) as client,
    ):
        assert (
            client.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code == 401
        )


def test_a_process_carries_out_operations_and_goes_on_with_those_of_another(
    database: Database,
) -> None:
    token = new_key(database, "acme").token
    with api(database) as (process, line):
        key = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=line["api"], headers=key, timeout=30, trust_env=False) as client:
            for n in range(3):
                client.post("/v1/jobs", json=webhook(f"job-{n}", schedule={"every": "1h"}))
            made = client.post("/v1/jobs/pause", json={"filter": {}}).json()

            def state() -> str:
                return str(client.get(f"/v1/operations/{made['id']}").json()["state"])

            until(lambda: state() == "finished", 20)
            assert {j["state"] for j in client.get("/v1/jobs").json()["items"]} == {"paused"}
            # One whose process was killed, and whose hold is over.
            database.run(
                "update operations set state = 'running', position = null, done = 0, changed = 0,"
                " finished_at = null, kind = 'jobs.resume', held_until = now() - interval '1 s'"
            )
            until(lambda: state() == "finished", 20)
            assert {j["state"] for j in client.get("/v1/jobs").json()["items"]} == {"active"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
