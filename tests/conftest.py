"""The fixtures that every test may ask for."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it puts in the background with SIGINT ignored, and so would be every
    # process that a test starts, also those that it stops by Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = (
    "tests.support.servers",
    "tests.support.database",
    "tests.support.etcd_program",
)
