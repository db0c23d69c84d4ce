"""Both clients do the same: what goes over the wire, and what comes of it."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.clock import FakeClock
from tests.support.colours import COLOURS, Colour, colour_of
from tests.support.stub_api import Answer, Asked, StubApi, problem

from tickrail.sdk.client import (
    AsyncClient,
    Client,
    MissingKeyError,
    NameTakenError,
    NotFoundError,
    UnavailableError,
    UnexpectedAnswerError,
    UnreachableError,
)
from tickrail.sdk.client.models import Operation, Secret
from tickrail_api.schemas.job import JOB_ANSWER
from tickrail_api.schemas.operation import OPERATION

WEBHOOK = {"webhook": {"url": "https://example.org/hook"}}
SECRET = {"name": "a", "updated_at": "2026-03-01T12:00:00Z"}


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> Iterator[Colour]:
    with colour_of(request.param) as made:
        yield made


@pytest.fixture
def api() -> Iterator[StubApi]:
    made = StubApi()
    yield made
    made.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def client(colour: Colour, api: StubApi, clock: FakeClock) -> Any:
    return colour.client(api.url + "/", "trk_a_b", wait=clock.advance, clock=clock)


def test_a_call_that_changes_is_sent_again_with_the_same_key(
    colour: Colour, api: StubApi, client: Any
) -> None:
    busy = Answer(503, {"code": "unavailable"}, {"Retry-After": "1"})
    api.on("POST", "/v1/jobs", busy, Answer(429, {"code": "rate_limited"}), Answer(201, JOB_ANSWER))
    job = colour.do(client.jobs.create(name="x", target=WEBHOOK, start_deadline=None))
    assert job.name == "nightly-invoice-run"
    assert job.lint[0].code == "in_gap"
    assert len(api.asked) == 3
    assert len({a.headers["idempotency-key"] for a in api.asked}) == 1
    assert [a.body for a in api.asked] == [
        {"name": "x", "target": WEBHOOK, "start_deadline": None}
    ] * 3
    assert {a.headers["authorization"] for a in api.asked} == {"Bearer trk_a_b"}
    assert all(a.headers["user-agent"].startswith("tickrail-client/") for a in api.asked)
    other = Answer(201, JOB_ANSWER)
    api.on("POST", "/v1/jobs", other)
    colour.do(client.jobs.create(name="x", target=WEBHOOK))
    colour.do(client.jobs.create(name="x", target=WEBHOOK, idempotency_key="mine"))
    keys = [a.headers["idempotency-key"] for a in api.asked[2:]]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"


def test_versions_are_demanded_in_headers(colour: Colour, api: StubApi, client: Any) -> None:
    api.on("PUT", "/v1/jobs/name:x", Answer(200, JOB_ANSWER))
    api.on("DELETE", "/v1/jobs/name:x", Answer(204))
    colour.do(client.jobs.put("name:x", name="x", target=WEBHOOK, if_match=7, dry_run=True))
    colour.do(client.jobs.put("name:x", name="x", target=WEBHOOK, create_only=True))
    assert colour.do(client.jobs.delete("name:x", if_match=8)) is None
    first, second, third = api.asked
    assert (first.headers["if-match"], first.query) == ('"7"', {"dry_run": ["true"]})
    assert (second.headers["if-none-match"], second.query) == ("*", {})
    assert third.headers["if-match"] == '"8"'


def test_lists_are_read_page_by_page(colour: Colour, api: StubApi, client: Any) -> None:
    def pages() -> None:
        full = {"items": [SECRET, {**SECRET, "name": "b"}], "next_cursor": "c"}
        last = {"items": [{**SECRET, "name": "c"}], "next_cursor": None}
        api.on("GET", "/v1/secrets", Answer(body=full), Answer(body=last))

    pages()
    found = colour.every(client.secrets.list(limit=2))
    assert [one.name for one in found] == ["a", "b", "c"]
    assert all(isinstance(one, Secret) for one in found)
    assert [a.query for a in api.asked] == [{"limit": ["2"]}, {"limit": ["2"], "cursor": ["c"]}]
    pages()
    cursors = [page.next_cursor for page in colour.every(client.secrets.list().pages())]
    assert cursors == ["c", None]
    pages()
    assert [one["name"] for one in colour.every(client.pages("/v1/secrets"))] == ["a", "b", "c"]


def test_errors_are_of_the_class_of_their_code(colour: Colour, api: StubApi, client: Any) -> None:
    api.on("POST", "/v1/jobs", problem(409, "name_taken", "There is one."))
    with pytest.raises(NameTakenError, match="There is one") as e:
        colour.do(client.jobs.create(name="x", target=WEBHOOK))
    assert (e.value.status, e.value.request_id) == (409, "req-1")
    api.on("GET", "/v1/jobs/name:x", problem(404, "not_found", "There is none."))
    with pytest.raises(NotFoundError):
        colour.do(client.jobs.get("name:x"))
    api.on("GET", "/v1/jobs", Answer(200, {"things": []}))
    with pytest.raises(UnexpectedAnswerError, match="GET /v1/jobs is no page of a list"):
        colour.every(client.jobs.list())


def test_waiting_asks_until_it_has_ended(
    colour: Colour, api: StubApi, client: Any, clock: FakeClock
) -> None:
    path = "/v1/operations/o"
    running, finished = Answer(200, OPERATION), Answer(200, OPERATION | {"state": "finished"})
    api.on("GET", path, running, running, finished)
    began = clock.monotonic()
    done = colour.do(client.operations.wait("o", every=2))
    assert isinstance(done, Operation)
    assert (done.state, len(api.asked), clock.monotonic() - began) == ("finished", 3, 4)
    api.on("GET", path, running)
    with pytest.raises(TimeoutError, match="/v1/operations/o had not ended after 5 s"):
        colour.do(client.operations.wait("o", every=2, within=5))
    assert clock.monotonic() - began == 9


def test_waiting_bears_an_api_that_is_away_for_a_minute(
    colour: Colour, api: StubApi, client: Any, clock: FakeClock
) -> None:
    path, away = "/v1/operations/o", problem(503, "unavailable", "It is restarted.")
    running, finished = Answer(200, OPERATION), Answer(200, OPERATION | {"state": "finished"})
    api.on("GET", path, running, *[away] * 8, running, finished)
    assert colour.do(client.operations.wait("o")).state == "finished"
    api.on("GET", path, running, away)
    began = clock.monotonic()
    with pytest.raises(UnavailableError, match="restarted"):
        colour.do(client.operations.wait("o"))
    assert 60 <= clock.monotonic() - began < 70
    api.on("GET", path, away)
    api.asked.clear()
    with pytest.raises(UnavailableError):
        colour.do(client.operations.wait("o"))
    assert len(api.asked) == 4  # one call: what was never there is not waited for


def test_a_client_of_other_conditions_has_the_same_connections(
    colour: Colour, api: StubApi, client: Any
) -> None:
    api.on("GET", "/v1/jobs/x", Answer(200, JOB_ANSWER))
    other = client.with_tenant("acme")
    colour.do(other.jobs.get("x"))
    colour.do(client.jobs.get("x"))
    assert [a.headers.get("tickrail-tenant") for a in api.asked] == ["acme", None]
    assert [a.headers["authorization"] for a in api.asked] == ["Bearer trk_a_b"] * 2
    api.on("GET", "/v1/jobs/x", problem(503, "unavailable", "away"))
    once = other.with_options(tries=1, timeout=5)
    with pytest.raises(Exception, match="away"):
        colour.do(once.jobs.get("x"))
    assert len(api.asked) == 3
    assert api.asked[2].headers["tickrail-tenant"] == "acme"
    assert other.url == once.url == api.url


def test_an_api_that_is_away_and_an_address_that_is_none(
    colour: Colour, api: StubApi, client: Any
) -> None:
    api.close()
    with pytest.raises(UnreachableError, match=r"127.0.0.1:\d+ does not answer") as e:
        colour.do(client.jobs.get("x"))
    assert not e.value.may_have_arrived
    for url in ("ftp://x", "http://", "localhost:8080"):
        with pytest.raises(UnreachableError):
            colour.do(colour.client(url, wait=lambda _: None).jobs.get("x"))


def test_the_environment_names_the_api_and_the_key(api: StubApi) -> None:
    api.on("GET", "/v1/jobs/x", Answer(200, JOB_ANSWER))
    named = {"TICKRAIL_API_URL": api.url, "TICKRAIL_API_KEY": "trk_e_f"}
    with Client.from_environment(named, tenant="acme") as client:
        client.jobs.get("x")
    assert api.asked[0].headers["authorization"] == "Bearer trk_e_f"
    assert api.asked[0].headers["tickrail-tenant"] == "acme"
    with Client.from_environment({"TICKRAIL_API_KEY": "trk_e_f"}) as client:
        assert client.url == "http://127.0.0.1:8080"


@pytest.mark.parametrize("environ", [{}, {"TICKRAIL_API_KEY": ""}])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_an_environment_without_a_key_is_told_by_the_variable_s_name(
    kind: type[Any], environ: dict[str, str]
) -> None:
    with pytest.raises(MissingKeyError, match="TICKRAIL_API_KEY is not set"):
        kind.from_environment(environ)
    with Client.from_environment(environ, key="trk_e_f") as client:
        assert client.url == "http://127.0.0.1:8080"


def test_what_both_clients_take_is_said_once() -> None:
    for name in ("__init__", "from_environment", "with_options", "with_tenant", "request"):
        assert name not in vars(Client)
        assert name not in vars(AsyncClient)
    assert "key: the API key" in str(inspect.getdoc(Client.__init__))


def test_what_a_header_cannot_carry_is_refused_and_a_key_not_shown() -> None:
    for bad in ("trk_ä", "trk_a\n", "trk_\x00"):
        with pytest.raises(ValueError, match="key has a character that is not visible ASCII"):
            Client("http://127.0.0.1:1", bad)
    with Client("http://127.0.0.1:1", "trk_a_secret") as client:
        with pytest.raises(ValueError, match="tenant has a character"):
            client.with_tenant("ä")
        with pytest.raises(ValueError, match="idempotency_key has a character"):
            client.jobs.trigger("x", idempotency_key="ä")
        assert "secret" not in repr(vars(client.sender))


def test_a_list_that_is_left_early_asks_no_further(
    colour: Colour, api: StubApi, client: Any
) -> None:
    page = {"items": [SECRET, SECRET], "next_cursor": "c"}
    api.on("GET", "/v1/secrets", Answer(body=page))

    listed = client.secrets.list()
    one = colour.do(anext(listed) if hasattr(listed, "__anext__") else next(listed))
    assert (one.name, len(api.asked)) == ("a", 1)


@pytest.mark.parametrize("kind", COLOURS)
def test_calls_run_side_by_side(api: StubApi, kind: str) -> None:
    """In threads or tasks that share a client: each answer waits until all have asked."""
    everybody = 4
    barrier = threading.Barrier(everybody)

    def together(_: Asked) -> Answer:
        barrier.wait(30)
        return Answer(200, JOB_ANSWER)

    api.on("GET", "/v1/jobs/x", together)

    async def ask() -> list[Any]:
        async with AsyncClient(api.url) as client:
            return list(await asyncio.gather(*(client.jobs.get("x") for _ in range(everybody))))

    if kind == "async":
        found = asyncio.run(ask())
    else:
        with Client(api.url) as client, ThreadPoolExecutor(everybody) as pool:
            found = list(pool.map(client.jobs.get, ["x"] * everybody))
    assert {job.name for job in found} == {"nightly-invoice-run"}
    assert len(api.asked) == everybody


def test_methods_have_names_signatures_and_words() -> None:

    with Client("http://127.0.0.1:1") as client:
        assert client.jobs is client.jobs
        assert {"jobs", "system", "request"} <= set(dir(client))
        with pytest.raises(AttributeError, match="'Client' has no attribute 'nothing'"):
            _ = client.nothing
        assert client.jobs.get.__name__ == "get"
        assert client.jobs.get.__doc__ == "Read a job."
        assert list(inspect.signature(client.jobs.get).parameters) == ["job"]
        assert "n" in inspect.signature(client.jobs.skip_next).parameters


@pytest.mark.parametrize(
    ("line", "absent"),
    [
        ("import tickrail.sdk.client", ("httpx", "rich", "click")),
        ("from tickrail.sdk.client import Client; Client('http://127.0.0.1:1')", ()),
    ],
)
def test_little_is_loaded(line: str, absent: tuple[str, ...]) -> None:
    """Nothing of servers; and the HTTP library with the first client only."""
    script = f"{line}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "tickrail.sdk.client.models" not in done.stdout.split()  # with the part that needs them
    servers = {"fastapi", "starlette", "sqlalchemy", "psycopg", "confluent_kafka", "etcd3", "grpc"}
    assert loaded & {*servers, "pydantic", "structlog", "alembic", "cryptography", *absent} == set()
    rooms = {".".join(n.split(".")[:2]) for n in done.stdout.split() if n.startswith("tickrail.")}
    assert rooms == {"tickrail.core", "tickrail.sdk"}
