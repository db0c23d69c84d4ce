"""The faults of loadtest/alerts.py: how each is made and mended, and which alerts it must raise."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import psycopg
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from loadtest import alert_work_faults as work
from loadtest.alert_bed import EVERY_SECOND, Bed, Mend, Shifted, named_fault
from psycopg import conninfo
from tests.support.processes import CLOCK, Service
from tests.support.until import pause, until


def dead_letters(bed: Bed) -> Mend:
    """A crowd of jobs whose receiver Tickrail itself refuses to call."""
    target = {"webhook": {"url": work.DEAD_END}}
    jobs = bed.found.add_jobs(60, {**EVERY_SECOND, "target": target})
    bed.about(jobs[0])

    def mend() -> None:
        bed.run("update jobs set state = 'paused' where id = any(%s)", jobs)
        bed.run("delete from launches where job_id = any(%s) and phase = 3", jobs)

    return mend


def bad_plan(bed: Bed) -> Mend:
    """A job's plan made unreadable, as by a version of Tickrail from the future."""
    (job,) = bed.found.add_jobs(1, {**EVERY_SECOND, "target": {"noop": {}}})
    pause(3)
    bed.about(job)
    plan = '{"schedule": {"moon": "full"}}'
    bed.run(
        "insert into job_versions (job_id, version, tenant_id, definition)"
        " select job_id, 2, tenant_id, definition from job_versions where job_id = %s",
        job,
    )
    bed.run("update jobs set plan = %s, version = 2 where id = %s", plan, job)

    def mend() -> None:
        again = "select 1 from launches where job_id = %s and job_version = 3 limit 1"
        until(lambda: bed.found.query(again, job), 90)
        bed.run("update jobs set state = 'paused' where id = %s", job)

    return mend


def adrift(bed: Bed) -> Mend:
    """A job's next run is moved by a day."""
    (job,) = bed.found.add_jobs(1, {**EVERY_SECOND, "target": {"noop": {}}})
    pause(3)
    first = CLOCK.now()
    missed = {"FROM": f"{first:%FT%TZ}", "UNTIL": f"{first + timedelta(seconds=10):%FT%TZ}"}
    bed.about(job, VERSION="1", **missed)
    bed.run("update jobs set next_run_at = now() + interval '1 day' where id = %s", job)
    return lambda: None


def silent(bed: Bed) -> Mend:
    """A job that should succeed each second, and never has."""
    (job,) = bed.found.add_jobs(1, {"target": {"noop": {}}})
    expected = "update jobs set expect_success_every = '1 s', success_due_at = now() where id = %s"
    bed.run(expected, job)
    bed.about(job)
    return lambda: bed.run(
        "update jobs set state = 'deleted', success_due_at = null, silent_since = null,"
        " expect_success_every = null, next_run_at = null where id = %s",
        job,
    )


def frozen_worker(bed: Bed) -> Mend:
    """The only worker stands still."""
    (worker,) = bed.of("worker")
    worker.freeze()
    return worker.thaw


def ended(kind: str) -> Callable[[Bed], Mend]:
    """Every process of a kind is killed."""

    def make(bed: Bed) -> Mend:
        services = bed.of(kind)
        bed.about(bed.jobs[0], FROM=f"{CLOCK.now():%FT%TZ}")
        for service in services:
            service.kill()
        bed.scrape()
        return lambda: [bed.start(service) for service in services]

    return make


def lost_workers(bed: Bed) -> Mend:
    """A worker dies in the middle of its runs, again and again."""
    shell = {"command": {"shell": "sleep 20"}}
    document = {**EVERY_SECOND, "target": shell, "visibility_timeout": "5s"}
    jobs = bed.found.add_jobs(5, document)
    bed.about(jobs[0])
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(8):
            for worker in bed.of("worker"):
                worker.kill()
                worker.start()

    thread = threading.Thread(target=kill)
    thread.start()

    def mend() -> None:
        ended.set()
        thread.join()
        bed.run("update jobs set state = 'paused' where id = any(%s)", jobs)

    return mend


def late(bed: Bed) -> Mend:
    """Both schedulers are away for longer than the jobs' grace, and come back."""
    services = bed.of("scheduler")
    for service in services:
        service.kill()
    pause(75)
    for service in services:
        bed.start(service)
    return lambda: None


def frozen_etcd(bed: Bed) -> Mend:
    """The only etcd stands still, three times for seven seconds, then longer."""
    etcd = bed.found.stack.etcd
    for _ in range(3):
        etcd.freeze()
        pause(7)
        etcd.thaw()
        pause(4)
    etcd.freeze()
    return etcd.thaw


def killed_kafka(bed: Bed) -> Mend:
    """Kafka is killed."""
    bed.found.stack.kafka.kill()
    return bed.found.stack.kafka.restart


def killed_postgres(bed: Bed) -> Mend:
    """PostgreSQL is killed."""
    bed.found.stack.postgres.kill()
    return bed.found.stack.postgres.restart


def locked(table: str, seconds: float) -> Callable[[Bed], Mend]:
    """Somebody holds the lock of a table for seconds, again and again."""

    def make(bed: Bed) -> Mend:
        ended = threading.Event()

        def hold() -> None:
            with (
                suppress(psycopg.OperationalError),  # as a runbook ends it
                psycopg.connect(bed.found.admin, autocommit=True) as conn,
            ):
                while not ended.is_set():
                    with conn.transaction():
                        conn.execute(f"lock table {table} in access exclusive mode".encode())
                        ended.wait(seconds)
                    ended.wait(0.5)

        thread = threading.Thread(target=hold)
        thread.start()

        def mend() -> None:
            ended.set()
            thread.join()

        return mend

    return make


def skewed_clock(bed: Bed) -> Mend:
    """A scheduler's clock is moved by 0.7 s."""
    usual = bed.of("scheduler")[0].environment
    service = Shifted("scheduler", "scheduler-shifted", usual, bed.folder / "shifted.log")
    bed.start(service)
    service.move(0.7)

    def mend() -> None:
        service.move(-0.7)
        bed.over("ClockSkew")
        service.kill()
        del bed.found.services[service.name]

    return mend


def raised_fence(bed: Bed) -> Mend:
    """The stored epochs are raised by one, as by another owner."""
    bed.run("update partitions set epoch = epoch + 1 where partition < 4")
    return lambda: None


def history(bed: Bed) -> Mend:
    """Days ahead are dropped, and a day is there that is too old."""
    bed.run("select drop_day((now() + n * interval '1 d')::date) from generate_series(2, 9) n")
    bed.run("select make_day((now() - interval '40 d')::date)")

    def mend() -> None:
        bed.run("select make_day((now() + n * interval '1 d')::date) from generate_series(2, 3) n")
        bed.run("select drop_day((now() - interval '40 d')::date)")

    return mend


def ends_soon(bed: Bed) -> Mend:
    """A scheduler with a certificate of a day and a file that is gone; a key of a day in use."""
    file, gone = bed.folder / "authority.pem", bed.folder / "gone.pem"
    file.write_bytes(_certificate(timedelta(days=1)))
    usual = bed.of("scheduler")[0].environment
    url = conninfo.make_conninfo(
        str(usual["TICKRAIL_DATABASE_URL"]),
        sslmode="disable",
        sslrootcert=str(gone),
    )
    made = bed.shell("tickrail keys create soon --scope read --expires-in 24h --output json")
    key = str(json.loads(made.said)["id"])
    bed.run("update api_keys set last_used_at = now() where id = %s", key)
    bed.named = {"KEY": key}
    own = {"TICKRAIL_DATABASE_URL": url, "TICKRAIL_WEBHOOK_CA_FILE": str(file)}
    service = Service("scheduler", "scheduler-3", {**usual, **own}, bed.folder / "third.log")
    bed.start(service)

    def mend() -> None:
        for path in (file, gone):
            path.write_bytes(_certificate(timedelta(days=90)))
        service.end()
        bed.start(service)
        bed.over("CertificateExpires", "CertificateExpiresSoon", "CertificateUnreadable")
        bed.over("ApiKeyExpires")
        service.end()
        del bed.found.services[service.name]
        bed.run("delete from api_keys where name = 'soon'")

    return mend


def _certificate(life: timedelta) -> bytes:
    key, now = ec.generate_private_key(ec.SECP256R1()), CLOCK.now()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ends soon")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - life)
        .not_valid_after(now + life)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def restarts(bed: Bed) -> Mend:
    """The watchdog is killed as soon as it serves, again and again."""
    (service,) = bed.of("watchdog")
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(3):  # so that a scrape has seen it
            service.kill()
            bed.start(service)

    thread = threading.Thread(target=kill)
    thread.start()

    def mend() -> None:
        ended.set()
        thread.join()

    return mend


FAULTS = (
    named_fault(
        late, "late", "Both schedulers were away for 75 s, and came back.",
        "StartSLOFastBurn", "StartSLOSlowBurn", "RecordSLOFastBurn", "RecordSLOSlowBurn",
    ),
    named_fault(
        ends_soon, "ends-soon", "A certificate and a key with a day left, a file that was gone.",
        "CertificateExpires", "CertificateExpiresSoon", "CertificateUnreadable", "ApiKeyExpires",
    ),
    named_fault(
        history, "history", "Days ahead were dropped, and a day was there that is too old.",
        "HistoryNotAhead", "RetentionLate",
    ),
    named_fault(
        bad_plan, "bad-plan", "A job's plan was made unreadable.", "JobsUnplannable",
    ),
    named_fault(
        adrift, "adrift", "A job's next run was moved by a day.", "JobsWrong", "SlotsMissing",
    ),
    named_fault(silent, "silent", "A job that should succeed each second never did.", "JobsSilent"),
    named_fault(
        dead_letters, "dead-letters", "60 jobs of every second were refused by their workers.",
        "DeadLetters", "DeadLettersGrowing",
    ),
    named_fault(
        skewed_clock, "clock", "A scheduler's clock was moved by 0.7 s.", "ClockSkew",
    ),
    named_fault(
        raised_fence, "fence", "The stored epochs of four partitions were raised.", "FencedWrites",
    ),
    named_fault(
        locked("jobs", 4.0), "slow-tick", "The table of jobs was locked for 4 s at a time.",
        "ScheduleLag",
    ),
    named_fault(
        locked("api_keys", 2.5), "slow-postgres", "The table of keys was locked, 2.5 s at a time.",
        "ApiSlow",
    ),
    named_fault(
        work.deaf_task, "deaf-task", "A task in a thread went on after its timeout.",
        "RunsNotStopped",
    ),
    named_fault(
        work.blocking_task, "blocking-task", "An async task blocked the event loop for 8 s.",
        "TaskLoopLag",
    ),
    named_fault(
        work.crowd, "crowd", "200 jobs of every second ran for 20 s in 16 places.", "NotRead",
    ),
    named_fault(
        work.mute_channel, "mute-channel",
        "A channel's secret was gone; its notices were made a day older.", "NoticesGivenUp",
    ),
    named_fault(
        work.mute_watchdog, "mute-watchdog",
        "Nobody answered at the watchdog's webhook; its clock was moved by a day.",
        "AlarmsNotDelivered", "AlarmsGivenUp",
    ),
    named_fault(
        work.strange_notice, "strange-notice", "A notice held data of another form.",
        "LoopErrors",
    ),
    named_fault(
        restarts, "restarts", "The watchdog was killed each time that it served.",
        "ProcessRestarts",
    ),
    named_fault(
        ended("api"), "no-api", "The only API process was killed.", "ApiAbsent",
    ),
    named_fault(
        ended("watchdog"), "no-watchdog", "The watchdog was killed.", "WatchdogAbsent",
    ),
    named_fault(
        frozen_worker, "frozen-worker", "The only worker was stopped (SIGSTOP).",
        "NothingStarts", "QueueUnserved", "MessagesLost",
    ),
    named_fault(
        ended("worker"), "no-worker", "The only worker was killed.", "WorkerAbsent",
    ),
    named_fault(
        ended("scheduler"), "no-scheduler", "Both schedulers were killed.",
        "SchedulerAbsent", "NoScheduler", "PartitionsUnowned", "JobsOverdue", "SlotsMissing",
    ),
    named_fault(
        lost_workers, "lost-workers", "The worker was killed every eight seconds amid its runs.",
        "ClaimsExpiring",
    ),
    named_fault(
        frozen_etcd, "frozen-etcd", "The only etcd was stopped (SIGSTOP), again and again.",
        "ServerAway", "LeaseNearlyLost", "LeaseLow",
    ),
    named_fault(
        killed_kafka, "no-kafka", "Kafka was killed.",
        "ServerAway", "NotPublished", "NothingPublished",
    ),
    named_fault(
        killed_postgres, "no-postgres", "PostgreSQL was killed.",
        "ServerAway", "ApiErrors", "WatchdogBlind",
    ),
)  # fmt: skip
