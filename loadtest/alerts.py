"""Alerts tried with real faults: each fault is made on real servers, and its alerts must fire.

    python -m loadtest.alerts [--only NAME ...] [--times 60] [--runbooks] [--told FILE]

An installation of its own: two schedulers, a worker, an API, a watchdog, jobs of every second, and
a Prometheus that scrapes each second. It has the rules of helm/tickrail/rules with waits and
windows --times shorter; what lasted seconds (a job due for 60 s) must last so here, too. The faults
come one after the other, each is mended before the next.

While an alert fires, its runbook is followed: each command line under *What to look at* is run and
must end with exit code 0, then those under *What to do*, then what else mends the fault. In the end
every alert must have stopped. --runbooks writes what was seen into the last section of each alert's
runbook; --told keeps what each command line said. Takes half an hour. Exits 1 when an alert did not
fire, fired before its fault was made, or did not stop, or when a command line failed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_bytes

from loadtest.alert_bed import Bed, Fault, Ran, add_services
from loadtest.alert_faults import FAULTS
from loadtest.alert_pages import Seen, follow, tell, write_runbooks
from tests.support.processes import CLOCK, installation
from tests.support.prometheus import Prometheus, quicker
from tests.support.runbooks import DO, LOOK
from tests.support.until import until

ROOT = Path(__file__).parents[1]
RULES = ROOT / "helm/tickrail/rules"
FIRES_WITHIN = 200.0
STOPS_WITHIN = 600.0


@contextmanager
def bed(times: float) -> Iterator[Bed]:
    """Everything that runs, ready and owned."""
    with ExitStack() as rest:
        folder = Path(rest.enter_context(tempfile.TemporaryDirectory(prefix="tickrail-alerts-")))
        found = rest.enter_context(
            installation(
                workers=1,
                environment={
                    "TICKRAIL_WORKER_TARGETS": "noop,webhook,kafka,command,task",
                    "TICKRAIL_WORKER_APP": "loadtest.alert_tasks:app",
                    "TICKRAIL_API_KEY_FAILURES": "10000",
                    "TICKRAIL_SECRET_KEYS": urlsafe_b64encode(token_bytes(32)).decode(),
                    "TICKRAIL_LEASE_TTL": "10",
                    "TICKRAIL_RENEW_EVERY": "3",
                    "TICKRAIL_LOST_AFTER": "10",
                    "TICKRAIL_WATCHDOG_EVERY": "2",
                    "TICKRAIL_WATCHDOG_LATE": "10",
                },
            )
        )
        rules = {f.name: quicker(f.read_text(), times) for f in RULES.glob("*[!t].yaml")}
        prometheus = rest.enter_context(Prometheus(folder, rules))
        made = Bed(found, prometheus, folder)
        rest.enter_context(made.visitors())
        add_services(made)
        until(lambda: all(s.ready() for s in found.services.values()), 120, every=0.2)
        made.scrape()
        made.begin()
        yield made


def attempt(made: Bed, fault: Fault) -> Iterator[Seen]:
    """Make a fault, wait for its alerts, follow their runbooks, mend it."""
    made.named, made.over_at = {}, 0.0
    early = fault.alerts & made.prometheus.firing()
    began = made.now()
    fired: dict[str, float] = {}
    ran: dict[str, list[Ran]] = {alert: [] for alert in fault.alerts}
    ended = fault.make(made)

    def all_fired() -> bool:
        for alert in (fault.alerts - fired.keys()) & made.prometheus.firing():
            fired[alert] = made.now() - began
        return fault.alerts == fired.keys()

    try:
        until(all_fired, FIRES_WITHIN, every=0.5)
    except AssertionError:
        print(f"{fault.name}: not all within {FIRES_WITHIN:g} s", flush=True)
    try:
        for section in (LOOK, DO):
            for alert in sorted(fired):
                ran[alert] += follow(made, alert, section)
    finally:
        ended()
    at = made.over_at or CLOCK.now().timestamp()
    for alert in sorted(fault.alerts):
        yield Seen(alert, fault, fired.get(alert), alert in early, at, ran=ran[alert])


def wait_for_the_end(made: Bed, seen: Sequence[Seen]) -> None:
    """Wait until none of the alerts fires, and note since when each does not."""
    alerts = {one.alert for one in seen}
    try:
        until(lambda: not alerts & made.prometheus.firing(), STOPS_WITHIN, every=1.0)
    except AssertionError:
        print(f"still firing after {STOPS_WITHIN:g} s", flush=True)
    still, now = made.prometheus.firing(), CLOCK.now().timestamp()
    for one in seen:
        times = made.prometheus.fired_at(one.alert, now - one.mended_at)
        quiet = one.mended_at
        for at in sorted(at for at in times if at >= one.mended_at):
            if at - quiet > 5:  # it stopped, and another fault raised it later
                break
            quiet = at
        one.stopped = None if one.alert in still else quiet - one.mended_at


def main() -> int:
    """Make the faults and tell."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", choices=[f.name for f in FAULTS])
    parser.add_argument("--times", type=float, default=60)
    parser.add_argument("--runbooks", action="store_true")
    parser.add_argument("--told", type=Path)
    options = parser.parse_args()
    seen: list[Seen] = []
    broken: list[str] = []
    with bed(options.times) as made:
        for fault in FAULTS:
            if options.only and fault.name not in options.only:
                continue
            made.whole(fault.alerts)
            try:
                found = list(attempt(made, fault))
            except Exception:  # noqa: BLE001 - the other faults are tried all the same
                traceback.print_exc()
                broken.append(fault.name)
                continue
            seen += found
            for one in found:
                after = "did not fire" if one.seconds is None else f"{one.seconds:.1f} s"
                failed = [r.line for r in one.ran if r.code]
                print(
                    f"{fault.name}: {one.alert} {after}; {len(one.ran)} command lines"
                    + "".join(f"\n    failed: {line}" for line in failed),
                    flush=True,
                )
            if options.told:
                tell(seen, options.told)
        made.whole(frozenset())
        wait_for_the_end(made, seen)
    if options.runbooks:
        write_runbooks(seen, options.times)
    wrong = [one for one in seen if one.troubles]
    for one in seen:
        stopped = "not" if one.stopped is None else f"{one.stopped:.0f} s after it"
        print(f"{one.fault.name}: {one.alert} stopped {stopped}")
    for one in wrong:
        print(f"{one.fault.name}: {one.alert}: {'; '.join(one.troubles)}")
    lines = sum(len(one.ran) for one in seen)
    good = sum(r.code == 0 for one in seen for r in one.ran)
    print(
        f"{sum(one.seconds is not None for one in seen)} of {len(seen)} alerts fired,"
        f" {sum(one.stopped is not None for one in seen)} stopped;"
        f" {good} of {lines} command lines ended well"
    )
    if broken:
        print(f"not made or not mended: {', '.join(broken)}")
    return 1 if wrong or broken else 0


if __name__ == "__main__":
    sys.exit(main())
