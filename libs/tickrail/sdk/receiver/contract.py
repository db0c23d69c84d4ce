"""The contract of `IdempotencyStore` as tests, for a store of your own.

Under pytest:

    class TestMyStore(StoreContract):
        def store(self) -> IdempotencyStore:
            return MyStore(...)

Each test takes keys of its own, so one store may serve them all. No test waits for time to pass.
"""

from __future__ import annotations

import threading
from uuid import uuid4

from tickrail.sdk.receiver.store import (
    Answer,
    Begun,
    Done,
    Fenced,
    IdempotencyStore,
    InProgress,
    Started,
)

LEASE = 600.0
_CROWD = 8
_ANSWER = Answer(
    201, (("content-type", "application/json"), ("location", "/a")), b'{"a":"\xc3\xa4"}'
)


def _expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"{found!r}, not {wanted!r}")


def _expect_in_progress(found: Begun) -> None:
    if not isinstance(found, InProgress) or not 0 < found.retry_after <= LEASE:
        raise AssertionError(f"{found!r}, not InProgress within its lease")


class StoreContract:
    """Inherit from it and say how the store is made."""

    def store(self) -> IdempotencyStore:
        """The store under test."""
        raise NotImplementedError

    def test_a_new_key_is_started_and_then_in_progress_for_the_same_fence_and_a_higher_one(
        self,
    ) -> None:
        """One delivery runs; others wait while its lease holds."""
        store, key = self.store(), str(uuid4())
        _expect(store.begin(key, 5, LEASE), Started())
        _expect_in_progress(store.begin(key, 5, LEASE))
        _expect_in_progress(store.begin(key, 6, LEASE))

    def test_a_finished_key_gives_its_answer_to_equal_and_higher_fences(self) -> None:
        """The answer comes back as it was, to the byte."""
        store, key = self.store(), str(uuid4())
        store.begin(key, 5, LEASE)
        _expect(store.finish(key, 5, _ANSWER), True)
        _expect(store.begin(key, 5, LEASE), Done(_ANSWER))
        _expect(store.begin(key, 7, LEASE), Done(_ANSWER))

    def test_a_fence_below_the_highest_seen_is_fenced_whatever_the_state(self) -> None:
        """Also where the higher one was only told to wait."""
        store, key = self.store(), str(uuid4())
        store.begin(key, 5, LEASE)
        _expect(store.begin(key, 4, LEASE), Fenced(5))
        store.begin(key, 6, LEASE)
        _expect(store.begin(key, 5, LEASE), Fenced(6))
        _expect(store.finish(key, 5, _ANSWER), True)
        _expect(store.begin(key, 5, LEASE), Fenced(6))
        store.begin(key, 9, LEASE)
        _expect(store.begin(key, 8, LEASE), Fenced(9))
        _expect(store.begin(key, None, LEASE), Fenced(9))

    def test_an_abandoned_key_is_started_again_but_not_by_a_lower_fence(self) -> None:
        """The effect did not take place: the next delivery runs."""
        store, key = self.store(), str(uuid4())
        store.begin(key, 5, LEASE)
        _expect(store.abandon(key, 5), True)
        _expect(store.begin(key, 4, LEASE), Fenced(5))
        _expect(store.begin(key, 5, LEASE), Started())
        store.abandon(key, 5)
        _expect(store.begin(key, 8, LEASE), Started())

    def test_when_the_lease_is_over_a_higher_fence_takes_the_key_and_an_equal_one_does_not(
        self,
    ) -> None:
        """The first process died: the next attempt of the launch goes on, its double does not."""
        store, key = self.store(), str(uuid4())
        store.begin(key, 5, 0.0)
        _expect_in_progress(store.begin(key, 5, LEASE))
        _expect(store.begin(key, 6, LEASE), Started())
        _expect_in_progress(store.begin(key, 6, LEASE))

    def test_who_lost_the_key_can_neither_finish_nor_abandon_it(self) -> None:
        """A handler that outlived its lease changes nothing of the one that took over."""
        store, key = self.store(), str(uuid4())
        store.begin(key, 5, 0.0)
        store.begin(key, 6, LEASE)
        _expect(store.finish(key, 5, Answer(500)), False)
        _expect(store.abandon(key, 5), False)
        _expect_in_progress(store.begin(key, 6, LEASE))
        _expect(store.finish(key, 6, _ANSWER), True)
        _expect(store.begin(key, 6, LEASE), Done(_ANSWER))

    def test_a_finished_key_cannot_be_abandoned_and_an_abandoned_one_not_finished(self) -> None:
        """An end is an end."""
        store, key, other = self.store(), str(uuid4()), str(uuid4())
        store.begin(key, 5, LEASE)
        store.finish(key, 5, _ANSWER)
        _expect(store.abandon(key, 5), False)
        _expect(store.begin(key, 5, LEASE), Done(_ANSWER))
        store.begin(other, 5, LEASE)
        store.abandon(other, 5)
        _expect(store.finish(other, 5, _ANSWER), False)

    def test_an_unknown_key_can_be_neither_finished_nor_abandoned(self) -> None:
        """Nothing is made by an end."""
        store, key = self.store(), str(uuid4())
        _expect(store.finish(key, 5, _ANSWER), False)
        _expect(store.abandon(key, 5), False)
        _expect(store.begin(key, 1, LEASE), Started())

    def test_without_fences_a_key_is_held_for_its_lease(self) -> None:
        """Senders that know no fences are served, with what can be promised then."""
        store, key, other = self.store(), str(uuid4()), str(uuid4())
        _expect(store.begin(key, None, LEASE), Started())
        _expect_in_progress(store.begin(key, None, LEASE))
        _expect(store.finish(key, None, _ANSWER), True)
        _expect(store.begin(key, None, LEASE), Done(_ANSWER))
        store.begin(other, None, 0.0)
        _expect(store.begin(other, None, LEASE), Started())

    def test_keys_do_not_touch_each_other(self) -> None:
        """Also where one is the beginning of the other."""
        store, key = self.store(), str(uuid4())
        store.begin(key, 5, LEASE)
        _expect(store.begin(f"{key}x", 1, LEASE), Started())
        _expect(store.begin(key.upper() + "%", 1, LEASE), Started())

    def test_large_claim_numbers_are_kept_apart(self) -> None:
        """Tickrail's claims are below 2^53; neighbours up there must not look equal."""
        store, key, high = self.store(), str(uuid4()), 2**53 - 1
        _expect(store.begin(key, high, LEASE), Started())
        _expect(store.begin(key, high - 1, LEASE), Fenced(high))

    def test_of_a_crowd_that_begins_one_key_one_is_started(self) -> None:
        """At the same moment, with the same fence."""
        store, key = self.store(), str(uuid4())
        start, found = threading.Barrier(_CROWD), list[Begun]()

        def begin() -> None:
            start.wait()
            found.append(store.begin(key, 5, LEASE))

        threads = [threading.Thread(target=begin) for _ in range(_CROWD)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        _expect(found.count(Started()), 1)
        _expect(sum(isinstance(begun, InProgress) for begun in found), _CROWD - 1)

    def test_of_a_crowd_that_takes_over_one_is_started(self) -> None:
        """Each with a fence of its own, the lease of the dead one being over."""
        store, key = self.store(), str(uuid4())
        store.begin(key, 1, 0.0)
        start, found = threading.Barrier(_CROWD), list[Begun]()

        def begin(fence: int) -> None:
            start.wait()
            found.append(store.begin(key, fence, LEASE))

        threads = [threading.Thread(target=begin, args=(n + 2,)) for n in range(_CROWD)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        _expect(len(found), _CROWD)
        _expect(found.count(Started()), 1)
