"""docker-compose.yml: its shape, what it publishes, and that its settings exist.

The schema is our own, of the part of the Compose Specification that the file uses, and strict:
a key that is not named here is an error.
"""

from __future__ import annotations

import copy
import re
import tomllib
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from tests.support.containers import ETCD_IMAGE, KAFKA_IMAGE, POSTGRES_IMAGE

from tickrail.runtime.settings_fields import Settings
from tickrail.store.provision import ROLES

ROOT = Path(__file__).parents[3]
SERVERS = {"postgres", "etcd", "kafka", "prometheus", "grafana"}
PROCESSES = {"migrate", "api", "scheduler", "worker", "watchdog"}

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
LIMITS = {
    "cpus": {"type": "string", "pattern": r"^\d+\.\d+$"},
    "memory": {"type": "string", "pattern": r"^\d+[mg]$"},
}
SERVICE = strict(
    {
        "image": {"type": "string"},
        "build": strict({"context": {"type": "string"}, "args": WORDS}, "context"),
        "command": WORDS,
        "init": {"type": "boolean"},
        "environment": mapping({"type": "string"}),
        "ports": {
            "type": "array",
            "items": {"type": "string", "pattern": r"^\S+:\$\{[A-Z]+_PORT:-\d+\}:\d+$"},
        },
        "volumes": {
            "type": "array",
            "items": {"type": "string", "pattern": r"^(\./)?[a-z/]+:/\S+$"},
        },
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
        "deploy": strict(
            {
                "replicas": {"type": "integer", "minimum": 1},
                "resources": strict({"limits": strict(LIMITS, *LIMITS)}, "limits"),
            },
            "resources",
        ),
        "read_only": {"type": "boolean"},
        "tmpfs": WORDS,
        "cap_drop": WORDS,
        "security_opt": WORDS,
        "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
        "stop_signal": {"type": "string", "pattern": "^SIG[A-Z]+$"},
        "stop_grace_period": DURATION,
        "logging": strict(
            {
                "driver": {"const": "json-file"},
                "options": strict(
                    {
                        "max-size": {"type": "string", "pattern": r"^\d+[km]$"},
                        "max-file": {"type": "string", "pattern": r"^[1-9]\d*$"},
                    },
                    "max-size",
                    "max-file",
                ),
            },
            "driver",
            "options",
        ),
    },
    "image",
    "deploy",
    "logging",
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
        ("worker", "deploy", {"replicas": 0, "resources": {"limits": {}}}),
        ("worker", "deploy", {"replicas": 2}),
        ("worker", "logging", {"driver": "json-file"}),
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
            source, _, target = volume.partition(":")
            if source.startswith("./"):
                assert (ROOT / source).is_dir()
                assert target.endswith(":ro")
            else:
                assert source in compose["volumes"]
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


@pytest.mark.parametrize(
    ("processes", "variables"),
    [
        ({"api", "worker"}, ["EGRESS_ALLOW", "SECRET_KEYS"]),
        ({"api", "migrate"}, ["KEY_PEPPER"]),
        ({"watchdog"}, ["WATCHDOG_WEBHOOK", "WATCHDOG_WEBHOOK_SECRET"]),
        (PROCESSES - {"migrate"}, ["TRACE_ENDPOINT", "TRACE_SAMPLE", "TRACE_HEADERS"]),
    ],
)
def test_what_is_set_outside_reaches_those_that_read_it(
    compose: dict[str, Any], processes: set[str], variables: list[str]
) -> None:
    for variable in (f"TICKRAIL_{name}" for name in variables):
        given = {
            name: compose["services"][name]["environment"][variable]
            for name in PROCESSES
            if variable in compose["services"][name]["environment"]
        }
        assert given.keys() == processes
        assert all(value.startswith(f"${{{variable}:-") for value in given.values())


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
        "watchdog": "tickrail_engine",
    }
    made = re.findall(r"create role (\w+) login", compose["configs"]["roles"]["content"])
    assert tuple(made) == ROLES


def test_images_name_a_version(compose: dict[str, Any]) -> None:
    for one in compose["services"].values():
        image = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", one["image"])
        assert re.search(r":v?\d+\.\d+", image), image


def test_tests_and_stand_ins_are_of_the_same_images(compose: dict[str, Any]) -> None:
    stand_ins = (ROOT / "tests/images/stand_ins.py").read_text()
    images = {
        name: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", compose["services"][name]["image"])
        for name in SERVERS
    }
    assert [image for image in images.values() if f'"{image}"' not in stand_ins] == []
    tested = {POSTGRES_IMAGE, ETCD_IMAGE, KAFKA_IMAGE}
    assert {images[name] for name in ("postgres", "etcd", "kafka")} == tested


def test_the_processes_can_write_nowhere_but_to_tmp(compose: dict[str, Any]) -> None:
    for name in PROCESSES:
        one = compose["services"][name]
        assert (one["read_only"], one["tmpfs"], one["cap_drop"]) == (True, ["/tmp"], ["ALL"])


def test_a_stop_has_the_time_that_it_needs(compose: dict[str, Any]) -> None:
    grace = {n: int(compose["services"][n]["stop_grace_period"][:-1]) for n in PROCESSES}
    assert grace["worker"] > Settings().drain_grace + 60
    assert min(grace.values()) > 40


def test_prometheus_looks_at_every_process_and_loads_every_rule(compose: dict[str, Any]) -> None:
    config = yaml.safe_load(compose["configs"]["prometheus"]["content"])
    (scrape,) = config["scrape_configs"]
    (found,) = scrape["dns_sd_configs"]
    assert {*found["names"], "migrate"} == PROCESSES
    statuses = {compose["services"][n]["environment"]["TICKRAIL_STATUS_PORT"] for n in PROCESSES}
    assert statuses == {str(found["port"])}
    (pattern,) = config["rule_files"]
    python = Path(pattern).name.replace("[^", "[!")
    loaded = {p.name for p in (ROOT / "helm/tickrail/rules").iterdir() if fnmatch(p.name, python)}
    wanted = {p.name for p in (ROOT / "helm/tickrail/rules").glob("*.yaml")}
    assert loaded == {name for name in wanted if not name.endswith(".test.yaml")}
    assert loaded


def test_grafana_finds_prometheus_and_the_dashboards(compose: dict[str, Any]) -> None:
    sources = yaml.safe_load(compose["configs"]["grafana-sources"]["content"])["datasources"]
    assert [s["url"] for s in sources if s["isDefault"]] == ["http://prometheus:9090"]
    boards = yaml.safe_load(compose["configs"]["grafana-dashboards"]["content"])["providers"]
    mounts = compose["services"]["grafana"]["volumes"]
    assert f"./helm/tickrail/dashboards:{boards[0]['options']['path']}:ro" in mounts


def stages() -> list[list[str]]:
    """The instructions of each stage of the Dockerfile, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    starts = [i for i, line in enumerate(lines) if line.startswith("FROM")]
    return [lines[a:b] for a, b in pairwise([*starts, len(lines)])]


def test_the_image_installs_from_the_locks_and_does_not_run_as_root() -> None:
    build, last = stages()
    installs = [line for line in build if re.search(r"/pip .*install ", line)]
    assert len([i for i in installs if "--require-hashes" in i]) == 2
    assert all("requirements/" in i or "--no-index" in i for i in installs)
    assert not any("install" in line or "apt-get" in line for line in last)
    users = [line.split()[1] for line in last if line.startswith("USER")]
    assert users == ["10001:10001"]
    assert any(line.startswith("HEALTHCHECK") for line in last)


def test_what_the_image_is_built_from_is_let_into_the_build() -> None:
    let = {
        line[1:].removesuffix("/**")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        source for line in stages()[0] if line.startswith("COPY") for source in line.split()[1:-1]
    }
    assert copied == let


def test_the_image_and_the_project_have_one_version(compose: dict[str, Any]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert compose["services"]["api"]["image"] == f"tickrail:{version}"
    assert f'image.version="{version}"' in (ROOT / "Dockerfile").read_text()
