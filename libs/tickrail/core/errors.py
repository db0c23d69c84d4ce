"""The one tree of errors.

Each class carries a stable `code`, the HTTP `status` a caller of the API sees, and whether trying
the same again later can help (`retryable`). The first line of the docstring is the title shown.
Adapters map their driver's errors to these at their border; nothing above sees a driver's error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an input: where, what, and what would be right.

    `pointer` is a JSON pointer into the document (`/schedule/cron`), empty for the whole.
    """

    pointer: str
    message: str
    expected: str = ""


@dataclass
class TickrailError(Exception):
    """An error of Tickrail.

    Attributes:
        detail: what happened, for those who run Tickrail.
        problems: what is wrong with an input.
        public: what callers of the API are told in place of `detail`, where that has the words of
            a server, which may name addresses and states; empty: they are told `detail`.
    """

    detail: str
    problems: Sequence[Problem] = field(default=())
    public: str = field(default="", kw_only=True)

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __str__(self) -> str:
        """The detail, then each problem on a line of its own."""
        lines = [self.detail]
        for p in self.problems:
            where = f"{p.pointer}: " if p.pointer else ""
            lines.append(f"{where}{p.message}" + (f" ({p.expected})" if p.expected else ""))
        return "\n  ".join(line for line in lines if line)

    @classmethod
    def title(cls) -> str:
        """The first line of the docstring."""
        return (cls.__doc__ or "").strip().splitlines()[0].rstrip(".")


class InvalidInputError(TickrailError):
    """The request's content is not valid."""

    code = "invalid"
    status = 422


class MalformedError(TickrailError):
    """The request could not be read."""

    code = "malformed"
    status = 400


class TooLargeError(TickrailError):
    """The request is larger than allowed."""

    code = "too_large"
    status = 413


class HeadersTooLargeError(TickrailError):
    """The request's line and headers are larger than allowed."""

    code = "headers_too_large"
    status = 431


class SlowRequestError(TickrailError):
    """The request took too long to arrive."""

    code = "timeout"
    status = 408


class MethodNotAllowedError(TickrailError):
    """The path does not take this method; Allow says which it takes."""

    code = "method_not_allowed"
    status = 405


class UnauthenticatedError(TickrailError):
    """A valid API key is needed."""

    code = "unauthenticated"
    status = 401


class ForbiddenError(TickrailError):
    """The API key may not do this."""

    code = "forbidden"
    status = 403


class TenantSuspendedError(ForbiddenError):
    """The tenant is suspended."""

    code = "tenant_suspended"


class NotFoundError(TickrailError):
    """There is no such thing here: in this tenant, or for an operator in this installation."""

    code = "not_found"
    status = 404


class ConflictError(TickrailError):
    """The present state does not allow this."""

    code = "conflict"
    status = 409


class NameTakenError(ConflictError):
    """The name is taken already."""

    code = "name_taken"


class OverlapError(ConflictError):
    """Another launch of the job is open and its overlap policy is skip."""

    code = "overlap"


class InProgressError(ConflictError):
    """The same request is still running."""

    code = "in_progress"
    retryable = True


class PreconditionFailedError(TickrailError):
    """What If-Match or If-None-Match says of the resource does not hold."""

    code = "precondition_failed"
    status = 412


class IdempotencyMismatchError(TickrailError):
    """The Idempotency-Key was used for another request."""

    code = "idempotency_mismatch"
    status = 422


@dataclass
class RateLimitedError(TickrailError):
    """Too many requests: wait for as long as Retry-After says.

    Attributes:
        retry_after: seconds.
        quota: what there is too much of: `requests` or `launches`.
    """

    retry_after: int = 1
    quota: str = "requests"

    code = "rate_limited"
    status = 429
    retryable = True


@dataclass
class QuotaExceededError(TickrailError):
    """A quota of the tenant leaves no room for this.

    Attributes:
        quota: what it is of, such as `jobs`.
    """

    quota: str = "jobs"

    code = "quota_exceeded"
    status = 403


class UnavailableError(TickrailError):
    """A server that Tickrail needs does not answer."""

    code = "unavailable"
    status = 503
    retryable = True


class SetupError(TickrailError):
    """The installation is not set up for this process."""

    code = "setup"
    status = 503


class SettingsError(TickrailError):
    """A setting is missing or wrong."""

    code = "settings"
