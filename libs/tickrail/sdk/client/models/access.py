"""Who may ask, and who did: API keys, the audit log; what a tenant may use, and what it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any, Literal

from tickrail.sdk.client.reading import Model, model


@model
class ApiKey(Model):
    """An API key, without its secret.

    Attributes:
        prefix: what the key begins with, to recognise it by.
        requests_per_second: requests in a second that it may make; None: as many as its tenant.
        state: active, expired or revoked.
        last_used_at: within a minute or so.
        replaced_by: the key that a rotation put in its place.
    """

    id: str
    prefix: str
    name: str
    description: str
    scopes: tuple[str, ...]
    requests_per_second: int | None
    state: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    replaced_by: str | None


@model
class MadeApiKey(ApiKey):
    """A key just made.

    Attributes:
        token: the whole key. It is told here and kept nowhere: None where the first answer was
            lost and the request was sent again. Revoke such a key and make another.
    """

    token: str | None = field(repr=False)


@model
class AuditEntry(Model):
    """Who changed what.

    Attributes:
        actor: `key:<id>`, `subject:<issuer>/<subject>` of a token, or an operator's.
        action: `job.create`, `launch.cancel`, `operator.read`, ...
        subject: `job:<id>`, `secret:<name>`, ..., or the path of a read.
        before: what it was; secrets are masked.
        after: what it is since.
    """

    id: str
    at: datetime
    actor: str
    action: str
    subject: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    request_id: str
    address: str


Unlimited = Literal["unlimited"]
"""As much as there is."""


@model
class Quotas(Model):
    """What a tenant may have: an amount, or `unlimited`."""

    jobs: int | Unlimited
    launches_per_minute: int | Unlimited
    launches_per_day: int | Unlimited
    running: int | Unlimited
    payload_bytes: int
    requests_per_second: float | Unlimited
    request_burst: int | Unlimited
    min_interval: timedelta | Unlimited


@model
class QuotaNotify(Model):
    """Who is told of the tenant's quotas: channels such as `webhook:<secret>`."""

    notify: tuple[str, ...]


@model
class UsageItem(Model):
    """What is used of one quota.

    Attributes:
        used: None: not counted, since there is no quota.
        limit: an amount, or `unlimited`.
        resets_at: when the window ends, or the tokens for requests are all there again.
    """

    used: int | None
    limit: int | Unlimited
    resets_at: datetime | None


@model
class Usage(Model):
    """What a tenant uses of its quotas at an instant."""

    at: datetime
    jobs: UsageItem
    launches_per_minute: UsageItem
    launches_per_day: UsageItem
    running: UsageItem
    requests: UsageItem
