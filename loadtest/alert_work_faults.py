"""Faults of work and of telling people: tasks, crowds, notices, alarms. See alert_faults.py."""

from __future__ import annotations

from typing import Any

from loadtest.alert_bed import EVERY_SECOND, Bed, Mend, Shifted
from tests.support.until import until

DEAD_END = "http://127.0.0.1:9/"
"""Nobody listens on this port."""
A_DAY = 25 * 3600.0


def _paused(bed: Bed, jobs: list[Any]) -> Mend:
    """Pause these jobs, and cancel what waits of them."""

    def mend() -> None:
        bed.run("update jobs set state = 'paused' where id = any(%s) and state = 'active'", jobs)
        bed.run("delete from launches where job_id = any(%s) and phase < 3", jobs)

    return mend


def deaf_task(bed: Bed) -> Mend:
    """A task in a thread that goes on after its timeout; the worker is started anew."""
    target = {"task": {"name": "deaf", "args": {"seconds": 600}}}
    document = {**EVERY_SECOND, "overlap": "skip", "target": target, "timeout": "1s"}
    jobs = bed.found.add_jobs(1, document)
    bed.about(jobs[0])

    def mend() -> None:
        _paused(bed, jobs)()
        for worker in bed.of("worker"):
            worker.end()
            bed.start(worker)

    return mend


def blocking_task(bed: Bed) -> Mend:
    """An async task that blocks the event loop."""
    target = {"task": {"name": "blocking", "args": {"seconds": 8}}}
    jobs = bed.found.add_jobs(1, {**EVERY_SECOND, "overlap": "skip", "target": target})
    bed.about(jobs[0])
    return _paused(bed, jobs)


def crowd(bed: Bed) -> Mend:
    """Many more commands than the worker has places for."""
    target = {"command": {"argv": ["/bin/sleep", "20"]}}
    jobs = bed.found.add_jobs(200, {**EVERY_SECOND, "target": target, "timeout": "60s"})
    bed.about(jobs[0])
    return _paused(bed, jobs)


def mute_channel(bed: Bed) -> Mend:
    """A job that fails tells a channel whose secret is gone, and a day passes."""
    notify = {"notify": ["webhook:gone"]}
    target = {"webhook": {"url": DEAD_END}}
    jobs = bed.found.add_jobs(1, {**EVERY_SECOND, "target": target, "on_failures": notify})
    bed.about(jobs[0], SECRET="gone", HOOK="https://hooks.example.org/T0/B1")
    until(lambda: bed.found.query("select 1 from notices where state = 'pending' limit 1"), 60)
    bed.run(
        "update notices set created_at = created_at - interval '25 h', due_at = now()"
        " where state = 'pending'"
    )
    return _paused(bed, jobs)


def strange_notice(bed: Bed) -> Mend:
    """A notice whose data is not what the program writes."""
    ((tenant,),) = bed.found.query("select tenant_id from jobs where id = %s", bed.jobs[0])
    ((notice,),) = bed.found.query(
        "insert into notices (tenant_id, kind, about, channel, said, data, minute)"
        " values (%s, 'launch.dead', 'strange', 'kafka:none', '', '[]',"
        " date_trunc('minute', now())) returning id",
        tenant,
    )
    bed.about(bed.jobs[0], NOTICE=str(notice))
    return lambda: bed.run("delete from notices where about = 'strange'")


def mute_watchdog(bed: Bed) -> Mend:
    """A watchdog whose webhook nobody answers finds something, and a day passes."""
    (adrift,) = bed.found.add_jobs(1, {**EVERY_SECOND, "target": {"noop": {}}})
    bed.about(adrift)
    usual = bed.of("watchdog")[0].environment
    own = {"TICKRAIL_WATCHDOG_WEBHOOK": DEAD_END}
    service = Shifted("watchdog", "watchdog-mute", {**usual, **own}, bed.folder / "mute.log")
    bed.start(service)
    bed.run("update jobs set next_run_at = now() + interval '1 day' where id = %s", adrift)
    until(lambda: service.said("alarm_not_delivered"), 60, every=0.5)
    service.move(A_DAY)

    def mend() -> None:
        service.kill()
        del bed.found.services[service.name]
        bed.run("update jobs set state = 'paused' where id = %s", adrift)

    return mend
