"""What a middleware does with a request before and after its handler; the same for every server."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from http import HTTPStatus

from tickrail.core.clock import Clock, SystemClock
from tickrail.sdk.receiver.delivery import Delivery, once, read_delivery
from tickrail.sdk.receiver.signature import TOLERANCE, SignatureError, signing_key, verify
from tickrail.sdk.receiver.store import (
    Answer,
    Done,
    Fenced,
    IdempotencyStore,
    InProgress,
    Started,
)

_log = logging.getLogger("tickrail.receiver")

_NOT_KEPT_FROM = 400
_STORE_AWAY = 5
"""Seconds after which to try again when the store does not answer."""

Headers = Sequence[tuple[str, str]]


def _below_400(status: int) -> bool:
    return status < _NOT_KEPT_FROM


@dataclass(frozen=True, kw_only=True)
class ReceiverRules:
    """How a receiver takes deliveries.

    Attributes:
        store: remembers keys. `MemoryStore` for one process, `PostgresStore` for several.
        paths: which requests are concerned: paths, or beginnings of paths that end with `*`.
        methods: and of these, which; names in capitals.
        secrets: of the signature, several while they are changed; none: signatures are not looked
            at, and whoever reaches the receiver may send.
        tolerance: how far the time of a signature may lie from the present.
        lease: how long a key stays with a delivery that neither ends nor fails, since its process
            died: longer than the longest handler takes, and than the job's timeout. Until then
            later deliveries are asked to wait.
        max_body: bytes of a request at most; more is answered 413.
        max_answer: bytes of an answer's body that are kept; of a larger one the status and the
            headers are.
        headers: of an answer that are kept; names in small letters.
        keeps: of which statuses the answer is kept, which says that the effect took place. After
            others the key is free, and the next delivery runs the handler. Below 400 unless given.
        require_key: whether a request without `Idempotency-Key` is refused (400); else it goes to
            the handler unguarded.
        clock: reads the time for signatures.
    """

    store: IdempotencyStore
    paths: Sequence[str] = ("/*",)
    methods: frozenset[str] = frozenset({"POST", "PUT", "PATCH", "DELETE"})
    secrets: Sequence[str | bytes] = field(default=(), repr=False)
    tolerance: timedelta = TOLERANCE
    lease: timedelta = timedelta(minutes=2)
    max_body: int = 1 << 20
    max_answer: int = 1 << 16
    headers: frozenset[str] = frozenset(
        {"content-type", "content-language", "content-location", "location", "etag"}
    )
    keeps: Callable[[int], bool] = _below_400
    require_key: bool = True
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ValueError: says what.
        """
        for secret in self.secrets:
            signing_key(secret)
        if isinstance(self.paths, str) or not all(path.startswith("/") for path in self.paths):
            raise ValueError("paths is a list of paths, each beginning with /")
        if self.lease <= timedelta(0):
            raise ValueError("the lease is above 0")


class Guard:
    """Lets deliveries in, keeps their answers. Safe to use from several threads."""

    def __init__(self, rules: ReceiverRules) -> None:
        self.rules = rules
        self._exact = frozenset(path for path in rules.paths if not path.endswith("*"))
        self._starts = tuple(path[:-1] for path in rules.paths if path.endswith("*"))

    def concerns(self, method: str, path: str) -> bool:
        """Whether the request is one that the rules are for."""
        if method not in self.rules.methods:
            return False
        return path in self._exact or path.startswith(self._starts)

    def admit(self, headers: Headers, body: bytes) -> Delivery | Answer | None:
        """Look at a request before its handler runs.

        Returns:
            The delivery, which holds its key from now on; the answer that its sender hears in
            place of the handler's; None: the handler is to run unguarded.
        """
        try:
            signed = self._check_signature(headers, body)
            delivery = read_delivery(headers)
        except SignatureError as error:
            return problem(401, f"{_sentence(error)}.")
        except ValueError as error:
            return problem(400, f"{_sentence(error)}.")
        if delivery is None:
            if self.rules.require_key:
                return problem(400, "The request has no Idempotency-Key.")
            return None
        delivery = replace(delivery, signed=signed)
        try:
            begun = self.rules.store.begin(
                delivery.key, delivery.fence, self.rules.lease.total_seconds()
            )
        except Exception:  # noqa: BLE001 - a store raises what its server's client raises
            _log.exception("the store of idempotency keys does not answer, key %s", delivery.key)
            detail = "The receiver cannot tell whether it did this already."
            return problem(503, detail, retry_after=_STORE_AWAY)
        return delivery if isinstance(begun, Started) else _turned_away(begun)

    def settle(
        self, delivery: Delivery, status: int, headers: Headers, body: bytes | None
    ) -> Answer | None:
        """Keep the handler's answer, or free the key.

        Args:
            delivery: that was admitted.
            status: of the answer.
            headers: of the answer.
            body: of the answer; None where it is larger than what is kept.

        Returns:
            What the sender hears in place of the handler's answer; None for that answer itself.
        """
        if not self.rules.keeps(status):
            self.release(delivery)
            return None
        kept = tuple(
            (name.lower(), value) for name, value in headers if name.lower() in self.rules.headers
        )
        try:
            held = self.rules.store.finish(
                delivery.key, delivery.fence, Answer(status, kept, body or b"")
            )
        except Exception:  # noqa: BLE001 - as above
            # The effect has taken place: a sender that hears so does not send it again.
            _log.exception("an answer could not be kept, key %s", delivery.key)
            return None
        if held:
            return None
        _log.warning("the handler took longer than the lease, key %s", delivery.key)
        return problem(412, "A later delivery took this key over.")

    def release(self, delivery: Delivery) -> None:
        """Free the key of a delivery whose handler failed."""
        try:
            self.rules.store.abandon(delivery.key, delivery.fence)
        except Exception:  # noqa: BLE001 - as above
            _log.exception("a key could not be freed before its lease ends, %s", delivery.key)

    def _check_signature(self, headers: Headers, body: bytes) -> bool:
        if not self.rules.secrets:
            return False
        verify(
            once(headers, ("webhook-id", "webhook-timestamp", "webhook-signature")),
            body,
            self.rules.secrets,
            now=self.rules.clock.now(),
            tolerance=self.rules.tolerance,
        )
        return True


def problem(status: int, detail: str, *, retry_after: int | None = None) -> Answer:
    """An answer that says what is wrong (RFC 9457)."""
    document = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    headers = [("content-type", "application/problem+json")]
    if retry_after is not None:
        headers.append(("retry-after", str(retry_after)))
    return Answer(status, tuple(headers), json.dumps(document).encode())


def too_large(limit: int) -> Answer:
    """The answer to a body above the bound."""
    return problem(413, f"The body is larger than {limit} bytes.")


def _turned_away(begun: Done | InProgress | Fenced) -> Answer:
    """What the sender of a delivery hears whose handler does not run."""
    if isinstance(begun, Done):
        kept = begun.answer
        return Answer(kept.status, (*kept.headers, ("idempotent-replay", "true")), kept.body)
    if isinstance(begun, InProgress):
        detail = "Another delivery with this key is in progress."
        return problem(409, detail, retry_after=math.ceil(begun.retry_after))
    detail = f"A delivery with the higher Fencing-Token {begun.highest} came before."
    return problem(412, detail)


def _sentence(error: Exception) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]
