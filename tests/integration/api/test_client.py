"""Every method of the Python client against the real API, blocking and async by the same story."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from tests.integration.api.test_members import join
from tests.support.api import World, webhook
from tests.support.colours import COLOURS, Colour, colour_of, parts
from tests.support.dead_api import die, work

from tickrail.core.ids import Partition
from tickrail.sdk.client import (
    AsyncClient,
    ConflictError,
    ForbiddenError,
    IdempotencyMismatchError,
    InvalidInputError,
    NameTakenError,
    NotFoundError,
    OverlapError,
    PreconditionFailedError,
    UnauthenticatedError,
    UnreachableError,
    models,
)
from tickrail.sdk.client.operation import Listing, Operation

pytestmark = pytest.mark.integration

TARGET: Any = webhook("x")["target"]
HOURLY: Any = {"cron": "0 * * * *", "time_zone": "Europe/Berlin"}
MINUTE = timedelta(minutes=1)


@dataclass
class Stage:
    """Where a story plays: a client of each key, of one colour."""

    world: World
    colour: Colour
    asked: set[tuple[str, str]]
    acme: Any
    operator: Any

    def do(self, value: Any) -> Any:
        return self.colour.do(value)

    def every(self, values: Any) -> list[Any]:
        return self.colour.every(values)

    def refused(self, kind: type[Exception], value: Callable[[], Any]) -> Any:
        """The error that a call is answered with."""
        with pytest.raises(kind) as e:
            self.do(value())
        assert type(e.value) is kind
        return e.value


@pytest.fixture(params=COLOURS)
def stage(request: pytest.FixtureRequest, world: World) -> Iterator[Stage]:
    asked: set[tuple[str, str]] = set()
    url = str(world.client.base_url)

    def note(request: httpx.Request) -> None:
        found = world.answers.find(request.url.path)
        assert found is not None
        asked.add((request.method, found[0]))

    class Noting(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            note(request)
            return super().handle_request(request)

    class AsyncNoting(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            note(request)
            return await super().handle_async_request(request)

    with colour_of(request.param) as colour:
        transport = AsyncNoting if request.param == "async" else Noting
        acme, operator = (
            colour.client(url, world.keys[name].token, transport=transport())
            for name in ("acme", "operator")
        )
        assert isinstance(acme, AsyncClient) == (request.param == "async")
        yield Stage(world, colour, asked, acme, operator)


def test_every_method_does_what_it_says(stage: Stage) -> None:
    """As one story, so that at its end it is seen whether each route was in it."""
    for story in (
        life_of_a_job,
        versions_of_a_job,
        many_jobs,
        launches,
        backfills,
        operations,
        dead_letters,
        definitions,
        queues,
        tenants,
        keys,
        system,
    ):
        story(stage)
    offered = {
        (method.method, method.path)
        for _, resource in parts(stage.acme)
        for method in vars(type(resource)).values()
        if isinstance(method, (Operation, Listing))
    }
    assert offered - stage.asked == set()


def losing(colour: str, answers: int) -> httpx.HTTPTransport | httpx.AsyncHTTPTransport:
    """A transport on whose way back the first answers are lost: what they tell is done."""
    left = iter(range(answers))

    class Losing(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            found = super().handle_request(request)
            if next(left, None) is None:
                return found
            found.read()
            found.close()
            raise httpx.ReadError("cut")

    class AsyncLosing(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            found = await super().handle_async_request(request)
            if next(left, None) is None:
                return found
            await found.aread()
            await found.aclose()
            raise httpx.ReadError("cut")

    return AsyncLosing() if colour == "async" else Losing()


@pytest.mark.parametrize("name", COLOURS)
def test_what_was_done_and_not_answered_is_done_once(world: World, name: str) -> None:
    url, token = str(world.client.base_url), world.keys["acme"].token
    with colour_of(name) as colour:

        def client(answers: int) -> Any:
            return colour.client(url, token, transport=losing(name, answers), wait=lambda _: None)

        job = colour.do(client(2).jobs.create(name="a", target=TARGET))
        assert [j["id"] for j in world.acme.every("/v1/jobs")] == [job.id]
        first = colour.do(client(1).jobs.trigger("name:a"))
        assert [x["id"] for x in world.acme.every("/v1/launches")] == [first.id]
        changed = colour.do(client(1).jobs.patch("name:a", description="d"))
        assert changed.version == 2
        with pytest.raises(UnreachableError, match="may have been carried out") as e:
            colour.do(client(1).jobs.patch("name:a", description="e", if_match=2))
        assert e.value.may_have_arrived
        assert world.acme.get("/v1/jobs/name:a")["description"] == "e"
        made = colour.do(client(1).api_keys.create(name="k", scopes=["read"]))
        assert made.token is None
        assert len([k for k in world.acme.every("/v1/api-keys") if k["name"] == "k"]) == 1
        assert colour.do(client(1).jobs.delete("name:a")) is None


def life_of_a_job(s: Stage) -> None:
    jobs = s.acme.jobs
    made = s.do(
        jobs.create(name="a", target=TARGET, schedule=HOURLY, tags={"team": "x"}, jitter=MINUTE)
    )
    assert isinstance(made, models.JobAnswer)
    assert (made.jitter, made.state, made.version) == (MINUTE, "active", 1)
    assert made.next_run_at > datetime(2026, 1, 1, tzinfo=UTC)
    assert made == s.do(jobs.get("name:a")) == s.do(jobs.get(made.id))
    taken = s.refused(NameTakenError, lambda: jobs.create(name="a", target=TARGET))
    assert taken.request_id
    wrong = s.refused(
        InvalidInputError, lambda: jobs.create(name="b", target=TARGET, schedule={"cron": "nope"})
    )
    assert wrong.problems[0].pointer == "/schedule/cron"
    changed = s.do(jobs.patch("name:a", tags={"team": None}, description="d", if_match=1))
    assert (changed.version, changed.tags, changed.description) == (2, {}, "d")
    s.refused(PreconditionFailedError, lambda: jobs.patch("name:a", description="e", if_match=1))
    same = s.do(jobs.put("name:a", name="a", target=TARGET, schedule=HOURLY, dry_run=True))
    assert (same.version, same.jitter) == (3, timedelta(0))
    assert s.do(jobs.get("name:a")).version == 2
    s.refused(
        PreconditionFailedError,
        lambda: jobs.put("name:a", name="a", target=TARGET, create_only=True),
    )
    put = s.do(jobs.put("name:b", name="b", target=TARGET, create_only=True, paused=True))
    assert put.paused.until is None
    until = datetime(2099, 1, 1, tzinfo=UTC)
    paused = s.do(jobs.pause("name:a", until=until, reason="r"))
    assert (paused.state, paused.paused.until) == ("paused", until)
    resumed = s.do(jobs.resume("name:a", catch_up={"max_count": 3, "max_age": MINUTE}))
    assert (resumed.state, resumed.paused) == ("active", None)
    assert s.do(jobs.skip_next("name:a", 2)).skip_next == 2
    first, second, third = s.do(jobs.upcoming("name:a", n=3))
    assert first.notes == ("skipped_by_hand",)
    assert second.at - first.at == timedelta(hours=1)
    assert s.do(jobs.upcoming("name:a", n=1, after=second.at))[0].at == third.at
    slots = s.every(jobs.slots("name:a", limit=3))
    assert {slot.state for slot in slots} == {"skipped", "upcoming"}
    assert "skipped_by_hand" in {slot.reason for slot in slots}
    assert s.do(jobs.skip_next("name:a", 0)).skip_next == 0


def versions_of_a_job(s: Stage) -> None:
    jobs = s.acme.jobs
    job = s.do(jobs.get("name:a"))
    found = s.every(jobs.versions("name:a", limit=1))
    assert [v.version for v in found] == [2, 1]
    assert s.do(jobs.version("name:a", 1)).definition["tags"] == {"team": "x"}
    restored = s.do(jobs.restore("name:a", 1, if_match=job.version))
    assert (restored.version, restored.tags) == (3, {"team": "x"})
    assert s.do(jobs.delete("name:a")) is None
    s.refused(NotFoundError, lambda: jobs.get("name:a"))
    assert s.do(jobs.get(job.id)).state == "deleted"
    assert s.do(jobs.undelete(job.id)).state != "deleted"


def many_jobs(s: Stage) -> None:
    jobs = s.acme.jobs
    batch = [{"name": f"m{n}", "target": TARGET, "tags": {"many": ""}} for n in range(5)]
    made = s.do(jobs.batch([*batch, batch[0]]))
    assert (made.created, made.failed, made.dry_run) == (5, 1, False)
    assert made.items[0].job.name == "m0"
    assert isinstance(made.items[5].error.exception(), NameTakenError)
    listed = s.every(jobs.list(tag=["many"], sort="name", limit=2, state=["active"]))
    assert [job.name for job in listed] == [f"m{n}" for n in range(5)]
    first, second, third = s.every(jobs.list(tag=["many"], sort="name", limit=2).pages())
    assert (len(first.items), third.next_cursor) == (2, None)
    rest = s.every(jobs.list(tag=["many"], sort="name", limit=2, cursor=first.next_cursor))
    assert rest[:2] == list(second.items)


def launches(s: Stage) -> None:
    jobs, launches = s.acme.jobs, s.acme.launches
    launch = s.do(jobs.trigger("name:m0", payload=None, priority="high", idempotency_key="once"))
    assert (launch.origin, launch.state, launch.priority) == ("manual", "due", "high")
    again = jobs.trigger("name:m0", payload=None, priority="high", idempotency_key="once")
    assert s.do(again).id == launch.id
    s.refused(IdempotencyMismatchError, lambda: jobs.trigger("name:m0", idempotency_key="once"))
    s.refused(OverlapError, lambda: jobs.trigger("name:m0"))
    assert s.do(launches.get(launch.id)) == launch
    assert [x.id for x in s.every(launches.list(job="name:m0", state=["due"]))] == [launch.id]
    assert s.every(launches.attempts(launch.id)) == []
    assert s.do(launches.log(launch.id)).attempt == 0
    explained = s.do(launches.explain(launch.id))
    assert (explained.launch, explained.ended) == (launch.id, None)
    assert explained.checks
    with pytest.raises(TimeoutError):
        s.do(launches.wait(launch.id, within=0))
    assert s.do(launches.cancel(launch.id)).state == "cancelled"
    assert s.do(launches.wait(launch.id)).state == "cancelled"


def backfills(s: Stage) -> None:
    jobs, backfills = s.acme.jobs, s.acme.backfills
    past = s.world.past_week()
    span = {"from_": datetime.fromisoformat(past["from"]), "until": past["until"]}
    s.do(jobs.create(name="old", target=TARGET, schedule={"cron": "0 0 * * *"}))
    shown = s.do(jobs.preview_backfill("name:old", **span))
    assert (shown.total, shown.items[0].at) == (7, span["from_"])
    made = s.do(jobs.backfill("name:old", **span, max_open=1, order="newest"))
    assert (made.state, made.from_, made.order) == ("running", span["from_"], "newest")
    assert [b.id for b in s.every(jobs.backfills("name:old"))] == [made.id]
    assert s.do(backfills.get(made.id)).remaining == 7
    assert s.do(backfills.cancel(made.id, in_flight="cancel")).state == "cancelled"
    assert s.do(backfills.wait(made.id)).state == "cancelled"


def operations(s: Stage) -> None:
    jobs, operations = s.acme.jobs, s.acme.operations
    where = {"tag": ["many"]}
    assert s.do(jobs.preview_pause_many(filter=where)).total == 5
    paused = s.do(jobs.pause_many(filter=where, reason="r"))
    assert (paused.kind, paused.total) == ("jobs.pause", 5)
    work(s.world)
    done = s.do(operations.wait(paused.id, within=60))
    assert (done.state, done.changed) == ("finished", 5)
    assert set(s.do(jobs.preview_resume_many(filter=where)).names) == {f"m{n}" for n in range(5)}
    resumed = s.do(jobs.resume_many(filter=where, catch_up="none"))
    assert [o.id for o in s.every(operations.list())][:2] == [resumed.id, paused.id]
    assert s.do(operations.cancel(resumed.id)).id == resumed.id
    assert s.do(operations.get(resumed.id)).state in {"cancelled", "finished"}
    work(s.world)


def dead_letters(s: Stage) -> None:
    letters = s.acme.dead_letters
    s.do(s.acme.jobs.create(name="d", target=TARGET, overlap="allow"))
    ids = [s.do(s.acme.jobs.trigger("name:d")).id for _ in range(3)]
    for ago, launch in enumerate(ids, 1):
        die(s.world, launch, ago=10.0 * ago)
    found = s.every(letters.list(job="name:d", reason=["attempts_exhausted"]))
    assert [x.id for x in found] == ids
    assert all(isinstance(x, models.DeadLaunch) for x in found)
    inspected = s.do(letters.get(ids[0]))
    assert (inspected.last_response.code, len(inspected.attempts)) == (500, 1)
    assert s.do(s.acme.launches.redrive(ids[0], payload={"again": 1})).redrive_count == 1
    rest = {"launch": ids}
    assert {x.id for x in s.do(letters.preview_redrive(filter=rest)).items} == set(ids[1:])
    redriven = s.do(letters.redrive(filter={"launch": ids[1:2]}, max_count=5))
    work(s.world)
    assert s.do(s.acme.operations.wait(redriven.id, within=60)).changed == 1
    assert s.do(letters.preview_purge(filter=rest)).purged == 0
    purged = s.do(letters.purge(filter=rest))
    work(s.world)
    assert s.do(s.acme.operations.wait(purged.id, within=60)).changed == 1
    topic, error = "tickrail.launch.default.normal", "not JSON"
    s.world.database.run(
        "insert into undecodable values (%s, 'default', %s, 3, 0, %s, 5, %s, now())",
        f"{topic}/3/0", topic, b"hello", error,
    )  # fmt: skip
    [message] = s.every(s.operator.dead_letters.list())
    assert isinstance(message, models.UndecodableMessage)
    shown = s.do(s.operator.dead_letters.get_message(topic, 3, 0))
    assert (shown.value.text, shown.error) == ("hello", error)
    of = {"kind": "undecodable", "id": [message.id]}
    assert s.do(s.operator.dead_letters.purge_messages(filter=of, dry_run=True)).purged == 0
    assert s.do(s.operator.dead_letters.purge_messages(filter=of)).purged == 1


def definitions(s: Stage) -> None:
    calendars, secrets = s.acme.calendars, s.acme.secrets
    made = s.do(calendars.put("free", yearly=["12-25"], windows=[{"from": "22:00", "to": "06:00"}]))
    assert (made.version, made.moved.jobs, made.windows[0].from_) == (1, 0, "22:00")
    assert s.do(calendars.patch("free", description="d", if_match=1)).version == 2
    assert s.do(calendars.get("free")).description == "d"
    assert [c.name for c in s.every(calendars.list())] == ["free"]
    s.do(s.acme.jobs.patch("name:a", calendars={"exclude": ["free"]}))
    s.refused(ConflictError, lambda: calendars.delete("free"))
    s.do(s.acme.jobs.patch("name:a", calendars=None))
    assert s.do(calendars.delete("free")) is None
    shown = s.do(s.acme.schedules.preview(schedule=HOURLY, n=2, job="name:a"))
    assert len(shown.items) == 2
    assert shown.difference.added == ()
    assert s.do(secrets.put("token", "hush")).name == "token"
    assert s.do(secrets.get("token")).name == "token"
    assert [one.name for one in s.every(secrets.list())] == ["token"]
    assert s.do(secrets.delete("token")) is None


def queues(s: Stage) -> None:
    of_all, own = s.operator.queues, s.acme.queues
    made = s.do(of_all.put("mail", kinds=["webhook"], rate={"count": 5, "per": MINUTE}))
    assert (made.rate.per, made.tenant, made.version) == (MINUTE, None, 1)
    mine = s.do(own.patch("mail", max_running=3))
    assert (mine.max_running, mine.tenant.max_running, mine.depth.due) == (None, 3, 0)
    assert s.do(own.pause("mail", "r")).tenant.paused_reason == "r"
    assert not s.do(own.get("mail")).paused
    assert not s.do(own.resume("mail")).tenant.paused
    assert {q.name for q in s.every(own.list())} >= {"default", "mail"}
    assert s.do(of_all.delete("mail")) is None


def tenants(s: Stage) -> None:
    tenants = s.operator.tenants
    made = s.do(tenants.create(name="gamma", weight=2))
    assert (made.weight, made.state) == (2, "active")
    s.refused(NameTakenError, lambda: tenants.create(name="gamma"))
    changed = s.do(tenants.patch("gamma", quotas={"jobs": 9}, if_match=made.version))
    assert changed.quotas["jobs"] == 9
    assert s.do(tenants.suspend("gamma", "unpaid")).state_reason == "unpaid"
    assert [t.name for t in s.every(tenants.list(state="suspended"))] == ["gamma"]
    assert s.do(tenants.resume("gamma")).state == "active"
    gamma = s.operator.with_tenant("gamma")
    assert s.do(gamma.jobs.create(name="a", target=TARGET)).name == "a"
    assert s.every(gamma.jobs.list()) != s.every(s.acme.jobs.list())
    assert s.do(tenants.delete("gamma")) is None
    assert s.do(tenants.get("gamma")).state == "deleted"
    s.refused(ForbiddenError, lambda: s.operator.jobs.get("name:a"))
    s.refused(ForbiddenError, lambda: s.acme.tenants.get("gamma"))


def keys(s: Stage) -> None:
    keys = s.acme.api_keys
    made = s.do(keys.create(name="ci", scopes=["read"], expires_in=timedelta(days=90)))
    assert made.token.startswith(f"trk_{made.id}_")
    assert made.token not in repr(made)
    reader = s.colour.client(s.acme.url, made.token)
    assert s.do(reader.jobs.get("name:a")).name == "a"
    s.refused(ForbiddenError, lambda: reader.jobs.delete("name:a"))
    rotated = s.do(keys.rotate(made.id, timedelta(hours=1)))
    assert (rotated.name, s.do(keys.get(made.id)).replaced_by) == ("ci", rotated.id)
    assert rotated.id in {key.id for key in s.every(keys.list(state="active"))}
    assert s.do(keys.revoke(rotated.id)) is None
    assert s.do(keys.get(rotated.id)).state == "revoked"
    nobody = s.colour.client(s.acme.url, "trk_aaaaaaaaaaaaaaaa_" + "b" * 43)
    s.refused(UnauthenticatedError, lambda: nobody.jobs.get("name:a"))
    created = s.every(s.acme.audit_log.list(action="job.create", sort="at", limit=2))
    assert created[0].after["name"] == "a"
    assert s.do(s.acme.usage.get()).jobs.used == len(s.every(s.acme.jobs.list()))
    assert s.do(s.acme.quotas.get()).payload_bytes > 0
    most = s.do(s.operator.quotas.patch(jobs=1000, min_interval=timedelta(seconds=5)))
    assert (most.jobs, most.min_interval) == (1000, timedelta(seconds=5))
    assert s.do(s.operator.quotas.patch(jobs=None, min_interval=None)).jobs == "unlimited"
    s.do(s.acme.secrets.put("ops", "https://hooks.example.org/T0"))
    assert s.do(s.acme.quotas.notify(["webhook:ops"])).notify == ("webhook:ops",)
    assert s.do(s.acme.quotas.notified()).notify == ("webhook:ops",)
    assert s.do(s.acme.quotas.notify([])).notify == ()


def system(s: Stage) -> None:
    join(s.world, "scheduler-1", 0)
    system = s.operator.system
    members = s.do(system.members())
    assert [m.name for m in members.items] == ["scheduler-1"]
    owned = {p.partition: p.owner for p in s.every(system.partitions(limit=2))}
    assert len(owned) == 4
    assert owned[Partition(0)].name == "scheduler-1"
    assert s.do(system.drain("scheduler-1")).drains_ignored
    assert s.do(system.undrain("scheduler-1")) is None
    assert s.every(system.workers()) == []
    assert s.do(system.lag()).publish >= timedelta(0)
    assert s.do(system.tzdata(limit=1)).items == ()
