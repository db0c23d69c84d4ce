"""The trust window."""

from __future__ import annotations

import pytest

from tickrail.core.lease import TrustWindow

WINDOW = TrustWindow(ttl=10, margin=1)


def test_nothing_is_trusted_before_the_grant() -> None:
    assert not WINDOW.valid(0)
    assert WINDOW.remaining(0) == 0


@pytest.mark.parametrize(
    ("now", "valid", "remaining"),
    [(100, True, 9), (108.9, True, 0.1), (109, False, 0), (200, False, 0)],
)
def test_it_ends_a_margin_before_the_ttl_counted_from_the_sending(
    now: float, valid: bool, remaining: float
) -> None:
    window = WINDOW.renewed(100)
    assert window.deadline == 109
    assert window.valid(now) is valid
    assert window.remaining(now) == pytest.approx(remaining)


def test_a_renewal_moves_it_on() -> None:
    assert WINDOW.renewed(100).renewed(103).deadline == 112


def test_answers_out_of_order_do_not_shorten_it() -> None:
    assert WINDOW.renewed(103).renewed(100).deadline == 112


def test_a_window_that_was_over_stays_over() -> None:
    window = WINDOW.renewed(100).renewed(109)
    assert window.deadline == 109
    assert not window.valid(109)


@pytest.mark.parametrize(("ttl", "margin"), [(10, 10), (10, -1), (0, 0)])
def test_the_margin_must_fit(ttl: float, margin: float) -> None:
    with pytest.raises(ValueError, match="margin"):
        TrustWindow(ttl=ttl, margin=margin)
