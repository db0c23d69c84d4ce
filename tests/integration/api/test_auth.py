"""Who is let in, over HTTP: forms of keys, wrong ones in a row, revocations, an issuer's tokens."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.api import PEPPER, URL, World, api_world
from tests.support.clock import FakeClock
from tests.support.database import Database
from tests.support.issuer import AUDIENCE, Issuer, rsa_key, served_issuer
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.core.errors import RateLimitedError, TickrailError, UnauthenticatedError
from tickrail.store.engine import ApiDatabase
from tickrail.store.keys import make_key
from tickrail.store.tenancy import BaseTransaction
from tickrail_api.auth import Authenticator
from tickrail_api.oidc import OidcSettings
from tickrail_cli import main

pytestmark = pytest.mark.integration

PROMISED = 2.0
"""Seconds within which a revocation holds on every process."""
ODD: list[list[bytes]] = [
    [b"Bearer \xe9"], [b"Bearer trk_\xe9_\xe9"], ["Bearer 🔑".encode()], [b""], [b"Bearer"],
    [b"Basic YTpi"], [b"Bearer trk_aaaaaaaa_" + b"a" * 43],
    [b"bearer trk_aaaaaaaa_" + b"a" * 43], [b"Bearer eyJhbGciOiJub25lIn0.e30."],
]  # fmt: skip
UNSENDABLE: list[list[bytes]] = [
    [b"Bearer trk_aaaaaaaa_" + b"a" * 42 + b"\x00"], [b"Bearer " + b"a" * 1_000_000],
]  # fmt: skip
"""What the server itself refuses before anything here sees it."""


def statuses(world: World, token: str, count: int, path: str = "/v1/jobs") -> list[int]:
    caller = world.caller(token)
    return [caller.call("GET", path).status_code for _ in range(count)]


def test_f13_whatever_stands_in_the_header_the_refusal_is_the_same(world: World) -> None:
    def refusal(headers: list[bytes]) -> Any:
        sent = [(b"Authorization", value) for value in headers]
        answer = world.client.get("/v1/jobs", headers=sent)  # type: ignore[arg-type]
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        return {**answer.json(), "request_id": ""}

    first = refusal([])
    good = f"Bearer {world.acme.token}".encode()
    for headers in [*ODD, [good, good], [good, b"Bearer x"]]:
        assert refusal(headers) == first, headers
    authenticator = world.app.state.parts.authenticator
    for headers in UNSENDABLE:
        with pytest.raises(UnauthenticatedError) as caught:
            authenticator.authenticate(headers)
        assert caught.value.detail == first["detail"]


@pytest.fixture
def guarded(database: Database) -> Iterator[World]:
    with api_world(database, failures=6, trusted_proxies=("127.0.0.0/8",)) as made:
        yield made


def test_wrong_keys_are_slowed_down_by_address_and_noted(guarded: World) -> None:
    wrong = make_key(b"another pepper").token
    assert statuses(guarded, wrong, 9) == [401] * 6 + [429] * 3
    answer = guarded.caller(wrong).call("GET", "/v1/jobs", expect=429)
    assert 1 <= int(answer.headers["Retry-After"]) <= 10
    assert answer.json()["code"] == "rate_limited"
    # A right key passes, though it was not seen here yet: it may be behind the same balancer.
    assert statuses(guarded, guarded.acme.token, 20) == [200] * 20
    # What a client writes left of the proxy's own word makes no new address.
    for n in range(3):
        spoofed = {"X-Forwarded-For": f"198.51.100.{n}, 127.0.0.1"}
        wrong_there = guarded.caller(wrong).call("GET", "/v1/jobs", headers=spoofed)
        assert wrong_there.status_code == 401
    spoofed = {"X-Forwarded-For": "198.51.100.1, 203.0.113.77"}
    seen = [
        guarded.caller(wrong).call("GET", "/v1/jobs", headers=spoofed).status_code for _ in range(7)
    ]
    assert seen == [401] * 6 + [429]
    guarded.app.state.parts.authenticator.write_notes()
    entries = guarded.database.rows(
        "select tenant_id, actor, subject from audit_log where action = 'authentication.slowed'"
        " order by id"
    )
    assert entries == [
        (None, "anonymous", "address:127.0.0.1"),
        (None, "anonymous", "address:203.0.113.77"),
    ]


class Counted:
    """A database that counts how often it is asked."""

    def __init__(self, database: ApiDatabase) -> None:
        self.database = database
        self.asked = 0

    def installation(self) -> AbstractContextManager[BaseTransaction]:
        self.asked += 1
        return self.database.installation()


def test_guesses_of_one_key_stay_slow_where_a_right_one_passes(world: World) -> None:
    counted = Counted(world.app.state.parts.database)
    keys = Authenticator(
        cast("ApiDatabase", counted), FakeClock(), PEPPER.encode(), most_failures=3
    )
    here = "203.0.113.9"

    def guess(token: str, address: str, refusal: type[TickrailError]) -> None:
        with pytest.raises(refusal):
            keys.authenticate([f"Bearer {token}".encode()], address)

    for _ in range(3):
        guess(make_key(b"").token, here, UnauthenticatedError)
    guess(make_key(b"").token, here, RateLimitedError)
    asked = counted.asked
    assert keys.authenticate([f"Bearer {world.beta.token}".encode()], here).tenant
    assert counted.asked == asked + 1
    # The secrets of one key are tried, from many addresses: nothing is compared after the third.
    wrong = world.acme.token.rsplit("_", 1)[0] + "_" + "x" * 43
    for _ in range(3):
        guess(wrong, here, RateLimitedError)
    guess(world.acme.token, here, RateLimitedError)
    # Where nobody guesses, the key goes on; and then here, too.
    assert keys.authenticate([f"Bearer {world.acme.token}".encode()], "203.0.113.10").tenant
    assert keys.authenticate([f"Bearer {world.acme.token}".encode()], here).tenant


def test_a_key_that_has_ended_counts_for_no_failure(guarded: World) -> None:
    made = guarded.acme.post("/v1/api-keys", {"name": "a", "scopes": ["read"]}, expect=201)
    guarded.acme.delete(f"/v1/api-keys/{made['id']}")
    assert statuses(guarded, made["token"], 20) == [401] * 20
    guarded.beta.get("/v1/jobs")


def test_the_audit_log_has_the_address_that_a_trusted_proxy_names(guarded: World) -> None:
    headers = {"X-Forwarded-For": "9.9.9.9, 198.51.100.7"}
    new = {"name": "a", "scopes": ["read"]}
    guarded.acme.call("POST", "/v1/api-keys", new, headers=headers, expect=201)
    rows = guarded.database.rows("select address from audit_log where action = 'key.create'")
    assert rows == [("198.51.100.7",)]


def test_without_trusted_proxies_the_peer_counts(database: Database) -> None:
    with api_world(database, failures=4) as world:
        wrong = world.caller(make_key(b"x").token)
        seen = [
            wrong.call(
                "GET", "/v1/jobs", headers={"X-Forwarded-For": f"198.51.100.{n}"}
            ).status_code
            for n in range(6)
        ]
        assert seen == [401] * 4 + [429] * 2


def test_a_revocation_a_suspension_and_an_expiry_hold_on_every_process(
    world: World, database: Database
) -> None:
    with api_world(database) as other:
        made = world.acme.post("/v1/api-keys", {"name": "a", "scopes": ["read"]}, expect=201)
        for place in (world, other):
            place.caller(made["token"]).get("/v1/jobs")
        world.acme.delete(f"/v1/api-keys/{made['id']}")
        for place in (world, other):
            key = place.caller(made["token"])
            assert until(lambda k=key: k.call("GET", "/v1/jobs").status_code == 401) < PROMISED  # type: ignore[misc]
        other.beta.get("/v1/jobs")
        world.operator.post("/v1/tenants/beta/suspend", expect=200)
        assert until(lambda: other.beta.call("GET", "/v1/jobs").status_code == 403) < PROMISED
        world.operator.post("/v1/tenants/beta/resume", expect=200)
        assert until(lambda: other.beta.call("GET", "/v1/jobs").status_code == 200) < PROMISED


# --- tokens of an issuer --------------------------------------------------------------------------


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with served_issuer(SystemClock().now) as made:
        yield made


@pytest.fixture
def open_to(database: Database, issuer: Issuer) -> Iterator[World]:
    settings = OidcSettings(
        issuer.url, AUDIENCE, scope_map={"platform": frozenset({"operator", "read", "admin"})}
    )
    with api_world(database, oidc=settings, failures=100) as made:
        yield made


def test_a_token_names_its_tenant_and_what_it_may(open_to: World, issuer: Issuer) -> None:
    host = issuer.url.removeprefix("http://")
    caller = open_to.caller(issuer.token())
    job = caller.create("a")
    assert open_to.acme.get(f"/v1/jobs/{job['id']}") == job
    assert open_to.beta.get("/v1/jobs")["items"] == []
    caller.post(f"/v1/jobs/{job['id']}/trigger", expect=403)
    open_to.caller(issuer.token(tickrail_tenant=open_to.tenant_id("acme"))).get("/v1/jobs")
    [entry] = open_to.database.rows("select actor from audit_log where action = 'job.create'")
    assert entry == (f"subject:{host}/user-1",)
    assert len(issuer.asked) == 2
    # Keys go on working beside tokens.
    open_to.acme.get("/v1/jobs")


def test_an_operator_s_token_is_one_by_its_claim(open_to: World, issuer: Issuer) -> None:
    token = issuer.token(scope="platform", tickrail_tenant=None)
    names = [t["name"] for t in open_to.caller(token).get("/v1/tenants")["items"]]
    assert names == ["acme", "beta"]
    open_to.caller(token).get("/v1/jobs", expect=403)
    open_to.caller(token, "beta").get("/v1/jobs")
    open_to.caller(issuer.token(), "beta").get("/v1/jobs", expect=403)
    open_to.caller(issuer.token()).get("/v1/tenants", expect=403)


def test_the_command_line_signs_in_with_a_token(
    open_to: World,
    issuer: Issuer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """`tickrail login` takes what the issuer gave, and tells when that has ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("TICKRAIL_API_URL", "TICKRAIL_API_KEY", "TICKRAIL_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    url = str(open_to.client.base_url)

    def tickrail(*words: str, typed: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        capsys.readouterr()
        code = main.run(list(words))
        said = capsys.readouterr()
        return code, said.out, said.err

    token = issuer.token()
    code, out, err = tickrail("login", "--url", url, typed=f"{token}\n")
    assert (code, token in out + err) == (0, False)
    made = tickrail("jobs", "create", "--name", "by-hand", "--webhook", URL, "--output", "json")
    assert made[0] == 0, made[2]
    assert [j["name"] for j in open_to.acme.get("/v1/jobs")["items"]] == ["by-hand"]
    [(actor,)] = open_to.database.rows("select actor from audit_log where action = 'job.create'")
    assert actor.endswith("/user-1")
    assert tickrail("secrets", "list")[0] == 1, "the token has no scope for it"
    forged = issuer.token(key=rsa_key(2))
    assert tickrail("login", "--url", url, typed=f"{forged}\n")[0] == 1
    assert tickrail("jobs", "list")[0] == 0, "the first sign-in stays"
    ended = tickrail("jobs", "list", "--key", issuer.token(exp=1), "--url", url)
    assert (ended[0], "valid API key" in ended[2]) == (1, True)


def test_a_token_makes_no_key_that_outlives_it(open_to: World, issuer: Issuer) -> None:
    new = {"name": "ci", "scopes": ["read"], "expires_in": "2m"}
    for token, tenant in (
        (issuer.token(scope="read admin"), ""),
        (issuer.token(scope="platform", tickrail_tenant=None), "acme"),
        (issuer.token(scope="platform", tickrail_tenant=None), ""),
    ):
        caller = open_to.caller(token, tenant)
        made = caller.post("/v1/api-keys", new, expect=201)
        for more in ({"expires_in": None}, {"expires_in": "6m"}):
            refused = caller.post("/v1/api-keys", new | more, expect=403)
            assert "expires_at is 20" in refused["detail"]
        caller.post(f"/v1/api-keys/{made['id']}/rotate", expect=201)
    caller = open_to.caller(issuer.token(scope="read admin", exp=1e15))
    caller.post("/v1/api-keys", new | {"expires_in": "3650d"}, expect=201)
    caller = open_to.caller(issuer.token(scope="read admin"))
    caller.post(f"/v1/api-keys/{open_to.keys['acme'].key_id}/rotate", expect=403)


def test_every_token_that_is_not_taken_hears_the_same(open_to: World, issuer: Issuer) -> None:
    wrong = [
        issuer.token(aud="other"), issuer.token(exp=1), issuer.token(key=rsa_key(2)),
        issuer.token(tickrail_tenant="nobody"), issuer.token(tickrail_tenant=None),
        issuer.token(tickrail_tenant="a b"), issuer.token(tickrail_tenant="a\x00"), "a.b.c", "x",
    ]  # fmt: skip
    said = []
    for token in wrong:
        answer = open_to.caller(token).call("GET", "/v1/jobs", expect=401)
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        said.append({**answer.json(), "request_id": ""})
    assert all(one == said[0] for one in said)
    open_to.caller(issuer.token(scope="read")).post("/v1/jobs", {}, expect=403)


def test_a_token_that_is_right_and_lets_nobody_in_counts_for_no_failure(
    database: Database, issuer: Issuer
) -> None:
    with api_world(database, oidc=OidcSettings(issuer.url, AUDIENCE), failures=2) as world:
        for claims in ({"exp": 1}, {"tickrail_tenant": "nobody"}):
            assert statuses(world, issuer.token(**claims), 5) == [401] * 5
        assert statuses(world, issuer.token(aud="other"), 4) == [401] * 2 + [429] * 2


def test_a_suspended_tenant_s_tokens_are_refused(open_to: World, issuer: Issuer) -> None:
    caller = open_to.caller(issuer.token())
    caller.get("/v1/jobs")
    open_to.operator.post("/v1/tenants/acme/suspend", expect=200)
    assert until(lambda: caller.call("GET", "/v1/jobs").status_code == 403) < PROMISED
    open_to.operator.delete("/v1/tenants/acme")
    assert until(lambda: caller.call("GET", "/v1/jobs").status_code == 401) < PROMISED


def test_an_issuer_that_answers_nothing_holds_up_no_key(open_to: World, issuer: Issuer) -> None:
    issuer.away = True
    answer = open_to.caller(issuer.token()).call("GET", "/v1/jobs", expect=503)
    assert answer.json()["code"] == "unavailable"
    assert "Retry-After" in answer.headers
    open_to.acme.get("/v1/jobs")
    issuer.away = False
    caller = open_to.caller(issuer.token())
    until(lambda: caller.call("GET", "/v1/jobs").status_code == 200, 20)
