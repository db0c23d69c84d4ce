"""etcd fails under traffic in every way that it can: owners change or stop, nothing is lost.

A cluster of three of its own whose members reach each other through proxies, and so does one of the
two schedulers reach it. The tests share the installation; each has its traffic, a proof that its
fault happened, and a history that is judged (checker.py says by which rules).
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
from tests.fault.history import KEEP_VARIABLE, Effects, install
from tests.fault.traffic import Traffic
from tests.support.etcd_cluster import EtcdCluster
from tests.support.etcd_program import etcd
from tests.support.processes import CLOCK, Installation, Service, installation
from tests.support.proxy import TcpProxy
from tests.support.until import pause, until

from tickrail.coord.coordinator import EtcdCoordinator
from tickrail.coord.settings import EtcdSettings
from tickrail.core.errors import UnavailableError
from tickrail.core.ports_ownership import Member
from tickrail.core.sharding import assign

LOG = structlog.get_logger()
pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PARTITIONS = 32
"""So many that it does not happen that one of two schedulers is to have none of them."""
TTL, MARGIN = 5.0, 1.0
"""The lease of the tests' schedulers."""
TRUST = TTL - MARGIN
STOP_SLACK = 1.0
"""For a transaction that had begun inside the trust window, on a busy machine."""
SAID_WITHIN = TRUST + 2.0 + 1.0
"""An owner stops by the clock alone; it says so when its call to etcd has met its deadline."""
AWAY = 60.0
BACK_WITHIN = 5.0
SCHEDULERS = ("scheduler-1", "scheduler-2")
LOST_BY_TIME = "the trust window ended without a renewal"


@dataclass
class Bed:
    """The installation, its etcd, the way of scheduler-1 to it, and what hears the effects."""

    found: Installation
    cluster: EtcdCluster
    paths: list[TcpProxy]
    effects: Effects
    control: EtcdCoordinator
    folder: Path

    @property
    def older(self) -> Path:
        """A copy of etcd's data as it was at some time."""
        return self.folder / "older"

    def keep_data(self) -> None:
        """Make that copy; no member of etcd runs."""
        self.cluster.copy_data(self.older)

    def traffic(self, name: str) -> Traffic:
        """Both schedulers own partitions and all is well; then load."""
        self.settled()
        return Traffic(self.found, self.effects, self.folder, name)

    def settled(self, seconds: float = 40) -> None:
        """Every partition is where it will stay, and nothing is missing."""
        until(self._placed, seconds, 0.1)
        until(lambda: all(s.ready() for s in self.found.services.values()), seconds, 0.1)

    def _placed(self) -> bool:
        try:
            members = self.control.snapshot().members
        except UnavailableError:
            return False
        wanted = assign({m.identity: m.weight for m in members.values()}, PARTITIONS)
        stored = self.found.query("select partition, owner from partitions")
        return {m.name for m in members.values()} == set(SCHEDULERS) and dict(stored) == wanted

    def owners(self) -> dict[str, list[int]]:
        """The partitions of each scheduler, by the fence rows."""
        found: dict[str, list[int]] = {}
        for partition, owner in self.found.query("select partition, owner from partitions"):
            found.setdefault(str(owner).rpartition("-")[0], []).append(partition)
        return found

    def fences(self) -> list[tuple[object, ...]]:
        return self.found.query("select partition, epoch, owner from partitions order by 1")

    def lease_of(self, name: str) -> int:
        """The lease of this scheduler."""
        (one,) = (m for m in self.control.snapshot().members.values() if m.name == name)
        return one.lease

    def schedulers(self) -> list[Service]:
        return [self.found.services[name] for name in SCHEDULERS]

    def written(self, app: str, since: datetime, until_: datetime) -> list[tuple[object, ...]]:
        """What a scheduler wrote to launches and jobs between two instants."""
        return self.found.query(
            "select at, name, op from fault.writes where app = %s and name in ('launches', 'jobs')"
            " and at > %s and at < %s", app, since, until_,
        )  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with EtcdCluster(tmp_path_factory.mktemp("etcd"), proxied=True) as cluster:
        LOG.info("cluster", etcd=str(etcd()))
        addresses = cluster.endpoints.split(",")
        paths = [TcpProxy("127.0.0.1", int(one.rpartition(":")[2])) for one in addresses]
        control = EtcdCoordinator(EtcdSettings(tuple(addresses)))

        def through_proxies(name: str, _: Mapping[str, str]) -> dict[str, str]:
            if name != SCHEDULERS[0]:
                return {}
            return {"TICKRAIL_ETCD_ENDPOINTS": ",".join(path.address for path in paths)}

        try:
            with (
                Effects() as effects,
                installation(
                    partitions=PARTITIONS,
                    environment={
                        "TICKRAIL_ETCD_ENDPOINTS": cluster.endpoints,
                        "TICKRAIL_WORKER_TARGETS": "noop,webhook,kafka",
                        "TICKRAIL_EGRESS_ALLOW": "127.0.0.0/8",
                    },
                    prepare=install,
                    per_service=through_proxies,
                ) as found,
            ):
                folder = tmp_path_factory.mktemp("histories")
                yield Bed(found, cluster, paths, effects, control, folder)
                if keep := os.environ.get(KEEP_VARIABLE):
                    for service in found.services.values():
                        shutil.copy(service.log, keep)
        finally:
            control.close()
            for path in paths:
                path.close()


@pytest.fixture
def bed(whole: Bed) -> Iterator[Bed]:
    """It is whole again after the test, however that ended."""
    yield whole
    whole.effects.delay = 0.0
    for proxy in (*whole.paths, *whole.cluster.peers):
        proxy.heal()
    for i, server in enumerate(whole.cluster.servers):
        if server.alive:
            whole.cluster.thaw(i)
        else:
            whole.cluster.start(i)
    whole.found.pause_jobs()


def at(line: Mapping[str, object]) -> datetime:
    """When a log line was written."""
    return datetime.fromisoformat(str(line["time"])).astimezone(UTC)


def measured(traffic: Traffic, **seconds: float) -> None:
    LOG.info("measured", test=traffic.name, **{k: round(v, 2) for k, v in seconds.items()})


@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_a_member_of_etcd_killed_under_load(bed: Bed, victim: str) -> None:
    traffic = bed.traffic(f"etcd-{victim}-killed")
    leader, followers = bed.cluster.leader(), bed.cluster.followers()
    killed = leader if victim == "leader" else followers[0]
    bed.cluster.kill(killed)
    traffic.history.fault("etcd_killed", f"etcd {killed}", role=victim)
    assert not bed.cluster.servers[killed].alive
    measured(traffic, goes_on_after=traffic.goes_on(20))
    new = bed.cluster.leader()
    assert new != killed
    assert (new == leader) == (victim == "follower")
    pause(TTL - 2)  # past the next renewals: who lost its server has found another
    bed.cluster.start(killed)
    traffic.goes_on(10)
    assert traffic.judge().doubled == []


def test_a_frozen_leader_of_etcd(bed: Bed) -> None:
    traffic = bed.traffic("etcd-leader-frozen")
    leader = bed.cluster.leader()
    bed.cluster.freeze(leader)
    traffic.history.fault("etcd_frozen", f"etcd {leader}")
    assert bed.cluster.servers[leader].frozen
    assert bed.cluster.leader() != leader
    pause(TTL)  # whoever talked to it has found out
    measured(traffic, goes_on_after=traffic.goes_on(20))
    bed.cluster.thaw(leader)
    traffic.goes_on(10)
    assert traffic.judge().doubled == []


def test_a_leader_of_etcd_that_hears_and_is_not_heard(bed: Bed) -> None:
    traffic = bed.traffic("etcd-asymmetric")
    leader = bed.cluster.leader()
    bed.cluster.peers[leader].blackhole("to_client")
    traffic.history.fault("etcd_not_heard", f"etcd {leader}")
    until(lambda: bed.cluster.leader() != leader, 20, 0.05)
    assert bed.cluster.servers[leader].alive
    pause(TTL)
    measured(traffic, goes_on_after=traffic.goes_on(20))
    bed.cluster.peers[leader].heal()
    traffic.goes_on(10)
    assert traffic.judge().doubled == []


def test_a_scheduler_that_reaches_no_etcd_stops_and_is_replaced(bed: Bed) -> None:
    traffic = bed.traffic("scheduler-cut-off")
    mine = bed.owners()[SCHEDULERS[0]]
    for path in bed.paths:
        path.blackhole()
    gone = CLOCK.now()
    traffic.history.fault("etcd_unreachable", SCHEDULERS[0], partitions=mine)
    until(lambda: bed.owners().keys() == {SCHEDULERS[1]}, 30, 0.05)
    taken = CLOCK.now()
    assert (taken - gone).total_seconds() < TTL + 2
    until(lambda: traffic.said(SCHEDULERS[0], "ownership lost"), 10, 0.05)
    (lost,) = traffic.said(SCHEDULERS[0], "ownership lost")
    assert lost["reason"] == LOST_BY_TIME
    assert at(lost) - gone < timedelta(seconds=SAID_WITHIN)
    stopped = gone + timedelta(seconds=TRUST + STOP_SLACK)
    until(lambda: CLOCK.now() > stopped + timedelta(seconds=2), 10)
    assert bed.written(SCHEDULERS[0], gone - timedelta(seconds=3), gone) != []
    assert bed.written(SCHEDULERS[0], stopped, CLOCK.now()) == []
    assert bed.found.services[SCHEDULERS[0]].problems()["etcd"] == "does not answer"
    traffic.goes_on(20)
    for path in bed.paths:
        path.heal()
    bed.settled()
    traffic.goes_on(10)
    judgement = traffic.judge()
    measured(
        traffic,
        said_after=(at(lost) - gone).total_seconds(),
        taken_over_after=(taken - gone).total_seconds(),
    )
    assert judgement.doubled == []


def test_a_lease_revoked_under_the_owner(bed: Bed) -> None:
    traffic = bed.traffic("lease-revoked")
    mine = bed.owners()[SCHEDULERS[0]]
    epochs = dict((p, e) for p, e, _ in bed.fences())  # noqa: C402 - the rows have three columns
    bed.control.revoke(bed.lease_of(SCHEDULERS[0]))
    traffic.history.fault("lease_revoked", SCHEDULERS[0], partitions=mine)
    until(lambda: all(e > epochs[p] for p, e, _ in bed.fences() if p in mine), 10, 0.05)
    measured(traffic, goes_on_after=traffic.goes_on(10))
    until(lambda: traffic.said(SCHEDULERS[0], "entered"), 10, 0.05)
    (lost,) = traffic.said(SCHEDULERS[0], "ownership lost")
    assert lost["reason"] == "the lease has ended" or "is gone or another's" in lost["reason"]
    bed.settled()
    assert traffic.judge().doubled == []


def test_a_slow_network_to_etcd_lets_nobody_flap(bed: Bed) -> None:
    traffic = bed.traffic("etcd-slow")
    before = bed.fences()
    for path in bed.paths:
        path.delay(0.5)
    traffic.history.fault("etcd_slow", SCHEDULERS[0], seconds=0.5)
    assert all(round_trip(path) > 2 * 0.5 for path in bed.paths)
    pause(TTL)
    traffic.goes_on(5)
    assert bed.fences() == before
    assert [line for name in SCHEDULERS for line in traffic.said(name, "ownership lost")] == []
    for path in bed.paths:
        path.heal()
    assert traffic.judge().doubled == []


def round_trip(path: TcpProxy) -> float:
    """How long a small question takes on this way."""
    connection = http.client.HTTPConnection(path.address, timeout=10)
    began = CLOCK.monotonic()
    connection.request("GET", "/version")
    assert connection.getresponse().status == 200
    connection.close()
    return CLOCK.monotonic() - began


def test_etcd_without_a_majority_for_10_s(bed: Bed) -> None:
    traffic = bed.traffic("etcd-no-majority")
    left, *rest = range(3)
    for i in rest:
        bed.cluster.freeze(i)
    gone = CLOCK.now()
    traffic.history.fault("etcd_no_majority", "etcd", partitions=range(bed.found.partitions))
    for one in bed.schedulers():
        until(lambda one=one: "etcd" in one.problems(), 10, 0.05)  # type: ignore[misc]
    assert [server.frozen for server in bed.cluster.servers] == [i != left for i in range(3)]
    pause(10 - (CLOCK.now() - gone).total_seconds())
    back = CLOCK.now()
    for i in rest:
        bed.cluster.thaw(i)
    measured(traffic, goes_on_after=traffic.goes_on(20))
    stopped_in_time(bed, traffic, gone, back)
    assert traffic.judge().doubled == []


def stopped_in_time(bed: Bed, traffic: Traffic, gone: datetime, back: datetime) -> None:
    """Every owner stopped before its lease could end, said why, and wrote nothing until then."""
    for name in SCHEDULERS:
        lost = next(line for line in traffic.said(name, "ownership lost") if at(line) > gone)
        assert lost["reason"] == LOST_BY_TIME
        assert at(lost) - gone < timedelta(seconds=SAID_WITHIN)
        assert bed.written(name, gone - timedelta(seconds=3), gone) != []
        assert bed.written(name, gone + timedelta(seconds=TTL), back) == []


def test_etcd_away_for_60_s(bed: Bed) -> None:
    traffic = bed.traffic("etcd-away")
    bed.effects.delay = 8.0
    running = (
        "select id from launches where job_id = any(%s::uuid[]) and state = 'running'"
        " and started_at > now() - interval '3 s'"
    )
    jobs = list(traffic.jobs[:8])
    until(lambda: len(bed.found.query(running, jobs)) > 8, 20, 0.05)
    bed.cluster.kill_all()
    gone = CLOCK.now()
    bed.effects.delay = 0.0
    traffic.history.fault("etcd_away", "etcd", partitions=range(bed.found.partitions))
    held = [row[0] for row in bed.found.query(running, jobs)]
    assert held

    for one in bed.schedulers():
        until(lambda one=one: one.problems().get("etcd") == "does not answer", 10, 0.05)  # type: ignore[misc]
        assert one.status()[0] == 503
    bed.keep_data()
    pause(AWAY - (CLOCK.now() - gone).total_seconds())
    ended = "select count(*) from launches where id = any(%s) and state = 'succeeded'"
    assert bed.found.query(ended, held) == [(len(held),)]  # the workers finished what they held
    assert [one.status("/healthz")[0] for one in bed.schedulers()] == [200, 200]

    started = CLOCK.monotonic()
    bed.cluster.start_all()
    elected, back = CLOCK.monotonic(), CLOCK.now()
    until(lambda: traffic.latest() > back - timedelta(seconds=AWAY / 2), 60, 0.05)
    took = CLOCK.monotonic() - elected
    measured(
        traffic,
        election=elected - started,
        goes_on_after=took,
        caught_up_after=took + traffic.goes_on(60),
    )
    assert took < BACK_WITHIN
    stopped_in_time(bed, traffic, gone, back)
    assert all(line["event"] != "serving" for name in SCHEDULERS for line in traffic.lines(name))
    assert traffic.judge().doubled == []


@pytest.mark.parametrize("state", ["older", "empty"])
def test_etcd_with_an_older_state_or_none_is_refused_until_the_generation_is_raised(
    bed: Bed, state: str
) -> None:
    """C-07: its revisions are lower than those that owners were known by."""
    if not bed.older.is_dir():
        bed.cluster.kill_all()
        bed.keep_data()
        bed.cluster.start_all()
    traffic = bed.traffic(f"etcd-{state}")
    # Revisions that the older state does not have, and owners that are known by them.
    lease = bed.lease_of(SCHEDULERS[0])
    for _ in range(30):
        bed.control.put_member(Member("nobody-1", "nobody", 0.0), lease)
    before = max(epoch for _, epoch, _ in bed.fences())
    bed.control.remove_member("nobody-1")
    bed.control.revoke(lease)
    until(lambda: max(epoch for _, epoch, _ in bed.fences()) > before + 20, 20, 0.05)
    traffic.goes_on(20)

    bed.cluster.kill_all()
    bed.cluster.replace_data(bed.older if state == "older" else None)
    bed.cluster.start_all()
    restored = CLOCK.now()
    traffic.history.fault("etcd_restored", "etcd", state=state)
    for one in bed.schedulers():
        until(lambda one=one: "ownership" in one.problems(), 30, 0.1)  # type: ignore[misc]
        code, told = one.status()
        assert code == 503
        assert "etcd was restored or replaced" in told
        assert "tickrail system raise-generation" in told
    # What it remembers of old owners has ended by now: that is when claims are tried.
    refused = CLOCK.now()
    fences = bed.fences()
    pause(2)
    assert bed.fences() == fences
    for name in SCHEDULERS:
        assert bed.written(name, refused + timedelta(seconds=STOP_SLACK), CLOCK.now()) == []

    raised = CLOCK.monotonic()
    generation = raise_generation(bed)
    assert max(epoch >> 48 for _, epoch, _ in fences) < generation
    until(lambda: all(epoch >> 48 == generation for _, epoch, _ in bed.fences()), 30, 0.05)
    traffic.goes_on(30)
    measured(
        traffic,
        refused_after=(refused - restored).total_seconds(),
        goes_on_after=CLOCK.monotonic() - raised,
    )
    bed.settled()
    assert traffic.judge().doubled == []


def raise_generation(bed: Bed) -> int:
    """As an operator does it; the new one."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("tickrail")), "system", "raise-generation", "--yes"],
        env=dict(bed.found.services[SCHEDULERS[0]].environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (generation,) = bed.found.query("select generation from installation")[0]
    assert f"The generation is {generation} now." in done.stdout
    return int(generation)
