"""etcd's messages and calls are found in the etcd3 package without running its modules."""

from __future__ import annotations

import sys

import pytest

from tickrail.coord.stubs import message, serialized_descriptor


def test_messages_go_over_the_wire_and_back() -> None:
    put = message("PutRequest")(key=b"k", value=b"v", lease=7)
    assert put.SerializeToString() == b"\x0a\x01k\x12\x01v\x18\x07"
    assert message("PutRequest").FromString(put.SerializeToString()) == put
    event = message("Event")(type=1, kv=message("KeyValue")(mod_revision=9))
    assert event.kv.mod_revision == 9


def test_messages_of_all_three_packages_are_there() -> None:
    assert message("KeyValue").DESCRIPTOR.full_name == "mvccpb.KeyValue"
    assert message("Permission").DESCRIPTOR.full_name == "authpb.Permission"
    assert message("TxnRequest").DESCRIPTOR.full_name == "etcdserverpb.TxnRequest"
    with pytest.raises(KeyError, match="NoSuchMessage"):
        message("NoSuchMessage")


def test_etcd3_itself_is_not_imported() -> None:
    assert "etcd3" not in sys.modules


@pytest.mark.parametrize(
    "source",
    [
        "D = FileDescriptor(name='a', serialized_pb=_b('\\n\\x80'))",
        "D = FileDescriptor(name='a', serialized_pb=b'\\n\\x80')",
    ],
)
def test_both_forms_of_the_byte_string_are_read(source: str) -> None:
    assert serialized_descriptor(source) == b"\n\x80"


def test_a_module_without_one_is_refused() -> None:
    with pytest.raises(ValueError, match="no serialized_pb"):
        serialized_descriptor("x = 1")
