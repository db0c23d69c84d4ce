"""The deliveries of a worker, on notices in memory and an executor that is told what to answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

import pytest
from tests.support.clock import FakeClock
from tests.support.memory_notices import MemoryNoticeStore, NoticeRow, add_notices
from tests.support.memory_tables import MemoryDatabase

from tickrail.core.errors import SetupError, UnavailableError
from tickrail.core.execution import SUCCESS, Done, Outcome, Run
from tickrail.core.ids import TenantId
from tickrail.core.notices import event
from tickrail.core.on_failures import Channel, ChannelKind
from tickrail.core.ports_notice import NewNotice, NoticeKind, OwedNotice
from tickrail.engine.notices import NoticeSender, NoticeSettings
from tickrail.runtime.metrics import PrometheusMetrics

TENANT = TenantId(UUID(int=1))
OTHER = TenantId(UUID(int=2))
OPS = Channel(ChannelKind.WEBHOOK, "ops")
TOPIC = Channel(ChannelKind.KAFKA, "alerts")
BAD = Outcome(ok=False, outcome="http_500", message="HTTP 500")


class Answering:
    """An executor that ends each run as it is told, or keeps it."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = frozenset(kinds)
        self.runs: list[tuple[Run, Done]] = []
        self.answer: Outcome | None = SUCCESS

    def start(self, run: Run, done: Done) -> None:
        self.runs.append((run, done))
        if self.answer is not None:
            done(run, self.answer)

    def cancel(self, run: Run, reason: str) -> None: ...

    def close(self, grace: float) -> None: ...


class Secrets:
    def __init__(self) -> None:
        self.values: dict[str, bytes] = {"ops": b"https://hooks.example.org/T0"}
        self.error: Exception | None = None

    def get(self, tenant: UUID, names: Sequence[str]) -> Mapping[str, bytes]:
        assert tenant == TENANT
        if self.error is not None:
            raise self.error
        return {n: self.values[n] for n in names if n in self.values}


class World:
    def __init__(self, *kinds: str, settings: NoticeSettings | None = None) -> None:
        self.clock = FakeClock()
        self.db = MemoryDatabase(self.clock)
        self.executor = Answering(*kinds)
        self.secrets = Secrets()
        self.metrics = PrometheusMetrics()
        self.sender = NoticeSender(
            MemoryNoticeStore(self.db),
            [self.executor],
            self.secrets,
            self.clock,
            self.metrics,
            settings or NoticeSettings(most=3, each=3),
        )

    def add(self, *channels: Channel, about: str = "job:1", tenant: TenantId = TENANT) -> None:
        new = NewNotice(tenant, NoticeKind.LAUNCH_DEAD, about, "it is dead", {}, channels)
        add_notices(self.db, [new], self.clock.now())

    def turn(self, seconds: float = 0.0) -> float:
        self.clock.advance(seconds)
        return self.sender.run_once()

    @property
    def rows(self) -> list[NoticeRow]:
        found: list[NoticeRow] = self.db.notices
        return found

    def counted(self, outcome: str) -> float:
        labels = {"outcome": outcome}
        return self.metrics.registry.get_sample_value("tickrail_notices_total", labels) or 0


@pytest.fixture
def world() -> World:
    return World("webhook", "kafka")


def test_a_notice_goes_out_as_a_run_of_its_channel(world: World) -> None:
    world.add(OPS, TOPIC)
    assert world.turn() < 1  # something is out, or has just come back
    assert world.turn() > 1
    assert [r.state for r in world.rows] == ["delivered", "delivered"]
    (hook, _), (message, _) = world.executor.runs
    assert hook.target == {"webhook": {"url": "https://hooks.example.org/T0", "headers": {}}}
    assert hook.secrets == {"url": b"https://hooks.example.org/T0"}
    assert message.target == {"kafka": {"topic": "alerts", "key": "job:1"}}
    assert (hook.launch_id, hook.job_name, hook.attempt) == (world.rows[0].owed.id, "", 1)
    assert isinstance(hook.payload, dict)
    assert hook.payload["text"] == "it is dead"
    assert world.counted("delivered") == 2


def test_what_fails_is_tried_again_and_given_up_after_a_day(world: World) -> None:
    world.add(OPS)
    world.executor.answer = BAD
    world.turn()
    world.turn()
    assert (world.rows[0].state, world.rows[0].error) == ("pending", "http_500: HTTP 500")
    assert world.turn(3) > 1  # not yet
    assert len(world.executor.runs) == 1
    for _ in range(40):
        world.turn(3600 * 1.3)
        world.turn()
    assert world.rows[0].state == "given_up"
    assert world.counted("given_up") == 1
    tries = len(world.executor.runs)
    assert tries == world.counted("failed") + 1 > 10
    assert {r.launch_id for r, _ in world.executor.runs} == {world.rows[0].owed.id}


def test_what_a_receiver_asks_for_is_waited_for(world: World) -> None:
    world.add(OPS)
    world.executor.answer = Outcome(ok=False, outcome="http_429", retry_after=600.0)
    world.turn()
    world.turn()
    assert world.rows[0].due_at - world.clock.now() == timedelta(seconds=600)


@pytest.mark.parametrize(
    ("value", "outcome"), [(None, "invalid_hook"), (b"no url", "invalid_hook")]
)
def test_a_secret_without_a_hook_fails_the_delivery(
    world: World, value: bytes | None, outcome: str
) -> None:
    world.secrets.values = {} if value is None else {"ops": value}
    world.add(OPS)
    world.turn()
    world.turn()
    assert world.rows[0].error.startswith(f"{outcome}: ")
    assert world.executor.runs == []


@pytest.mark.parametrize("error", [SetupError("no key fits"), UnavailableError("away")])
def test_a_secret_that_cannot_be_read_is_tried_again(world: World, error: Exception) -> None:
    world.secrets.error = error
    world.add(OPS)
    world.turn()
    world.turn()
    assert world.rows[0].error.startswith("secret_unreadable: ")
    world.secrets.error = None
    world.turn(10)
    world.turn()
    assert world.rows[0].state == "delivered"


def test_one_that_cannot_be_made_holds_up_nobody_and_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for about in ("job:1", "job:2", "job:3"):
        world.add(OPS, about=about)

    def made(notice: OwedNotice) -> object:
        if notice.about == "job:2":
            raise KeyError("reason")
        return event(notice)

    monkeypatch.setattr("tickrail.engine.notices.event", made)
    world.turn()
    world.turn()
    assert [r.state for r in world.rows] == ["delivered", "pending", "delivered"]
    assert world.rows[1].error == "internal: KeyError: 'reason'"
    monkeypatch.undo()
    world.turn(3600)
    world.turn()
    assert world.rows[1].state == "delivered"


def test_kinds_without_an_executor_are_left_to_others() -> None:
    world = World("kafka", "noop")
    world.add(OPS, TOPIC)
    world.turn()
    world.turn()
    assert [r.state for r in world.rows] == ["pending", "delivered"]
    nothing = World("task")
    nothing.add(OPS)
    assert nothing.turn() > 1
    assert nothing.rows[0].owed.attempts == 0


def test_so_many_are_out_at_a_time(world: World) -> None:
    world.executor.answer = None
    for n in range(5):
        world.add(OPS, about=f"job:{n}")
    world.turn()
    assert len(world.executor.runs) == 3
    run, done = world.executor.runs[0]
    done(run, SUCCESS)
    world.turn()
    assert len(world.executor.runs) == 4


def test_a_tenant_whose_hooks_hang_leaves_room_for_others() -> None:
    world = World("kafka", settings=NoticeSettings(most=4, each=2))
    world.executor.answer = None
    for n in range(5):
        world.add(TOPIC, about=f"job:{n}")
    for _ in range(3):
        world.turn()
    assert len(world.executor.runs) == 2
    world.clock.advance(1)
    world.add(TOPIC, tenant=OTHER)
    world.turn()
    assert [run.tenant_id for run, _ in world.executor.runs] == [TENANT, TENANT, OTHER]


def test_an_end_that_cannot_be_written_is_kept(world: World) -> None:
    world.add(OPS)
    world.turn()
    world.db.down = True
    with pytest.raises(UnavailableError):
        world.turn()
    world.sender.finish()  # says so, and raises nothing
    world.db.down = False
    world.turn()
    assert world.rows[0].state == "delivered"


def test_a_worker_that_stops_gives_back_what_it_interrupts(world: World) -> None:
    world.executor.answer = Outcome(ok=False, outcome="interrupted")
    world.add(OPS)
    world.turn()
    world.sender.finish()
    assert (world.rows[0].state, world.rows[0].due_at) == ("pending", world.clock.now())
    assert world.counted("failed") == 0
    world.executor.answer = SUCCESS
    world.turn()
    world.turn()
    assert (world.rows[0].state, world.rows[0].owed.attempts) == ("delivered", 2)
