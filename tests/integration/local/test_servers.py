"""Each server alone can be killed, frozen and started again on the same port and data."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable

import psutil
import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tickrail.local.etcd import healthy
from tickrail.local.kafka import brokers_at
from tickrail.local.postgres import answers
from tickrail.local.server import Server
from tickrail.local.stack import LocalStack, running

pytestmark = pytest.mark.integration


def etcd_call(stack: LocalStack, path: str, **body: str) -> dict[str, object]:
    """One call of etcd's JSON gateway; keys and values are base64."""
    connection = http.client.HTTPConnection(stack.addresses.etcd_endpoints, timeout=10)
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in body.items()}
    connection.request("POST", f"/v3/kv/{path}", json.dumps(encoded))
    answer: dict[str, object] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def topics(stack: LocalStack) -> set[str]:
    admin = AdminClient({"bootstrap.servers": stack.addresses.kafka_bootstrap})
    return set(admin.list_topics(timeout=30).topics)


@pytest.fixture(params=["postgres", "etcd", "kafka"])
def server(request: pytest.FixtureRequest, own_stack: LocalStack) -> Server:
    found: Server = getattr(own_stack, request.param)
    return found


PROBES: dict[str, Callable[[int], object]] = {
    "PostgreSQL": answers,
    "etcd": healthy,
    "Kafka": brokers_at,
}


def test_a_killed_server_comes_back_on_its_port(own_stack: LocalStack, server: Server) -> None:
    before = server.pid
    server.kill()
    assert not server.alive
    assert own_stack.ended() == [server]
    assert not PROBES[server.name](server.port)
    server.restart()
    assert server.pid not in (None, before)
    assert own_stack.ended() == []
    assert PROBES[server.name](server.port)


def test_a_frozen_server_does_not_answer_until_it_is_thawed(server: Server) -> None:
    server.freeze()
    assert server.alive
    assert not PROBES[server.name](server.port)
    server.thaw()
    server.wait_ready()
    assert PROBES[server.name](server.port)


def test_a_frozen_server_can_be_stopped(server: Server) -> None:
    server.freeze()
    server.stop()
    assert not server.alive
    server.restart()


def test_committed_rows_survive_a_kill(own_stack: LocalStack) -> None:
    with psycopg.connect(own_stack.addresses.postgres_dsn) as session:
        session.execute("create table survivor (x int)")
        session.execute("insert into survivor values (7)")
    own_stack.postgres.kill()
    own_stack.postgres.restart()
    with psycopg.connect(own_stack.addresses.postgres_dsn) as session:
        assert session.execute("select x from survivor").fetchall() == [(7,)]


def test_written_keys_survive_a_kill(own_stack: LocalStack) -> None:
    etcd_call(own_stack, "put", key="survivor", value="7")
    own_stack.etcd.kill()
    own_stack.etcd.restart()
    assert etcd_call(own_stack, "range", key="survivor")["count"] == "1"


def test_topics_survive_a_kill(own_stack: LocalStack) -> None:
    admin = AdminClient({"bootstrap.servers": own_stack.addresses.kafka_bootstrap})
    for future in admin.create_topics([NewTopic("survivor", 4, 1)]).values():
        future.result(timeout=30)
    own_stack.kafka.kill()
    own_stack.kafka.restart()
    assert "survivor" in topics(own_stack)


def test_everything_listens_on_loopback_alone(own_stack: LocalStack) -> None:
    listening = {
        (server.name, connection.laddr.ip.removeprefix("::ffff:"), connection.laddr.port)
        for server in own_stack.servers
        for connection in psutil.Process(server.pid).net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert {address for _, address, _ in listening} == {"127.0.0.1"}
    assert {port for _, _, port in listening} == {
        own_stack.postgres.port,
        own_stack.etcd.port,
        own_stack.etcd.peer_port,
        own_stack.kafka.port,
        own_stack.kafka.controller_port,
    }


def test_a_wrong_password_is_refused(own_stack: LocalStack) -> None:
    right = own_stack.addresses.postgres_password
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(own_stack.addresses.postgres_dsn.replace(right, "wrong"))
    assert (own_stack.data_dir / "postgres-password").stat().st_mode & 0o777 == 0o600


def test_the_settings_of_tests_keep_the_meaning_of_a_commit(own_stack: LocalStack) -> None:
    with psycopg.connect(own_stack.addresses.postgres_dsn) as session:
        shown = dict(session.execute("select name, setting from pg_settings").fetchall())
    assert shown["synchronous_commit"] == "on"
    assert shown["fsync"] == "off"
    assert shown["max_connections"] == "300"


def test_versions_are_those_of_the_running_servers(own_stack: LocalStack) -> None:
    with psycopg.connect(own_stack.addresses.postgres_dsn) as session:
        row = session.execute("show server_version").fetchone()
    assert row is not None
    assert own_stack.server_versions["PostgreSQL"] == row[0]
    assert own_stack.server_versions["Kafka"] == "4.3.1"
    assert own_stack.server_versions["etcd"].startswith("3.")


def test_another_process_can_learn_the_addresses(own_stack: LocalStack) -> None:
    assert running(own_stack.data_dir) == own_stack.addresses
