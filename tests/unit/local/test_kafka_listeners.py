"""What Kafka is told of its listeners, those behind a forwarder among them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tickrail.core.clock import SystemClock
from tickrail.local.kafka import Kafka
from tickrail.local.server import Place


def listeners(folder: Path, forwarded: Mapping[int, int] | None = None) -> dict[str, list[str]]:
    place = Place(folder=folder, log=folder / "log", clock=SystemClock())
    settings = Kafka(place, 9092, 9093, [], forwarded)._settings()
    names = ("listeners", "advertised.listeners", "listener.security.protocol.map")
    return {name: settings[name].split(",") for name in names}


def test_clients_are_told_the_port_where_it_listens(tmp_path: Path) -> None:
    assert listeners(tmp_path) == {
        "listeners": ["PLAINTEXT://127.0.0.1:9092", "CONTROLLER://127.0.0.1:9093"],
        "advertised.listeners": ["PLAINTEXT://127.0.0.1:9092"],
        "listener.security.protocol.map": ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"],
    }


def test_clients_of_a_forwarder_are_told_the_forwarders_port(tmp_path: Path) -> None:
    told = listeners(tmp_path, {9192: 19092, 9292: 29092})
    assert told["listeners"][1:3] == [
        "FORWARDED0://127.0.0.1:9192",
        "FORWARDED1://127.0.0.1:9292",
    ]
    assert told["advertised.listeners"][1:] == [
        "FORWARDED0://127.0.0.1:19092",
        "FORWARDED1://127.0.0.1:29092",
    ]
    assert told["listener.security.protocol.map"][2:] == [
        "FORWARDED0:PLAINTEXT",
        "FORWARDED1:PLAINTEXT",
    ]
