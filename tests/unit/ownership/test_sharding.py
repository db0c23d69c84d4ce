"""Sharding: Kafka's hash, rendezvous hashing."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest

from tickrail.core.ids import Partition
from tickrail.core.sharding import assign, kafka_partition, murmur2, partition_of, ranking

JOB = UUID("0190F0A1-B2C3-7D4E-8F50-123456789ABC")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # The vectors of Kafka's own UtilsTest.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected


def test_partition_is_of_the_canonical_lower_case_id() -> None:
    canonical = b"0190f0a1-b2c3-7d4e-8f50-123456789abc"
    assert partition_of(JOB, 64) == (murmur2(canonical) & 0x7FFFFFFF) % 64


def test_partition_of_a_negative_hash_is_in_range() -> None:
    jobs = [UUID(int=i) for i in range(500)]
    assert any(murmur2(str(j).encode()) < 0 for j in jobs)
    assert {partition_of(j, 4) for j in jobs} == {0, 1, 2, 3}


def test_kafka_partition_is_modulo() -> None:
    assert [kafka_partition(Partition(p), 16) for p in (0, 15, 16, 63)] == [0, 15, 0, 15]


@pytest.mark.parametrize("count", [0, -1])
def test_counts_must_be_positive(count: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        partition_of(JOB, count)
    with pytest.raises(ValueError, match="at least 1"):
        kafka_partition(Partition(1), count)
    with pytest.raises(ValueError, match="at least 1"):
        assign({"a": 1.0}, count)


def test_nobody_and_drained_get_nothing() -> None:
    assert assign({}, 4) == {}
    assert assign({"a": 0.0}, 4) == {}
    assert set(assign({"a": 1.0, "b": 0.0}, 64).values()) == {"a"}


def test_a_joining_member_takes_only_what_it_wins() -> None:
    before = assign({"a": 1.0, "b": 1.0}, 256)
    after = assign({"a": 1.0, "b": 1.0, "c": 1.0}, 256)
    moved = {p for p in before if before[p] != after[p]}
    assert moved
    assert {after[p] for p in moved} == {"c"}


def test_a_leaving_member_moves_only_what_it_had() -> None:
    before = assign({"a": 1.0, "b": 1.0, "c": 1.0}, 256)
    after = assign({"a": 1.0, "b": 1.0}, 256)
    assert {before[p] for p in before if before[p] != after[p]} == {"c"}


def test_weights_share_in_proportion() -> None:
    counts = Counter(assign({"a": 1.0, "b": 3.0}, 4096).values())
    assert 0.70 < counts["b"] / 4096 < 0.80


def test_a_change_of_weight_moves_only_towards_it() -> None:
    before = assign({"a": 1.0, "b": 1.0, "c": 1.0}, 256)
    after = assign({"a": 1.0, "b": 1.0, "c": 2.0}, 256)
    assert {after[p] for p in before if before[p] != after[p]} == {"c"}


def test_the_assignment_is_fixed_for_ever() -> None:
    # Members of different releases must agree: this may not change.
    owners = assign({"a": 1.0, "b": 1.0, "c": 2.0}, 8)
    assert [owners[Partition(p)] for p in range(8)] == list("bcaabbbc")


def test_ranking_begins_with_the_assigned_and_holds_each_once() -> None:
    members = {"a": 1.0, "b": 2.0, "c": 1.0, "d": 0.0}
    wanted = assign(members, 16)
    for p in wanted:
        order = ranking(members, p)
        assert order[0] == wanted[p]
        assert sorted(order) == ["a", "b", "c"]
