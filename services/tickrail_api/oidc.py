"""Tokens of an OpenID Connect issuer: the second way in.

The issuer is what the settings say and nothing that a token says. Its keys are found by discovery
and kept; an unknown key id makes them be read again, at most twice a minute, so that a rotation of
keys is followed and made up ids cost the issuer nothing. While the issuer is away, the keys known
go on for a day.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, Final
from urllib.parse import urlsplit

import jwt
import structlog
from jwt.algorithms import AllowedPublicKeys

from tickrail.core.clock import Clock
from tickrail.core.errors import Problem, SettingsError, TickrailError, UnavailableError
from tickrail.core.keys import SCOPES

OPERATOR: Final = "operator"
"""What a token grants beside scopes: it is an operator's."""
LEEWAY: Final = 30.0
"""Seconds that the issuer's clock may be off."""
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS: Final = (*_RSA, *_CURVES)
_LEAST_RSA: Final = 2048
_FRESH: Final = 600.0
_AGAIN: Final = 30.0
_FIRST_AGAIN: Final = 5.0
_STALE: Final = timedelta(days=1).total_seconds()
_WAIT: Final = 1.0
_MOST_KEYS: Final = 100
_LONGEST_SUBJECT: Final = 255
_PREFIX: Final = "tickrail:"
_DISCOVERY: Final = "/.well-known/openid-configuration"
_log = structlog.get_logger("tickrail.api")

Fetch = Callable[[str], Mapping[str, Any]]
"""Reads a JSON object at a URL; UnavailableError where it cannot."""


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """Whose tokens are taken, and what they grant.

    Attributes:
        issuer: its URL, exactly as in the tokens' `iss`.
        audience: what `aud` must hold.
        tenant_claim: where a token names its tenant, by name or id.
        scope_claim: where it says what it may do.
        scope_map: what values of that claim grant, beside `tickrail:<scope>` and, in `scope`, the
            scopes themselves; it alone makes operators.
        default_scopes: what a token without that claim may do.
    """

    issuer: str
    audience: str
    tenant_claim: str = "tickrail_tenant"
    scope_claim: str = "scope"
    scope_map: Mapping[str, frozenset[str]] = field(default_factory=dict)
    default_scopes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Claims:
    """What a valid token says. `actor`: `subject:<issuer's host>/<sub>`; `ends_at`: its end."""

    actor: str
    tenant: str | None
    scopes: frozenset[str]
    ends_at: datetime | None = field(default=None, compare=False)


def oidc_settings(
    *,
    issuer: str,
    audience: str,
    tenant_claim: str,
    scope_claim: str,
    scope_map: Sequence[str],
    default_scopes: Sequence[str],
) -> OidcSettings | None:
    """From a process's settings; None: there is no issuer.

    Raises:
        SettingsError: something is missing or wrong.
    """
    if not issuer:
        return None
    problems: list[Problem] = []
    if not audience:
        problems.append(Problem("TICKRAIL_OIDC_AUDIENCE", "is missing", "what `aud` must hold"))
    if unknown := [s for s in default_scopes if s not in SCOPES]:
        expected = f"some of {', '.join(SCOPES)}"
        problems.append(Problem("TICKRAIL_OIDC_DEFAULT_SCOPES", f"has {unknown[0]!r}", expected))
    if problems:
        raise SettingsError("The settings of the issuer are not right.", problems)
    return OidcSettings(
        issuer,
        audience,
        tenant_claim,
        scope_claim,
        read_scope_map(scope_map),
        frozenset(default_scopes),
    )


def read_scope_map(entries: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """`value=scope+scope` for each entry.

    Raises:
        SettingsError: one of them is not of that form.
    """
    known = {*SCOPES, OPERATOR}
    found: dict[str, frozenset[str]] = {}
    problems: list[Problem] = []
    for entry in entries:
        value, equals, granted = entry.rpartition("=")
        scopes = frozenset(granted.split("+"))
        if not value or not equals or not scopes <= known:
            expected = f"value=scope+scope, scopes of {', '.join((*SCOPES, OPERATOR))}"
            problems.append(Problem("TICKRAIL_OIDC_SCOPE_MAP", f"has {entry[:80]!r}", expected))
        found[value] = found.get(value, frozenset()) | scopes
    if problems:
        raise SettingsError("The map of scopes is not right.", problems)
    return found


class EndedTokenError(Exception):
    """The token is the issuer's, for this API, and its time is over."""


class TokenVerifier:
    """Reads tokens of one issuer. Safe to use from threads."""

    def __init__(self, settings: OidcSettings, clock: Clock, fetch: Fetch) -> None:
        self._settings = settings
        self._clock = clock
        self._keys = _IssuerKeys(settings.issuer, clock, fetch)
        self._host = urlsplit(settings.issuer).netloc

    def read(self, token: str) -> Claims | None:
        """What a token says; None: it is not valid.

        Raises:
            EndedTokenError: it was.
            UnavailableError: the issuer's keys are not known, and it does not answer.
        """
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS or "crit" in header or "b64" in header:
            return None
        if key_id is not None and not isinstance(key_id, str):
            return None
        key = self._keys.find(key_id, algorithm)
        if key is None:
            return None
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                options={
                    "require": ["exp", "iss", "aud", "sub"],
                    # By this process's clock, below.
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        self._check_end(claims)
        return self._read(claims) if self._in_time(claims) else None

    def refresh(self) -> None:
        """Read the issuer's keys where it is time to; an issuer that is away is logged."""
        self._keys.refresh()

    def _check_end(self, claims: Mapping[str, Any]) -> None:
        end = claims["exp"]
        if type(end) in (int, float) and end <= self._clock.now().timestamp() - LEEWAY:
            raise EndedTokenError

    def _in_time(self, claims: Mapping[str, Any]) -> bool:
        now = self._clock.now().timestamp()
        for name in ("exp", "nbf", "iat"):
            if name not in claims:
                continue
            value = claims[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
                return False
            if name != "exp" and value > now + LEEWAY:
                return False
        return True

    def _read(self, claims: Mapping[str, Any]) -> Claims | None:
        subject = claims["sub"]
        if not isinstance(subject, str) or not subject.isprintable():
            return None
        if not 0 < len(subject) <= _LONGEST_SUBJECT:
            return None
        tenant = _claim(claims, self._settings.tenant_claim)
        return Claims(
            f"subject:{self._host}/{subject}",
            tenant if isinstance(tenant, str) else None,
            self._scopes(claims),
            _instant(claims["exp"]),
        )

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[str]:
        said = _claim(claims, self._settings.scope_claim)
        if said is None:
            return self._settings.default_scopes
        values = said.split() if isinstance(said, str) else said if isinstance(said, list) else []
        # What is asked of the issuer for this API may have short names; in another claim, such as
        # the roles of a realm, `admin` is any application's. An operator is one by the map alone.
        bare = self._settings.scope_claim == "scope"
        granted: set[str] = set()
        for value in values:
            if isinstance(value, str):
                own = value.startswith(_PREFIX)
                granted |= {value.removeprefix(_PREFIX)} & {*SCOPES} if own or bare else set()
                granted |= self._settings.scope_map.get(value, frozenset())
        return frozenset(granted)


@dataclass(frozen=True, slots=True)
class _Key:
    """A public key of the issuer. `algorithms`: what it may be used with."""

    id: str | None
    algorithms: frozenset[str]
    key: AllowedPublicKeys


class _IssuerKeys:
    """The issuer's keys: read when they are asked for, one thread at a time."""

    def __init__(self, issuer: str, clock: Clock, fetch: Fetch) -> None:
        self._issuer = issuer
        self._clock = clock
        self._fetch = fetch
        self._keys: Sequence[_Key] = ()
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._reading = threading.Lock()

    def find(self, key_id: str | None, algorithm: str) -> AllowedPublicKeys | None:
        """The key of this id for this algorithm; without an id, the only one there is."""
        self._read_if(self._is_old())
        found = self._among(key_id, algorithm)
        if found is None and self._read_if(wanted=True):
            found = self._among(key_id, algorithm)
        if self._read_at is None or self._clock.monotonic() - self._read_at > _STALE:
            raise UnavailableError("The issuer of tokens does not answer.")
        return found

    def refresh(self) -> None:
        """Read the keys where it is time to."""
        self._read_if(self._is_old())

    def _among(self, key_id: str | None, algorithm: str) -> AllowedPublicKeys | None:
        fitting = [k for k in self._keys if algorithm in k.algorithms]
        if key_id is None:
            return fitting[0].key if len(fitting) == 1 else None
        return next((k.key for k in fitting if k.id == key_id), None)

    def _is_old(self) -> bool:
        return self._read_at is None or self._clock.monotonic() - self._read_at > _FRESH

    def _read_if(self, wanted: bool) -> bool:
        """Read the keys, unless that was tried a moment ago; whether they may be others now."""
        if not wanted or not self._may_try():
            return False
        # Who finds another reading goes on with what is known, if anything is.
        patience = _WAIT if self._read_at is None else 0.0
        before = self._read_at
        if not self._reading.acquire(timeout=patience):
            return False
        try:
            if self._read_at != before or not self._may_try():
                return True
            self._tried_at = self._clock.monotonic()
            self._keys = self._read()
            self._read_at = self._clock.monotonic()
        except TickrailError as e:
            _log.warning("issuer_keys_not_read", issuer=self._issuer, error=str(e))
            return False
        finally:
            self._reading.release()
        return True

    def _may_try(self) -> bool:
        pause = _FIRST_AGAIN if self._read_at is None else _AGAIN
        return self._tried_at is None or self._clock.monotonic() - self._tried_at >= pause

    def _read(self) -> Sequence[_Key]:
        found = self._fetch(self._issuer.rstrip("/") + _DISCOVERY)
        if found.get("issuer") != self._issuer:
            raise UnavailableError("The issuer's configuration names another issuer.")
        place = found.get("jwks_uri")
        if not isinstance(place, str) or urlsplit(place).scheme != urlsplit(self._issuer).scheme:
            raise UnavailableError("The issuer's configuration names no place of its keys.")
        listed = self._fetch(place).get("keys")
        if not isinstance(listed, list):
            raise UnavailableError("The issuer's keys are not a JWK set.")
        keys = [key for one in listed[:_MOST_KEYS] if (key := _read_key(one)) is not None]
        if not keys:
            raise UnavailableError("The issuer has no key that tokens can be signed with.")
        return keys


def _read_key(document: object) -> _Key | None:
    """A public key for signatures; None: it is something else, or not understood."""
    if not isinstance(document, dict) or document.get("use", "sig") != "sig":
        return None
    key_id = document.get("kid")
    if document.get("kty") == "RSA":
        fitting = frozenset(_RSA)
    else:
        fitting = frozenset(a for a, c in _CURVES.items() if document.get("crv") == c)
    if "alg" in document:
        fitting &= {document["alg"]}
    if not fitting or not (key_id is None or isinstance(key_id, str)):
        return None
    public = {k: v for k, v in document.items() if k in {"kty", "n", "e", "crv", "x", "y"}}
    try:
        key = jwt.PyJWK(public, algorithm=min(fitting)).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if getattr(key, "key_size", 0) < _LEAST_RSA and document["kty"] == "RSA":
        return None
    return _Key(key_id, fitting, key)


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """A claim by its name, or by a path with dots where there is none of the whole name."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(part)
    return found


def _instant(seconds: float) -> datetime:
    """An instant of Unix time; the end of all time where it is beyond."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC)
