"""What masks secrets in what is kept of a run."""

from __future__ import annotations

import pytest

from tickrail.core.secrets import Masker

HUSH = "hush-hush-7f3a"


@pytest.mark.parametrize(
    ("value", "text", "masked"),
    [
        (HUSH, f'{{"token": "{HUSH}"}}', '{"token": "***"}'),
        (HUSH, f"{HUSH}{HUSH} {HUSH}", "****** ***"),
        (HUSH, "nothing", "nothing"),
        (f"Bearer {HUSH}", f"got {HUSH}", "got ***"),
        (f"Bearer {HUSH}", "Bearer of news", "Bearer of news"),
        (f"{HUSH}\n", f"got {HUSH}.", "got ***."),
        ('a"b\\c', r'{"t":"a\"b\\c"}', '{"t":"***"}'),
        ("whsec_MfKQ9r8GKYqrTwjU", "key MfKQ9r8GKYqrTwjU", "key ***"),
        ("x", "x y", "*** y"),
        ("hüsh-é", b"got h\xfcsh-\xe9.".decode("utf-8", "replace"), "got ***."),
        ('hüsh-"é', r'{"t": "hüsh-\"é"}', '{"t": "***"}'),
        ('hüsh-"é', r'{"t": "h\u00fcsh-\"\u00e9"}', '{"t": "***"}'),
        ("Bearer hüsh-hüsh", b"h\xfcsh-h\xfcsh".decode("utf-8", "replace"), "***"),
        ("-----BEGIN A KEY-----\nc2VjcmV0MQ\r\nab\n", "key c2VjcmV0MQ", "key ***"),
        ("-----BEGIN A KEY-----\nc2VjcmV0MQ\n", "-----BEGIN A KEY-----", "-----BEGIN A KEY-----"),
    ],
)
def test_values_are_replaced(value: str, text: str, masked: str) -> None:
    assert Masker([value.encode()]).mask(text) == masked


def test_a_value_that_holds_another_goes_as_a_whole() -> None:
    assert Masker([b"hush", b"hush-hush"]).mask("hush-hush hush") == "*** ***"


@pytest.mark.parametrize("kept", range(4, len(HUSH)))
def test_the_start_of_a_value_at_the_end_of_a_cut_text_goes(kept: int) -> None:
    masker = Masker([HUSH.encode()])
    assert masker.mask("echo " + HUSH[:kept], cut=True) == "echo ***"
    assert masker.mask("echo " + HUSH[:kept]) == "echo " + HUSH[:kept]


@pytest.mark.parametrize(
    ("value", "text", "masked"),
    [
        ("abcabcabd", "abcabcabcab", "abc***"),
        ("abcabcabd", "abcab", "***"),
        ("abcd", "abc", "abc"),
        ("aaaaab", "aaaaaaa", "aa***"),
    ],
)
def test_the_longest_start_goes(value: str, text: str, masked: str) -> None:
    assert Masker([value.encode()]).mask(text, cut=True) == masked


def test_none_is_false() -> None:
    assert not Masker([])
    assert not Masker([b""])
    assert Masker([b"a"]).longest == 1
