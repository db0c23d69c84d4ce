"""Members and owner keys of an installation in etcd.

Keys, under the installation's prefix, each with a JSON object as its value: `members/<identity>`
and `owners/<partition>` under the member's lease, `drains/<name>` under none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import structlog

from tickrail.coord.client import EtcdClient
from tickrail.coord.settings import EtcdSettings
from tickrail.coord.stubs import message
from tickrail.coord.watch import Watch
from tickrail.core.ids import Partition
from tickrail.core.ports_ownership import (
    Drain,
    LeaseGrant,
    LeaseLostError,
    Member,
    OwnerKey,
    Snapshot,
)

_LOG = structlog.get_logger()
_DRAINS = "drains/"
_MEMBERS = "members/"
_OWNERS = "owners/"


class EtcdCoordinator:
    """A `Coordinator` and a `Directory` (core/ports_ownership.py) on etcd.

    Besides the port's errors every call raises `SetupError` where etcd refuses the user or the
    access.
    """

    def __init__(self, settings: EtcdSettings) -> None:
        self._client = EtcdClient(settings)
        self._prefix = settings.prefix
        # drains, members, owners in the order of the keys, and "0" comes right after "/": one
        # range holds all three.
        self._first = self._key(_DRAINS)
        self._end = self._key(_OWNERS)[:-1] + b"0"
        self._watch: Watch | None = None
        self._odd: set[bytes] = set()

    def grant(self, ttl: int) -> LeaseGrant:
        """A new lease of this many seconds; the server may grant a longer one."""
        answer = self._client.unary("Lease", "LeaseGrant", message("LeaseGrantRequest")(TTL=ttl))
        return LeaseGrant(answer.ID, float(answer.TTL))

    def renew(self, lease: int) -> float:
        """Start the lease's time to live again; the seconds it now has, 0 when it has ended."""
        request = message("LeaseKeepAliveRequest")(ID=lease)
        return float(max(0, self._client.exchange("Lease", "LeaseKeepAlive", request).TTL))

    def revoke(self, lease: int) -> None:
        """End the lease and with it every key under it; one that has ended already is no error."""
        try:
            self._client.unary("Lease", "LeaseRevoke", message("LeaseRevokeRequest")(ID=lease))
        except LeaseLostError:
            return

    def put_member(self, member: Member, lease: int) -> None:
        """Make or change the member's key, under the lease."""
        since = None if member.since is None else member.since.isoformat()
        value = json.dumps({"name": member.name, "weight": member.weight, "since": since}).encode()
        put = message("PutRequest")(
            key=self._key(_MEMBERS + member.identity), value=value, lease=lease
        )
        self._client.unary("KV", "Put", put)

    def remove_member(self, identity: str) -> None:
        """Delete the member's key; none there is no error."""
        delete = message("DeleteRangeRequest")(key=self._key(_MEMBERS + identity))
        self._client.unary("KV", "DeleteRange", delete)

    def claim(self, partition: Partition, identity: str, lease: int) -> OwnerKey:
        """Make the owner key, under the lease, where there is none; the key as it then is."""
        key = self._key(f"{_OWNERS}{partition}")
        value = json.dumps({"member": identity}).encode()
        put = message("PutRequest")(key=key, value=value, lease=lease)
        answer = self._transaction(
            key,
            create_revision=0,
            success=message("RequestOp")(request_put=put),
            failure=message("RequestOp")(request_range=message("RangeRequest")(key=key)),
        )
        if answer.succeeded:
            return OwnerKey(partition, identity, lease, answer.header.revision)
        (kv,) = answer.responses[0].response_range.kvs
        owner, _ = _owner(kv.value)  # the partition is not ours in any case
        return OwnerKey(partition, owner, kv.lease, kv.create_revision)

    def release(self, partition: Partition, create_revision: int) -> bool:
        """Delete the owner key if it is the one created at this revision; whether it was."""
        key = self._key(f"{_OWNERS}{partition}")
        delete = message("DeleteRangeRequest")(key=key)
        answer = self._transaction(
            key,
            create_revision=create_revision,
            success=message("RequestOp")(request_delete_range=delete),
        )
        return bool(answer.succeeded)

    def lease_remaining(self, lease: int) -> float:
        """The seconds until the lease ends unless it is renewed; 0 when it has ended."""
        request = message("LeaseTimeToLiveRequest")(ID=lease)
        answer = self._client.unary("Lease", "LeaseTimeToLive", request)
        return float(max(0, answer.TTL))

    def put_drain(self, drain: Drain) -> Drain:
        """Drain the members of a name, where that was not done; the drain as it then is."""
        key = self._key(_DRAINS + drain.name)
        since = None if drain.since is None else drain.since.isoformat()
        value = json.dumps({"since": since, "by": drain.by}).encode()
        answer = self._transaction(
            key,
            create_revision=0,
            success=message("RequestOp")(request_put=message("PutRequest")(key=key, value=value)),
            failure=message("RequestOp")(request_range=message("RangeRequest")(key=key)),
        )
        if answer.succeeded:
            return drain
        (kv,) = answer.responses[0].response_range.kvs
        return _drain(drain.name, kv.value)

    def remove_drain(self, name: str) -> bool:
        """End the drain of a name; whether there was one."""
        delete = message("DeleteRangeRequest")(key=self._key(_DRAINS + name))
        return bool(self._client.unary("KV", "DeleteRange", delete).deleted)

    def snapshot(self) -> Snapshot:
        """All members, owner keys and drains, as the cluster agrees on at one revision."""
        request = message("RangeRequest")(key=self._first, range_end=self._end)
        answer = self._client.unary("KV", "Range", request)
        members: dict[str, Member] = {}
        owners: dict[Partition, OwnerKey] = {}
        drains: dict[str, Drain] = {}
        for kv in answer.kvs:
            self._place(kv, members, owners, drains)
        return Snapshot(answer.header.revision, members, owners, drains)

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` from another thread soon after a member, owner key or drain changed."""
        if self._watch is not None:
            raise RuntimeError("this coordinator is being watched already")
        self._watch = Watch(self._client, self._first, self._end, wake)

    def version(self) -> str:
        """The server's version; `SetupError` when it is too old."""
        return self._client.version()

    def close(self) -> None:
        """End watch and connections. Leases are left to end by themselves."""
        if self._watch is not None:
            self._watch.stop()
        self._client.close()

    def _place(
        self,
        kv: Any,  # noqa: ANN401 - a message
        members: dict[str, Member],
        owners: dict[Partition, OwnerKey],
        drains: dict[str, Drain],
    ) -> None:
        """Put one key where it belongs; what is not as it should be is said once.

        A key of an owner counts by its name alone, so that one of a strange value can be freed.
        """
        name = kv.key.decode(errors="replace")[len(self._prefix) :]
        if name.startswith(_DRAINS):
            drained = name[len(_DRAINS) :]
            drains[drained] = _drain(drained, kv.value)
            return
        try:
            if name.startswith(_MEMBERS):
                identity, value = name[len(_MEMBERS) :], _object(kv.value)
                since = _instant(value.get("since"))
                member = Member(
                    identity, str(value["name"]), float(value["weight"]), kv.lease, since
                )
                if kv.lease:
                    members[identity] = member
                else:
                    self._say(kv.key, "member key without a lease ignored")
                return
            if name.startswith(_OWNERS):
                partition = _partition(name[len(_OWNERS) :])
                owner, known = _owner(kv.value)
                if not known:
                    self._say(kv.key, "owner key in etcd not understood")
                owners[partition] = OwnerKey(partition, owner, kv.lease, kv.create_revision)
                return
        except (ValueError, KeyError, TypeError):
            pass
        self._say(kv.key, "key in etcd not understood")

    def _say(self, key: bytes, what: str) -> None:
        """Name a key that is not as it should be, once."""
        if key not in self._odd:
            self._odd.add(key)
            # A field `key` would be masked in the log, as secrets are.
            _LOG.warning(what, etcd_name=key.decode(errors="replace"))

    def _transaction(
        self, key: bytes, *, create_revision: int, success: object, failure: object = None
    ) -> Any:  # noqa: ANN401 - a message
        compare = message("Compare")
        return self._client.unary(
            "KV",
            "Txn",
            message("TxnRequest")(
                compare=[
                    compare(
                        result=compare.EQUAL,
                        target=compare.CREATE,
                        key=key,
                        create_revision=create_revision,
                    )
                ],
                success=[success],
                failure=[] if failure is None else [failure],
            ),
        )

    def _key(self, name: str) -> bytes:
        return (self._prefix + name).encode()


def _object(value: bytes) -> dict[str, Any]:
    found = json.loads(value)
    if not isinstance(found, dict):
        raise TypeError("not a JSON object")
    return found


def _partition(text: str) -> Partition:
    """The partition of an owner key's name; `ValueError` for another spelling of a number."""
    partition = Partition(int(text))
    if str(partition) != text or partition < 0:
        raise ValueError("not a partition")
    return partition


def _owner(value: bytes) -> tuple[str, bool]:
    """Whose an owner key is, and whether that could be read."""
    try:
        return str(_object(value)["member"]), True
    except (ValueError, KeyError, TypeError):
        return "", False


def _drain(name: str, value: bytes) -> Drain:
    """A drain's key; the key alone counts, so one made by hand drains too."""
    try:
        found = _object(value)
    except (ValueError, TypeError):
        return Drain(name)
    return Drain(name, _instant(found.get("since")), str(found.get("by", "")))


def _instant(text: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return None if at.tzinfo is None else at
