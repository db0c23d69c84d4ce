"""What a watchdog says at its start of a webhook by which nobody could be told."""

from __future__ import annotations

import pytest
from tests.support.clock import FakeClock

from tickrail.core.errors import SettingsError
from tickrail.core.ports_metrics import NullMetrics
from tickrail.runtime.settings import Settings
from tickrail_watchdog.build import build

URL = "TICKRAIL_WATCHDOG_WEBHOOK"
SECRET = "TICKRAIL_WATCHDOG_WEBHOOK_SECRET"


@pytest.mark.parametrize(
    ("url", "secret", "named", "right"),
    [
        ("ftp://x", "", URL, "http"),
        ("https://ops.example.org/hook", "whsec_%%%", SECRET, "whsec_ and a key in base64"),
        ("https://ops.example.org/hook", "whsec_", SECRET, "whsec_ and a key in base64"),
        ("https://ops.example.org/hook", "=abc", SECRET, "whsec_ and a key in base64"),
    ],
)
def test_it_names_the_setting_before_it_looks_at_a_server(
    url: str, secret: str, named: str, right: str
) -> None:
    settings = Settings(watchdog_webhook=url, watchdog_webhook_secret=secret)
    with pytest.raises(SettingsError) as refused:
        build(settings, FakeClock(), NullMetrics())
    [problem] = refused.value.problems
    assert problem.pointer == named
    assert right in problem.expected
    assert problem.message == "*** is not right"
