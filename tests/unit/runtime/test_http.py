from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest

from tickrail.core.errors import SettingsError
from tickrail.runtime.http import StatusServer
from tickrail.runtime.metrics import PrometheusMetrics


class Case:
    def __init__(self) -> None:
        self.dead: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self.server = StatusServer(
            "127.0.0.1",
            0,
            health=lambda: self.dead,
            ready=lambda: self.missing,
            metrics=PrometheusMetrics(),
        )
        self.server.start()

    def get(self, path: str, method: str = "GET") -> httpx.Response:
        return httpx.request(method, f"http://127.0.0.1:{self.server.port}{path}", trust_env=False)


@pytest.fixture
def case() -> Iterator[Case]:
    made = Case()
    yield made
    made.server.stop()


def test_all_is_well(case: Case) -> None:
    for path in ("/healthz", "/readyz", "/readyz?verbose"):
        answer = case.get(path)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_what_is_missing_is_named(case: Case) -> None:
    case.missing["kafka"] = "no broker answers"
    case.dead["tick"] = "its thread has ended"
    ready, health = case.get("/readyz"), case.get("/healthz")
    assert (ready.status_code, ready.json()["problems"]) == (503, {"kafka": "no broker answers"})
    assert (health.status_code, health.json()["problems"]) == (503, case.dead)


def test_a_check_that_fails_is_not_ready() -> None:
    def broken() -> dict[str, str]:
        raise RuntimeError("no")

    server = StatusServer("127.0.0.1", 0, health=broken, ready=dict, metrics=PrometheusMetrics())
    try:
        status, body, _ = server.answer("/healthz", "")
        assert (status, b"RuntimeError" in body) == (503, True)
    finally:
        server.stop()


def test_metrics_are_served(case: Case) -> None:
    answer = case.get("/metrics")
    assert answer.status_code == 200
    assert "tickrail_partitions_owned 0.0" in answer.text
    assert answer.headers["content-type"].startswith("text/plain")


def test_head_has_no_body_and_other_paths_and_methods_are_refused(case: Case) -> None:
    head = case.get("/healthz", "HEAD")
    assert (head.status_code, head.content) == (200, b"")
    assert case.get("/x").status_code == 404
    assert case.get("/healthz", "POST").status_code == 501


def test_a_port_in_use_names_the_setting(case: Case) -> None:
    with pytest.raises(SettingsError) as e:
        StatusServer(
            "127.0.0.1",
            case.server.port,
            health=dict,
            ready=dict,
            metrics=PrometheusMetrics(),
        )
    [problem] = e.value.problems
    assert problem.pointer == "status_port (TICKRAIL_STATUS_PORT)"
    assert problem.message == f"port {case.server.port} of 127.0.0.1 is in use"
    assert problem.expected == "a free port, or 0 for any"


def test_an_address_of_another_machine_names_the_setting() -> None:
    with pytest.raises(SettingsError) as e:
        StatusServer("192.0.2.1", 0, health=dict, ready=dict, metrics=PrometheusMetrics())
    assert e.value.problems[0].pointer == "status_host (TICKRAIL_STATUS_HOST)"


def test_stopped_from_many_threads_and_never_started_again() -> None:
    case = Case()
    threads = [threading.Thread(target=case.server.stop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    case.server.start()
    with pytest.raises(httpx.ConnectError):
        case.get("/healthz")
