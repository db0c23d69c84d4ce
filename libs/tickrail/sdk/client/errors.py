"""What can go wrong with a call: the API refused it (`ApiError`), or did not answer.

Each code of the API's errors (docs/errors.md) has a class; a code that this version does not know
comes as the class of its status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class ApiProblem:
    """One thing wrong with a request: JSON pointer, message, what would be right."""

    pointer: str
    message: str
    expected: str = ""


@dataclass(eq=False)
class ApiError(Exception):
    """The API refused a request.

    Attributes:
        status: the HTTP status.
        code: the error's stable name, such as `not_found`.
        detail: what is wrong, in words.
        problems: what is wrong with each part of the request.
        request_id: what the server's log calls the request.
        retry_after: seconds after which the same request may succeed, where the API names them.
    """

    status: int
    code: str
    detail: str
    problems: tuple[ApiProblem, ...] = ()
    request_id: str = ""
    retry_after: float | None = None

    by_code: ClassVar[dict[str, type[ApiError]]] = {}
    """The class of each code."""

    def __init_subclass__(cls, code: str = "") -> None:
        """Know the class by its code."""
        super().__init_subclass__()
        if code:
            ApiError.by_code[code] = cls

    def __str__(self) -> str:
        """The detail, and behind it the problem; several stand on lines of their own."""
        said = [
            (f"{p.pointer}: " if p.pointer else "")
            + p.message
            + (f" ({p.expected})" if p.expected else "")
            for p in self.problems
        ]
        if len(said) == 1:
            return f"{self.detail.removesuffix('.')}: {said[0]}"
        return "\n  ".join([self.detail, *said])


class MalformedError(ApiError, code="malformed"):
    """The request could not be read."""


class UnauthenticatedError(ApiError, code="unauthenticated"):
    """The key is missing, wrong, expired or revoked."""


class ForbiddenError(ApiError, code="forbidden"):
    """The key may not do this."""


class QuotaExceededError(ForbiddenError, code="quota_exceeded"):
    """The tenant has as much of this as it may have; waiting does not help."""


class TenantSuspendedError(ForbiddenError, code="tenant_suspended"):
    """The tenant is suspended: an operator lets it go on."""


class NotFoundError(ApiError, code="not_found"):
    """There is no such thing here."""


class MethodNotAllowedError(ApiError, code="method_not_allowed"):
    """The path has no such method: the API is of another version."""


class RequestTimeoutError(ApiError, code="timeout"):
    """The request did not arrive in time."""


class ConflictError(ApiError, code="conflict"):
    """The present state does not allow this."""


class NameTakenError(ConflictError, code="name_taken"):
    """The name is in use already."""


class OverlapError(ConflictError, code="overlap"):
    """Another launch of the job is open and its overlap policy is skip."""


class InProgressError(ConflictError, code="in_progress"):
    """The same request is still running."""


class PreconditionFailedError(ApiError, code="precondition_failed"):
    """The thing is not at the version named by `if_match`, or is there already."""


class TooLargeError(ApiError, code="too_large"):
    """The request is larger than allowed."""


class HeadersTooLargeError(ApiError, code="headers_too_large"):
    """The headers of the request are larger than allowed."""


class InvalidInputError(ApiError, code="invalid"):
    """The request's content is not valid; `problems` names each part."""


class IdempotencyMismatchError(ApiError, code="idempotency_mismatch"):
    """The idempotency key was used for another request."""


class RateLimitedError(ApiError, code="rate_limited"):
    """Too much in too short a time; `retry_after` says when to go on."""


class ServerError(ApiError, code="internal"):
    """The server failed; its log has the reason under `request_id`."""


class UnavailableError(ServerError, code="unavailable"):
    """A server that Tickrail needs does not answer."""


class SetupError(ServerError, code="setup"):
    """The installation is not set up."""


class SettingsError(ServerError, code="settings"):
    """A setting of the installation is missing or wrong."""


class MissingKeyError(Exception):
    """There is no API key where the client looked for one; names the variable."""


class UnreachableError(Exception):
    """Nothing that speaks Tickrail's API answers at this address.

    Attributes:
        may_have_arrived: whether the request may have been carried out all the same.
    """

    def __init__(self, message: str, *, may_have_arrived: bool = False) -> None:
        super().__init__(message)
        self.may_have_arrived = may_have_arrived


class UnexpectedAnswerError(UnreachableError):
    """What answers is not Tickrail's API, or a version of it that this client cannot read."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: MalformedError,
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    412: PreconditionFailedError,
    413: TooLargeError,
    422: InvalidInputError,
    429: RateLimitedError,
    503: UnavailableError,
}
_SERVER = 500


def error_class(code: str, status: int) -> type[ApiError]:
    """The class of a code; for a code that is not known, that of its status."""
    general = ServerError if status >= _SERVER else ApiError
    return ApiError.by_code.get(code) or _BY_STATUS.get(status, general)
