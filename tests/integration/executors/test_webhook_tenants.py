"""The webhook executor with what is a tenant's: secrets, certificates, receivers that fail."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from standardwebhooks import Webhook as Verifier
from tests.support.clock import FakeClock
from tests.support.receiver import OK_ANSWER, Receiver, Request, answer
from tests.support.runs import Outcomes, make_run
from tests.support.until import until

from tickrail.core.clock import Clock, SystemClock
from tickrail.core.errors import SetupError, UnavailableError
from tickrail.core.execution import Outcome
from tickrail.executors.breaker import BreakerSettings
from tickrail.executors.egress import EgressGuard
from tickrail.executors.egress_policy import EgressPolicy
from tickrail.executors.tenants import NoFacts
from tickrail.executors.webhook import WebhookExecutor, WebhookSettings
from tickrail.runtime.metrics import PrometheusMetrics

LOOPBACK = EgressPolicy.parse("127.0.0.0/8")
HUSH = "hush-hush-7f3a"
RING = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
REFERENCE = {"X-Key": {"secret": "token"}}


class Facts(NoFacts):
    """Secrets in memory."""

    def __init__(self, **values: str) -> None:
        self.values = {name: value.encode() for name, value in values.items()}
        self.error: Exception | None = None
        self.lists: Mapping[str, object] | None = None
        self.read = 0

    def egress(self, tenant: UUID) -> Mapping[str, object] | None:
        del tenant
        return self.lists

    def get(self, tenant: UUID, names: Sequence[str]) -> Mapping[str, bytes]:
        del tenant
        self.read += 1
        if self.error is not None:
            raise self.error
        return {n: self.values[n] for n in names if n in self.values}


@contextmanager
def executing(
    facts: Facts | None = None, clock: Clock | None = None, **settings: Any
) -> Iterator[WebhookExecutor]:
    clock = clock or SystemClock()
    guard = EgressGuard(LOOPBACK, clock, lambda _h, _p: ["127.0.0.1"])
    how = WebhookSettings(**{"body_timeout": 0.5, **settings})
    executor = WebhookExecutor(guard, clock, how, facts=facts, metrics=PrometheusMetrics())
    try:
        yield executor
    finally:
        executor.close(0)


def call(executor: WebhookExecutor, url: str, tenant: int = 1, **fields: Any) -> Outcome:
    outcomes = Outcomes()
    run = make_run({"webhook": {"url": url, **fields}}, tenant_id=UUID(int=tenant))
    executor.start(run, outcomes.done)
    return outcomes.of(run)


# --- secrets -------------------------------------------------------------------------------------


def echo(connection: socket.socket, request: Request) -> bool:
    """Answers with what it was sent, as a debugging receiver does."""
    body = json.dumps({"headers": request.headers}).encode()
    connection.sendall(b"HTTP/1.1 500 Oh\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    return True


def test_a_secret_is_sent_and_an_echo_of_it_is_masked() -> None:
    with executing(Facts(token=HUSH)) as executor, Receiver(echo) as receiver:
        found = call(executor, receiver.url(), headers=REFERENCE)
        (request,) = receiver.requests
        assert request.header("X-Key") == HUSH
        assert '["X-Key", "***"]' in found.body
        assert HUSH not in repr(found)


def test_an_echo_that_is_cut_tells_no_part_of_a_secret() -> None:
    """The value lies across the end of what is kept, at each of its characters."""
    secret = "0123456789" * 20

    def padded(connection: socket.socket, request: Request) -> bool:
        size = 4096 - int(request.path.partition("?")[2])
        body = b"x" * size + secret.encode() + b"y" * 5000
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        return True

    with executing(Facts(token=secret)) as executor, Receiver(padded) as receiver:
        for cut in (1, 5, 100, 199, 200, 300):
            found = call(executor, receiver.url(f"/?{cut}"), headers=REFERENCE)
            assert "0123" not in found.body
            assert len(found.body) <= 4096


def test_a_secret_that_is_not_there() -> None:
    with executing(Facts(other="x")) as executor, Receiver() as receiver:
        found = call(executor, receiver.url(), headers=REFERENCE)
        assert receiver.requests == []
    assert (found.outcome, found.certain, found.retryable) == ("secret_missing", True, False)
    assert "'token'" in found.message


@pytest.mark.parametrize(
    ("error", "outcome", "snooze"),
    [
        (UnavailableError("away"), "unavailable", 2.0),
        (SetupError("no key"), "secret_unreadable", None),
    ],
)
def test_secrets_that_cannot_be_read(error: Exception, outcome: str, snooze: float | None) -> None:
    facts = Facts(token=HUSH)
    facts.error = error
    with executing(facts) as executor, Receiver() as receiver:
        found = call(executor, receiver.url(), headers=REFERENCE)
        assert receiver.requests == []
        assert (found.outcome, found.certain, found.retryable) == (outcome, True, True)
        assert found.snooze == snooze
        facts.error = None
        assert call(executor, receiver.url(), headers=REFERENCE).ok


def test_values_are_kept_for_five_seconds() -> None:
    facts, clock = Facts(token="old"), FakeClock()
    with executing(facts, clock) as executor, Receiver() as receiver:
        call(executor, receiver.url(), headers=REFERENCE)
        facts.values["token"] = b"new"
        clock.advance(4.9)
        call(executor, receiver.url(), headers=REFERENCE)
        assert facts.read == 1
        clock.advance(0.2)
        call(executor, receiver.url(), headers=REFERENCE)
        sent = [r.header("X-Key") for r in receiver.requests]
    assert sent == ["old", "old", "new"]


def test_a_change_of_a_tenant_s_lists_counts_within_five_seconds() -> None:
    clock, facts = FakeClock(), Facts()
    with executing(facts, clock) as executor, Receiver() as receiver:
        assert call(executor, receiver.url()).ok
        facts.lists = {"deny": ["127.0.0.0/8"]}
        clock.advance(4.9)
        assert call(executor, receiver.url()).ok
        clock.advance(0.2)
        assert call(executor, receiver.url()).outcome == "refused_egress"
        facts.lists = None
        clock.advance(5.1)
        assert call(executor, receiver.url()).ok


def test_many_calls_at_once_read_a_secret_once() -> None:
    facts, outcomes = Facts(token=HUSH), Outcomes()
    with executing(facts) as executor, Receiver() as receiver:
        target = {"webhook": {"url": receiver.url(), "headers": REFERENCE}}
        runs = [make_run(target) for _ in range(100)]
        for run in runs:
            executor.start(run, outcomes.done)
        assert all(outcomes.of(run).ok for run in runs)
    assert facts.read == 1


def test_both_secrets_of_a_rotation_verify() -> None:
    now = datetime.now(tz=UTC)  # noqa: TID251 - the other implementation reads the clock itself
    facts = Facts(new=RING, old="raw secret text")
    signature = {"secrets": [{"secret": "new"}, {"secret": "old"}]}
    with executing(facts) as executor, Receiver() as receiver:
        assert call(executor, receiver.url(), signature=signature, body={"a": "ü"}).ok
        (request,) = receiver.requests
    headers = {n: v for n, v in request.headers if n.lower().startswith("webhook-")}
    assert headers["webhook-id"] == request.header("Idempotency-Key")
    assert abs(int(headers["webhook-timestamp"]) - now.timestamp()) < 60
    for secret in (RING, b"raw secret text"):
        assert Verifier(secret).verify(request.body, headers) == {"a": "ü"}


def test_an_internal_error_tells_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError(HUSH)

    monkeypatch.setattr("tickrail.executors.webhook.outgoing", broken)
    with executing(Facts(token=HUSH)) as executor:
        found = call(executor, "http://hook.example/", headers=REFERENCE)
    assert (found.outcome, found.certain) == ("internal", True)
    assert HUSH not in repr(found)


# --- redirects -----------------------------------------------------------------------------------


def test_a_redirect_to_another_origin_gets_no_secrets() -> None:
    with executing(Facts(token=HUSH)) as executor, Receiver() as other:
        away = answer("307 Elsewhere", f"Location: http://other.example:{other.port}/x\r\n")
        with Receiver(away) as receiver:
            assert call(executor, receiver.url(), headers=REFERENCE, redirects=1).ok
            assert receiver.requests[0].header("X-Key") == HUSH
    (request,) = other.requests
    assert (request.method, request.path, request.body) == ("POST", "/x", b'{"dry":false}')
    assert request.header("X-Key") is None


def test_redirects_end() -> None:
    with executing() as executor, Receiver(answer("302 Again", "Location: /\r\n")) as receiver:
        found = call(executor, receiver.url(), redirects=3)
        assert [r.method for r in receiver.requests] == ["POST", "GET", "GET", "GET"]
        assert (found.outcome, found.certain) == ("too_many_redirects", True)
        assert call(executor, receiver.url(), redirects=3, success=["3xx"]).ok
        # Without a place to go, the answer is what it is.
    with executing() as executor, Receiver(answer("302 Nowhere")) as receiver:
        assert call(executor, receiver.url(), redirects=3).outcome == "http_302"


def test_what_goes_wrong_before_the_second_request_is_certain() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    gone = answer("307 Elsewhere", f"Location: http://127.0.0.1:{port}/\r\n")
    with executing() as executor, Receiver(gone) as receiver:
        found = call(executor, receiver.url(), redirects=1)
    assert (found.outcome, found.certain) == ("connect_failed", True)


# --- certificates --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two identities that vouch for themselves: `hook` and `client`."""
    folder = tmp_path_factory.mktemp("pem")
    found: dict[str, Path] = {}
    for name in ("hook", "client"):
        found[name], found[f"{name}_key"] = folder / f"{name}.pem", folder / f"{name}.key"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
                *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
                *("-keyout", str(found[f"{name}_key"]), "-out", str(found[name])),
                *("-subj", f"/CN={name}.example", "-addext", f"subjectAltName=DNS:{name}.example"),
            ],
            check=True,
            capture_output=True,
        )
    return found


def test_own_authorities_and_a_client_certificate(pem: dict[str, Path]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem["hook"], pem["hook_key"])
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(pem["client"])
    facts = Facts(**{name: path.read_text() for name, path in pem.items()})
    ca = {"ca": {"secret": "hook"}}
    shown = {"client_certificate": {"secret": "client"}, "client_key": {"secret": "client_key"}}
    with executing(facts) as executor, Receiver(tls=context) as receiver:
        url = f"https://hook.example:{receiver.port}/"
        for _ in range(2):
            assert call(executor, url, tls={**ca, **shown}).ok
        assert receiver.connections == 1
        assert not call(executor, url, tls=ca).ok
        assert call(executor, url, tls=shown).outcome == "tls_failed"
        assert call(executor, url).outcome == "tls_failed"
        # Idle connections that showed a certificate are not for calls that have none to show.
        assert len(receiver.requests) == 2
        mixed = {"client_certificate": {"secret": "hook"}, "client_key": {"secret": "client_key"}}
        found = call(executor, url, tls={**ca, **mixed})
        assert (found.outcome, found.retryable) == ("invalid_target", False)
        assert "client_certificate" in found.message
        key_as_ca = call(executor, url, tls={"ca": {"secret": "hook_key"}})
        assert key_as_ca.outcome == "invalid_target"
        assert "BEGIN" not in key_as_ca.message


def test_a_redirect_to_another_origin_is_shown_no_client_certificate(pem: dict[str, Path]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem["hook"], pem["hook_key"])
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(pem["client"])
    showed: list[bool] = []

    def look(connection: socket.socket, request: Request) -> bool:
        assert isinstance(connection, ssl.SSLSocket)
        showed.append(bool(connection.getpeercert()))
        port = receiver.port if request.path == "/here" else other.port
        head = f"HTTP/1.1 307 On\r\nLocation: https://hook.example:{port}/x\r\n"
        connection.sendall(
            OK_ANSWER if request.path == "/x" else f"{head}Content-Length: 0\r\n\r\n".encode()
        )
        return True

    facts = Facts(**{name: path.read_text() for name, path in pem.items()})
    tls = {"client_certificate": {"secret": "client"}, "client_key": {"secret": "client_key"}}
    with (
        executing(facts, ca_file=str(pem["hook"])) as executor,
        Receiver(look, tls=context) as receiver,
        Receiver(look, tls=context) as other,
    ):
        url = f"https://hook.example:{receiver.port}"
        assert call(executor, f"{url}/here", tls=tls, redirects=1).ok
        assert showed == [True, True]
        assert call(executor, f"{url}/away", tls=tls, redirects=1).ok
        assert showed == [True, True, True, False]
        assert len(other.requests) == 1


# --- receivers that fail -------------------------------------------------------------------------


def test_a_receiver_that_fails_is_left_alone_and_tried_again() -> None:
    clock = FakeClock()
    breaker = BreakerSettings(failures=3, open_seconds=10)
    with executing(clock=clock, breaker=breaker) as executor, Receiver(answer("503 No")) as bad:
        for _ in range(3):
            assert call(executor, bad.url()).outcome == "http_503"
        left_alone = call(executor, bad.url("/another/path"))
        assert left_alone.outcome == "circuit_open"
        assert (left_alone.certain, left_alone.retryable, left_alone.snooze) == (True, True, 10)
        assert len(bad.requests) == 3
        # Another tenant's circuit is another one.
        assert call(executor, bad.url(), tenant=2).outcome == "http_503"
        clock.advance(10)
        bad.behave = None
        assert call(executor, bad.url()).ok
        assert call(executor, bad.url()).ok


def test_answers_below_500_do_not_open_a_circuit() -> None:
    breaker = BreakerSettings(failures=3)
    with executing(breaker=breaker) as executor, Receiver(answer("429 Slow")) as receiver:
        outcomes = {call(executor, receiver.url()).outcome for _ in range(10)}
    assert outcomes == {"http_429"}


def test_refused_connections_open_a_circuit_and_refused_egress_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with executing(breaker=BreakerSettings(failures=2)) as executor:
        found = [call(executor, f"http://127.0.0.1:{port}/").outcome for _ in range(3)]
        assert found == ["connect_failed", "connect_failed", "circuit_open"]
        inside = {call(executor, "http://10.0.0.1/").outcome for _ in range(5)}
        assert inside == {"refused_egress"}


def test_an_origin_gets_so_many_calls_at_a_time() -> None:
    together: list[int] = []
    lock = threading.Lock()
    now = 0

    def slow(connection: socket.socket, _: Request) -> bool:
        nonlocal now
        with lock:
            now += 1
            together.append(now)
        threading.Event().wait(0.02)
        with lock:
            now -= 1
        connection.sendall(OK_ANSWER)
        return True

    outcomes = Outcomes()
    with executing(per_origin=3) as executor, Receiver(slow) as receiver:
        runs = [make_run({"webhook": {"url": receiver.url()}}) for _ in range(30)]
        for run in runs:
            executor.start(run, outcomes.done)
        assert all(outcomes.of(run).ok for run in runs)
    assert max(together) == 3


def test_a_call_that_gets_no_turn_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tickrail.executors.connections.BUSY_WAIT", 0.05)
    outcomes = Outcomes()
    with executing(per_origin=1) as executor, Receiver() as receiver:

        def late(connection: socket.socket, _: Request) -> bool:
            receiver.released.wait(30)
            connection.sendall(OK_ANSWER)
            return True

        receiver.behave = late
        first = make_run({"webhook": {"url": receiver.url()}})
        executor.start(first, outcomes.done)
        receiver.wait_for(1)
        busy = call(executor, receiver.url())
        assert (busy.outcome, busy.certain, busy.snooze) == ("origin_busy", True, 2.0)
        receiver.released.set()
        until(lambda: len(outcomes) == 1)


def test_names_of_one_tenant_that_are_not_answered_hold_up_no_other() -> None:
    released, asked = threading.Event(), list[str]()

    def resolve(host: str, _: int) -> list[str]:
        asked.append(host)
        if host.startswith("dead"):
            released.wait(60)
            raise OSError("no answer")
        return ["127.0.0.1"]

    clock = SystemClock()
    executor = WebhookExecutor(EgressGuard(LOOPBACK, clock, resolve), clock, facts=Facts())
    outcomes = Outcomes()
    with Receiver(answer("200 OK")) as receiver:
        dead = [
            make_run({"webhook": {"url": f"http://dead{n}.example"}}, tenant_id=UUID(int=9))
            for n in range(200)
        ]
        for run in dead:
            executor.start(run, outcomes.done)
        until(lambda: len(asked) >= 4)
        url = receiver.url().replace("127.0.0.1", "alive.example")
        assert call(executor, url).outcome == "ok"
        assert len(asked) == 5, "four of one tenant at a time"
        for run in dead:
            executor.cancel(run, "cancelled")
        assert {outcomes.of(run).outcome for run in dead} == {"cancelled"}
        # What nobody waits for any more is not asked for.
        released.set()
        assert call(executor, url, tenant=9).outcome == "ok"
        assert [host for host in asked if host != "alive.example"] == asked[:4]
    executor.close(0)
