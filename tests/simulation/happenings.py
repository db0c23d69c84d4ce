"""What happens to a world: crashes, pauses, servers away and put back, requests."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tests.simulation.kafka import Fate
from tests.simulation.kernel import OUTAGES, Fault, Killed
from tests.simulation.plan import LENGTH, Event
from tests.simulation.processes import PARTITIONS, TOPICS
from tests.simulation.requests import Requests

from tickrail.core.ports_ownership import Drain


def knows(kind: str) -> bool:
    """Whether there are events of this kind."""
    return kind in {"call", "message", "restore"} or hasattr(Happenings, kind)


class Happenings(Requests):
    """The events of a history."""

    def plan(self, event: Event) -> None:
        """Have it happen at its time."""
        kernel = self.kernel
        if event.kind == "call":
            kernel.faults.setdefault(event.args["process"], []).append(
                Fault(event.at, **event.args)
            )
        elif event.kind == "message":
            self.world.bus.fates.append(Fate(event.at, **event.args))
        elif event.kind == "restore":
            self._plan_restore(event)
        else:

            def happens() -> None:
                kernel.say("", f"!! {event.kind}", event.args)
                kernel.done.append(event.kind)
                with suppress(Killed):
                    getattr(self, event.kind)(**event.args)

            kernel.at(event.at, happens)

    def _plan_restore(self, event: Event) -> None:
        kernel, world = self.kernel, self.world
        server, lost = event.args["server"], event.args["lost"]
        target = world.db if server == "db" else world.etcd
        kept: list[Any] = []

        def restore() -> None:
            kernel.say("", "!! restore", event.args)
            kernel.done.append(f"{server} restored")
            if server == "db":
                world.db.restore(kept[0])
                world.account.restored()
            else:
                world.account.leases_were_taken = True
                world.etcd.put_back(kept[0])
                world.succession.begin_again()

        kernel.at(max(0.0, event.at - lost), lambda: kept.append(target.save()))
        kernel.at(event.at, restore)
        if mended := event.args.get("mended"):
            kernel.at(event.at + mended, world.mend)

    def _life(self, process: str) -> Any:
        return self.world.processes[process]

    def crash(self, process: str) -> None:
        self.kernel.kill(self._life(process))

    def freeze(self, process: str, seconds: float) -> None:
        seconds = self.kernel.at_most(seconds)
        self._life(process).frozen_until = self.kernel.now + seconds
        self.kernel.disturb(self._life(process), seconds)

    def stop(self, process: str) -> None:
        one = self._life(process)
        if not one.alive:
            return
        try:
            done = one.stop()
        except Killed:
            return  # in the middle of it
        except OUTAGES:
            done = True
        if done:
            self.kernel.kill(one)
        else:
            self.kernel.at(self.kernel.now + 0.1, lambda: self.stop(process), one)

    def slow(self, seconds: float) -> None:
        self.world.slow_until = self.kernel.now + seconds

    def hang(self, process: str) -> None:
        one = self._life(process)
        one.owning.stuck, one.owning.began = True, self.kernel.now

    def down(self, server: str, seconds: float) -> None:
        self.kernel.down[server] = self.kernel.troubled = True

        now = self.kernel.now
        for one in self.world.processes.values():
            one.disturbed_until = max(one.disturbed_until, now + seconds)
        if server == "db":
            self.world.account.outages.append((now, min(now + seconds, LENGTH)))

        def up() -> None:
            self.kernel.down[server] = False

        self.kernel.at(self.kernel.now + seconds, up)

    def cut(self, process: str, server: str, seconds: float) -> None:
        self.kernel.troubled = True
        self.kernel.disturb(self._life(process), seconds)
        self._life(process).cut_until[server] = self.kernel.now + seconds

    def drain(self, process: str, seconds: float) -> None:
        """The operator drains a member for some time."""
        etcd, now = self.world.etcd, self.world.db.clock.now()
        etcd.drains[process] = Drain(process, now, "the operator")
        etcd.changed()

        def undrain() -> None:
            etcd.drains.pop(process, None)
            etcd.changed()

        self.kernel.at(self.kernel.now + seconds, undrain)

    def revoke(self, process: str) -> None:
        session = self._life(process).ownership._session
        if session is not None:
            self.world.account.leases_were_taken = True
            self.world.etcd.end_lease(session.lease)

    def clock(self, who: str, seconds: float) -> None:
        if who == "db":
            self.world.account.database_clock_moved = True
            self.world.db.clock.ahead += seconds
        else:
            self._life(who).clock.ahead += seconds

    def throw_out(self, process: str) -> None:
        consumer = self._life(process).consumer
        if not consumer.closed and consumer.topics:
            consumer.throw_out()

    def empty(self, topic: int) -> None:
        self.world.bus.empty(TOPICS[topic])

    def recreate(self, topic: int) -> None:
        bus, name = self.world.bus, TOPICS[topic]
        bus.delete(name)
        bus.version += 1
        bus.births[name] += 1
        self.world.account.topic_gone(name)

        def again() -> None:
            bus.create(name, PARTITIONS)
            bus.version += 1

        self.kernel.at(self.kernel.now + 2.5, again)

    def truncate(self, topic: int, count: int) -> None:
        """The ends of a topic's logs are gone: a leader without the last messages took over."""
        self.world.bus.truncate(TOPICS[topic], count)

    def anew(self, topic: int) -> None:
        name = TOPICS[topic]
        if name in self.world.bus.logs:
            self.world.bus.make_anew(name)
            self.world.account.topic_gone(name)

    def locked(self, job: str, seconds: float) -> None:
        """Somebody else's transaction holds the rows of a job and its launches."""
        db, row = self.world.db, self.world.jobs[job]
        launches = {x.id for x in db.of_job(row)}
        db.locked_jobs.add(row)
        db.locked_launches.update(launches)

        def unlocked() -> None:
            db.locked_jobs.discard(row)
            db.locked_launches.difference_update(launches)

        self.kernel.at(self.kernel.now + seconds, unlocked)
