"""What values lead to, and which are refused with their name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from tests.helm.conftest import CHART, Rendered, env_of

from tickrail.runtime.certificates import named_files
from tickrail.runtime.settings import load_settings
from tickrail_cli.main import COMMANDS


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("database.existingSecret=", "/database/existingSecret"),
        ("database.existingSecrets=x", "'existingSecrets' not allowed"),
        ("etcd.endpoints={etcd}", "/etcd/endpoints/0"),
        ("etcd.auth.existingSecret=x", "/etcd/tls/enabled"),
        ("kafka.bootstrap={}", "/kafka/bootstrap"),
        ("kafka.tls.enabled=true", "/kafka/tls/existingSecret"),
        ("kafka.sasl.mechanism=GSSAPI", "/kafka/sasl/mechanism"),
        ("kafka.sasl.mechanism=PLAIN", "kafka.sasl.existingSecret"),
        ("keys.pepperKey=pepper", "/keys/existingSecret': minLength"),
        ("watchdog.webhook.signingKey=secret", "/watchdog/webhook/existingSecret': minLength"),
        ("tracing.headersSecret=collector", "/tracing/endpoint': minLength"),
        ("image.digest=sha256:0", "/image/digest"),
        ("partitions=0", "/partitions"),
        ("settings.LOG_LEVEL=debug", "invalid propertyName 'LOG_LEVEL'"),
        ("api.replicas=many", "/api/replicas"),
        ("api.drainDelaySeconds=31", "/api/drainDelaySeconds"),
        ("api.ingress.enabled=true", "/api/ingress/host"),
        ("worker.targets={webhok}", "/worker/targets/0"),
        ("tracing.sample=half", "/tracing/sample"),
        ("worker.pools.a.queue=x", "/worker/pools/a"),
        ("worker.autoscaling.type=keda", "worker.autoscaling.keda.prometheusAddress"),
        ("networkPolicy.etcd.ports={0}", "/networkPolicy/etcd/ports/0"),
        ("metrics.serviceMonitor.interval=often", "/metrics/serviceMonitor/interval"),
        ("metrics.runbooksUrl=docs/runbooks", "/metrics/runbooksUrl"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(
    refusal: Callable[..., str], given: str, named: str
) -> None:
    assert named in refusal("minimal", "--set", given)


def test_the_schema_takes_every_value_that_there_is() -> None:
    """Each value of values.yaml is in the schema, which takes nothing that it does not name."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["additionalProperties"] is False
    used = set(re.findall(r"^([a-zA-Z]+):", (CHART / "values.yaml").read_text(), re.MULTILINE))
    assert used == schema["properties"].keys() - {"global"}


def test_pools_of_workers_differ_in_what_they_say(of: Callable[..., Rendered]) -> None:
    found = of("available")
    usual = env_of(found.pods()["t-tickrail-worker-default"])
    reports = env_of(found.pods()["t-tickrail-worker-reports"])
    assert (usual["TICKRAIL_WORKER_QUEUES"], usual["TICKRAIL_WORKER_CONCURRENCY"]) == (
        "default",
        "256",
    )
    assert reports["TICKRAIL_WORKER_QUEUES"] == "reports,exports"
    assert reports["TICKRAIL_DRAIN_GRACE"] == "600"
    scaled = {m["metadata"]["name"]: m["spec"] for m in found.kind("HorizontalPodAutoscaler")}
    assert scaled.keys() == {"t-tickrail-api", "t-tickrail-worker-default"}
    for name, spec in scaled.items():
        assert spec["scaleTargetRef"]["name"] == name
        assert "replicas" not in found.one("Deployment", name)["spec"]
    assert found.one("Deployment", "t-tickrail-worker-reports")["spec"]["replicas"] == 4


def test_settings_of_all_and_of_one(of: Callable[..., Rendered]) -> None:
    found = of(
        "minimal",
        "--set", "settings.TICKRAIL_LOG_LEVEL=debug",
        "--set", "defaults.settings.TICKRAIL_LEASE_TTL=12",
        "--set", "scheduler.settings.TICKRAIL_LOG_LEVEL=warning",
        "--set", "worker.pools.default.settings.TICKRAIL_LOST_AFTER=1000000",
    ).pods()  # fmt: skip
    levels = {name: env_of(pod).get("TICKRAIL_LOG_LEVEL") for name, pod in found.items()}
    assert levels["t-tickrail-scheduler"] == "warning"
    assert levels["t-tickrail-api"] == levels["t-tickrail-migrate-pre"] == "debug"
    assert env_of(found["t-tickrail-scheduler"])["TICKRAIL_LEASE_TTL"] == "12"
    assert env_of(found["t-tickrail-worker-default"])["TICKRAIL_LOST_AFTER"] == "1000000"


def test_workers_are_scaled_by_their_queues_lag_and_the_oldest_due(
    of: Callable[..., Rendered],
) -> None:
    spec = of("keda").one("ScaledObject", "t-tickrail-worker-commands")["spec"]
    lag, oldest = (t["metadata"]["query"] for t in spec["triggers"])
    assert 'namespace="jobs"' in lag
    (topics,) = re.findall(r'topic=~"(.*)"}', lag)
    pattern = json.loads(f'"{topics}"')
    assert re.fullmatch(pattern, "prod.tickrail.launch.commands.high")
    assert re.fullmatch(pattern, "prod.tickrail.retry.commands")
    assert not re.fullmatch(pattern, "prod.tickrail.launch.default.high")
    assert not re.fullmatch(pattern, "prod-tickrail.retry.commands")
    assert not re.fullmatch(pattern, "prod.tickrail.dlq.commands")
    assert oldest == 'max(tickrail_oldest_due_seconds{namespace="jobs"}) or vector(0)'
    assert spec["scaleTargetRef"]["name"] == "t-tickrail-worker-commands"


def test_a_pool_may_be_scaled_by_its_lag_alone(of: Callable[..., Rendered]) -> None:
    found = of("keda", "--set", "worker.pools.commands.autoscaling.keda.oldestDueSeconds=0")
    triggers = {
        one["metadata"]["name"].rpartition("-")[2]: [t["name"] for t in one["spec"]["triggers"]]
        for one in found.kind("ScaledObject")
    }
    assert triggers == {"default": ["lag", "oldest-due"], "commands": ["lag"]}
    every = of("keda", "--set", "worker.autoscaling.keda.oldestDueSeconds=0").kind("ScaledObject")
    assert [[t["name"] for t in one["spec"]["triggers"]] for one in every] == [["lag"]] * 2


def test_tls_gives_each_process_the_files_that_it_needs(of: Callable[..., Rendered]) -> None:
    pods = of("tls").pods()
    files = {
        name: {v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
        for name, pod in pods.items()
        if "volumes" in pod
    }
    assert files == {
        "t-tickrail-api": {"postgres-client", "etcd-client"},
        "t-tickrail-scheduler": {"postgres-client", "etcd-client", "kafka-client"},
        "t-tickrail-worker-default": {"postgres-client", "kafka-client", "company-ca"},
        "t-tickrail-watchdog": {"postgres-client", "company-ca"},
        "t-tickrail-migrate-pre": {"postgres-client"},
        "t-tickrail-migrate-post": {"postgres-client"},
    }
    scheduler = env_of(pods["t-tickrail-scheduler"])
    assert scheduler["TICKRAIL_KAFKA_SECURITY_PROTOCOL"] == "SASL_SSL"
    assert scheduler["PGSSLMODE"] == "verify-full"
    for pod in pods.values():
        mounts = {m["name"]: m["mountPath"] for m in pod["containers"][0].get("volumeMounts", [])}
        named = {v for k, v in env_of(pod).items() if k.endswith(("_FILE", "CERT", "PGSSLKEY"))}
        there = {
            f"{mounts[v['name']]}/{item['path']}"
            for v in pod.get("volumes", [])
            if "secret" in v
            for item in v["secret"]["items"]
        }
        assert named == there


def test_each_process_watches_the_certificates_that_it_is_given(
    of: Callable[..., Rendered],
) -> None:
    url = {"database_url": "postgresql://tickrail_engine@db:5432/tickrail"}
    watched = {}
    for one in of("tls").kind("Deployment"):
        env = env_of(one["spec"]["template"]["spec"])
        plain = {name: value for name, value in env.items() if isinstance(value, str)}
        files = named_files(load_settings(url, environ=plain), plain)
        given = {v for n, v in plain.items() if n.endswith(("CA_FILE", "CERT_FILE", "CERT"))}
        assert {str(path) for path, _ in files.values()} == given
        watched[one["metadata"]["name"].split("-")[2]] = set(files)
    postgres = {"postgres_ca", "postgres_client"}
    etcd, kafka = {"etcd_ca", "etcd_client"}, {"kafka_ca", "kafka_client"}
    assert watched == {
        "api": postgres | etcd,
        "scheduler": postgres | etcd | kafka,
        "worker": postgres | kafka | {"webhook_ca"},
        "watchdog": postgres | {"webhook_ca"},
    }


def test_what_commands_leave_behind_is_reaped(of: Callable[..., Rendered]) -> None:
    pods = of("keda").pods()
    shared = {name for name, pod in pods.items() if pod.get("shareProcessNamespace")}
    assert shared == {"t-tickrail-worker-commands"}


def test_the_watchdog_and_traces_have_their_secrets(of: Callable[..., Rendered]) -> None:
    pods = of("keda").pods()
    tells = env_of(pods["t-tickrail-watchdog"])
    assert tells["TICKRAIL_WATCHDOG_WEBHOOK"]["secretKeyRef"] == {"name": "on-call", "key": "url"}
    assert tells["TICKRAIL_WATCHDOG_WEBHOOK_SECRET"]["secretKeyRef"]["key"] == "secret"
    traced = {n for n, pod in pods.items() if "TICKRAIL_TRACE_ENDPOINT" in env_of(pod)}
    assert traced == {n for n in pods if "migrate" not in n and "test" not in n}
    for name in traced:
        env = env_of(pods[name])
        assert env["TICKRAIL_TRACE_SAMPLE"] == "0.1"
        assert env["TICKRAIL_TRACE_HEADERS"]["secretKeyRef"]["name"] == "collector"


@pytest.mark.parametrize(
    ("tls", "sasl", "protocol"),
    [
        (False, False, "PLAINTEXT"),
        (True, False, "SSL"),
        (False, True, "SASL_PLAINTEXT"),
        (True, True, "SASL_SSL"),
    ],
)
def test_how_kafka_is_spoken_to(
    of: Callable[..., Rendered], tls: bool, sasl: bool, protocol: str
) -> None:
    more = ["--set", "kafka.tls.enabled=true,kafka.tls.existingSecret=a"] if tls else []
    more += ["--set", "kafka.sasl.mechanism=PLAIN,kafka.sasl.existingSecret=b"] if sasl else []
    env = env_of(of("minimal", *more).pods()["t-tickrail-worker-default"])
    assert env["TICKRAIL_KAFKA_SECURITY_PROTOCOL"] == protocol
    assert ("TICKRAIL_KAFKA_SASL_USERNAME" in env) is sasl


def test_a_closed_network_lets_each_process_reach_what_it_needs(
    of: Callable[..., Rendered],
) -> None:
    found = of("closed")
    policies = {
        m["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: m["spec"]
        for m in found.kind("NetworkPolicy")
    }
    components = {m["metadata"]["labels"]["app.kubernetes.io/component"] for m in found.of_pods()}
    assert policies.keys() == components
    reach = {
        name: {p["port"] for rule in spec["egress"] for p in rule.get("ports", [])}
        for name, spec in policies.items()
    }
    assert reach == {
        "api": {53, 5432, 2379, 443, 4318},
        "scheduler": {53, 5432, 2379, 9092, 4318},
        "worker": {53, 5432, 9092, 443, 4318},
        "watchdog": {53, 5432, 443, 4318},
        "migrate": {53, 5432},
    }
    assert all(spec["policyTypes"] == ["Ingress", "Egress"] for spec in policies.values())
    assert policies["migrate"]["ingress"] == []
    (public,) = [rule["to"] for rule in policies["worker"]["egress"] if "ports" not in rule]
    assert "169.254.0.0/16" in public[0]["ipBlock"]["except"]
    (api,) = [r for r in policies["api"]["ingress"] if r["ports"][0]["port"] == 8080]
    assert len(api["from"]) == 2


def test_switched_off_is_not_there(of: Callable[..., Rendered]) -> None:
    found = of(
        "minimal",
        "--set", "api.enabled=false,migrations.enabled=false,serviceAccount.create=false",
        "--set", "scheduler.enabled=false,worker.enabled=false,watchdog.enabled=false",
    )  # fmt: skip
    assert {m["kind"] for m in found.manifests} == {"Service"}
    assert not of("minimal").kind("NetworkPolicy") + of("minimal").kind("ServiceMonitor")


def test_what_runs_by_default_is_a_command(minimal: Rendered) -> None:
    for one in minimal.kind("Deployment"):
        (container,) = one["spec"]["template"]["spec"]["containers"]
        assert container["args"][0] in COMMANDS
