"""What a webhook sends: a target filled in for a run, and what a redirect makes of it.

Pure. `prepare` reads a target once for all runs of its version; `outgoing` fills it in for one run.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

import orjson

from tickrail.core.errors import InvalidInputError
from tickrail.core.execution import Outcome, Run, one_line
from tickrail.core.secrets import SecretRef
from tickrail.core.target_webhook import (
    HEADER_VALUE,
    MAX_HEADER_VALUE,
    WITHOUT_BODY,
    Webhook,
    url_template,
    webhook_secrets,
)
from tickrail.core.targets import parse_target
from tickrail.core.templates import (
    FillError,
    Room,
    Template,
    compile_value,
    parse_template,
    render_value,
)
from tickrail.executors.http_rules import Endpoint, RawHeaders, endpoint, instant_text

MAX_BODY = 1024 * 1024
_JSON: Final = b"application/json"
_TEXT: Final = b"text/plain; charset=utf-8"
WHSEC: Final = b"whsec_"
_FOLLOWED: Final = frozenset({301, 302, 303, 307, 308})
_CREDENTIALS: Final = frozenset({b"authorization", b"cookie"})
_DOTS: Final = frozenset({".", ".."})


class CertainError(Exception):
    """The call failed and had no effect: nothing was sent, or the answer was a redirect."""

    def __init__(
        self,
        outcome: str,
        message: str,
        *,
        retryable: bool = True,
        snooze: float | None = None,
    ) -> None:
        super().__init__(message)
        self.outcome = Outcome(
            ok=False,
            outcome=outcome,
            retryable=retryable,
            message=one_line(message),
            snooze=snooze,
        )


def invalid(message: str) -> CertainError:
    """The run cannot be what the target says; trying again does not help."""
    return CertainError("invalid_target", message, retryable=False)


class _Header(NamedTuple):
    """A header of the target: its value is known, or comes from a template or a secret."""

    name: bytes
    value: bytes | Template | SecretRef


@dataclass(frozen=True, slots=True)
class Prepared:
    """A target, read.

    Attributes:
        target: the value.
        url: its template; None where it has no placeholders.
        to: where calls go, but for what placeholders put into the path.
        headers: in order.
        body: ready for `render_value`; None: the payload.
        secrets: the names of all secrets that a call needs.
    """

    target: Webhook
    url: Template | None
    to: Endpoint
    headers: tuple[_Header, ...]
    body: object
    secrets: tuple[str, ...]


def prepare(document: Mapping[str, object]) -> Prepared:
    """Read a target document.

    Raises:
        CertainError: it is no webhook that can be called.
    """
    try:
        target = parse_target(document)
    except InvalidInputError as error:
        raise invalid(str(error)) from error
    if not isinstance(target, Webhook):
        raise invalid("not a webhook")
    url = url_template(target.url)
    return Prepared(
        target,
        None if url.fixed else url,
        endpoint(target.example_url),
        tuple(_Header(name.encode(), _compiled(value)) for name, value in target.headers),
        None if target.body is None else compile_value(target.body),
        tuple(sorted({name for _, name in webhook_secrets(target)})),
    )


def _compiled(value: str | SecretRef) -> bytes | Template | SecretRef:
    if isinstance(value, SecretRef):
        return value
    template = parse_template(value)
    # HTTP drops the space round a value; h11 refuses it.
    return template.fill(str).strip(" \t").encode("latin-1") if template.fixed else template


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as it will be sent.

    Attributes:
        method: upper case.
        to: where.
        body: may be empty.
        content_type: of the body, unless the target's headers have one.
        own: the target's headers: name, value, whether the value is a secret.
        ours: those of Tickrail, which nothing can replace.
        signature: proves to the target's own origin who calls.
    """

    method: str
    to: Endpoint
    body: bytes
    content_type: bytes
    own: tuple[tuple[bytes, bytes, bool], ...]
    ours: RawHeaders
    signature: RawHeaders

    def headers(self, user_agent: bytes) -> RawHeaders:
        """All headers, in order."""
        own = {name.lower() for name, _, _ in self.own}
        headers: RawHeaders = [(b"Host", self.to.authority)]
        for name, value in (
            (b"User-Agent", user_agent),
            (b"Accept", b"*/*"),
            (b"Accept-Encoding", b"identity"),
        ):
            if name.lower() not in own:
                headers.append((name, value))
        if self.body and b"content-type" not in own:
            headers.append((b"Content-Type", self.content_type))
        headers += [(name, value) for name, value, _ in self.own]
        headers += self.ours
        headers += self.signature
        if self.body or self.method not in WITHOUT_BODY:
            headers.append((b"Content-Length", b"%d" % len(self.body)))
        return headers


def outgoing(prepared: Prepared, run: Run, secrets: Mapping[str, bytes], now: datetime) -> Outgoing:
    """The request of a run.

    Args:
        prepared: the run's target.
        run: the run.
        secrets: values of the secrets that it names.
        now: when it is signed.

    Raises:
        CertainError: the payload lacks something, or a value cannot be sent.
    """
    target = prepared.target
    try:
        room = Room()
        to = prepared.to if prepared.url is None else _endpoint(prepared.url, run, room)
        body, content_type = _body(prepared, run)
        own = tuple(_header(h, run, room, secrets) for h in prepared.headers)
    except FillError as error:
        raise invalid(f"a template cannot be filled in: {error}") from error
    ours: RawHeaders = [
        (b"Idempotency-Key", str(run.launch_id).encode()),
        (b"Tickrail-Attempt", b"%d" % run.attempt),
    ]
    if run.job_name:
        ours += [
            (b"Fencing-Token", b"%d" % run.claim),
            (b"Tickrail-Job", run.job_name.encode()),
            (b"Tickrail-Scheduled-At", instant_text(run.scheduled_at).encode()),
        ]
    if run.trace:
        ours.append((b"traceparent", run.trace.encode()))
    signature: RawHeaders = []
    if target.signature:
        values = [(ref.name, secrets[ref.name]) for ref in target.signature]
        signature = signed(str(run.launch_id), now, body, values)
    return Outgoing(target.method, to, body, content_type, own, ours, signature)


def _endpoint(url: Template, run: Run, room: Room) -> Endpoint:
    filled = url.render(run, room, lambda text: quote(text, safe=""))
    plain = urlsplit(url.fill(lambda _: "x")).path.split("/")
    parts = urlsplit(filled).path.split("/")
    # A value has no slash left, so both have the same segments; one that became a step up is none
    # of the template's.
    if any(unquote(new) in _DOTS and new != old for new, old in zip(parts, plain, strict=True)):
        raise invalid("the URL's path would leave its place: a value is . or ..")
    try:
        return endpoint(filled)
    except ValueError as error:
        raise invalid(f"the URL cannot be called: {error}") from error


def _body(prepared: Prepared, run: Run) -> tuple[bytes, bytes]:
    """The body and its content type."""
    target = prepared.target
    if target.method in WITHOUT_BODY or (prepared.body is None and run.payload is None):
        return b"", _JSON
    value = (
        run.payload if prepared.body is None else render_value(prepared.body, run, Room(MAX_BODY))
    )
    text = isinstance(value, str) and prepared.body is not None and isinstance(target.body, str)
    try:
        body = value.encode() if text and isinstance(value, str) else _json(value)
    except UnicodeEncodeError as error:
        raise invalid("the body holds a lone surrogate") from error
    if len(body) > MAX_BODY:
        raise invalid(f"the body has {len(body)} bytes; at most {MAX_BODY}")
    if target.content_type is not None:
        return body, target.content_type.encode()
    return body, _TEXT if text else _JSON


def _json(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # a number beyond 64 bits
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _header(
    header: _Header, run: Run, room: Room, secrets: Mapping[str, bytes]
) -> tuple[bytes, bytes, bool]:
    name, value = header
    if isinstance(value, bytes):
        return name, value, False
    if isinstance(value, SecretRef):
        text, secret = secrets[value.name].decode("utf-8", "replace").strip(), True
    else:
        text, secret = value.render(run, room).strip(" \t"), False
    longest = MAX_BODY if secret else MAX_HEADER_VALUE
    if len(text) > longest or not HEADER_VALUE.fullmatch(text):
        raise invalid(f"the header {name.decode()} would have a value that HTTP cannot carry")
    return name, text.encode("latin-1"), secret


def signing_key(value: bytes) -> bytes:
    """The key in a secret: what follows `whsec_` from base64, or any other bytes as they are.

    Raises:
        ValueError: what follows `whsec_` is not base64.
    """
    key = value.strip()
    if not key.startswith(WHSEC):
        return key
    try:
        return base64.b64decode(key[len(WHSEC) :], validate=True)
    except binascii.Error as error:
        raise ValueError("what follows whsec_ is no base64") from error


def signed(
    message: str, now: datetime, body: bytes, secrets: list[tuple[str, bytes]]
) -> RawHeaders:
    """The headers of Standard Webhooks, with a signature for each secret (name, value).

    Raises:
        CertainError: what follows `whsec_` is not base64.
    """
    stamp = str(int(now.timestamp())).encode()
    content = b".".join((message.encode(), stamp, body))
    made: list[bytes] = []
    for name, value in secrets:
        try:
            key = signing_key(value)
        except ValueError as error:
            raise invalid(f"in the secret {name}, {error}") from error
        digest = hmac.digest(key, content, hashlib.sha256)
        made.append(b"v1," + base64.b64encode(digest))
    return [
        (b"webhook-id", message.encode()),
        (b"webhook-timestamp", stamp),
        (b"webhook-signature", b" ".join(made)),
    ]


def is_redirect(status: int, headers: Mapping[bytes, bytes]) -> bool:
    """Whether an answer sends the caller somewhere else."""
    return status in _FOLLOWED and b"location" in headers


def redirected(request: Outgoing, status: int, location: bytes) -> Outgoing:
    """The request that follows a redirect (RFC 9110 15.4, as browsers do it).

    307 and 308 keep method and body; 303 makes it a GET, as do 301 and 302 of a POST. Another
    origin gets no credentials, no secrets and no signature; from https it never goes to http.

    Raises:
        CertainError: it leads nowhere that can be called.
    """
    here = request.to
    base = f"{here.scheme}://{here.authority.decode()}{here.path.decode()}"
    try:
        # What is not ASCII was meant as UTF-8; split_url refuses the rest of what is odd.
        text = re.sub(r"[^\x00-\x7f]+", lambda m: quote(m[0].encode("latin-1")),
                      location.decode("latin-1"))  # fmt: skip
        to = endpoint(urljoin(base, text))
    except ValueError as error:
        raise CertainError("bad_redirect", f"HTTP {status} leads nowhere: {error}") from error
    if here.scheme == "https" and to.scheme == "http":
        raise CertainError("bad_redirect", f"HTTP {status} leads from https to http")
    keeps = status in (307, 308) or (status != 303 and request.method != "POST")  # noqa: PLR2004 - statuses
    changed = replace(request, to=to)
    if not keeps and request.method not in WITHOUT_BODY:
        own = tuple(h for h in changed.own if not h[0].lower().startswith(b"content-"))
        changed = replace(changed, method="GET", body=b"", own=own)
    if to.origin != here.origin:
        own = tuple(h for h in changed.own if not h[2] and h[0].lower() not in _CREDENTIALS)
        changed = replace(changed, own=own, signature=[])
    return changed
