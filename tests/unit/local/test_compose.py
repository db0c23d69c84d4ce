"""docker-compose.yml: its shape, what it publishes, and that its settings exist.

The schema is our own, of the part of the Compose Specification that the file uses, and strict:
a key that is not named here is an error.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tickrail.runtime.settings_fields import Settings
from tickrail.store.provision import ROLES

ROOT = Path(__file__).parents[3]
SERVERS = {"postgres", "etcd", "kafka"}
PROCESSES = {"migrate", "api", "scheduler", "worker"}

DURATION = {"type": "string", "pattern": r"^(\d+(ms|s|m|h))+$"}
WORDS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
CONDITIONS = ["service_started", "service_healthy", "service_completed_successfully"]


def strict(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def mapping(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": of, "minProperties": 1}


HEALTHCHECK = strict(
    {
        "test": {**WORDS, "prefixItems": [{"enum": ["CMD", "CMD-SHELL"]}]},
        "interval": DURATION,
        "timeout": DURATION,
        "start_period": DURATION,
        "retries": {"type": "integer", "minimum": 1},
    },
    "test",
)
SERVICE = strict(
    {
        "image": {"type": "string"},
        "build": {"type": "string"},
        "command": WORDS,
        "init": {"type": "boolean"},
        "environment": mapping({"type": "string"}),
        "ports": {"type": "array", "items": {"type": "string", "pattern": r"^\S+:\d+:\d+$"}},
        "volumes": {"type": "array", "items": {"type": "string", "pattern": r"^[a-z]+:/\S+$"}},
        "configs": {
            "type": "array",
            "items": strict(
                {"source": {"type": "string"}, "target": {"type": "string", "pattern": "^/"}},
                "source",
                "target",
            ),
        },
        "healthcheck": HEALTHCHECK,
        "depends_on": mapping(strict({"condition": {"enum": CONDITIONS}}, "condition")),
        "deploy": strict({"replicas": {"type": "integer", "minimum": 1}}),
        "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
        "stop_signal": {"type": "string", "pattern": "^SIG[A-Z]+$"},
        "stop_grace_period": DURATION,
    },
    "image",
)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "services": mapping(SERVICE),
        "volumes": mapping({"type": "object", "maxProperties": 0}),
        "configs": mapping(strict({"content": {"type": "string"}}, "content")),
    },
    "patternProperties": {"^x-": {}},
    "required": ["services"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


def test_the_file_has_the_right_shape(compose: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(compose)


@pytest.mark.parametrize(
    ("service", "key", "value"),
    [
        ("api", "portz", ["127.0.0.1:1:1"]),
        ("api", "ports", [8080]),
        ("etcd", "healthcheck", {"test": ["RUN", "x"]}),
        ("kafka", "environment", {"KAFKA_NODE_ID": 1}),
        ("worker", "depends_on", {"kafka": {"condition": "healthy"}}),
        ("worker", "deploy", {"replicas": 0}),
    ],
)
def test_a_slip_would_be_seen(compose: dict[str, Any], service: str, key: str, value: Any) -> None:
    broken = copy.deepcopy(compose)
    broken["services"][service][key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(broken)


def test_all_services_are_there_and_the_loops_run_twice(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert set(services) == SERVERS | PROCESSES
    for name in ("scheduler", "worker"):
        assert services[name]["deploy"]["replicas"] == 2
        assert "ports" not in services[name], "two containers cannot share a port of the host"
    for name in PROCESSES:
        assert services[name]["command"] == [name]


def test_every_port_is_published_on_loopback_alone(compose: dict[str, Any]) -> None:
    published = [p for one in compose["services"].values() for p in one.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_everything_that_stays_up_is_watched(compose: dict[str, Any]) -> None:
    unwatched = {n for n, one in compose["services"].items() if "healthcheck" not in one}
    assert unwatched == {"migrate"}


def test_who_waits_for_whom_exists(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, one in services.items():
        for other, how in one.get("depends_on", {}).items():
            assert other in services, f"{name} waits for {other}"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[other]
    for name in PROCESSES - {"migrate"}:
        assert services[name]["depends_on"]["migrate"] == {
            "condition": "service_completed_successfully"
        }


def test_volumes_and_configs_are_declared(compose: dict[str, Any]) -> None:
    for one in compose["services"].values():
        for volume in one.get("volumes", []):
            assert volume.partition(":")[0] in compose["volumes"]
        for config in one.get("configs", []):
            assert config["source"] in compose["configs"]


def test_every_setting_exists_and_is_valid(compose: dict[str, Any]) -> None:
    for name in PROCESSES:
        variables = {
            key: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value)
            for key, value in compose["services"][name]["environment"].items()
        }
        assert all(key.startswith("TICKRAIL_") for key in variables)
        Settings(**{key.removeprefix("TICKRAIL_").lower(): v for key, v in variables.items()})


def test_each_process_has_its_own_role_and_none_is_a_superuser(compose: dict[str, Any]) -> None:
    users = {
        name: compose["services"][name]["environment"]["TICKRAIL_DATABASE_URL"].split("/")[2]
        for name in PROCESSES
    }
    assert {name: user.split(":")[0] for name, user in users.items()} == {
        "migrate": "tickrail_owner",
        "api": "tickrail_api",
        "scheduler": "tickrail_engine",
        "worker": "tickrail_engine",
    }
    made = re.findall(r"create role (\w+) login", compose["configs"]["roles"]["content"])
    assert tuple(made) == ROLES


def test_images_name_a_version(compose: dict[str, Any]) -> None:
    for one in compose["services"].values():
        image = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", one["image"])
        assert re.search(r":v?\d", image), image


def test_the_image_installs_from_the_lock_and_does_not_run_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert any("--require-hashes" in line and "requirements/run.lock" in line for line in lines)
    last_stage = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM")) :]
    users = [line.split()[1] for line in last_stage if line.startswith("USER")]
    assert users
    assert users[-1] not in ("root", "0")
