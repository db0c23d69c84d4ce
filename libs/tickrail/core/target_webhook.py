"""The webhook target: an HTTP call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from tickrail.core.documents import escape
from tickrail.core.target_fields import TargetFields

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
MAX_URL = 2048
MAX_HEADERS = 50
MAX_HEADER_VALUE = 4096
RESERVED_HEADERS = frozenset(
    {
        "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te",
        "trailer", "expect", "proxy-authorization", "proxy-connection", "idempotency-key",
        "fencing-token", "traceparent", "webhook-id", "webhook-timestamp", "webhook-signature",
    }
)  # fmt: skip
RESERVED_PREFIX = "tickrail-"

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_STATUS_CLASS = re.compile(r"[1-5]xx")
_URL_CHARACTERS = re.compile(r"[\x21-\x7e]+")
_MIN_STATUS, _MAX_STATUS = 200, 599
_TOP_PORT = 65535


@dataclass(slots=True, frozen=True)
class Webhook:
    """An HTTP call.

    Attributes:
        url: http or https, ASCII.
        method: upper case.
        headers: pairs in the order given.
        success: statuses (`200`) and classes of statuses (`2xx`) that count as success.
    """

    url: str
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    success: tuple[str, ...] = ("2xx",)

    def succeeds(self, status: int) -> bool:
        """Whether an answer with this status is a success."""
        return str(status) in self.success or f"{status // 100}xx" in self.success


def webhook_document(target: Webhook) -> dict[str, object]:
    """The fields of its document."""
    rule: list[object] = [int(s) if s.isdigit() else s for s in target.success]
    success = rule if len(rule) > 1 or isinstance(rule[0], int) else rule[0]
    return {
        "url": target.url,
        "method": target.method,
        "headers": dict(target.headers),
        "success": success,
    }


def split_url(url: str) -> SplitResult:
    """Split a URL that a target may have.

    Refused: other schemes than http and https, user and password before the host, backslashes,
    spaces, control and non-ASCII characters (readers disagree on what such a URL means), an empty
    host or one with a dot at its end, a port outside 1..65535, a zone in an IPv6 address.

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
    host = parts.hostname or ""
    if not host or "%" in host:
        raise ValueError("the URL names no plain host")
    if host.endswith("."):
        raise ValueError("the host has no dot at its end")
    if port is not None and not 0 < port <= _TOP_PORT:
        raise ValueError("the port is 1 to 65535")
    return parts


def read_webhook(fields: TargetFields) -> Webhook | None:
    """The target; problems go to the fields."""
    fields.only("url", "method", "headers", "success")
    url = fields.text("url", "an http or https URL", limit=4 * MAX_URL)
    if not fields.has("url"):
        fields.wrong("url", "is missing", "an http or https URL")
    if url is not None:
        try:
            split_url(url)
        except ValueError as error:
            fields.wrong("url", "is not a URL that can be called", str(error))
            url = None
    method = fields.text("method", "one of " + ", ".join(METHODS)) or "POST"
    if method not in METHODS:
        fields.wrong("method", f"{method[:20]!r} is not a method", "one of " + ", ".join(METHODS))
    headers = _headers(fields)
    success = _success(fields)
    return None if url is None else Webhook(url, method, tuple(headers), success)


def _headers(fields: TargetFields) -> list[tuple[str, str]]:
    headers = fields.pairs("headers")
    if len(headers) > MAX_HEADERS:
        fields.wrong("headers", f"has {len(headers)} headers", f"at most {MAX_HEADERS}")
    seen: set[str] = set()
    for name, value in headers:
        where, lower = f"headers/{escape(name)}", name.lower()
        if not _HEADER_NAME.fullmatch(name):
            fields.wrong(where, "is not a header name", "letters, digits and -")
        elif lower in RESERVED_HEADERS or lower.startswith(RESERVED_PREFIX):
            fields.wrong(where, "is set by Tickrail or by the connection", "another name")
        elif lower in seen:
            fields.wrong(where, "is there twice", "one spelling of each name")
        if len(value) > MAX_HEADER_VALUE or not _HEADER_VALUE.fullmatch(value):
            fields.wrong(
                where,
                "has a value that HTTP cannot carry",
                f"at most {MAX_HEADER_VALUE} Latin-1 characters on one line",
            )
        seen.add(lower)
    return headers


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
