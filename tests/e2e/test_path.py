"""From a crontab and the API to effects, on the real processes, two of them killed meanwhile.

What is due is computed here from the documents alone; what happened is read from PostgreSQL, from
the file that commands append to, and from the receiver of the webhooks.
"""

from __future__ import annotations

import json
import re
import socket
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from tests.support.receiver import Receiver, Request
from tests.support.running import CLOCK, Running, data_folder, launches_of
from tests.support.until import until

from tickrail.local.state import STATE_FILE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

SECONDS = 61
"""How long the jobs of the API are due; no multiple of their intervals."""
ENDED = ("succeeded", "dead", "abandoned", "cancelled", "expired")
LINE = "$TICKRAIL_JOB $TICKRAIL_SCHEDULED_AT $TICKRAIL_LAUNCH_ID $TICKRAIL_ATTEMPT"


def crontab(effects: Path) -> str:
    """Lines that differ in how they say what is due; the last is due in no test run."""
    return f"""\
SHELL=/bin/sh
# plain
* * * * * echo "{LINE}" >> {effects}
*/1 * * * * /bin/sh -c 'echo "{LINE}" >> {effects}' # stepped
0-59 0-23 * * 0-7 cat >> {effects}%{LINE.replace("$", "")} stdin
* * * jan-dec * printf '\\%s\\n' "{LINE}" >> {effects}
@yearly echo "never {LINE}" >> {effects}
"""


def every(start: datetime, seconds: int, length: int = SECONDS) -> set[datetime]:
    """The slots of an interval from its anchor on."""
    return {start + timedelta(seconds=n) for n in range(0, length, seconds)}


def minutes(after: datetime, until_: datetime) -> set[datetime]:
    """The whole minutes in (after, until_]."""
    first = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
    return {
        first + timedelta(minutes=n)
        for n in range(10)
        if after < first + timedelta(minutes=n) <= until_
    }


@pytest.fixture(scope="module")
def up() -> Iterator[Running]:
    # Everything is logged: what must not be seen is looked for there too.
    with data_folder() as folder, Running(folder, "--log-level", "debug") as running:
        yield running


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as found:
        yield found


def test_every_slot_has_one_record_and_its_effect_although_two_processes_are_killed(
    up: Running, receiver: Receiver
) -> None:
    effects = up.folder / "effects"
    effects.touch(mode=0o666)
    (up.folder / "mine.crontab").write_text(crontab(effects))
    up.cli("import", "crontab", "mine.crontab", "--tz", "UTC")
    imported = up.rows("select max(created_at) from jobs")[0][0]
    start = CLOCK.now().replace(microsecond=0) + timedelta(seconds=6)
    due = make_jobs(up, receiver, effects, start)
    crontab_jobs: dict[UUID, str] = dict(
        up.rows("select id, name from jobs where not (id = any(%s))", [list(due)])
    )
    assert len(crontab_jobs) == 5

    middle = start + timedelta(seconds=20)
    until(lambda: CLOCK.now() >= middle, 60)
    owner = kill_owner_of_most(up)
    until(lambda: worker_of_slow(up), 30)
    up.kill(worker_of_slow(up) or "worker-1")
    end = start + timedelta(seconds=SECONDS)
    until(lambda: CLOCK.now() >= end, 120)
    until(lambda: up.rows("select min(next_run_at) > %s from jobs", [end])[0][0] is not False, 60)
    until(
        lambda: (
            not up.rows(
                "select from launches where scheduled_at <= %s and not state = any(%s)",
                [end, list(ENDED)],
            )
        ),
        90,
    )

    due |= {
        job: minutes(imported, end) if not name.startswith("echo-never") else set()
        for job, name in crontab_jobs.items()
    }
    records = {job: launches_of(up, job) for job in due}
    for job, slots in due.items():
        assert {at for at in records[job] if at <= end} == slots, job
    assert up.rows("select count(*) from skips")[0][0] == 0
    states = Counter(state for found in records.values() for _, state, _ in found.values())
    assert set(states) <= {"succeeded", "dead"}, states
    check_effects(up, records, effects, receiver)
    check_seconds(up, start, middle)
    assert any("child" in line and owner in line and "signal 9" in line for line in up.lines)


def test_what_a_command_prints_is_seen_while_it_runs(up: Running) -> None:
    go = up.folder / "go"
    up.cli("secrets", "set", "token", "--file", _token(up))
    wait = f'echo "first $T"; while [ ! -e {go} ]; do sleep 0.1; done; echo last'
    target = {"shell": wait, "env": {"T": {"secret": "token"}}, "limits": {"cpu": "20s"}}
    document = {"name": "talks", "target": {"command": target}, "schedule": None}
    with up.client() as client:
        client.request("POST", "/v1/jobs", json=document)
        made = client.request("POST", "/v1/jobs/name:talks/trigger")
        path = f"/v1/launches/{made['id']}"

        def log() -> Any:
            return client.request("GET", f"{path}/log")

        until(lambda: log()["body"] == "first ***\n", 60)
        assert log()["live"] is True
        found = client.request("GET", f"{path}/explain")
        assert (found["state"], found["holds"]) == ("running", None)
        claim = next(c for c in found["checks"] if c["check"] == "claim")
        assert claim["detail"].startswith("worker-")
        go.touch()
        until(lambda: not log()["live"], 60)
        assert log()["body"] == "first ***\nlast\n"
        assert client.request("GET", path)["result"]["body"] == "first ***\nlast\n"
        ended = client.request("GET", f"{path}/explain")["ended"]
        assert (ended["reason"], ended["attempts"]) == ("ok", 1)
    workers = up.rows("select name, kinds, tasks from workers order by name")
    assert {w[0] for w in workers} >= {"worker-1", "worker-2"}
    assert all("command" in w[1] for w in workers)


HUSH = 'Bearer hünter2-"of"-everyone'


def test_what_is_secret_is_seen_nowhere(up: Running) -> None:
    def echo(connection: socket.socket, request: Request) -> bool:
        body = f"{request.headers}\n{request.header('X-Key')}".encode("latin-1")
        head = f"HTTP/1.1 500 No\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        return True

    def keep(name: str, value: str) -> None:
        (up.folder / "key").write_text(value)
        up.cli("secrets", "set", name, "--file", str(up.folder / "key"))
        (up.folder / "key").unlink()

    keep("key", HUSH)
    key = {"secret": "key"}
    prints = 'echo "$K"; echo "$K" >&2; env; exit 3'
    with Receiver(echo) as receiver, up.client() as client:
        hook = {"url": receiver.url("/nter2-tell"), "headers": {"X-Room": "room-everyone"}}
        keep("hook", json.dumps({**hook, "signing_secret": "signs-everyone"}))
        targets = {
            "sends": {"webhook": {"url": receiver.url(), "headers": {"X-Key": key}}},
            "prints": {"command": {"shell": prints, "env": {"K": key}}},
            "breaks": {"command": {"argv": ["/nothing"], "env": {"K": key}}},
        }
        made = []
        for name, target in targets.items():
            retry = {"max_attempts": 2, "initial": "0.05s"}
            document = {"name": name, "target": target, "retry": retry, "schedule": None}
            told = {"notify": ["webhook:hook"], "pause_after": 1}
            client.request("POST", "/v1/jobs", json={**document, "on_failures": told})
            made.append(client.request("POST", f"/v1/jobs/name:{name}/trigger")["id"])
        for launch in made:
            path = f"/v1/launches/{launch}"
            until(lambda: client.request("GET", path)["state"] == "dead", 60)  # noqa: B023 - at once
        kept: dict[str, str] = {}

        def buried() -> bool:
            kept.update(letters(up))
            return set(made) <= set(kept)

        until(buried, 60)
        said = [client.request("GET", f"/v1/dead-letters/{launch}") for launch in made]
        assert receiver.requests[0].header("X-Key") == HUSH
        until(lambda: up.rows("select id from notices where error ^@ 'http_500'"), 60)
        calls = [r for r in receiver.requests if r.path == "/nter2-tell"]
        assert {r.header("X-Room") for r in calls} == {"room-everyone"}
        assert all(r.header("webhook-signature") for r in calls)
    shown = json.dumps([said, kept], ensure_ascii=False) + "\n".join([*up.lines, *up.shown])
    for (table,) in up.rows("select tablename from pg_tables where schemaname = current_schema()"):
        shown += str(up.rows(f"select row.*::text from {table} as row"))
    shown += "".join(f.read_text(errors="replace") for f in up.folder.rglob("*.log"))
    assert shown.count("***") > 6
    assert re.findall(r".{0,80}(?:nter2|-everyone)", shown) == []


def letters(up: Running) -> dict[str, str]:
    """The messages of the dead letter topic: launch -> all of it as text."""
    addresses = json.loads((up.folder / STATE_FILE).read_text())["addresses"]
    reader = Consumer(
        {"bootstrap.servers": addresses["kafka_bootstrap"], "group.id": "reads-letters"}
    )
    topic = "tickrail.dlq.default"
    partitions = reader.list_topics(topic, 10).topics[topic].partitions
    places = [TopicPartition(topic, n, OFFSET_BEGINNING) for n in partitions]
    reader.assign(places)
    count = sum(reader.get_watermark_offsets(place, 10)[1] for place in places)
    found: dict[str, str] = {}
    for message in reader.consume(count, 2) if count else ():
        value = message.value() or b""
        text = value.decode() + str(message.headers()) + str(message.key())
        found[str(json.loads(value)["launch"])] = text
    reader.close()
    return found


def _token(up: Running) -> str:
    file = up.folder / "token"
    file.write_text("hunter2-of-the-test")
    return str(file)


def make_jobs(
    up: Running, receiver: Receiver, effects: Path, start: datetime
) -> dict[UUID, set[datetime]]:
    """Jobs that are due from `start` on, for SECONDS; each with its slots."""
    append = {"shell": f'echo "{LINE}" >> {effects}'}
    slow = {"shell": f'echo "{LINE}" >> {effects}; sleep 1.5'}
    anchored = {"anchor": start.isoformat()}
    jobs = {
        "two": ({"every": "2s", **anchored}, {"command": append}, every(start, 2)),
        "slow": ({"every": "1s", **anchored}, {"command": slow}, every(start, 1)),
        "hook": ({"every": "3s", **anchored}, {"webhook": {"url": receiver.url("/hook")}},
                 every(start, 3)),
        "hooks": ({"every": "1s", **anchored}, {"webhook": {"url": receiver.url("/hooks")}},
                  every(start, 1)),
        "seconds": ({"cron": "*/4 * * * * *"}, {"command": append},
                    {at for at in every(start, 1) if at.second % 4 == 0}),
        "once": ({"at": (start + timedelta(seconds=22)).isoformat()}, {"command": append},
                 {start + timedelta(seconds=22)}),
    }  # fmt: skip
    due: dict[UUID, set[datetime]] = {}
    with up.client() as client:
        for name, (schedule, target, slots) in jobs.items():
            document = {
                "name": name,
                "schedule": schedule,
                "target": target,
                "overlap": "allow",
                "starts_at": start.isoformat(),
                # Between two slots: whether the end itself is one is not asked here.
                "ends_at": (start + timedelta(seconds=SECONDS - 0.5)).isoformat(),
            }
            made = client.request("POST", "/v1/jobs", json=document)
            due[UUID(made["id"])] = slots
    assert CLOCK.now() < start, "the jobs were made too slowly for this test"
    return due


def kill_owner_of_most(up: Running) -> str:
    """kill -9 the scheduler that owns the partition of the busiest job; its name."""
    found = up.rows(
        "select owner from partitions p join jobs j using (partition) where j.name = 'slow'"
    )
    name = next(n for n in up.processes() if found[0][0].startswith(n))
    up.kill(name)
    return name


def worker_of_slow(up: Running) -> str | None:
    """The worker that runs a launch of the job that takes longest."""
    found = up.rows(
        "select worker from launches l join jobs j on j.id = l.job_id"
        " where j.name = 'slow' and l.state = 'running' order by l.started_at desc limit 1"
    )
    return next((n for n in up.processes() if found[0][0].startswith(n)), None) if found else None


def check_effects(
    up: Running,
    records: Mapping[UUID, Mapping[datetime, tuple[str, str, int]]],
    effects: Path,
    receiver: Receiver,
) -> None:
    """Each effect carries its launch's key; a launch has more than one only when it ran again."""
    seen: dict[str, list[tuple[datetime, int]]] = defaultdict(list)
    text = effects.read_text()
    for line in text.splitlines():
        if line.endswith(" stdin"):
            continue  # its standard input knows no variable
        _, at, launch, attempt = line.split()
        seen[launch].append((datetime.fromisoformat(at), int(attempt)))
    for request in receiver.requests:
        key = request.header("idempotency-key")
        at = request.header("tickrail-scheduled-at")
        assert key is not None
        assert at is not None
        seen[key].append((datetime.fromisoformat(at), int(request.header("tickrail-attempt") or 0)))
    known: dict[str, tuple[datetime, str, int]] = {
        launch: (at, state, attempt)
        for found in records.values()
        for at, (launch, state, attempt) in found.items()
    }
    assert seen.keys() <= known.keys()
    stdin_jobs = {row[0] for row in up.rows("select id from jobs where name like 'cat-%%'")}
    silent = {launch for j in stdin_jobs for launch, _, _ in records[j].values()}
    succeeded = {launch for launch, (_, state, _) in known.items() if state == "succeeded"}
    assert succeeded - silent <= seen.keys(), "a launch that succeeded had no effect"
    assert text.count(" stdin\n") >= len(silent & succeeded)
    for launch, effects_of in seen.items():
        at, _, attempts = known[launch]
        assert {effect[0] for effect in effects_of} == {at}
        numbers = [effect[1] for effect in effects_of]
        assert len(set(numbers)) == len(numbers), f"an attempt of {launch} had two effects"
        assert max(numbers) <= attempts
    repeated = [launch for launch, found in seen.items() if len(found) > 1]
    assert all(known[launch][2] > 1 for launch in repeated)
    assert repeated, "the killed worker held no run: the kill proved nothing"


def check_seconds(up: Running, start: datetime, until_: datetime) -> None:
    """Before anything was killed, launches started in the second they were due in."""
    lags = [
        row[0]
        for row in up.rows(
            "select extract(epoch from started_at - scheduled_at)::float8 from launches"
            " where scheduled_at >= %s and scheduled_at < %s and attempt = 1 order by 1",
            [start, until_ - timedelta(seconds=1)],
        )
    ]
    assert len(lags) > 40
    assert lags[0] >= 0, "one started before it was due"
    assert lags[len(lags) // 2] < 1.0, lags


def test_minutes_counts_whole_minutes() -> None:
    at = datetime(2026, 3, 2, 10, 0, 59, tzinfo=UTC)
    assert minutes(at, at + timedelta(seconds=61)) == {
        datetime(2026, 3, 2, 10, 1, tzinfo=UTC),
        datetime(2026, 3, 2, 10, 2, tzinfo=UTC),
    }
