"""etcd's messages and calls, from the etcd3 package, on today's protobuf.

The modules that etcd3 0.12.0 generated for its messages cannot be imported with a protobuf of 4 or
newer: their code for building descriptors is gone. Each of them also holds the whole description of
its file as one byte string, which is all that protobuf needs. So this reads the byte strings
without running the modules, adds them to a descriptor pool of its own, and makes the message
classes and the calls from that.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pool, message_factory

from tickrail.core.errors import SetupError

_FILES = ("kv_pb2.py", "auth_pb2.py", "rpc_pb2.py")  # each needs those before it
_PACKAGES = ("mvccpb", "authpb", "etcdserverpb")


def serialized_descriptor(source: str) -> bytes:
    """The argument `serialized_pb` of the first FileDescriptor in a generated module's source.

    Raises:
        ValueError: there is none.
    """
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.keyword) or node.arg != "serialized_pb":
            continue
        value = node.value
        # `_b('...')`, a helper that encodes as Latin-1, or b'...' from newer generators.
        if isinstance(value, ast.Call) and value.args:
            value = value.args[0]
        if isinstance(value, ast.Constant):
            text = value.value
            if isinstance(text, bytes):
                return text
            if isinstance(text, str):
                return text.encode("latin-1")
    raise ValueError("no serialized_pb found")


def _load() -> descriptor_pool.DescriptorPool:
    spec = importlib.util.find_spec("etcd3")
    if spec is None or spec.origin is None:
        raise SetupError("the package etcd3 is not installed; it describes etcd's messages")
    folder = Path(spec.origin).parent / "etcdrpc"
    pool = descriptor_pool.DescriptorPool()
    for name in _FILES:
        try:
            described = serialized_descriptor((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SetupError(
                f"{folder / name} does not describe etcd's messages ({error}); "
                "etcd3 0.12.0 is the version that does"
            ) from error
        pool.AddSerializedFile(described)
    return pool


_POOL = _load()


def message(name: str) -> Any:  # noqa: ANN401 - protobuf makes the class at run time
    """The message class of this name (`PutRequest`), of any of etcd's packages.

    Raises:
        KeyError: there is none.
    """
    for package in _PACKAGES:
        try:
            found = _POOL.FindMessageTypeByName(f"{package}.{name}")
        except KeyError:
            continue
        return message_factory.GetMessageClass(found)
    raise KeyError(name)


def call(channel: grpc.Channel, service: str, method: str) -> Callable[..., Any]:
    """The call `service.method` (`KV`, `Range`) on a channel, unary or streaming as described."""
    described = _POOL.FindServiceByName(f"etcdserverpb.{service}").FindMethodByName(method)
    kind = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[described.client_streaming, described.server_streaming]
    made: Callable[..., Any] = kind(
        f"/{described.containing_service.full_name}/{method}",
        request_serializer=message_factory.GetMessageClass(described.input_type).SerializeToString,
        response_deserializer=message_factory.GetMessageClass(described.output_type).FromString,
    )
    return made
