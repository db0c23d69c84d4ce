"""A notice as its receiver gets it, and the hook that a secret holds. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from tickrail.core.definition import instant_text
from tickrail.core.ports_notice import GIVE_UP_AFTER, OwedNotice
from tickrail.core.target_webhook import HEADER_VALUE, MAX_URL, split_url

_FIRST: Final = 5.0
_LONGEST: Final = 3600.0
_FIELDS: Final = frozenset({"url", "signing_secret", "headers"})
_BRACES: Final = re.compile(r"\{\{")
SIGNING: Final = "signing-secret"
"""The name under which a run of a notice has the signing secret of its hook."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook of a channel.

    Attributes:
        url: where to.
        signing_secret: signs the call (Standard Webhooks); None: it is not signed.
        headers: sent with it.
    """

    url: str
    signing_secret: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def target(self) -> dict[str, Any]:
        """The call as a target's document; its secrets are named, not written in it."""
        names = {name: {"secret": f"header-{i}"} for i, name in enumerate(self.headers)}
        call: dict[str, Any] = {"url": _BRACES.sub(r"\\{{", self.url), "headers": names}
        if self.signing_secret is not None:
            call["signature"] = {"secrets": [{"secret": SIGNING}]}
        return {"webhook": call}

    def secrets(self) -> dict[str, bytes]:
        """What is to be masked, and what `target` names; the URL is a secret as a whole."""
        found = {f"header-{i}": v.encode() for i, v in enumerate(self.headers.values())}
        found["url"] = self.url.encode()
        if self.signing_secret is not None:
            found[SIGNING] = self.signing_secret.encode()
        return found


def parse_hook(value: bytes) -> Hook:
    """The hook in a secret: a URL, or a JSON document with `url`, `signing_secret`, `headers`.

    Raises:
        ValueError: it is none; the message holds nothing of the value.
    """
    text = value.decode("utf-8", "replace").strip()
    if not text.startswith("{"):
        return Hook(_url(text))
    try:
        document = json.loads(text)
    except ValueError:
        raise ValueError("the secret begins as JSON does and is none") from None
    if not isinstance(document, dict) or not set(document) <= _FIELDS or "url" not in document:
        raise ValueError("the secret's JSON has url and, if wanted, signing_secret and headers")
    signing, headers = document.get("signing_secret"), document.get("headers") or {}
    if signing is not None and (not isinstance(signing, str) or not signing):
        raise ValueError("the secret's signing_secret is not a text")
    if not isinstance(headers, dict) or not all(
        isinstance(v, str) and HEADER_VALUE.fullmatch(v) for v in headers.values()
    ):
        raise ValueError("the secret's headers are not an object of texts that HTTP can carry")
    return Hook(_url(document["url"]), signing, headers)


def _url(value: object) -> str:
    try:
        split_url(value if isinstance(value, str) else "")
    except ValueError:
        expected = f"an http or https URL of at most {MAX_URL} characters"
        raise ValueError(f"the secret holds no URL that can be called: {expected}") from None
    return str(value)


def event(notice: OwedNotice) -> dict[str, Any]:
    """The notice as JSON: a CloudEvent, with a line for people in `text`.

    The same at every delivery.
    """
    text = notice.text
    if notice.suppressed:
        more = "1 more notice" if notice.suppressed == 1 else f"{notice.suppressed} more notices"
        text = f"{more} in a minute; the last one: {text}"
    return {
        "specversion": "1.0",
        "id": str(notice.id),
        "source": f"/tenants/{notice.tenant}",
        "type": f"tickrail.{notice.kind}",
        "subject": notice.about,
        "time": instant_text(notice.created_at),
        "datacontenttype": "application/json",
        "text": text,
        "data": {**notice.data, "suppressed": notice.suppressed},
    }


def retry_after(
    notice: OwedNotice, age: timedelta, spread: float, asked: float | None = None
) -> timedelta | None:
    """When a delivery that failed is tried again; None: no more.

    Args:
        notice: as it was taken.
        age: of the notice.
        spread: where in the jitter band, 0 up to 1.
        asked: seconds that the receiver wants to be left alone for.
    """
    if age >= GIVE_UP_AFTER:
        return None
    delay = min(_LONGEST, _FIRST * 2.0 ** min(notice.attempts - 1, 20))
    seconds = delay * (0.75 + 0.5 * spread)
    return timedelta(seconds=min(_LONGEST * 2, max(seconds, asked or 0.0)))
