"""API keys: their form, who they are told to be, and what a request may say of one.

A key is `trk_<key id>_<secret>`. The secret is 256 random bits as 43 digits and letters, and six
more that are a checksum of all before them: who finds a text in a repository or a log can tell
without asking anybody whether it is a key. `TOKEN` is what scanners look for. Keys made before
there was a checksum (43 characters of URL-safe base64) stay valid.
"""

from __future__ import annotations

import re
import string
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from tickrail.core.documents import Reader, type_name
from tickrail.core.errors import Problem
from tickrail.core.ids import TenantId
from tickrail.core.records import Page, PageRequest

PREFIX: Final = "trk"
SCOPES: Final = ("read", "run", "write", "admin")
TOKEN: Final = r"trk_[a-z0-9]{8,32}_[0-9A-Za-z_-]{43,49}"  # noqa: S105 - a pattern
"""What every key looks like."""
MAX_LIVE: Final = 1000
"""Keys of one tenant that may be valid at a time."""
MAX_RATE: Final = 10_000
"""Requests in a second that a key can be given at most."""
MAX_GRACE: Final = timedelta(days=30)
DEFAULT_GRACE: Final = timedelta(days=1)
MAX_LIFE: Final = timedelta(days=3650)
STATES: Final = ("active", "expired", "revoked")
DIGITS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
SECRET_LENGTH: Final = 43
"""Of `DIGITS`, without the checksum: 256 bits."""
_CHECK: Final = 6
ID = re.compile(r"[a-z0-9]{8,32}")
_FORM = re.compile(
    rb"trk_([a-z0-9]{8,32})_(?:([0-9A-Za-z_-]{43})|([0-9A-Za-z]{43})([0-9A-Za-z]{6}))"
)


def checksum(key_id: str, secret: str) -> str:
    """CRC-32 of `trk_<key id>_<secret>`, as six base 62 digits (0-9, A-Z, a-z)."""
    number = zlib.crc32(f"{PREFIX}_{key_id}_{secret}".encode())
    digits = ""
    for _ in range(_CHECK):
        number, digit = divmod(number, len(DIGITS))
        digits = DIGITS[digit] + digits
    return digits


def parse_token(token: bytes) -> tuple[str, str] | None:
    """Id and secret of what has the form of a key; None: it is none."""
    found = _FORM.fullmatch(token)
    if found is None:
        return None
    key_id = found[1].decode()
    if found[2] is not None:
        return key_id, found[2].decode()
    secret, check = found[3].decode(), found[4].decode()
    return (key_id, secret + check) if checksum(key_id, secret) == check else None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key just made. `token` is what the user gets, once."""

    id: str
    token: str = field(repr=False)
    secret_hash: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What may be told of a key. `tenant` None: an operator's.

    Attributes:
        id: the part between the underscores.
        tenant: whose it is.
        name: what it is called.
        description: what it is for.
        scopes: what it may do.
        requests_per_second: how many requests it may make; None: as many as its tenant.
        created_at: when it was made.
        created_by: who made it.
        expires_at: until when it is valid; None: it does not end.
        revoked_at: since when it is not valid any more.
        last_used_at: when it was last used, within a minute or so.
        replaced_by: the key that a rotation put in its place.
    """

    id: str
    tenant: TenantId | None
    name: str
    description: str
    scopes: tuple[str, ...]
    requests_per_second: int | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    replaced_by: str | None = None

    def state(self, now: datetime) -> str:
        """Of `STATES`, at an instant."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"


@dataclass(frozen=True, slots=True)
class KeyDraft:
    """A key as it was asked for."""

    name: str
    scopes: tuple[str, ...]
    description: str = ""
    requests_per_second: int | None = None
    expires_at: datetime | None = None


class KeyRecords(Protocol):
    """The keys of a transaction's tenant; of one without a tenant: the operators' keys."""

    def lock(self) -> None:
        """Let nobody else make a key here until the transaction ends."""
        ...

    def live(self) -> int:
        """How many keys are valid now."""
        ...

    def find(self, key_id: str, *, lock: bool = False) -> KeyRecord | None:
        """A key; `lock` holds its row until the transaction ends."""
        ...

    def page(self, state: str | None, page: PageRequest) -> Page[KeyRecord]:
        """Keys by the instant they were made and their id; `state` of `STATES`."""
        ...

    def insert(self, record: KeyRecord, secret_hash: bytes) -> None:
        """Keep a new key."""
        ...

    def end(
        self,
        key_id: str,
        *,
        revoked_at: datetime | None = None,
        expires_at: datetime | None = None,
        replaced_by: str | None = None,
    ) -> None:
        """Write what ends a key, as far as it is given; the row is held by the caller."""
        ...


@dataclass(frozen=True, slots=True)
class Maker:
    """Who makes a key: no key gets more than its maker has.

    Attributes:
        scopes: what it may do.
        key_id: its key, if that is one of the same tenant; empty otherwise.
        requests_per_second: its own rate; None: it has none. Unused where there is a `key_id`.
        ends_at: when it ends; None: never. Unused as well.
    """

    scopes: frozenset[str]
    key_id: str = ""
    requests_per_second: int | None = None
    ends_at: datetime | None = None


class KeyTransaction(Protocol):
    """What the use cases of keys need. `tenant` None: it is about operators' keys."""

    @property
    def tenant(self) -> TenantId | None:
        """Whose keys these are."""
        ...

    @property
    def now(self) -> datetime:
        """The database's clock at the beginning of the transaction."""
        ...

    @property
    def actor(self) -> str:
        """Who asks."""
        ...

    @property
    def keys(self) -> KeyRecords:
        """The keys."""
        ...

    def audit(
        self,
        action: str,
        subject: str,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> None:
        """Record who changed what."""
        ...


def read_key(document: object, now: datetime) -> KeyDraft:
    """A new key from its document.

    Args:
        document: the JSON document.
        now: when it is made.

    Raises:
        InvalidInputError: with every problem.
    """
    reader = Reader({} if document is None else document)
    name = reader.text("name", maximum=128) or ""
    if not name.strip() and not reader.problems:
        reader.problem("name", "is missing or empty", "what the key is called")
    scopes = _scopes(reader)
    description = reader.text("description", "", maximum=1024) or ""
    rate = None
    if reader.has("requests_per_second"):
        rate = reader.whole("requests_per_second", 1, low=1, high=MAX_RATE)
    expires = _end(reader, now)
    reader.finish("key")
    return KeyDraft(name, scopes, description, rate, expires)


def read_grace(document: object) -> timedelta:
    """How long the old key stays valid, from `{"grace": "24h"}` or nothing.

    Raises:
        InvalidInputError: with every problem.
    """
    reader = Reader({} if document is None else document)
    grace = reader.duration("grace", DEFAULT_GRACE, low=timedelta(0), high=MAX_GRACE)
    reader.finish("rotation")
    return grace


def _scopes(reader: Reader) -> tuple[str, ...]:
    expected = f"a list of some of {', '.join(SCOPES)}"
    raw = reader.raw("scopes")
    if raw is None:
        reader.problem("scopes", "is missing", expected)
        return ()
    if not isinstance(raw, list) or not raw:
        what = "is empty" if isinstance(raw, list) else f"is {type_name(raw)}"
        reader.problem("scopes", what, expected)
        return ()
    for i, scope in enumerate(raw[: len(SCOPES) + 1]):
        if not isinstance(scope, str) or scope not in SCOPES:
            told = repr(scope[:60]) if isinstance(scope, str) else type_name(scope)
            reader.problems.append(
                Problem(f"/scopes/{i}", f"is {told}", f"one of {', '.join(SCOPES)}")
            )
    if len(raw) > len(SCOPES):
        reader.problem("scopes", f"has {len(raw)} entries", expected)
    return tuple(s for s in SCOPES if s in raw)


def _end(reader: Reader, now: datetime) -> datetime | None:
    given = reader.instant("expires_at")
    if reader.has("expires_in"):
        life = reader.duration(
            "expires_in", timedelta(days=90), low=timedelta(minutes=1), high=MAX_LIFE
        )
        if given is not None:
            reader.problem("expires_in", "is given beside expires_at", "one of the two")
        return now + life
    if given is not None and not now < given <= now + MAX_LIFE:
        reader.problem("expires_at", "is not in the time to come", "an instant within ten years")
    return given
