"""A client of Tickrail's HTTP API: `Client` blocks, `AsyncClient` is awaited.

    from tickrail.sdk.client import Client

    with Client.from_environment() as client:
        job = client.jobs.create(
            name="nightly-invoice-run",
            schedule={"cron": "0 2 * * *", "time_zone": "Europe/Berlin"},
            target={"webhook": {"url": "https://example.org/hook"}},
        )
        print(job.next_run_at)

What requests hold is typed in `tickrail.sdk.client.documents`, what answers hold in
`tickrail.sdk.client.models`. Errors are classes by
the API's code, all of them `ApiError`; no answer is `UnreachableError`. Lost connections and
answers that ask to wait are tried again where that is safe: a POST carries an Idempotency-Key,
the same at each try. docs/client.md has the whole.
"""

from tickrail.sdk.client.client import AsyncClient, Client
from tickrail.sdk.client.errors import (
    ApiError,
    ApiProblem,
    ConflictError,
    ForbiddenError,
    HeadersTooLargeError,
    IdempotencyMismatchError,
    InProgressError,
    InvalidInputError,
    MalformedError,
    MethodNotAllowedError,
    MissingKeyError,
    NameTakenError,
    NotFoundError,
    OverlapError,
    PreconditionFailedError,
    QuotaExceededError,
    RateLimitedError,
    RequestTimeoutError,
    ServerError,
    SettingsError,
    SetupError,
    TenantSuspendedError,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
    UnexpectedAnswerError,
    UnreachableError,
)
from tickrail.sdk.client.operation import AsyncPages, Page, Pages

__all__ = [
    "ApiError",
    "ApiProblem",
    "AsyncClient",
    "AsyncPages",
    "Client",
    "ConflictError",
    "ForbiddenError",
    "HeadersTooLargeError",
    "IdempotencyMismatchError",
    "InProgressError",
    "InvalidInputError",
    "MalformedError",
    "MethodNotAllowedError",
    "MissingKeyError",
    "NameTakenError",
    "NotFoundError",
    "OverlapError",
    "Page",
    "Pages",
    "PreconditionFailedError",
    "QuotaExceededError",
    "RateLimitedError",
    "RequestTimeoutError",
    "ServerError",
    "SettingsError",
    "SetupError",
    "TenantSuspendedError",
    "TooLargeError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnexpectedAnswerError",
    "UnreachableError",
]
