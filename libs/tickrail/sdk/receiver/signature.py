"""Signatures of webhooks as Standard Webhooks has them: made over `id.timestamp.body`.

webhook-id: 019a...                the launch, the same at every attempt
webhook-timestamp: 1767225600      Unix seconds of this attempt
webhook-signature: v1,<base64> v1,<base64>    one for each secret that is valid at the moment
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

TOLERANCE = timedelta(minutes=5)
PREFIX = "whsec_"

_VERSION = b"v1,"
_MAX_SIGNATURES = 20
_MAX_DIGITS = 12


class SignatureError(Exception):
    """A request is not signed, not by one of the secrets, or not now."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A request whose signature is right.

    Attributes:
        id: of the message; the same when it is sent again.
        at: when it was signed, aware, in UTC.
    """

    id: str
    at: datetime


def signing_key(secret: str | bytes) -> bytes:
    """The bytes of a secret: `whsec_` and base64, or any other text or bytes as they are.

    White space round it does not count: a file often ends with a newline.

    Raises:
        ValueError: what follows `whsec_` is not base64, or there is nothing.
    """
    raw = (secret.encode() if isinstance(secret, str) else secret).strip()
    if raw.startswith(PREFIX.encode()):
        try:
            raw = base64.b64decode(raw[len(PREFIX) :], validate=True)
        except binascii.Error as error:
            raise ValueError(f"what follows {PREFIX} is not base64") from error
    if not raw:
        raise ValueError("the secret is empty")
    return raw


def sign(message: str, at: datetime, body: bytes, secrets: Iterable[str | bytes]) -> str:
    """The value of `webhook-signature`; for senders and for tests of receivers.

    Args:
        message: the id.
        at: when it is sent, aware.
        body: as it is sent, to the byte.
        secrets: those valid now.
    """
    stamp = str(int(at.timestamp())).encode()
    made = (_digest(signing_key(secret), message.encode(), stamp, body) for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in made)


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secrets: Sequence[str | bytes],
    *,
    now: datetime,
    tolerance: timedelta = TOLERANCE,
) -> Signed:
    """Check the signature of a request.

    Args:
        headers: of the request; names in any case.
        body: as it came, to the byte; text that was parsed and written again does not do.
        secrets: valid ones; one of them must have signed.
        now: the present instant, aware.
        tolerance: how far the time of the signature may lie from the present, either way. It bounds
            how long a request that somebody recorded can be sent again.

    Raises:
        SignatureError: says what is wrong; the sender learns nothing of the secrets from it.
        ValueError: one of the secrets is not usable.
    """
    keys = [signing_key(secret) for secret in secrets]
    found = {name.lower(): value for name, value in headers.items()}
    message, stamp, signatures = (
        found.get(f"webhook-{name}", "").strip() for name in ("id", "timestamp", "signature")
    )
    if not (message and stamp and signatures):
        raise SignatureError("the request is not signed (webhook-id, -timestamp, -signature)")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= _MAX_DIGITS):
        raise SignatureError("webhook-timestamp is not a number of seconds")
    if abs(now.timestamp() - int(stamp)) > tolerance.total_seconds():
        raise SignatureError("the signature is too old or from the future")
    at = datetime.fromtimestamp(int(stamp), UTC)
    given = [_decoded(one) for one in signatures.split()[:_MAX_SIGNATURES]]
    right = False
    for key in keys:
        # Header values are compared as the bytes that came; each pair takes the same time.
        digest = _digest(key, _bytes(message), stamp.encode(), body)
        for one in given:
            right |= hmac.compare_digest(digest, one)
    if not right:
        raise SignatureError("no signature is by a secret that is known here")
    return Signed(message, at)


def _digest(key: bytes, message: bytes, stamp: bytes, body: bytes) -> bytes:
    return hmac.digest(key, b".".join((message, stamp, body)), hashlib.sha256)


def _decoded(text: str) -> bytes:
    """The bytes of a `v1` signature; nothing for other versions and for what is no base64."""
    raw = _bytes(text)
    try:
        return base64.b64decode(raw[3:], validate=True) if raw.startswith(_VERSION) else b""
    except binascii.Error:
        return b""


def _bytes(text: str) -> bytes:
    """A header's value as it came: servers decode headers as Latin-1."""
    return text.encode("latin-1", "replace")
