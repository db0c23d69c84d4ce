"""The life of a process: start, wait for a signal, stop; and what it says when it cannot."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import Protocol

import structlog

from tickrail.core.errors import SettingsError, TickrailError, UnavailableError
from tickrail.runtime.log import mask_text
from tickrail.runtime.signals import StopRequested, StopSignals

DONE = 0
FAILED = 1
WRONG_USE = 2
UNREACHABLE = 3

_LOOK_EVERY = 1.0
_END_WITHIN = 15.0
_log = structlog.get_logger(__name__)


class Running(Protocol):
    """A process that has started."""

    def stop(self) -> str | None:
        """Finish what is under way and let go of everything; bounded in time.

        Returns:
            What could not be finished, in words; None where all was.
        """
        ...

    def failed(self) -> str | None:
        """Why this process cannot go on and should be started anew; None while it can."""
        ...


def run(process: str, start: Callable[[], Running], *, stop_within: float = 90.0) -> int:
    """Run a process until SIGTERM or SIGINT, or until it says it cannot go on.

    A second signal ends it at once (exit code 128 + the signal's number).

    Args:
        process: what the log calls it.
        start: builds and starts everything; may wait, and be given up by a signal meanwhile.
        stop_within: seconds after which a stop that does not come to its end is cut short.

    Returns:
        The exit code: 0 after a graceful stop, 1 when it failed or had to leave something
        unfinished, 2 when a setting is wrong, 3 when a server that it needs to start is not
        reachable.
    """
    with StopSignals() as signals:
        signals.interrupts = True
        try:
            running = start()
        except StopRequested:
            _log.info("stopped while starting", service=process)
            return DONE
        except TickrailError as e:
            return refuse(process, e)
        except Exception:  # noqa: BLE001 - the outermost door
            _log.exception("could not start", service=process)
            return FAILED
        finally:
            signals.interrupts = False
        _spare_garbage_collection()
        _log.info("started", service=process, pid=os.getpid())
        why: str | None = None
        while not signals.wait(_LOOK_EVERY):
            why = running.failed()
            if why is not None:
                _log.error("cannot go on", service=process, reason=why)
                break
        return _stop(process, running, stop_within, failed=why is not None)


def _spare_garbage_collection() -> None:
    """Look for garbage less often, and not among what a process has for all its life.

    Thousands of objects are made and freed a second, hardly one of them in a circle; the usual
    threshold of 700 spends a tenth of a busy worker's time on looking.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 10)


def _stop(process: str, running: Running, within: float, *, failed: bool) -> int:
    _log.info("stopping", service=process)
    limit = threading.Timer(within, _cut_short, (process, within))
    limit.daemon = True
    limit.start()
    try:
        unfinished = running.stop()
        if unfinished:
            _log.warning("not finished", service=process, reason=unfinished)
            failed = True
    except Exception:  # noqa: BLE001 - as above
        _log.exception("the stop failed", service=process)
        failed = True
    finally:
        limit.cancel()
    _log.info("stopped", service=process)
    # A client library may wait for ever in its destructor while the interpreter ends.
    faulthandler.dump_traceback_later(_END_WITHIN, exit=True)
    return FAILED if failed else DONE


def tell_standby(*, synchronous: bool) -> None:
    """Say at the start what a failover of PostgreSQL would cost.

    Args:
        synchronous: whether its commits wait for a standby.
    """
    if synchronous:
        _log.info("synchronous standby", failover="loses nothing")
    else:
        _log.info(
            "no synchronous standby",
            failover="may lose the last commits: their launches are repeated with the same ids, and"
            " one with if_uncertain = skip may start twice",
        )


def _cut_short(process: str, within: float) -> None:
    _log.error("the stop took too long and is cut short", service=process, seconds=within)
    os._exit(FAILED)


def refuse(process: str, error: TickrailError) -> int:
    """Say on standard error, in words and without a trace, why a process does not start."""
    print(f"tickrail {process}: {mask_text(str(error))}", file=sys.stderr, flush=True)  # noqa: T201 - to the person who started it
    if isinstance(error, SettingsError):
        return WRONG_USE
    return UNREACHABLE if isinstance(error, UnavailableError) else FAILED
