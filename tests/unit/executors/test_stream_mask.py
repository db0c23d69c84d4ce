"""Values of secrets never come through, however the stream is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickrail.core.secrets import Masker
from tickrail.core.stream_mask import StreamMasker


def through(values: list[bytes], pieces: list[bytes]) -> tuple[list[bytes], bytes]:
    masker = StreamMasker(Masker(values))
    return [masker.feed(piece) for piece in pieces], masker.end()


@pytest.mark.parametrize(
    ("values", "pieces", "shown", "end"),
    [
        ([b"hunter2"], [b"the hunter2 is"], [b"the *** is"], b""),
        ([b"hunter2"], [b"the hun", b"ter2 is"], [b"the ", b"*** is"], b""),
        ([b"hunter2"], [b"hun", b"gry"], [b"", b"hungry"], b""),
        ([b"hunter2"], [b"h", b"u", b"n"], [b"", b"", b""], b"hun"),
        ([b"hunter2"], [b"hunter2hunter2"], [b"******"], b""),
        # A value that another one begins with: the longer one is waited for.
        ([b"abc", b"abcdef"], [b"abc", b"def."], [b"", b"***."], b""),
        ([b"abc", b"abcdef"], [b"abc", b"dex"], [b"", b"***dex"], b""),
        ([b"abc", b"abcdef"], [b"abc"], [b""], b"***"),
        # One that another ends with: no part of the first is shown when the second does not come.
        ([b"xab", b"abQ"], [b"1xab", b"2"], [b"1***", b"2"], b""),
        ([b"line 1\nline 2"], [b"line 1\n", b"line 2\n"], [b"", b"***\n"], b""),
        ([b"aa"], [b"a", b"a", b"a"], [b"", b"***", b""], b"a"),
        ([], [b"anything"], [b"anything"], b""),
        ([b""], [b"anything"], [b"anything"], b""),
    ],
)
def test_pieces(values: list[bytes], pieces: list[bytes], shown: list[bytes], end: bytes) -> None:
    assert through(values, pieces) == (shown, end)


WORDS = st.text("ab*", min_size=3, max_size=7)


@given(st.lists(WORDS, min_size=1, max_size=3), st.text("ab ", max_size=40), st.data())
def test_however_it_is_cut_the_same_is_shown(
    values: list[str], text: str, data: st.DataObject
) -> None:
    whole = text.encode()
    at = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *at], [*at, len(whole)], strict=True)]
    known = [v.encode() for v in values]
    shown, end = through(known, pieces)
    one, rest = through(known, [whole])
    assert b"".join(shown) + end == b"".join(one) + rest
    for value in known:
        if b"*" not in value:
            assert value not in b"".join(shown) + end


def test_a_long_value_in_a_long_output_costs_little() -> None:
    value = b"k" * 2000 + b"e" * 60_000
    masker = StreamMasker(Masker([value]))
    shown = b"".join(masker.feed(b"line of the output\n" * 3000) for _ in range(50))
    assert len(shown) == 50 * 3000 * 19
    assert masker.feed(value[:30_000]) + masker.feed(value[30_000:]) == b"***"


def test_an_output_full_of_values_is_gone_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    right = StreamMasker._begun

    def begun(self: StreamMasker, data: bytes, at: int) -> int:
        found = right(self, data, at)
        looked.append(found - max(at, len(data) - self._longest + 1))
        return found

    monkeypatch.setattr(StreamMasker, "_begun", begun)
    values = [b"abcd", b"a-key" + b"x" * 3000, b"dabcdabcdX"]
    shown, end = through(values, [b"abcd" * 1000])
    # At first, and behind each value on whose end a longer one could begin.
    assert (b"".join(shown) + end, len(looked)) == (b"***" * 1000, 4)
    assert sum(looked) <= 3005
