"""The fixtures that every test may ask for."""

import signal
import sys
from collections.abc import Generator

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it puts in the background with SIGINT ignored, and so would be every
    # process that a test starts, also those that it stops by Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = (
    "tests.support.servers",
    "tests.support.database",
    "tests.support.etcd_program",
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Beside a failure, what the processes of the installation said last: their logs go with it."""
    report = yield
    processes = sys.modules.get("tests.support.processes")
    if report.failed and processes is not None and (said := processes.last_words()):
        report.sections.append(("what the processes said last", said))
    return report
