from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.support.clock import FakeClock
from tests.support.stub_api import Answer, Asked, StubApi, problem

from tickrail.core.clock import SystemClock
from tickrail.sdk.client import ApiError, ApiProblem, Client, UnreachableError


@pytest.fixture
def api() -> Iterator[StubApi]:
    made = StubApi()
    yield made
    made.close()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(api: StubApi, pauses: list[float]) -> Iterator[Client]:
    with Client(api.url + "/", "trk_a_b", 5, wait=pauses.append) as made:
        yield made


def test_a_call_carries_the_key_and_the_document(api: StubApi, client: Client) -> None:
    api.on("POST", "/v1/jobs", Answer(201, {"id": "1"}))
    made = client.request("POST", "/v1/jobs", json={"name": "ä"}, params={"x": [1, 2]})
    [asked] = api.asked
    assert made == {"id": "1"}
    assert asked.body == {"name": "ä"}
    assert asked.query == {"x": ["1", "2"]}
    assert asked.headers["authorization"] == "Bearer trk_a_b"
    assert len(asked.headers["idempotency-key"]) == 36


def test_no_content_is_none(api: StubApi, client: Client) -> None:
    api.on("DELETE", "/v1/jobs/1", Answer(204))
    assert client.request("DELETE", "/v1/jobs/1") is None
    assert "idempotency-key" not in api.asked[0].headers


def test_pages_follow_the_cursor(api: StubApi, client: Client) -> None:
    api.on(
        "GET",
        "/v1/jobs",
        Answer(body={"items": [{"n": 1}, {"n": 2}], "next_cursor": "c"}),
        Answer(body={"items": [{"n": 3}], "next_cursor": None}),
    )
    assert [item["n"] for item in client.pages("/v1/jobs", {"state": "active"})] == [1, 2, 3]
    assert [dict(a.query) for a in api.asked] == [
        {"state": ["active"]},
        {"state": ["active"], "cursor": ["c"]},
    ]


def test_a_problem_document_is_an_error_with_its_parts(api: StubApi, client: Client) -> None:
    wrong = {"pointer": "/schedule/cron", "message": "hour is 25", "expected": "0 to 23"}
    api.on("POST", "/v1/jobs", problem(422, "invalid", "The job is not valid.", wrong))
    with pytest.raises(ApiError) as e:
        client.request("POST", "/v1/jobs", json={})
    assert (e.value.status, e.value.code, e.value.request_id) == (422, "invalid", "req-1")
    assert e.value.problems == (ApiProblem("/schedule/cron", "hour is 25", "0 to 23"),)
    assert str(e.value) == "The job is not valid: /schedule/cron: hour is 25 (0 to 23)"


def test_an_error_of_something_else_is_shown_in_short(api: StubApi, client: Client) -> None:
    api.on("GET", "/v1/jobs", Answer(502, text="<h1>Bad\n gateway</h1>" + "x" * 500))
    with pytest.raises(ApiError) as e:
        client.request("GET", "/v1/jobs")
    assert e.value.detail.startswith("HTTP 502: <h1>Bad gateway</h1>")
    assert len(e.value.detail) < 230


def test_what_is_not_the_api_is_said_so(api: StubApi, client: Client) -> None:
    api.on("GET", "/v1/jobs", Answer(text="<html>", headers={"Content-Type": "text/html"}))
    with pytest.raises(UnreachableError, match=r"is not Tickrail's API: no JSON but text/html"):
        client.request("GET", "/v1/jobs")


def test_busy_answers_are_tried_again_with_the_same_key(
    api: StubApi, client: Client, pauses: list[float]
) -> None:
    api.on(
        "POST",
        "/v1/jobs",
        Answer(429, {"code": "rate_limited"}, {"Retry-After": "7"}),
        Answer(503, {"code": "unavailable"}),
        Answer(409, {"code": "in_progress"}, {"Retry-After": "1"}),
        Answer(201, {"id": "1"}),
    )
    assert client.request("POST", "/v1/jobs", json={"a": 1}) == {"id": "1"}
    assert len({asked.headers["idempotency-key"] for asked in api.asked}) == 1
    assert all(asked.body == {"a": 1} for asked in api.asked)
    assert pauses[0] == 7
    assert 0.2 <= pauses[1] <= 0.4
    assert pauses[2] == 1


def test_it_gives_up_after_four_tries_and_at_once_when_asked_to_wait_long(
    api: StubApi, client: Client, pauses: list[float]
) -> None:
    api.on("GET", "/v1/jobs", problem(503, "unavailable", "PostgreSQL is away."))
    with pytest.raises(ApiError, match="PostgreSQL is away"):
        client.request("GET", "/v1/jobs")
    assert (len(api.asked), len(pauses)) == (4, 3)
    api.on("GET", "/v1/jobs", Answer(429, {"code": "rate_limited"}, {"Retry-After": "3600"}))
    with pytest.raises(ApiError):
        client.request("GET", "/v1/jobs")
    assert len(api.asked) == 5


def test_a_call_that_somebody_waits_for_is_given_up_in_time(api: StubApi) -> None:
    """An etcd that is frozen costs each try two seconds, and the API asks to wait one more."""
    clock = FakeClock()

    def slow(_: Asked) -> Answer:
        clock.advance(2)
        return Answer(503, {"code": "unavailable", "detail": "etcd is away"}, {"Retry-After": "1"})

    api.on("GET", "/v1/jobs", slow)
    began = clock.monotonic()
    with Client(api.url, wait=clock.advance, clock=clock) as client:
        with pytest.raises(ApiError, match="etcd is away"):
            client.request("GET", "/v1/jobs", within=6)
        assert (len(api.asked), clock.monotonic() - began) == (2, 5)
        with pytest.raises(ApiError, match="etcd is away"):
            client.request("GET", "/v1/jobs")
    assert len(api.asked) == 6


def test_an_answer_that_does_not_come_is_waited_for_so_long_and_not_four_times(
    api: StubApi,
) -> None:
    """As where PostgreSQL is frozen behind the API."""
    free = threading.Event()

    def never(_: Asked) -> Answer:
        free.wait(30)
        return Answer()

    api.on("GET", "/v1/jobs", never)
    clock = SystemClock()
    began = clock.monotonic()
    with Client(api.url) as client, pytest.raises(UnreachableError, match="no answer in time"):
        list(client.pages("/v1/jobs", within=0.3))
    assert len(api.asked) == 1
    why = "etcd is away"
    api.on("GET", "/v1/jobs", problem(503, "unavailable", why), never)
    with Client(api.url, wait=lambda _: None) as client, pytest.raises(ApiError, match=why):
        client.request("GET", "/v1/jobs", within=1)
    assert clock.monotonic() - began < 10
    free.set()


def test_a_plain_conflict_is_not_tried_again(api: StubApi, client: Client) -> None:
    api.on("POST", "/v1/jobs", problem(409, "name_taken", "taken"))
    with pytest.raises(ApiError):
        client.request("POST", "/v1/jobs")
    assert len(api.asked) == 1


def test_a_lost_connection_is_tried_again(api: StubApi, pauses: list[float]) -> None:
    api.close()
    with (
        Client(api.url, wait=pauses.append) as client,
        pytest.raises(UnreachableError, match=r"127.0.0.1:\d+ does not answer: .*refused"),
    ):
        client.request("GET", "/v1/jobs")
    assert len(pauses) == 3


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "http://"])
def test_an_address_that_is_none_is_said_so(url: str, pauses: list[float]) -> None:
    with Client(url, wait=pauses.append) as client, pytest.raises(UnreachableError):
        client.request("GET", "/v1/jobs")


def test_no_proxy_of_the_environment_is_used(
    api: StubApi, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    api.on("GET", "/v1/jobs", Answer(body={"items": []}))
    with Client(api.url) as other:
        assert other.request("GET", "/v1/jobs") == client.request("GET", "/v1/jobs")
