"""The webhook target: an HTTP call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

from tickrail.core.documents import escape
from tickrail.core.secrets import SecretRef, read_reference
from tickrail.core.target_fields import TargetFields
from tickrail.core.templates import Template, compile_value, parse_template

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
MAX_URL = 2048
MAX_HOST = 253
MAX_LABEL = 63
"""Characters of a host, and of each part of it between two dots."""
MAX_HEADERS = 50
MAX_HEADER_VALUE = 4096
MAX_REDIRECTS = 5
MAX_SIGNATURES = 4
WITHOUT_BODY = frozenset({"GET", "HEAD"})
RESERVED_HEADERS = frozenset(
    {
        "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te",
        "trailer", "expect", "proxy-authorization", "proxy-connection", "idempotency-key",
        "fencing-token", "traceparent", "webhook-id", "webhook-timestamp", "webhook-signature",
    }
)  # fmt: skip
RESERVED_PREFIX = "tickrail-"

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
"""What a header's value may be."""
_SCHEME = re.compile(r"[a-z]+://", re.IGNORECASE)
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(\s*;\s*[\w-]+=[\w.\"-]+)*", re.ASCII)
_STATUS_CLASS = re.compile(r"[1-5]xx")
_URL_CHARACTERS = re.compile(r"[\x21-\x7e]+")
_MIN_STATUS, _MAX_STATUS = 200, 599
_TOP_PORT = 65535


@dataclass(slots=True, frozen=True)
class Tls:
    """Certificates of a call: PEM texts in secrets.

    Attributes:
        ca: authorities that the receiver's certificate is checked against, in place of the usual
            ones.
        certificate: what the call shows the receiver, with the chain behind it.
        key: its private key.
    """

    ca: SecretRef | None = None
    certificate: SecretRef | None = None
    key: SecretRef | None = None


@dataclass(slots=True, frozen=True)
class Webhook:
    """An HTTP call.

    Attributes:
        url: a template: http or https, ASCII, placeholders in path and query only.
        method: upper case.
        headers: pairs in the order given; a value is a template, or a secret.
        success: statuses (`200`) and classes of statuses (`2xx`) that count as success.
        body: a template: a text, or a JSON value whose strings are templates; None sends the
            payload as JSON.
        content_type: of the body; None: by what the body is.
        redirects: so many are followed.
        tls: certificates, or None for the usual ones.
        signature: secrets that the call is signed with, each (Standard Webhooks).
    """

    url: str
    method: str = "POST"
    headers: tuple[tuple[str, str | SecretRef], ...] = ()
    success: tuple[str, ...] = ("2xx",)
    body: object = None
    content_type: str | None = None
    redirects: int = 0
    tls: Tls | None = None
    signature: tuple[SecretRef, ...] = ()

    def succeeds(self, status: int) -> bool:
        """Whether an answer with this status is a success."""
        return str(status) in self.success or f"{status // 100}xx" in self.success

    @property
    def example_url(self) -> str:
        """The URL with something in place of each placeholder: the host is that of every call."""
        return url_template(self.url).fill(lambda _: "x")


def webhook_document(target: Webhook) -> dict[str, object]:
    """The fields of its document; those that were not given are left out, but the first four."""
    rule: list[object] = [int(s) if s.isdigit() else s for s in target.success]
    success = rule if len(rule) > 1 or isinstance(rule[0], int) else rule[0]
    document: dict[str, object] = {
        "url": target.url,
        "method": target.method,
        "headers": {n: v.document() if isinstance(v, SecretRef) else v for n, v in target.headers},
        "success": success,
    }
    if target.body is not None:
        document["body"] = target.body
    if target.content_type is not None:
        document["content_type"] = target.content_type
    if target.redirects:
        document["redirects"] = target.redirects
    if target.tls is not None:
        document["tls"] = {name: ref.document() for name, ref in _tls_parts(target.tls)}
    if target.signature:
        document["signature"] = {"secrets": [ref.document() for ref in target.signature]}
    return document


def webhook_secrets(target: Webhook) -> Iterator[tuple[str, str]]:
    """The secrets that it names: where (in its fields), and the name."""
    for name, value in target.headers:
        if isinstance(value, SecretRef):
            yield f"headers/{escape(name)}/secret", value.name
    if target.tls is not None:
        for part, ref in _tls_parts(target.tls):
            yield f"tls/{part}/secret", ref.name
    for i, ref in enumerate(target.signature):
        yield f"signature/secrets/{i}/secret", ref.name


def _tls_parts(tls: Tls) -> Iterator[tuple[str, SecretRef]]:
    parts = {"ca": tls.ca, "client_certificate": tls.certificate, "client_key": tls.key}
    yield from ((name, ref) for name, ref in parts.items() if ref is not None)


def url_template(url: str) -> Template:
    """The template of a URL, its placeholders behind the host and before the fragment.

    Raises:
        ValueError: says what is wrong and what would be right.
    """
    template = parse_template(url)
    before = ""
    for part in template.parts:
        if isinstance(part, str):
            before += part
            continue
        rest = _SCHEME.sub("", before, count=1)
        if not _SCHEME.match(before) or not re.search(r"[/?]", rest):
            raise ValueError("the host is fixed text: placeholders are for path and query")
        if "#" in rest:
            raise ValueError("a fragment is not sent, so it has no placeholders")
        before += "x"
    return template


def split_url(url: str) -> SplitResult:
    """Split a URL that a target may have.

    Refused: other schemes than http and https, user and password before the host, backslashes,
    spaces, control and non-ASCII characters (readers disagree on what such a URL means), an empty
    host, one that no name server takes or with a dot at its end, a port outside 1..65535, a zone in
    an IPv6 address.

    Raises:
        ValueError: says what is wrong and what would be right.
    """
    if not 0 < len(url) <= MAX_URL:
        raise ValueError(f"a URL has 1 to {MAX_URL} characters")
    if not _URL_CHARACTERS.fullmatch(url):
        raise ValueError("a URL is ASCII without spaces; write others in percent or xn-- form")
    if "\\" in url:
        raise ValueError("a URL has no backslash; write it as %5C")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"not a URL: {error}") from None
    if parts.scheme not in {"http", "https"}:
        raise ValueError("the URL starts with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("no user or password in the URL; use a header")
    _check_host(parts.hostname or "")
    if port is not None and not 0 < port <= _TOP_PORT:
        raise ValueError("the port is 1 to 65535")
    return parts


def _check_host(host: str) -> None:
    """Refuse what no name server takes: RFC 1035, 2.3.4."""
    if not host or "%" in host:
        raise ValueError("the URL names no plain host")
    if host.endswith("."):
        raise ValueError("the host has no dot at its end")
    if ":" in host:  # an IPv6 address
        return
    if len(host) > MAX_HOST or not all(0 < len(part) <= MAX_LABEL for part in host.split(".")):
        raise ValueError(
            f"the host has {MAX_HOST} characters at most, each part between dots 1 to {MAX_LABEL}"
        )


def read_webhook(fields: TargetFields) -> Webhook | None:
    """The target; problems go to the fields."""
    fields.only(
        "url", "method", "headers", "success", "body", "content_type", "redirects", "tls",
        "signature",
    )  # fmt: skip
    url = _url(fields)
    method = fields.text("method", "one of " + ", ".join(METHODS)) or "POST"
    if method not in METHODS:
        fields.wrong("method", f"{method[:20]!r} is not a method", "one of " + ", ".join(METHODS))
    headers = _headers(fields)
    found = Webhook(
        url or "",
        method,
        tuple(headers),
        _success(fields),
        _body(fields, method),
        _content_type(fields, headers),
        _redirects(fields),
        _tls(fields, url),
        _signature(fields),
    )
    return None if url is None else found


def _url(fields: TargetFields) -> str | None:
    url = fields.text("url", "an http or https URL", limit=4 * MAX_URL)
    if not fields.has("url"):
        fields.wrong("url", "is missing", "an http or https URL")
    if url is None:
        return None
    fault = _fault(url)
    if fault is not None:
        fields.wrong("url", "is not a URL that can be called", fault)
        return None
    return url


# Many jobs call the same few URLs.
@lru_cache(maxsize=1024)
def _fault(url: str) -> str | None:
    """What would be right, where a URL cannot be called."""
    try:
        split_url(url_template(url).fill(lambda _: "x"))
    except ValueError as error:
        return str(error)
    return None


def _headers(fields: TargetFields) -> list[tuple[str, str | SecretRef]]:
    given = fields.get("headers")
    if given is None:
        return []
    if not isinstance(given, Mapping):
        fields.wrong("headers", "is not an object", "an object of strings")
        return []
    if len(given) > MAX_HEADERS:
        fields.wrong("headers", f"has {len(given)} headers", f"at most {MAX_HEADERS}")
        return []
    headers: list[tuple[str, str | SecretRef]] = []
    seen: set[str] = set()
    for name, value in given.items():
        where, lower = f"headers/{escape(name)}", name.lower()
        if not _HEADER_NAME.fullmatch(name):
            fields.wrong(where, "is not a header name", "letters, digits and -")
        elif lower in RESERVED_HEADERS or lower.startswith(RESERVED_PREFIX):
            fields.wrong(where, "is set by Tickrail or by the connection", "another name")
        elif lower in seen:
            fields.wrong(where, "is there twice", "one spelling of each name")
        found = _header_value(fields, where, value)
        if found is not None:
            headers.append((name, found))
        seen.add(lower)
    return headers


def _header_value(fields: TargetFields, where: str, value: object) -> str | SecretRef | None:
    if isinstance(value, Mapping):
        return read_reference(fields, where, value)
    if not isinstance(value, str):
        fields.wrong(where, "is not a string", 'a string, or {"secret": "name"}')
        return None
    if len(value) > MAX_HEADER_VALUE or not HEADER_VALUE.fullmatch(value):
        fields.wrong(
            where,
            "has a value that HTTP cannot carry",
            f"at most {MAX_HEADER_VALUE} Latin-1 characters on one line",
        )
        return None
    return value if _template(fields, where, value) else None


def _template(fields: TargetFields, where: str, value: object) -> bool:
    try:
        compile_value(value)
    except ValueError as error:
        fields.wrong(where, "is not a template", str(error))
        return False
    return True


def _body(fields: TargetFields, method: str) -> object:
    body = fields.json("body")
    if body is None:
        return None
    if method in WITHOUT_BODY:
        fields.wrong("body", f"has no meaning with {method}", "a method with a body")
    return body if _template(fields, "body", body) else None


def _content_type(fields: TargetFields, headers: list[tuple[str, str | SecretRef]]) -> str | None:
    expected = "a media type such as application/xml; charset=utf-8"
    value = fields.text("content_type", expected, limit=200)
    if value is None:
        return None
    if not _MEDIA_TYPE.fullmatch(value):
        fields.wrong("content_type", f"is {value[:60]!r}", expected)
    if any(name.lower() == "content-type" for name, _ in headers):
        fields.wrong("content_type", "is among the headers, too", "one of the two")
    return value


def _redirects(fields: TargetFields) -> int:
    value = fields.get("redirects")
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_REDIRECTS:
        fields.wrong("redirects", f"is {value!r:.40}", f"a whole number from 0 to {MAX_REDIRECTS}")
        return 0
    return value


def _tls(fields: TargetFields, url: str | None) -> Tls | None:
    value = fields.get("tls")
    if value is None:
        return None
    known = ("ca", "client_certificate", "client_key")
    if not isinstance(value, Mapping):
        fields.wrong("tls", "is not an object", "an object with " + ", ".join(known))
        return None
    for name in value:
        if name not in known:
            fields.wrong(f"tls/{escape(str(name))}", "unknown field", "known: " + ", ".join(known))
    given = [n for n in known if value.get(n) is not None]
    parts = {n: read_reference(fields, f"tls/{n}", value[n]) for n in given}
    if ("client_certificate" in parts) != ("client_key" in parts):
        missing = "client_key" if "client_certificate" in parts else "client_certificate"
        fields.wrong(f"tls/{missing}", "is missing", "certificate and key together")
    if url is not None and not url.lower().startswith("https:"):
        fields.wrong("tls", "has no meaning with http", "an https URL")
    return Tls(*(parts.get(n) for n in known)) if parts else None


def _signature(fields: TargetFields) -> tuple[SecretRef, ...]:
    value = fields.get("signature")
    if value is None:
        return ()
    expected = '{"secrets": [{"secret": "name"}, ...]}'
    if not isinstance(value, Mapping) or set(value) != {"secrets"}:
        fields.wrong("signature", "does not name its secrets", expected)
        return ()
    secrets = value["secrets"]
    if not isinstance(secrets, list) or not 1 <= len(secrets) <= MAX_SIGNATURES:
        fields.wrong("signature/secrets", "is no such list", f"1 to {MAX_SIGNATURES} references")
        return ()
    refs = [read_reference(fields, f"signature/secrets/{i}", s) for i, s in enumerate(secrets)]
    return tuple(ref for ref in refs if ref is not None)


def _success(fields: TargetFields) -> tuple[str, ...]:
    value = fields.get("success")
    if value is None:
        return ("2xx",)
    items = value if isinstance(value, list) else [value]
    rule: list[str] = []
    for item in items:
        if isinstance(item, str) and _STATUS_CLASS.fullmatch(item):
            rule.append(item)
        elif (
            isinstance(item, int)
            and not isinstance(item, bool)
            and _MIN_STATUS <= item <= _MAX_STATUS
        ):
            rule.append(str(item))
        else:
            fields.wrong("success", f"{item!r:.40} is no status", '"2xx" or a list like [200, 404]')
    if not items:
        fields.wrong("success", "is empty", '"2xx" or a list like [200, 404]')
    return tuple(rule)
