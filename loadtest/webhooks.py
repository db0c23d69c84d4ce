"""Webhook calls through the whole path, on real servers of its own, and through the executor alone.

    python loadtest/webhooks.py open     [--calls 2000] [--after 5] [--launches 6000]
    python loadtest/webhooks.py short    [--launches 10000]
    python loadtest/webhooks.py executor [--launches 20000]

`open`: how many calls one worker holds open to a receiver that answers after some seconds, and the
memory that takes. `short`: calls a second of one worker, the receiver on the same machine.
`executor`: the same without the path, in this process. Exits 1 when a launch is lost, doubled or
did not succeed at its first attempt, or a bound given by --calls, --max-rss (MB) or --min-rate is
broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psutil
import psycopg

from bed import (
    CLOCK,
    Bed,
    Process,
    Seed,
    bed,
    bed_options,
    cpu_seconds,
    insert_jobs,
    make_tenant,
    pause,
    report_cpu,
    wait_for_owners,
)
from pipeline import check, release, wait_until_done
from receiver import LOOPBACK, OK_ANSWER, Requests
from tickrail.core.execution import Outcome, Run
from tickrail.executors.egress import EgressGuard
from tickrail.executors.egress_policy import EgressPolicy
from tickrail.executors.webhook import WebhookExecutor, WebhookSettings

PAYLOAD = {"order": 4711, "lines": ["a", "b", "c"]}


# --- the receiver: a process of its own ----------------------------------------------------------


class Receiver(Requests):
    """Answers `after` seconds, counts what is open."""

    calls = 0
    open = 0
    most = 0

    def __init__(self, after: float) -> None:
        super().__init__()
        self._after = after

    def asked(self, head: bytes) -> None:
        """Count it, and answer in time; or tell what was counted."""
        if head.startswith(b"get /stats"):
            body = json.dumps({"calls": Receiver.calls, "most": Receiver.most}).encode()
            self.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            return
        Receiver.calls += 1
        Receiver.open += 1
        Receiver.most = max(Receiver.most, Receiver.open)
        if self._after:
            asyncio.get_running_loop().call_later(self._after, self._end)
        else:
            self._end()

    def _end(self) -> None:
        Receiver.open -= 1
        self.answer(OK_ANSWER)


async def receive(after: float) -> None:
    """Serve until the process is stopped; the port is told on standard output."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Receiver(after), LOOPBACK, 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def receiver(after: float) -> Iterator[tuple[int, Process]]:
    """A receiver that runs: its port and its process."""
    command = [sys.executable, __file__, "receiver", "--after", str(after)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), Process("receiver", process.pid)
    finally:
        process.terminate()
        process.wait(10)


def stats(port: int) -> Mapping[str, int]:
    """What the receiver has counted."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/stats", timeout=10) as answer:
        found: Mapping[str, int] = json.load(answer)
        return found


# --- through the path ----------------------------------------------------------------------------


@contextmanager
def running(args: argparse.Namespace, port: int, process: Process) -> Iterator[Bed]:
    """Servers, one scheduler and one worker that serves webhooks; the jobs are there, paused."""
    with bed(args) as found:
        with psycopg.connect(found.admin) as conn:
            conn.execute("update queues set kinds = array['webhook']")
        found.start("scheduler", args.schedulers)
        found.start(
            "worker",
            args.workers,
            TICKRAIL_WORKER_TARGETS="webhook",
            TICKRAIL_EGRESS_ALLOW=LOOPBACK,
        )
        wait_for_owners(found.admin, args.partitions)
        found.processes.append(process)
        due = CLOCK.now() - timedelta(seconds=1)
        more = {
            "target": {"webhook": {"url": f"http://{LOOPBACK}:{port}/hook"}},
            "payload": PAYLOAD,
        }
        seeds = [Seed({"at": due.isoformat()}, due, more)] * args.launches
        insert_jobs(found.admin, make_tenant(found.admin), seeds, args.partitions)
        pause(2.0)
        yield found


class Memory(threading.Thread):
    """Samples the memory of a process."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self._ended = threading.Event()
        self.most = 0.0

    def run(self) -> None:
        """Look ten times a second."""
        while not self._ended.wait(0.1):
            self.most = max(self.most, self._process.memory_info().rss / 1e6)

    def stop(self) -> float:
        """The largest resident set that was seen, MB."""
        self._ended.set()
        self.join()
        return self.most


def drain(args: argparse.Namespace, port: int, process: Process) -> tuple[list[str], float, float]:
    """Release the jobs, wait until all are done: what is wrong, calls a second, the worker's MB."""
    with running(args, port, process) as found:
        worker = next(p for p in found.processes if p.name == "worker-1")
        memory = Memory(worker.pid)
        memory.start()
        before = cpu_seconds(found.processes)
        began = release(found.admin)
        wait_until_done(found.admin, args.launches, args.timeout)
        after = cpu_seconds(found.processes)
        most = memory.stop()
        problems = check(found.admin, args.launches)
        with psycopg.connect(found.admin) as conn:
            row = conn.execute("select max(finished_at) from launches").fetchone()
    if row is None or row[0] is None:
        return [*problems, "nothing finished"], 0.0, most
    seconds = (row[0] - began).total_seconds()
    print(f"{args.launches} launches in {seconds:.1f} s, {args.launches / seconds:,.0f}/s")
    report_cpu(before, after, args.launches, seconds)
    return problems, args.launches / seconds, most


def hold_open(args: argparse.Namespace) -> list[str]:
    """Calls that take long: how many are open at once."""
    with receiver(args.after) as (port, process):
        problems, _, most = drain(args, port, process)
        open_calls = stats(port)["most"]
    print(f"open at once: {open_calls} calls; memory of the worker: {most:.0f} MB")
    if open_calls < args.calls:
        problems.append(f"{open_calls} calls were open at once, not {args.calls}")
    if most > args.max_rss:
        problems.append(f"{most:.0f} MB of memory are above {args.max_rss:g}")
    return problems


def short(args: argparse.Namespace) -> list[str]:
    """Calls that are answered at once: how many a second."""
    with receiver(0) as (port, process):
        problems, rate, _ = drain(args, port, process)
    if rate < args.min_rate:
        problems.append(f"{rate:,.0f} calls/s are below {args.min_rate:,.0f}")
    return problems


# --- the executor alone --------------------------------------------------------------------------


def alone(args: argparse.Namespace) -> list[str]:
    """The executor in this process, with so many calls open at a time as the worker would have."""
    done, wrong = threading.Event(), 0
    free = threading.Semaphore(args.concurrency)
    left = args.launches
    lock = threading.Lock()

    def end(_: Run, outcome: Outcome) -> None:
        nonlocal left, wrong
        free.release()
        with lock:
            wrong += not outcome.ok
            left -= 1
            if not left:
                done.set()

    guard = EgressGuard(EgressPolicy.parse(LOOPBACK), CLOCK)
    how = WebhookSettings(idle_per_origin=args.concurrency)
    executor = WebhookExecutor(guard, CLOCK, how)
    with receiver(0) as (port, process):
        target: dict[str, Any] = {"webhook": {"url": f"http://{LOOPBACK}:{port}/hook"}}
        processes = [Process("executor", psutil.Process().pid), process]
        before, began = cpu_seconds(processes), CLOCK.monotonic()
        for _ in range(args.launches):
            free.acquire()
            run = Run(
                uuid4(), UUID(int=1), "load", UUID(int=2), CLOCK.now(), 1, 1, target, PAYLOAD, 30.0
            )
            executor.start(run, end)
        if not done.wait(args.timeout):
            return ["calls did not end in time"]
        seconds = CLOCK.monotonic() - began
        after = cpu_seconds(processes)
    executor.close(1.0)
    print(f"{args.launches} calls in {seconds:.1f} s, {args.launches / seconds:,.0f}/s")
    report_cpu(before, after, args.launches, seconds)
    return [f"{wrong} calls did not succeed"] if wrong else []


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("mode", choices=["open", "short", "executor", "receiver"])
    parser.add_argument("--launches", type=int)
    parser.add_argument("--calls", type=int, default=2000, help="at least so many open at once")
    parser.add_argument("--after", type=float, default=5.0, help="seconds until the answer")
    parser.add_argument("--max-rss", type=float, default=400.0, help="MB of the worker at most")
    parser.add_argument("--min-rate", type=float, default=0.0)
    bed_options(parser, concurrency=2000, outstanding=4000)
    args = parser.parse_args()
    if args.mode == "receiver":
        asyncio.run(receive(args.after))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    run, launches = {
        "open": (hold_open, 6000), "short": (short, 10_000), "executor": (alone, 20_000)
    }[args.mode]  # fmt: skip
    args.launches = args.launches or launches
    problems = run(args)
    for problem in problems:
        print(f"BROKEN: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
