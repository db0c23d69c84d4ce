"""The limiter's look at a tenant's quotas: one thread looks, the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from tests.support.clock import FakeClock

from tickrail.core.ids import TenantId
from tickrail_api.auth import Principal
from tickrail_api.limiter import KNOWN_SECONDS, RequestLimiter

TENANT = TenantId(UUID(int=7))
WHO = Principal("key:a", TENANT, frozenset({"read"}))


class Database:
    """Calls `within` while a look at the quotas goes on."""

    def __init__(self) -> None:
        self.looks = 0
        self.within: Any = None

    @contextmanager
    def tenant(self, *_: object) -> Iterator[Any]:
        self.looks += 1
        within, self.within = self.within, None
        if within is not None:
            within()
        yield SimpleNamespace(quotas=SimpleNamespace(read=lambda: SimpleNamespace(requests=None)))


def test_while_one_request_looks_at_the_quotas_the_others_go_on() -> None:
    database, clock = Database(), FakeClock()
    limiter = RequestLimiter(cast("Any", database), clock, cast("Any", None))
    limiter.admit(WHO)
    assert database.looks == 1
    clock.advance(KNOWN_SECONDS + 1)
    database.within = lambda: limiter.admit(WHO)
    limiter.admit(WHO)
    assert database.looks == 2
    limiter.admit(WHO)
    assert database.looks == 2
