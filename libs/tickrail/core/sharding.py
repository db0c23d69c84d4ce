"""Which partition a job belongs to, and which member should own which partition.

A job's partition is Kafka's own default partitioner over the job's id, so a consumer that knows
only the key finds the same number. Members share the partitions by weighted rendezvous hashing:
each pair of member and partition has a score that depends on nothing else, the highest score wins,
and a member that joins or leaves moves only what it wins or held.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping
from uuid import UUID

from tickrail.core.ids import Partition

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_SIGN_BIT = 0x80000000


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 that Kafka's clients use, as Java's signed int."""
    h = _SEED ^ len(data)
    whole = len(data) & ~3
    for word in struct.unpack_from(f"<{whole // 4}I", data):
        k = word * _MULTIPLIER & _MASK
        k ^= k >> _SHIFT
        k = k * _MULTIPLIER & _MASK
        h = h * _MULTIPLIER & _MASK ^ k
    if whole != len(data):
        h ^= int.from_bytes(data[whole:], "little")
        h = h * _MULTIPLIER & _MASK
    h ^= h >> 13
    h = h * _MULTIPLIER & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & _SIGN_BIT else h


def partition_of(job: UUID, partitions: int) -> Partition:
    """The schedule partition of a job: murmur2 of its canonical lower-case id, modulo P.

    Raises:
        ValueError: `partitions` is not positive.
    """
    _check_count("partitions", partitions)
    return Partition((murmur2(str(job).encode()) & _POSITIVE) % partitions)


def kafka_partition(partition: Partition, kafka_partitions: int) -> int:
    """The Kafka partition, of K, to which a schedule partition publishes: p mod K.

    Raises:
        ValueError: `kafka_partitions` is not positive.
    """
    _check_count("kafka_partitions", kafka_partitions)
    return partition % kafka_partitions


def ranking(members: Mapping[str, float], partition: Partition) -> list[str]:
    """The members in the order in which they should own a partition, the winner first.

    Args:
        members: name -> weight; a member of weight 0 (drained) is left out.
        partition: the partition.
    """
    scored = [
        (_score(name, weight, partition), name) for name, weight in members.items() if weight > 0
    ]
    return [name for _, name in sorted(scored, key=lambda s: (-s[0], s[1]))]


def assign(members: Mapping[str, float], partitions: int) -> dict[Partition, str]:
    """Who should own each partition; empty when no member has a weight above 0.

    Args:
        members: name -> weight; a member of twice the weight gets twice as many on average.
        partitions: how many partitions there are.

    Raises:
        ValueError: `partitions` is not positive.
    """
    _check_count("partitions", partitions)
    order = ((p, ranking(members, p)) for p in map(Partition, range(partitions)))
    return {p: names[0] for p, names in order if names}


def _score(name: str, weight: float, partition: int) -> float:
    """Weighted rendezvous score: -weight / ln(u), u uniform in (0, 1) from the pair alone."""
    digest = hashlib.blake2b(f"{partition}\0{name}".encode(), digest_size=8).digest()
    # 53 bits fill a double exactly; the half keeps u off 0 and 1.
    uniform = ((int.from_bytes(digest, "big") >> 11) + 0.5) / (1 << 53)
    return -weight / math.log(uniform)


def _check_count(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} is {value}; it must be at least 1")
