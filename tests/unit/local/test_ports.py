from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tickrail.local import ports
from tickrail.local.errors import LocalServersError
from tickrail.local.ports import NAMES, Ports, choose, is_free


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that something listens on."""
    with socket.socket() as listener:
        listener.bind((ports.LOOPBACK, 0))
        listener.listen(1)
        yield listener.getsockname()[1]


def values(chosen: Ports) -> list[int]:
    return [getattr(chosen, name) for name in NAMES]


def test_all_ports_differ_and_are_free(tmp_path: Path) -> None:
    chosen = choose(tmp_path / "ports.json", prefer_usual=False)
    assert len(set(values(chosen))) == len(NAMES)
    assert all(is_free(port) for port in values(chosen))


def test_the_same_ports_are_chosen_again(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    assert choose(file, prefer_usual=False) == choose(file, prefer_usual=False)


def test_a_remembered_port_in_use_is_replaced_and_the_new_one_remembered(
    tmp_path: Path, taken: int
) -> None:
    file = tmp_path / "ports.json"
    first = choose(file, prefer_usual=False)
    file.write_text(json.dumps({**json.loads(file.read_text()), "etcd": taken}))
    second = choose(file, prefer_usual=False)
    assert second.etcd != taken
    assert second.kafka == first.kafka
    assert choose(file, prefer_usual=False) == second


def test_a_file_that_cannot_be_read_is_no_memory(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    file.write_text('{"etcd": "x", "kafka"')
    assert len(set(values(choose(file, prefer_usual=False)))) == len(NAMES)


def test_the_usual_port_is_taken_where_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    free = ports.any_free({taken})
    usual = Ports(postgres=taken, etcd=free, etcd_peer=1, kafka=1, kafka_controller=1)
    monkeypatch.setattr(ports, "USUAL", usual)
    chosen = choose(tmp_path / "ports.json")
    assert chosen.etcd == free
    assert chosen.postgres != taken


def test_a_demanded_port_is_used(tmp_path: Path) -> None:
    wanted = ports.any_free()
    assert choose(tmp_path / "ports.json", {"kafka": wanted}).kafka == wanted


def test_a_demanded_port_in_use_is_refused_by_name(tmp_path: Path, taken: int) -> None:
    with pytest.raises(LocalServersError, match=f"port {taken}, asked for etcd, is in use"):
        choose(tmp_path / "ports.json", {"etcd": taken})


@pytest.mark.parametrize(
    ("demanded", "message"),
    [
        ({"mysql": 3306}, "no port named 'mysql'; names: postgres, etcd"),
        ({"etcd": 0}, "must be 1 to 65535"),
        ({"etcd": 70000}, "must be 1 to 65535"),
        ({"etcd": 2400, "kafka": 2400}, "2400 was asked for more than once"),
    ],
)
def test_what_is_no_port_is_refused(tmp_path: Path, demanded: dict[str, int], message: str) -> None:
    with pytest.raises(LocalServersError, match=message):
        choose(tmp_path / "ports.json", demanded)


def test_no_free_port_is_one_that_an_outgoing_connection_could_take() -> None:
    first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    given = [ports.any_free() for _ in range(500)]
    assert not [port for port in given if int(first) <= port <= int(last)]


def test_none_is_given_twice_while_others_are_left() -> None:
    given = [ports.any_free() for _ in range(500)]
    assert len(set(given)) == 500


def test_a_port_in_use_is_passed_over() -> None:
    with socket.socket() as listener:
        port = ports.any_free()
        listener.bind((ports.LOOPBACK, port))
        listener.listen(1)
        own = itertools.chain([port], ports._own)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ports, "_own", own)
            assert ports.any_free() != port


@pytest.mark.parametrize("text", ["", "x y", None])
def test_where_the_system_does_not_say_its_range_it_is_the_usual_one(
    tmp_path: Path, text: str | None
) -> None:
    file = tmp_path / "range"
    if text is not None:
        file.write_text(text)
    assert ports._first_of_the_system(file) == 32768
