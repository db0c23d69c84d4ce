"""Notices through the webhook executor: signed, guarded, and nothing of the hook told."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import pytest
from standardwebhooks import Webhook as Verifier
from tests.support.memory_notices import MemoryNoticeStore, NoticeRow, add_notices
from tests.support.memory_tables import MemoryDatabase
from tests.support.receiver import Receiver, answer
from tests.support.runs import make_run
from tests.support.until import until

from tickrail.core.clock import SystemClock
from tickrail.core.ids import TenantId
from tickrail.core.on_failures import Channel, ChannelKind
from tickrail.core.ports_notice import NewNotice, NoticeKind
from tickrail.engine.notices import NoticeSender
from tickrail.executors.egress import EgressGuard
from tickrail.executors.egress_policy import EgressPolicy
from tickrail.executors.kafka_message import own_headers
from tickrail.executors.webhook import WebhookExecutor, WebhookSettings
from tickrail.runtime.metrics import PrometheusMetrics

TENANT = TenantId(UUID(int=1))
RING = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Hook:
    """The one secret there is."""

    def __init__(self, value: str) -> None:
        self.value = value.encode()

    def get(self, tenant: UUID, names: Sequence[str]) -> Mapping[str, bytes]:
        return {name: self.value for name in names if (tenant, name) == (TENANT, "ops")}


def deliver(secret: str, seen: Callable[[NoticeRow], bool], allowed: str = "127.0.0.0/8") -> str:
    """Have one notice delivered; answers what is kept and logged of it."""
    clock = SystemClock()
    # Its clock is that of the executor, so that the signature is of now.
    db = MemoryDatabase(clock)  # type: ignore[arg-type]
    new = NewNotice(TENANT, NoticeKind.LAUNCH_DEAD, "job:1", "it is dead", {},
                    [Channel(ChannelKind.WEBHOOK, "ops")])  # fmt: skip
    add_notices(db, [new], clock.now())
    guard = EgressGuard(EgressPolicy.parse(allowed), clock, lambda _h, _p: ["127.0.0.1"])
    executor = WebhookExecutor(guard, clock, WebhookSettings(body_timeout=0.5))
    sender = NoticeSender(
        MemoryNoticeStore(db), [executor], Hook(secret), clock, PrometheusMetrics()
    )
    row: NoticeRow = db.notices[0]

    def turn() -> bool:
        sender.run_once()
        return seen(row)

    try:
        until(turn, 30)
    finally:
        executor.close(0)
    return row.error


def test_a_signed_notice_verifies_and_names_no_launch() -> None:
    with Receiver() as receiver:
        hook = {
            "url": receiver.url("/T0?a={{b"),
            "signing_secret": RING,
            "headers": {"Authorization": "Bearer xyz"},
        }
        deliver(json.dumps(hook), lambda row: row.state == "delivered")
        (request,) = receiver.requests
    headers = dict(request.headers)
    assert request.path == "/T0?a={{b"
    assert headers["Authorization"] == "Bearer xyz"
    assert headers["Idempotency-Key"] == headers["webhook-id"]
    assert not headers.keys() & {"Fencing-Token", "Tickrail-Job", "Tickrail-Scheduled-At"}
    body = Verifier(RING).verify(request.body, headers)
    assert (body["text"], body["id"]) == ("it is dead", headers["webhook-id"])


@pytest.mark.parametrize("status", ["500 hush-hush", "302 Found"])
def test_what_is_kept_of_a_failure_holds_nothing_of_the_hook(
    status: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with Receiver(answer(status, "Location: /hush-hush-7f3a\r\n", b"hush-hush-7f3a")) as receiver:
        url = receiver.url("/hush-hush-7f3a")
        error = deliver(url, lambda row: bool(row.error))
    assert error.startswith(f"http_{status[:3]}")
    said = error + "".join(capfd.readouterr())
    assert "notice_not_delivered" in said
    assert "hush" not in said


def test_a_hook_that_may_not_be_called_is_not() -> None:
    with Receiver() as receiver:
        error = deliver(receiver.url(), lambda row: bool(row.error), allowed="")
        assert receiver.requests == []
    assert error.startswith("refused_egress")


def test_a_message_names_a_launch_only_where_it_is_one() -> None:
    run = make_run({"kafka": {"topic": "t"}}, job_name="")
    assert [name for name, _ in own_headers(run)] == ["Idempotency-Key", "Tickrail-Attempt"]
