"""What the audit log shows of a document: everything but what looks like a credential.

A target should name its secrets (`{"secret": "name"}`), and such a name is shown. Who writes a
value out all the same, in a header, a URL or the environment of a command, is not to find it in a
log that others read and that nobody can change.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

MASK: Final = "***"
_WORDS: Final = (
    "authorization", "authorisation", "cookie", "token", "secret", "password", "passwd",
    "passphrase", "apikey", "accesskey", "accountkey", "functionskey", "privatekey", "sharedkey",
    "subscriptionkey", "credential", "signature",
)  # fmt: skip
"""What the name of a credential holds, as `_plain` writes it: the one list of names."""
_ALONE: Final = ("auth", "pwd", "sig")
"""What names one only as a word by itself: `X-Auth`, `DB_PWD`, not `author`."""
_ALONE_NAME = re.compile(rf"(?<![a-z])(?:{'|'.join(_ALONE)})(?![a-z])", re.IGNORECASE | re.ASCII)
_DIGITS: Final = ("passw", "passphrase", "pwd")
"""Under such names numbers are masked as well; under `tokens` they are counts."""
_PLAIN = {ord(c): None for c in "-_. "} | {n: n + 32 for n in range(ord("A"), ord("Z") + 1)}
_SHORT: Final = 64
_USER = re.compile(r"(?<=://)[^/?#\s@]+(?=@)")
_QUERY = re.compile(r"(?<=[?&])(?P<name>[^=&#\s]+)=(?P<value>[^&#\s]+)")


def may_hold_credential(text: str) -> bool:
    """Whether a document, as JSON text, is worth looking through: a quick look at its words.

    Never False of a document that `masked` changes.
    """
    plain = _plain(text)
    if "@" in plain and "://" in plain:
        return True  # a URL may hold a user; a parameter of one has a credential's name
    return any(word in plain for word in (*_WORDS, *_ALONE))


def masked(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A JSON value with `***` for each text that stands under a credential's name.

    Users and passwords in URLs, and such parameters of a URL, too.
    """
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(value.get("secret"), str):
            return value  # the name of a secret
        return {k: _under(k, v) if _is_credential(k) else masked(v) for k, v in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    if isinstance(value, str) and "://" in value:
        return _QUERY.sub(_parameter, _USER.sub(MASK, value))
    return value


def _plain(text: str) -> str:
    """A text without what parts words in names, its letters of ASCII small."""
    return text.translate(_PLAIN)


def _is_credential(name: str) -> bool:
    return _known(name) if len(name) <= _SHORT else _looked_at(name)


def _looked_at(name: str) -> bool:
    plain = _plain(name)
    return any(word in plain for word in _WORDS) or _ALONE_NAME.search(name) is not None


# The same few names stand in nearly every document.
_known = lru_cache(maxsize=4096)(_looked_at)


def _under(name: str, value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A value under a credential's name: its texts are masked, names of secrets stay."""
    if isinstance(value, str):
        return MASK if value else value
    if isinstance(value, list):
        return [_under(name, item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return MASK if any(word in _plain(name) for word in _DIGITS) else value
    return masked(value)


def _parameter(found: re.Match[str]) -> str:
    name, value = found["name"], found["value"]
    # A place that a template fills holds no credential yet.
    return f"{name}={MASK if _is_credential(name) and '{{' not in value else value}"
