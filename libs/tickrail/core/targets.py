"""What a job runs: validated target documents (docs: api, "A job").

`parse_target` turns the JSON document into a value and names each thing that is wrong with its
JSON pointer; `target_document` turns the value back. A value that exists is valid.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from urllib.parse import SplitResult, urlsplit

from tickrail.core.documents import MAX_UNKNOWN
from tickrail.core.errors import InvalidInputError, Problem

KINDS = ("webhook", "kafka", "command", "task", "noop")
"""Every kind of target that has a name."""

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
MAX_URL = 2048
MAX_HEADERS = 50
MAX_HEADER_VALUE = 4096
MAX_ARGUMENTS = 1000
MAX_TEXT = 128 * 1024
"""Linux refuses one argument or variable longer than this."""

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
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\$?")
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


@dataclass(slots=True, frozen=True)
class Command:
    """A program on the worker's machine: a list of arguments, or a line for the shell.

    Attributes:
        argv: program and arguments; empty when `shell` is given.
        shell: a line for `$SHELL -c`, or None.
        env: variables added to the small environment that every command gets.
        cwd: absolute path of the folder to run in; None for the user's home.
        user: name of the user to run as; None for the worker's own.
        stdin: text for standard input; None for the empty input.
    """

    argv: tuple[str, ...] = ()
    shell: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    cwd: str | None = None
    user: str | None = None
    stdin: str | None = None


@dataclass(slots=True, frozen=True)
class Noop:
    """Nothing at all; succeeds at once. For load tests."""


Target = Webhook | Command | Noop


def target_kind(target: Target) -> str:
    """The name of the target's kind."""
    return type(target).__name__.lower()


def parse_target(doc: object, pointer: str = "/target") -> Target:
    """Read a target document.

    Args:
        doc: `{"<kind>": {...}}`, as decoded from JSON.
        pointer: where the document stands in the whole, for the problems.

    Raises:
        InvalidInputError: with one problem for each thing that is wrong.
    """
    problems: list[Problem] = []
    target = _read(doc, pointer, problems)
    if problems or target is None:
        raise InvalidInputError("The target is not valid.", tuple(problems))
    return target


def target_document(target: Target) -> dict[str, object]:
    """The document of a target, every field named."""
    match target:
        case Webhook():
            rule: list[object] = [int(s) if s.isdigit() else s for s in target.success]
            success = rule if len(rule) > 1 or isinstance(rule[0], int) else rule[0]
            return {
                "webhook": {
                    "url": target.url,
                    "method": target.method,
                    "headers": dict(target.headers),
                    "success": success,
                }
            }
        case Command():
            what: dict[str, object] = (
                {"argv": list(target.argv)} if target.shell is None else {"shell": target.shell}
            )
            what["env"] = dict(target.env)
            for name in ("cwd", "user", "stdin"):
                if (value := getattr(target, name)) is not None:
                    what[name] = value
            return {"command": what}
        case Noop():
            return {"noop": {}}


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


# --- reading -------------------------------------------------------------------------------------


def _read(doc: object, pointer: str, problems: list[Problem]) -> Target | None:
    if not isinstance(doc, Mapping) or len(doc) != 1:
        problems.append(
            Problem(pointer, "a target is an object with one key, its kind", _readable_kinds())
        )
        return None
    kind, fields = next(iter(doc.items()))
    at = f"{pointer}/{_escape(str(kind))}"
    reader = _READERS.get(str(kind))
    if reader is None:
        near = difflib.get_close_matches(str(kind), _READERS, 1)
        hint = f"did you mean {near[0]}?" if near else _readable_kinds()
        known = str(kind) in KINDS
        problems.append(
            Problem(at, "this kind of target is not available" if known else "unknown kind", hint)
        )
        return None
    if not isinstance(fields, Mapping):
        problems.append(Problem(at, "is not an object", "an object with the target's fields"))
        return None
    return reader(_Fields(fields, at, problems))


def _readable_kinds() -> str:
    return "one of " + ", ".join(_READERS)


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


class _Fields:
    """The fields of one document, read one by one; what is wrong goes into `problems`."""

    def __init__(self, fields: Mapping[object, object], at: str, problems: list[Problem]) -> None:
        self._fields = {str(k): v for k, v in fields.items()}
        self._at = at
        self._problems = problems

    def wrong(self, field: str, message: str, expected: str = "") -> None:
        where = f"{self._at}/{field}" if field else self._at
        self._problems.append(Problem(where, message, expected))

    def only(self, *known: str) -> None:
        unknown = (name for name in self._fields if name not in known)
        for name in islice(unknown, MAX_UNKNOWN):
            near = difflib.get_close_matches(name, known, 1)
            right = f"did you mean {near[0]}?" if near else "known: " + ", ".join(known)
            self.wrong(_escape(name), "unknown field", right)

    def has(self, field: str) -> bool:
        return self._fields.get(field) is not None

    def get(self, field: str) -> object:
        return self._fields.get(field)

    def text(self, field: str, expected: str, *, limit: int = MAX_TEXT) -> str | None:
        """A string without NUL, or None when it is not there or not right."""
        value = self._fields.get(field)
        if value is None:
            return None
        if not isinstance(value, str):
            self.wrong(field, "is not a string", expected)
            return None
        return value if self.clean(field, value, limit) else None

    def clean(self, field: str, value: str, limit: int = MAX_TEXT) -> bool:
        """Whether a text can be handed to a program: no NUL, valid Unicode, not too long."""
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            self.wrong(field, "holds a lone surrogate", "valid Unicode")
            return False
        if "\x00" in value:
            self.wrong(field, "holds a NUL character", "text without NUL")
            return False
        if size > limit:
            self.wrong(field, f"has {size} bytes", f"at most {limit} bytes")
            return False
        return True

    def pairs(self, field: str) -> list[tuple[str, str]]:
        """An object of strings."""
        value = self._fields.get(field)
        if value is None:
            return []
        if not isinstance(value, Mapping):
            self.wrong(field, "is not an object", "an object of strings")
            return []
        pairs: list[tuple[str, str]] = []
        for name, text in value.items():
            where = f"{field}/{_escape(str(name))}"
            if not isinstance(text, str):
                self.wrong(where, "is not a string", "a string")
            elif self.clean(where, text):
                pairs.append((str(name), text))
        return pairs


def _webhook(fields: _Fields) -> Webhook | None:
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


def _headers(fields: _Fields) -> list[tuple[str, str]]:
    headers = fields.pairs("headers")
    if len(headers) > MAX_HEADERS:
        fields.wrong("headers", f"has {len(headers)} headers", f"at most {MAX_HEADERS}")
    seen: set[str] = set()
    for name, value in headers:
        where, lower = f"headers/{_escape(name)}", name.lower()
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


def _success(fields: _Fields) -> tuple[str, ...]:
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


def _command(fields: _Fields) -> Command | None:
    fields.only("argv", "shell", "env", "cwd", "user", "stdin")
    argv = _argv(fields)
    shell = fields.text("shell", "a command line")
    if fields.has("argv") == fields.has("shell"):
        fields.wrong("", "needs argv or shell, and not both", '{"argv": ["/bin/true"]}')
    if shell is not None and not shell.strip():
        fields.wrong("shell", "is empty", "a command line")
    env = fields.pairs("env")
    for name, _ in env:
        if not _ENV_NAME.fullmatch(name):
            fields.wrong(f"env/{_escape(name)}", "is not a variable name", "letters, digits, _")
        elif name.startswith("TICKRAIL_"):
            fields.wrong(f"env/{name}", "is set by Tickrail", "a name without TICKRAIL_")
    cwd = fields.text("cwd", "an absolute path", limit=4096)
    if cwd is not None and not cwd.startswith("/"):
        fields.wrong("cwd", "is not absolute", "an absolute path")
    user = fields.text("user", "a user name")
    if user is not None and not _USER.fullmatch(user):
        fields.wrong("user", "is not a user name", "a name like backup")
    stdin = fields.text("stdin", "a text", limit=1 << 20)
    return Command(argv, shell, tuple(env), cwd, user, stdin)


def _argv(fields: _Fields) -> tuple[str, ...]:
    value = fields.get("argv")
    if value is None:
        return ()
    if not isinstance(value, list) or not 0 < len(value) <= MAX_ARGUMENTS:
        fields.wrong("argv", "is not a list of arguments", f"1 to {MAX_ARGUMENTS} strings")
        return ()
    argv: list[str] = []
    for i, item in enumerate(value):
        if not isinstance(item, str):
            fields.wrong(f"argv/{i}", "is not a string", "a string")
        elif not item and i == 0:
            fields.wrong("argv/0", "is empty", "a program")
        elif fields.clean(f"argv/{i}", item):
            argv.append(item)
    return tuple(argv)


def _noop(fields: _Fields) -> Noop:
    fields.only()
    return Noop()


_READERS: Mapping[str, Callable[[_Fields], Target | None]] = {
    "webhook": _webhook,
    "command": _command,
    "noop": _noop,
}
