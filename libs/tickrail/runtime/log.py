"""One form of log line for everything in a process, ours and the libraries'.

JSON lines for machines, coloured lines for people; the same keys in both: time, level, process,
event, then job, launch, partition and epoch where they are known, then the rest. No secret is
written: values of keys that name one, passwords inside URLs and API keys are masked.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TextIO

import orjson
import structlog
from structlog.types import EventDict, Processor

from tickrail.runtime.settings_types import mask_url

_FIRST = ("time", "level", "process", "event", "job", "launch", "partition", "epoch")
_SECRET = re.compile(
    r"(^|[_-])(password|passwd|secret|key|authorization|token|pepper)$", re.IGNORECASE
)
_NO_SECRET = frozenset({"idempotency_key", "fencing_token"})
_API_KEY = re.compile(r"\b(trk_[A-Za-z0-9-]+_)[A-Za-z0-9_-]+")
_MASK = "***"
_LIBRARIES = ("uvicorn", "uvicorn.error", "uvicorn.access", "alembic", "sqlalchemy", "asyncio")
_CHATTY = ("httpx", "httpcore", "asyncio", "urllib3", "alembic.runtime.plugins")
_COLORS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "1;31"}
_PLAIN = re.compile(r"[^\s\"'=]+")


def configure(format: str, level: str, process: str, *, stream: TextIO | None = None) -> None:  # noqa: A002 - the setting's name
    """Send every log line of this process to one stream; may be called again.

    Args:
        format: `json`, `color`, or `auto`: colour on a terminal, JSON elsewhere.
        level: the least important lines that are written.
        process: the process's name, on each line.
        stream: where to; standard error by default.
    """
    out = stream if stream is not None else sys.stderr
    color = format == "color" or (format == "auto" and out.isatty())
    shared: list[Processor] = [structlog.contextvars.merge_contextvars]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _exception_of_record],
            processors=[
                _Common(process),
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _masked,
                _ordered,
                _render_color if color else _render_json,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _LIBRARIES:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(capture=True)


_READERS: list[Callable[[], Mapping[str, str]]] = []


def add_fields(read: Callable[[], Mapping[str, str]]) -> None:
    """Have each line from now on carry what this answers on the line's thread."""
    if read not in _READERS:
        _READERS.append(read)


class _Common:
    """Adds what each line has; the instant is the record's own."""

    def __init__(self, process: str) -> None:
        self._process = process

    def __call__(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        record: logging.LogRecord = event["_record"]
        at = datetime.fromtimestamp(record.created, UTC)
        event["time"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event["level"] = record.levelname.lower()
        event["process"] = self._process
        for read in _READERS:
            for name, value in read().items():
                event.setdefault(name, value)
        return event


def _exception_of_record(_logger: object, _method: str, event: EventDict) -> EventDict:
    """The standard library keeps an exception on the record."""
    record: logging.LogRecord = event["_record"]
    if record.exc_info:
        event["exc_info"] = record.exc_info
    return event


def _masked(_logger: object, _method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        event[key] = _mask(key, value)
    return event


def _mask(key: str, value: object) -> object:
    if value and _SECRET.search(key) and key.lower().replace("-", "_") not in _NO_SECRET:
        return _MASK
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, dict):
        return {k: _mask(str(k), v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_mask("", v) for v in value]
    return value


def mask_text(text: str) -> str:
    """The text without passwords inside URLs and without the secrets of API keys."""
    return _API_KEY.sub(rf"\1{_MASK}", mask_url(text))


def _ordered(_logger: object, _method: str, event: EventDict) -> EventDict:
    first = {key: event[key] for key in _FIRST if key in event}
    return first | {key: value for key, value in event.items() if key not in first}


def _render_json(_logger: object, _method: str, event: EventDict) -> str:
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z
    try:
        return orjson.dumps(event, default=str, option=options).decode()
    except TypeError:  # lone surrogates, integers beyond 64 bits: written, if less exactly
        return orjson.dumps({k: _safe(v) for k, v in event.items()}, option=options).decode()


def _safe(value: object) -> str:
    return str(value).encode("utf-8", "backslashreplace").decode()


def _render_color(_logger: object, _method: str, event: EventDict) -> str:
    taken = ("time", "level", "process", "event", "exception")
    time, level, process, text, trace = (event.get(key, "") for key in taken)
    clock = str(time)[11:23]
    code = _COLORS.get(str(level), "0")
    rest = _pairs((k, v) for k, v in event.items() if k not in taken)
    line = (
        f"\x1b[2m{clock}\x1b[0m \x1b[{code}m{level:<7}\x1b[0m"
        f" \x1b[36m{process:<12}\x1b[0m \x1b[1m{_safe(text)}\x1b[0m{rest}"
    )
    return f"{line}\n{_safe(trace)}" if trace else line


def _pairs(items: Iterable[tuple[str, object]]) -> str:
    found = []
    for key, value in items:
        text = _safe(value)
        shown = text if _PLAIN.fullmatch(text) else orjson.dumps(text).decode()
        found.append(f" \x1b[2m{key}=\x1b[0m{shown}")
    return "".join(found)
