"""TLS, client certificates, users and passwords on a real etcd."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from tests.integration.coord.conftest import DATA, Connect
from tests.support.etcd_server import EtcdServer
from tests.support.until import pause, until

from tickrail.coord.coordinator import EtcdCoordinator
from tickrail.coord.stubs import message
from tickrail.core.errors import SettingsError, SetupError, UnavailableError
from tickrail.core.ids import Partition
from tickrail.local.ports import any_free

pytestmark = pytest.mark.integration
CA = str(DATA / "ca.pem")
SERVER = ("--cert-file", str(DATA / "server.pem"), "--key-file", str(DATA / "server.key"))
CLIENT = {"cert_file": str(DATA / "client.pem"), "key_file": str(DATA / "client.key")}
TOKEN_SECONDS = 5

Serve = Callable[..., EtcdServer]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    made: list[EtcdServer] = []

    def one(*options: str) -> EtcdServer:
        server = EtcdServer(tmp_path / "etcd", scheme="https", options=(*SERVER, *options)).start()
        made.append(server)
        return server

    yield one
    for server in made:
        server.kill()


def ready(coordinator: EtcdCoordinator) -> None:
    def answers() -> bool:
        try:
            coordinator.snapshot()
        except UnavailableError:
            return False
        return True

    until(answers)


def test_tls(serve: Serve, connect: Connect) -> None:
    endpoint = serve().endpoint
    coordinator = connect(endpoint, ca_file=CA)
    ready(coordinator)
    assert coordinator.claim(Partition(0), "a-1", coordinator.grant(30).id)
    with pytest.raises(UnavailableError, match=r"(?i)certificate|handshake"):
        connect(f"https://{endpoint}", ca_file=str(DATA / "other-ca.pem")).snapshot()
    with pytest.raises(UnavailableError, match="does not answer"):
        connect(endpoint).snapshot()


def test_client_certificates(serve: Serve, connect: Connect) -> None:
    server = serve("--client-cert-auth", "--trusted-ca-file", CA)
    ready(connect(server.endpoint, ca_file=CA, **CLIENT))
    with pytest.raises(UnavailableError, match="does not answer"):
        connect(server.endpoint, ca_file=CA).snapshot()


def test_files_that_cannot_be_read_are_named(connect: Connect, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"ca_file .*missing.pem: cannot be read"):
        connect("127.0.0.1:1", ca_file=str(tmp_path / "missing.pem"))
    odd = tmp_path / "odd.pem"
    odd.write_text("not a certificate")
    with pytest.raises(SettingsError, match=r"ca_file .*odd.pem: not a PEM file"):
        connect("127.0.0.1:1", ca_file=str(odd))


def test_the_next_server_is_tried_over_tls_too(serve: Serve, connect: Connect) -> None:
    server = serve("--client-cert-auth", "--trusted-ca-file", CA)
    coordinator = connect(
        f"https://127.0.0.1:{any_free()}", f"https://{server.endpoint}", ca_file=CA, **CLIENT
    )
    coordinator._client._current = 0
    ready(coordinator)
    assert coordinator._client._current == 1
    assert coordinator.grant(30).id


def test_users_and_passwords(serve: Serve, connect: Connect, prefix: str) -> None:
    server = serve("--auth-token-ttl", str(TOKEN_SECONDS))
    admin = connect(server.endpoint, ca_file=CA)
    ready(admin)
    _turn_authentication_on(admin, prefix)

    def user() -> EtcdCoordinator:
        return connect(server.endpoint, ca_file=CA, username="tick", password="rail")

    renewer, caller, watcher = user(), user(), user()
    woken = threading.Event()
    watcher.watch(woken.set)
    watch = watcher._watch
    assert watch is not None
    until(lambda: watch.connections == 1)
    lease = caller.grant(60).id
    key = caller.claim(Partition(0), "a-1", lease)
    until(lambda: watch._next_revision == key.create_revision + 1)
    tokens = caller._client._token, watcher._client._token

    # An idle watch keeps no token alive, nor do renewals on each etcd: some do not look at it.
    for _ in range(2 * TOKEN_SECONDS + 4):
        assert renewer.renew(lease) > 0
        pause(0.5)
    for token in tokens:
        assert token is not None
        with pytest.raises(grpc.RpcError, match="invalid auth token"):
            admin._client._call(0, "KV", "Range", 2.0)(
                message("RangeRequest")(key=prefix.encode()), metadata=[("token", token)], timeout=5
            )

    # A call and a renewal find out and get a new one, so does a watch that begins again.
    assert renewer.snapshot().owners[Partition(0)] == key
    assert caller.renew(lease) > 0
    assert caller.snapshot().owners[Partition(0)] == key
    assert caller._client._token != tokens[0]
    assert watcher._client._token == tokens[1]
    watch.reconnect()
    until(lambda: watch.connections >= 2 and watcher._client._token != tokens[1])
    woken.clear()
    caller.release(Partition(0), key.create_revision)
    assert woken.wait(5)

    with pytest.raises(SetupError, match="authentication failed"):
        connect(server.endpoint, ca_file=CA, username="tick", password="wrong").snapshot()
    with pytest.raises(SetupError, match="user name is empty"):
        connect(server.endpoint, ca_file=CA).snapshot()


def _turn_authentication_on(admin: EtcdCoordinator, prefix: str) -> None:
    def call(method: str, kind: str, /, **fields: object) -> None:
        admin._client.unary("Auth", method, message(kind)(**fields))

    key = prefix.encode()
    permission = message("Permission")(permType=2, key=key, range_end=key[:-1] + b"0")
    call("UserAdd", "AuthUserAddRequest", name="root", password="root")
    call("UserGrantRole", "AuthUserGrantRoleRequest", user="root", role="root")
    call("RoleAdd", "AuthRoleAddRequest", name="tickrail")
    call("RoleGrantPermission", "AuthRoleGrantPermissionRequest", name="tickrail", perm=permission)
    call("UserAdd", "AuthUserAddRequest", name="tick", password="rail")
    call("UserGrantRole", "AuthUserGrantRoleRequest", user="tick", role="tickrail")
    call("AuthEnable", "AuthEnableRequest")


def test_the_version_is_supported(shared_etcd: EtcdServer, connect: Connect) -> None:
    assert connect(shared_etcd.endpoint).version().startswith("3.")
