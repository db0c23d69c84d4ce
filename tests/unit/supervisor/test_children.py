"""What `up` writes down of its processes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from tickrail_cli.children import CHILDREN_FILE, TARGETS_FILE, Guard, Service, forget, note


def test_where_metrics_are_is_written_down_as_each_process_serves(tmp_path: Path) -> None:
    services: list[Service] = []

    def service(name: str) -> Service:
        return Service(
            name,
            [],
            {},
            sink=lambda _name, _line: None,
            guard=Guard(),
            changed=lambda: note(tmp_path, services),
        )

    def says(service: Service, port: int) -> None:
        event = {"event": "serving", "status": f"http://127.0.0.1:{port}"}
        service._read(io.BytesIO(json.dumps(event).encode() + b"\n"))

    def told() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((tmp_path / TARGETS_FILE).read_text())
        return found

    services += [service("api"), service("worker-1")]
    note(tmp_path, services)
    assert told() == []
    says(services[1], 4001)
    says(services[0], 4000)
    wanted = [("api", 4000), ("worker-1", 4001)]
    assert told() == [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"process": name}} for name, port in wanted
    ]
    says(services[0], 4002)  # it was started anew
    assert [t["targets"] for t in told()] == [["127.0.0.1:4002"], ["127.0.0.1:4001"]]
    forget(tmp_path)
    assert not any((tmp_path / name).exists() for name in (CHILDREN_FILE, TARGETS_FILE))
