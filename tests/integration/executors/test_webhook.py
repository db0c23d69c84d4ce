"""The webhook executor against a receiver that does everything wrong."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.clock import FakeClock
from tests.support.receiver import OK_ANSWER, Receiver, Request, answer
from tests.support.runs import SLOT, Outcomes, make_run

from tickrail.core.clock import SystemClock
from tickrail.core.execution import Outcome
from tickrail.executors.egress import EgressGuard
from tickrail.executors.egress_policy import EgressPolicy
from tickrail.executors.webhook import WebhookExecutor, WebhookSettings

LOOPBACK = EgressPolicy.parse("127.0.0.0/8 ::1")


def make(policy: EgressPolicy = LOOPBACK, **settings: Any) -> WebhookExecutor:
    clock = SystemClock()
    return WebhookExecutor(EgressGuard(policy, clock), clock, WebhookSettings(**settings))


@pytest.fixture
def executor() -> Iterator[WebhookExecutor]:
    executor = make(connect_timeout=3.0, body_timeout=0.5)
    yield executor
    executor.close(0)


def hook(url: str, **fields: object) -> dict[str, object]:
    return {"webhook": {"url": url, **fields}}


def call(executor: WebhookExecutor, url: str, timeout: float = 20.0, **fields: object) -> Outcome:
    outcomes = Outcomes()
    run = make_run(hook(url, **fields), timeout=timeout)
    executor.start(run, outcomes.done)
    return outcomes.of(run)


def test_a_call_carries_the_payload_and_what_names_it(executor: WebhookExecutor) -> None:
    with Receiver() as receiver:
        outcomes = Outcomes()
        run = make_run(
            hook(receiver.url("/in?a=1#no"), headers={"X-Team": " billing "}),
            trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        executor.start(run, outcomes.done)
        assert outcomes.of(run) == Outcome(
            ok=True, outcome="ok", code=200, message="HTTP 200", body="ok"
        )
        (request,) = receiver.requests
    assert (request.method, request.path, request.body) == ("POST", "/in?a=1", b'{"dry":false}')
    assert request.header("Host") == f"127.0.0.1:{receiver.port}"
    assert request.header("Content-Type") == "application/json"
    assert request.header("Idempotency-Key") == str(run.launch_id)
    assert request.header("Fencing-Token") == "4711"
    assert request.header("Tickrail-Job") == "nightly"
    assert request.header("Tickrail-Scheduled-At") == "2026-03-01T02:00:00Z"
    assert request.header("Tickrail-Attempt") == "2"
    assert request.header("traceparent") == run.trace
    assert request.header("X-Team") == "billing"


def test_no_payload_is_no_body(executor: WebhookExecutor) -> None:
    outcomes = Outcomes()
    with Receiver() as receiver:
        post = make_run(hook(receiver.url()), payload=None)
        get = make_run(hook(receiver.url(), method="GET"))
        for run in (post, get):
            executor.start(run, outcomes.done)
            assert outcomes.of(run).ok
        assert [r.body for r in receiver.requests] == [b"", b""]
        assert [r.header("content-length") for r in receiver.requests] == ["0", None]


def test_a_number_beyond_64_bits_reaches_the_receiver(executor: WebhookExecutor) -> None:
    outcomes = Outcomes()
    with Receiver() as receiver:
        run = make_run(hook(receiver.url()), payload={"n": 2**80})
        executor.start(run, outcomes.done)
        assert outcomes.of(run).ok
        assert receiver.requests[0].body == b'{"n":%d}' % 2**80


@pytest.mark.parametrize(
    ("status", "success", "outcome", "retryable"),
    [
        ("204 No Content", "2xx", "ok", True),
        ("404 Not Found", "2xx", "http_404", True),
        ("404 Not Found", [200, 404], "ok", True),
        ("200 OK", [204], "http_200", True),
        ("302 Found", "2xx", "http_302", True),
        ("302 Found", ["2xx", "3xx"], "ok", True),
        ("410 Gone", "2xx", "http_410", False),
        ("429 Too Many Requests", "2xx", "http_429", True),
        ("500 Oh", "2xx", "http_500", True),
        ("501 Not Implemented", "2xx", "http_501", False),
    ],
)
def test_statuses(
    executor: WebhookExecutor, status: str, success: object, outcome: str, retryable: bool
) -> None:
    with Receiver(answer(status, "Location: /other\r\n")) as receiver:
        found = call(executor, receiver.url(), success=success)
        assert len(receiver.requests) == 1, "a redirect was followed"
    assert (found.outcome, found.retryable, found.certain) == (outcome, retryable, True)
    assert found.ok == (outcome == "ok")
    assert found.code == int(status[:3])


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("Sun, 01 Mar 2026 02:05:00 GMT", 300.0),
        ("Sun, 01 Mar 2026 01:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("9" * 400, 10 * 365 * 86_400.0),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(value: str, seconds: float | None) -> None:
    clock = FakeClock(SLOT)
    guard = EgressGuard(LOOPBACK, clock)
    executor = WebhookExecutor(guard, clock)
    try:
        with Receiver(answer("503 Busy", f"Retry-After: {value}\r\n")) as receiver:
            assert call(executor, receiver.url()).retry_after == seconds
    finally:
        executor.close(0)


def test_the_body_kept_is_bounded_and_fit_for_a_text_column(executor: WebhookExecutor) -> None:
    body = b"a\x00b\xff" + b"x" * 1_000_000
    with Receiver(answer("500 Oh", "", body)) as receiver:
        found = call(executor, receiver.url())
    assert found.body.startswith("a\ufffdb\ufffdxxx")
    assert len(found.body.encode()) <= 4096


def test_connections_are_used_again(executor: WebhookExecutor) -> None:
    with Receiver() as receiver:
        for _ in range(5):
            assert call(executor, receiver.url()).ok
        assert receiver.connections == 1
        assert len(receiver.requests) == 5


def test_a_connection_that_the_server_closed_while_idle_is_not_used(
    executor: WebhookExecutor,
) -> None:
    closed = threading.Semaphore(0)

    def close_after(connection: socket.socket, _: Request) -> bool:
        connection.sendall(OK_ANSWER)
        connection.shutdown(socket.SHUT_RDWR)
        closed.release()
        return False

    with Receiver(close_after) as receiver:
        for _ in range(5):
            assert call(executor, receiver.url()).ok
            # A request that crosses the end of its connection is lost, as anywhere.
            assert closed.acquire(timeout=10)


# --- nothing was sent: certain -------------------------------------------------------------------


def test_refused_connection(executor: WebhookExecutor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    found = call(executor, f"http://127.0.0.1:{port}/")
    assert (found.outcome, found.certain, found.retryable) == ("connect_failed", True, True)
    assert "refused" in found.message.lower()


def test_a_name_without_an_address() -> None:
    def nothing(_host: str, _port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    clock = SystemClock()
    executor = WebhookExecutor(EgressGuard(LOOPBACK, clock, nothing), clock)
    found = call(executor, "http://nowhere.example/")
    executor.close(0)
    assert (found.outcome, found.certain, found.retryable) == ("dns_failed", True, True)


def test_a_refused_address_is_not_dialled() -> None:
    executor = make(EgressPolicy())
    with Receiver() as receiver:
        found = call(executor, receiver.url())
        assert receiver.connections == 0
    executor.close(0)
    assert (found.outcome, found.certain, found.retryable) == ("refused_egress", True, False)


def test_a_name_that_resolves_to_an_inside_address_too_is_not_dialled() -> None:
    clock = SystemClock()
    with Receiver() as receiver:
        guard = EgressGuard(EgressPolicy(), clock, lambda _h, _p: ["93.184.216.34", "127.0.0.1"])
        executor = WebhookExecutor(guard, clock)
        found = call(executor, f"http://rebind.example:{receiver.port}/")
        executor.close(0)
        assert receiver.connections == 0
    assert found.outcome == "refused_egress"


def test_the_checked_address_is_dialled_and_the_name_is_sent() -> None:
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])
    clock = SystemClock()
    with Receiver() as receiver:
        guard = EgressGuard(LOOPBACK, clock, lambda _h, _p: next(answers))
        executor = WebhookExecutor(guard, clock)
        assert call(executor, f"http://shop.example:{receiver.port}/").ok
        executor.close(0)
        assert receiver.requests[0].header("host") == f"shop.example:{receiver.port}"


def test_the_next_address_is_tried_when_one_refuses() -> None:
    clock = SystemClock()
    with Receiver() as receiver:
        guard = EgressGuard(LOOPBACK, clock, lambda _h, _p: ["127.0.0.9", "127.0.0.1"])
        executor = WebhookExecutor(guard, clock)
        assert call(executor, f"http://two.example:{receiver.port}/").ok
        executor.close(0)


def test_a_proxy_in_the_environment_is_not_used(
    executor: WebhookExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with Receiver() as receiver:
        assert call(executor, receiver.url()).ok


def test_a_connection_that_does_not_come_is_certain() -> None:
    # A full backlog: the system answers no further connection.
    executor = make(connect_timeout=0.3)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(8)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        found = call(executor, f"http://127.0.0.1:{port}/")
        late = call(executor, f"http://127.0.0.1:{port}/", timeout=0.1)
        for filler in fillers:
            filler.close()
    executor.close(0)
    assert (found.outcome, found.certain) == ("connect_timed_out", True)
    assert (late.outcome, late.certain) == ("timed_out", True)


@pytest.mark.parametrize(
    "target",
    [
        {"webhook": {"url": "ftp://example.org/"}},
        {"webhook": {}},
        {"command": {"argv": ["true"]}},
        {},
    ],
)
def test_a_target_that_is_none_ends_the_run(
    executor: WebhookExecutor, target: dict[str, object]
) -> None:
    outcomes = Outcomes()
    run = make_run(target)
    executor.start(run, outcomes.done)
    found = outcomes.of(run)
    assert (found.outcome, found.certain, found.retryable) == ("invalid_target", True, False)


# --- something was sent: uncertain ---------------------------------------------------------------


def hang(receiver: Receiver) -> Callable[[socket.socket, Request], bool]:
    def behave(_: socket.socket, __: Request) -> bool:
        receiver.released.wait(30)
        return False

    return behave


def test_no_answer_in_time_is_uncertain(executor: WebhookExecutor) -> None:
    with Receiver() as receiver:
        receiver.behave = hang(receiver)
        found = call(executor, receiver.url(), timeout=0.3)
    assert (found.ok, found.outcome, found.certain) == (False, "timed_out", False)


def test_a_connection_closed_before_the_answer_is_uncertain(executor: WebhookExecutor) -> None:
    with Receiver(lambda _c, _r: False) as receiver:
        found = call(executor, receiver.url())
    assert (found.outcome, found.certain) == ("bad_response", False)


def test_a_connection_reset_before_the_answer_is_uncertain(executor: WebhookExecutor) -> None:
    def reset(connection: socket.socket, _: Request) -> bool:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00" + bytes(4))
        return False

    with Receiver(reset) as receiver:
        found = call(executor, receiver.url())
    assert found.outcome in {"connection_lost", "bad_response"}
    assert not found.certain


def test_what_is_not_http_is_uncertain(executor: WebhookExecutor) -> None:
    def banner(connection: socket.socket, _: Request) -> bool:
        connection.sendall(b"220 mail.example ESMTP\r\n\r\n")
        return False

    with Receiver(banner) as receiver:
        found = call(executor, receiver.url())
    assert (found.outcome, found.certain) == ("bad_response", False)


def test_endless_headers_are_cut_off(executor: WebhookExecutor) -> None:
    def flood(connection: socket.socket, _: Request) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000)
        return False

    with Receiver(flood) as receiver:
        found = call(executor, receiver.url())
    assert (found.outcome, found.certain) == ("bad_response", False)


def test_the_status_decides_when_the_body_does_not_come(executor: WebhookExecutor) -> None:
    with Receiver() as receiver:

        def drip(connection: socket.socket, _: Request) -> bool:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nstart")
            receiver.released.wait(30)
            return False

        receiver.behave = drip
        found = call(executor, receiver.url())
    assert (found.ok, found.body) == (True, "start")


# --- stopping ------------------------------------------------------------------------------------


def test_cancel_closes_the_connection_and_is_uncertain(executor: WebhookExecutor) -> None:
    closed = threading.Event()
    with Receiver() as receiver:

        def wait_for_close(connection: socket.socket, _: Request) -> bool:
            if connection.recv(1) == b"":
                closed.set()
            return False

        receiver.behave = wait_for_close
        outcomes = Outcomes()
        run = make_run(hook(receiver.url()))
        executor.start(run, outcomes.done)
        receiver.wait_for(1)
        executor.cancel(run, "cancelled")
        found = outcomes.of(run)
        assert closed.wait(10)
    assert (found.outcome, found.certain, found.ok) == ("cancelled", False, False)
    executor.cancel(run, "cancelled")  # ended: ignored


def test_close_waits_for_what_ends_in_time_and_interrupts_the_rest() -> None:
    executor = make()
    outcomes = Outcomes()
    with Receiver() as receiver:

        def behave(connection: socket.socket, request: Request) -> bool:
            if request.path == "/soon":
                receiver.wait_for(2)
                connection.sendall(OK_ANSWER)
                return True
            receiver.released.wait(30)
            return False

        receiver.behave = behave
        soon, never = make_run(hook(receiver.url("/soon"))), make_run(hook(receiver.url("/never")))
        executor.start(soon, outcomes.done)
        executor.start(never, outcomes.done)
        receiver.wait_for(2)
        executor.close(0.5)
        assert outcomes.of(soon).ok
        assert (outcomes.of(never).outcome, outcomes.of(never).certain) == ("interrupted", False)
        late = make_run(hook(receiver.url()))
        executor.start(late, outcomes.done)
        assert (outcomes.of(late).outcome, outcomes.of(late).certain) == ("interrupted", True)
        executor.close(0)  # a second close does nothing


def test_many_open_calls(executor: WebhookExecutor) -> None:
    outcomes = Outcomes()
    with Receiver() as receiver:

        def together(connection: socket.socket, _: Request) -> bool:
            receiver.wait_for(200)
            connection.sendall(OK_ANSWER)
            return True

        receiver.behave = together
        runs = [make_run(hook(receiver.url())) for _ in range(200)]
        for run in runs:
            executor.start(run, outcomes.done)
        assert all(outcomes.of(run).ok for run in runs)
        assert receiver.connections == 200


def test_a_callback_that_fails_costs_no_other_run(executor: WebhookExecutor) -> None:
    def broken(_run: object, _outcome: object) -> None:
        raise RuntimeError("planted")

    with Receiver() as receiver:
        executor.start(make_run(hook(receiver.url())), broken)
        assert call(executor, receiver.url()).ok


# --- TLS -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", str(key), "-out", str(cert), "-subj", "/CN=hook.example"),
            *("-addext", "subjectAltName=DNS:hook.example"),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


def secure(certificate: tuple[Path, Path]) -> Receiver:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return Receiver(tls=context)


@pytest.mark.parametrize(
    ("trusted", "name", "ok"),
    [(True, "hook.example", True), (False, "hook.example", False), (True, "other.example", False)],
)
def test_certificate_and_name_are_verified(
    certificate: tuple[Path, Path], trusted: bool, name: str, ok: bool
) -> None:
    clock = SystemClock()
    guard = EgressGuard(LOOPBACK, clock, lambda _h, _p: ["127.0.0.1"])
    settings = WebhookSettings(ca_file=str(certificate[0]) if trusted else "")
    executor = WebhookExecutor(guard, clock, settings)
    with secure(certificate) as receiver:
        found = call(executor, f"https://{name}:{receiver.port}/")
        assert len(receiver.requests) == ok
    executor.close(0)
    assert found.ok == ok
    assert found.certain
    assert found.outcome == ("ok" if ok else "tls_failed")


def test_a_launch_date_beyond_the_clock_is_no_matter(executor: WebhookExecutor) -> None:
    outcomes = Outcomes()
    with Receiver() as receiver:
        run = make_run(hook(receiver.url()), scheduled_at=SLOT + timedelta(days=365 * 50))
        executor.start(run, outcomes.done)
        assert outcomes.of(run).ok
        assert receiver.requests[0].header("Tickrail-Scheduled-At") == "2076-02-17T02:00:00Z"
