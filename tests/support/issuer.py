"""An issuer of tokens in a test: key pairs, tokens, and its documents, by HTTP too."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tickrail.core.errors import UnavailableError

AUDIENCE = "tickrail"
_MADE: dict[int, rsa.RSAPrivateKey] = {}


def rsa_key(number: int, size: int = 2048) -> rsa.RSAPrivateKey:
    """A key pair, made once for all tests: that takes time."""
    if number not in _MADE:
        _MADE[number] = rsa.generate_private_key(65537, size)
    return _MADE[number]


def jwk(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, key_id: str) -> dict[str, Any]:
    """The public half, as a JWK set has it."""
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        found = RSAAlgorithm.to_jwk(public, as_dict=True)
    else:
        found = ECAlgorithm.to_jwk(public, as_dict=True)
    return {**found, "kid": key_id, "use": "sig"}


def pem(key: rsa.RSAPrivateKey) -> bytes:
    """The public half, as text: what a forger has."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@dataclass
class Issuer:
    """Its URL, its keys by id, and what goes wrong with it."""

    url: str
    now: Callable[[], datetime]
    keys: dict[str, Any] = field(default_factory=lambda: {"k1": rsa_key(1)})
    away: bool = False
    asked: list[str] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    name: str = ""

    def documents(self) -> Mapping[str, Any]:
        """What is found at each path."""
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.name or self.url,
                "jwks_uri": f"{self.url}/keys",
            },
            "/keys": {"keys": [jwk(key, key_id) for key_id, key in self.keys.items()]},
        }

    def fetch(self, url: str) -> Mapping[str, Any]:
        """As a process reads them, without HTTP."""
        path = url.removeprefix(self.url)
        self.asked.append(path)
        if self.away:
            raise UnavailableError(f"{url} does not answer.")
        found: Mapping[str, Any] = self.documents()[path]
        return found

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Good claims, with some of them changed; None: left out."""
        now = self.now().timestamp()
        found = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "user-1",
            "iat": now,
            "exp": now + 300,
            "tickrail_tenant": "acme",
            "scope": "openid read write",
        }
        return {k: v for k, v in (found | changed).items() if v is not None}

    def token(
        self,
        *,
        key_id: str | None = "k1",
        algorithm: str = "RS256",
        key: Any = None,
        headers: Mapping[str, Any] | None = None,
        **changed: Any,
    ) -> str:
        """A token with these claims."""
        made = {**({} if key_id is None else {"kid": key_id}), **(headers or {})}
        signer = self.keys[key_id or "k1"] if key is None else key
        return jwt.encode(self.claims(**changed), signer, algorithm, made)


@contextmanager
def served_issuer(now: Callable[[], datetime]) -> Iterator[Issuer]:
    """An issuer behind HTTP; without `gate` being set, an issuer that is away answers nothing."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked.append(self.path)
            if issuer.away:
                issuer.gate.wait(20)
                return
            raw = json.dumps(issuer.documents()[self.path]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer = Issuer(f"http://127.0.0.1:{server.server_address[1]}", now)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="issuer", daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        issuer.gate.set()
        server.shutdown()
        thread.join(10)
        server.server_close()
