"""Tokens of an issuer: which are taken, what they grant, and its keys as they come and go."""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from jwt.warnings import InsecureKeyLengthWarning
from tests.support.clock import FakeClock
from tests.support.issuer import AUDIENCE, Issuer, jwk, pem, rsa_key

from tickrail.core.errors import SettingsError, UnavailableError
from tickrail_api.oidc import (
    Claims,
    EndedTokenError,
    OidcSettings,
    TokenVerifier,
    oidc_settings,
    read_scope_map,
)

URL = "https://id.example.org/realm"


class Bench:
    """A verifier and its issuer on one clock."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock()
        self.issuer = Issuer(URL, self.clock.now)
        found = OidcSettings(URL, AUDIENCE, **settings)
        self.verifier = TokenVerifier(found, self.clock, self.issuer.fetch)

    def read(self, **changed: Any) -> Claims | None:
        return self.verifier.read(self.issuer.token(**changed))


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_a_token_of_the_issuer_is_taken(bench: Bench, algorithm: str) -> None:
    expected = Claims("subject:id.example.org/user-1", "acme", frozenset({"read", "write"}))
    assert bench.read(algorithm=algorithm) == expected


@pytest.mark.parametrize(
    ("algorithm", "curve"),
    [("ES256", ec.SECP256R1()), ("ES384", ec.SECP384R1()), ("ES512", ec.SECP521R1())],
)
def test_elliptic_curves_are_taken_each_with_its_algorithm(
    bench: Bench, algorithm: str, curve: ec.EllipticCurve
) -> None:
    bench.issuer.keys["e1"] = ec.generate_private_key(curve)
    assert bench.read(key_id="e1", algorithm=algorithm) is not None
    wrong = "ES384" if algorithm == "ES256" else "ES256"
    header = {"alg": wrong, "kid": "e1"}
    assert (
        bench.verifier.read(altered(bench.issuer.token(key_id="e1", algorithm=algorithm), header))
        is None
    )


def altered(token: str, header: dict[str, Any]) -> str:
    """The token with another header."""
    raw = base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")
    return f"{raw}.{token.split('.', 1)[1]}"


REFUSED: dict[str, dict[str, Any]] = {
    "another audience": {"aud": "somebody-else"},
    "no audience": {"aud": None},
    "another issuer": {"iss": "https://evil.example.org"},
    "an issuer that begins alike": {"iss": f"{URL}/"},
    "no issuer": {"iss": None},
    "an end that is true": {"exp": True},
    "an end beyond all": {"exp": float("inf")},
    "no end": {"exp": None},
    "an end that is no number": {"exp": "tomorrow"},
    "no subject": {"sub": None},
    "an empty subject": {"sub": ""},
    "a subject with control characters": {"sub": "a\nb"},
    "a subject without end": {"sub": "a" * 300},
    "not yet": {"nbf": 10**11},
    "made in the future": {"iat": 10**11},
}


@pytest.mark.parametrize("changed", REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_with_claims(bench: Bench, changed: dict[str, Any]) -> None:
    assert bench.read(**changed) is None


def test_the_clocks_may_differ_by_half_a_minute(bench: Bench) -> None:
    now = bench.clock.now().timestamp()
    assert bench.read(exp=now - 29) is not None
    with pytest.raises(EndedTokenError):
        bench.read(exp=now - 31)
    assert bench.read(nbf=now + 29) is not None
    assert bench.read(nbf=now + 31) is None


def test_only_a_token_that_is_right_in_all_else_has_ended(bench: Bench) -> None:
    for wrong in ({"aud": "other"}, {"iss": "https://evil.example.org"}, {"key": rsa_key(2)}):
        assert bench.read(exp=1, **wrong) is None


def test_forged_tokens(bench: Bench) -> None:
    """`none`, the public key as a shared secret, another key under a known id, unknown ids."""
    good = bench.issuer.token()
    head, body, mark = good.split(".")
    forged = [
        jwt.encode(bench.issuer.claims(), None, "none", {"kid": "k1"}),  # type: ignore[arg-type]
        altered(good, {"alg": "none", "kid": "k1"}).rsplit(".", 1)[0] + ".",
        hs256(bench.issuer, pem(rsa_key(1))),
        bench.issuer.token(key=rsa_key(2)),
        bench.issuer.token(key=rsa_key(2), key_id="k1", headers={"jwk": jwk(rsa_key(2), "k1")}),
        bench.issuer.token(headers={"crit": ["exp"]}),
        altered(good, {"alg": "RS256", "kid": 7}),
        altered(good, {"alg": "RS256", "kid": "k2"}),
        f"{head}.{body}.",
        f"{head}.{body}",
        f"{head}.{body[:-4]}AAAA.{mark}",
        "..", "a.b.c", "é.é.é", "", "trk_",
    ]  # fmt: skip
    for token in forged:
        assert bench.verifier.read(token) is None, token
    assert bench.verifier.read(good) is not None


def test_a_header_that_must_be_understood_is_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RFC 7515 4.1.11: nothing here understands any, whatever the library comes to know."""
    monkeypatch.setattr(jwt.PyJWS, "_supported_crit", {"b64", "exp"})
    for headers in (
        {"crit": ["exp"], "exp": 1},
        {"crit": ["b64"], "b64": True},
        {"crit": []},
        {"crit": "exp"},
        {"b64": True},
    ):
        assert bench.verifier.read(signed(bench.issuer, headers)) is None, headers
    assert bench.verifier.read(signed(bench.issuer, {"typ": "at+jwt"})) is not None


def signed(issuer: Issuer, headers: dict[str, Any]) -> str:
    """A token with these headers as they are: the library would leave some of them out."""
    parts = ({"alg": "RS256", "kid": "k1", **headers}, issuer.claims())
    said = ".".join(_url_safe(json.dumps(p).encode()) for p in parts)
    mark = issuer.keys["k1"].sign(said.encode(), PKCS1v15(), SHA256())
    return f"{said}.{_url_safe(mark)}"


def _url_safe(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def hs256(issuer: Issuer, secret: bytes) -> str:
    """A token whose mark is made with the public key as a shared secret."""
    import hashlib  # noqa: PLC0415 - for this forgery alone
    import hmac  # noqa: PLC0415 - as above

    parts = [
        base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=")
        for p in ({"alg": "HS256", "kid": "k1", "typ": "JWT"}, issuer.claims())
    ]
    mark = hmac.digest(secret, ".".join(parts).encode(), hashlib.sha256)
    return ".".join([*parts, base64.urlsafe_b64encode(mark).decode().rstrip("=")])


def test_keys_that_are_no_keys_for_signatures_are_passed_over(bench: Bench) -> None:
    bench.issuer.keys = {"short": rsa_key(3, 1024), "k1": rsa_key(1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InsecureKeyLengthWarning)
        token = bench.issuer.token(key_id="short")
    assert bench.verifier.read(token) is None
    assert bench.read() is not None
    documents = {
        "keys": [
            jwk(rsa_key(1), "k1") | {"use": "enc"},
            jwk(rsa_key(2), "k2") | {"alg": "PS256"},
            {"kty": "RSA", "kid": "k3", "n": "!", "e": "AQAB"},
            {"kty": "oct", "kid": "k4", "k": "AAAA"},
            "nonsense",
        ]
    }
    bench = Bench()
    issuer = bench.issuer
    issuer.keys["k2"] = rsa_key(2)
    config = issuer.documents()["/.well-known/openid-configuration"]
    answers: Callable[[str], Any] = lambda url: documents if url.endswith("/keys") else config  # noqa: E731 - short
    verifier = TokenVerifier(OidcSettings(URL, AUDIENCE), bench.clock, answers)
    assert verifier.read(issuer.token()) is None
    assert verifier.read(issuer.token(key_id="k2")) is None
    assert verifier.read(issuer.token(key_id="k2", algorithm="PS256")) is not None


def test_a_token_without_a_key_id_takes_the_only_key(bench: Bench) -> None:
    assert bench.read(key_id=None) is not None
    two = Bench()
    two.issuer.keys["k2"] = rsa_key(2)
    assert two.read(key_id=None) is None


def test_a_rotation_of_keys_is_followed_and_unknown_ids_cost_the_issuer_little(
    bench: Bench,
) -> None:
    assert bench.read() is not None
    bench.issuer.keys = {"k2": rsa_key(2)}
    bench.clock.advance(31)
    assert bench.read(key_id="k2") is not None
    assert len(bench.issuer.asked) == 4
    for n in range(100):
        assert bench.read(key_id="k2", headers={"kid": f"made-up-{n}"}) is None
    assert len(bench.issuer.asked) == 4
    bench.clock.advance(31)
    assert bench.read(key_id="k2", headers={"kid": "made-up"}) is None
    assert len(bench.issuer.asked) == 6


def test_an_issuer_that_is_away_is_asked_again_and_its_keys_go_on_for_a_day(bench: Bench) -> None:
    bench.issuer.away = True
    for _ in range(10):
        with pytest.raises(UnavailableError):
            bench.read()
    assert len(bench.issuer.asked) == 1
    bench.issuer.away = False
    bench.clock.advance(5)
    assert bench.read() is not None
    bench.issuer.away = True
    bench.clock.advance(80_000)
    assert bench.read() is not None
    bench.clock.advance(10_000)
    with pytest.raises(UnavailableError):
        bench.read()


def test_keys_are_read_again_after_ten_minutes_beside_requests(bench: Bench) -> None:
    bench.verifier.refresh()
    assert len(bench.issuer.asked) == 2
    bench.clock.advance(590)
    bench.verifier.refresh()
    assert len(bench.issuer.asked) == 2
    bench.clock.advance(20)
    bench.verifier.refresh()
    assert len(bench.issuer.asked) == 4
    assert bench.read() is not None
    assert len(bench.issuer.asked) == 4


def test_a_configuration_that_names_another_issuer_is_not_believed(bench: Bench) -> None:
    bench.issuer.name = "https://evil.example.org"
    with pytest.raises(UnavailableError):
        bench.read()


@pytest.mark.parametrize("place", ["http://id.example.org/realm/keys", "file:///keys", "/keys", 7])
def test_keys_are_read_by_the_issuers_own_scheme_alone(bench: Bench, place: object) -> None:
    """What goes over plain HTTP, or is a file, anybody in between may have written."""
    documents = bench.issuer.documents()
    config = documents["/.well-known/openid-configuration"] | {"jwks_uri": place}
    asked = []

    def fetch(url: str) -> Any:
        asked.append(url)
        return config if url.endswith("openid-configuration") else documents["/keys"]

    verifier = TokenVerifier(OidcSettings(URL, AUDIENCE), bench.clock, fetch)
    with pytest.raises(UnavailableError):
        verifier.read(bench.issuer.token())
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("settings", "changed", "granted"),
    [
        ({}, {"scope": "read run admin"}, {"read", "run", "admin"}),
        ({}, {"scope": "tickrail:read openid"}, {"read"}),
        ({}, {"scope": ["read", "write", 7]}, {"read", "write"}),
        ({}, {"scope": None}, set()),
        ({}, {"scope": 7}, set()),
        ({}, {"scope": "root"}, set()),
        ({}, {"scope": "operator read tickrail:operator"}, {"read"}),
        (
            {"scope_map": {"platform": frozenset({"operator", "admin"})}},
            {"scope": "platform read"},
            {"operator", "admin", "read"},
        ),
        ({"default_scopes": frozenset({"read"})}, {"scope": None}, {"read"}),
        ({"default_scopes": frozenset({"read"})}, {"scope": "run"}, {"run"}),
        (
            {"scope_claim": "realm_access.roles", "scope_map": {"leads": frozenset({"run"})}},
            {"realm_access": {"roles": ["leads", "tickrail:read", "admin", "operator"]}},
            {"run", "read"},
        ),
        ({"scope_claim": "https://x/roles"}, {"https://x/roles": ["tickrail:read"]}, {"read"}),
        ({"scope_claim": "https://x/roles"}, {"https://x/roles": "admin read operator"}, set()),
        ({"scope_claim": "a.b"}, {"a": "text"}, set()),
    ],
)
def test_what_a_token_grants(
    settings: dict[str, Any], changed: dict[str, Any], granted: set[str]
) -> None:
    found = Bench(**settings).read(**changed)
    assert found is not None
    assert found.scopes == granted


def test_the_tenant_is_where_the_settings_say() -> None:
    found = Bench(tenant_claim="org.name").read(org={"name": "beta"})
    assert found is not None
    assert found.tenant == "beta"
    for odd in (7, ["acme"], {"name": "acme"}):
        found = Bench().read(tickrail_tenant=odd)
        assert found is not None
        assert found.tenant is None


def test_settings_of_an_issuer() -> None:
    assert read_scope_map(["a=b=read+run", "g=operator"]) == {
        "a=b": frozenset({"read", "run"}),
        "g": frozenset({"operator"}),
    }
    for entry in ("read", "=read", "a=", "a=root", "a=read+"):
        with pytest.raises(SettingsError, match="OIDC_SCOPE_MAP"):
            read_scope_map([entry])
    given: dict[str, Any] = {
        "issuer": URL, "audience": "a", "tenant_claim": "t", "scope_claim": "s",
        "scope_map": (), "default_scopes": (),
    }  # fmt: skip
    assert oidc_settings(**given | {"issuer": ""}) is None
    assert oidc_settings(**given) == OidcSettings(URL, "a", "t", "s")
    for changed in ({"audience": ""}, {"default_scopes": ("operator",)}):
        with pytest.raises(SettingsError):
            oidc_settings(**given | changed)
