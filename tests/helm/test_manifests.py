"""The chart's manifests: valid, whole, and as closed as they can be."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.helm.conftest import CHART, SETS, Rendered, env_of, run
from tests.support.tree import ROOT

from tickrail.runtime.certificates import named_files
from tickrail.runtime.metrics import METRICS
from tickrail.runtime.settings import load_settings

OTHERS = {"monitoring.coreos.com/v1", "keda.sh/v1alpha1"}
"""API groups of other projects: Kubernetes has no schema of them."""
COMPONENTS = {"api", "scheduler", "worker", "watchdog"}


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return selector.items() <= labels.items()


def test_there_are_five_sets() -> None:
    assert len(SETS) == 5


@pytest.mark.parametrize("values", SETS)
def test_helm_finds_nothing_to_say(values: str) -> None:
    done = run("lint", "--strict", "--values", str(CHART / "ci" / values))
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("version", ["1.27", "1.34", "1.37"])
def test_kubernetes_takes_each_manifest(each: Rendered, version: str) -> None:
    checked = [m for m in each.manifests if m["apiVersion"] not in OTHERS]
    for manifest in checked:
        kubernetes_validate.validate(manifest, version, strict=True)
    assert len(checked) >= 10


def test_a_slip_would_be_seen(minimal: Rendered) -> None:
    broken = json.loads(json.dumps(minimal.kind("Deployment")[0]))
    broken["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readinesProbe"):
        kubernetes_validate.validate(broken, "1.34", strict=True)


def test_the_chart_is_of_the_project_s_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == project["version"]


def test_no_two_objects_have_one_name(each: Rendered) -> None:
    names = Counter((m["kind"], m["metadata"]["name"]) for m in each.manifests)
    assert [n for n, count in names.items() if count > 1] == []
    assert [n for _, n in names if len(n) > 63] == []


def test_every_pod_is_closed(each: Rendered) -> None:
    for name, pod in each.pods().items():
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["runAsUser"] == 10001, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name


def test_each_process_may_write_to_tmp_and_is_bounded(each: Rendered) -> None:
    for manifest in each.of_pods():
        pod = manifest["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        (tmp,) = [v for v in pod["volumes"] if v["name"] == "tmp"]
        assert tmp["emptyDir"]["sizeLimit"]
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_mounts_have_volumes(each: Rendered) -> None:
    for name, pod in each.pods().items():
        there = {v["name"] for v in pod.get("volumes", [])}
        mounted = {m["name"] for c in pod["containers"] for m in c.get("volumeMounts", [])}
        assert mounted == there, name


def test_every_setting_is_known_and_right(each: Rendered) -> None:
    """With a likely value in the place of what comes from secrets."""
    stand_in = {
        "TICKRAIL_DATABASE_URL": "postgresql://tickrail_engine:x@db:5432/tickrail",
        "TICKRAIL_NAME": "a-pod",
    }
    for name, pod in each.pods().items():
        env = {
            n: value if isinstance(value, str) else stand_in.get(n, "given")
            for n, value in env_of(pod).items()
        }
        assert load_settings(environ=env).status_port in {9100, 0}, name


def test_every_certificate_of_a_server_is_watched(of: Callable[..., Rendered]) -> None:
    seen = set[str]()
    for name, pod in of("tls").pods().items():
        env = {n: v if isinstance(v, str) else "given" for n, v in env_of(pod).items()}
        url = {"TICKRAIL_DATABASE_URL": "postgresql://tickrail_engine:x@db:5432/tickrail"}
        files = named_files(load_settings(environ=env | url), env)
        watched = {str(path) for path, _ in files.values()}
        (container,) = pod["containers"]
        mounts = container.get("volumeMounts", [])
        folders = [m["mountPath"] for m in mounts if m["name"].startswith("tls-")]
        needed = {f"{f}/ca.crt" for f in folders}
        needed |= {f"{f}/tls.crt" for f in folders if not f.endswith("/webhooks")}
        assert watched == needed, name
        seen |= files.keys()
    assert seen == {
        "postgres_ca", "postgres_client", "etcd_ca", "etcd_client", "kafka_ca", "kafka_client",
        "webhook_ca",
    }  # fmt: skip


def test_no_password_is_in_a_manifest(each: Rendered) -> None:
    for name, pod in each.pods().items():
        env = env_of(pod)
        secret = {n for n, value in env.items() if isinstance(value, dict)} - {"TICKRAIL_NAME"}
        for n in ("TICKRAIL_DATABASE_URL", "TICKRAIL_SECRET_KEYS", "TICKRAIL_KAFKA_SASL_PASSWORD"):
            assert n not in env or n in secret, name
    assert each.kind("Secret") == []


def test_each_process_is_asked_how_it_is(each: Rendered) -> None:
    for manifest in each.kind("Deployment"):
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "status"}
        assert container["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "status"}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "status"}
        assert {"name": "status", "containerPort": 9100} in container["ports"]


def test_each_deployment_finds_its_own_pods_and_no_others(each: Rendered) -> None:
    deployments = each.kind("Deployment")
    for one in deployments:
        selector = one["spec"]["selector"]["matchLabels"]
        found = [
            d["metadata"]["name"]
            for d in each.of_pods()
            if selects(selector, d["spec"]["template"]["metadata"]["labels"])
        ]
        assert found == [one["metadata"]["name"]]
        for spread in one["spec"]["template"]["spec"]["topologySpreadConstraints"]:
            assert spread["labelSelector"]["matchLabels"] == selector


def test_disruptions_are_bounded_and_end(each: Rendered) -> None:
    budgets = {m["metadata"]["name"]: m["spec"] for m in each.kind("PodDisruptionBudget")}
    for one in each.kind("Deployment"):
        name = one["metadata"]["name"]
        if one["metadata"]["labels"]["app.kubernetes.io/component"] == "watchdog":
            assert name not in budgets
            continue
        budget = budgets.pop(name)
        assert budget["selector"] == one["spec"]["selector"]
        assert budget["maxUnavailable"] == 1
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert budgets == {}


def test_services_lead_somewhere(each: Rendered) -> None:
    for service in each.kind("Service"):
        selector = service["spec"]["selector"]
        ports = [
            {p["name"] for p in d["spec"]["template"]["spec"]["containers"][0]["ports"]}
            for d in each.kind("Deployment")
            if selects(selector, d["spec"]["template"]["metadata"]["labels"])
        ]
        assert ports
        for port in service["spec"]["ports"]:
            assert all(port["targetPort"] in there for there in ports)


def test_a_stop_has_the_time_that_it_needs(each: Rendered) -> None:
    for one in each.kind("Deployment"):
        pod = one["spec"]["template"]["spec"]
        env = env_of(pod)
        needs = {
            "api": int(env.get("TICKRAIL_API_DRAIN_DELAY", 0)) + 20,
            "worker": int(env.get("TICKRAIL_DRAIN_GRACE", 0)) + 60,
        }
        component = one["metadata"]["labels"]["app.kubernetes.io/component"]
        assert pod["terminationGracePeriodSeconds"] > needs.get(component, 25)


def test_no_capacity_is_lost_while_a_version_is_rolled_out(each: Rendered) -> None:
    for one in each.kind("Deployment"):
        if one["metadata"]["labels"]["app.kubernetes.io/component"] == "watchdog":
            assert one["spec"]["strategy"] == {"type": "Recreate"}
        else:
            assert one["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_migrations_are_hooks_in_two_halves(each: Rendered, of: Callable[..., Rendered]) -> None:
    jobs = {m["metadata"]["name"].rpartition("-")[2]: m for m in each.kind("Job")}
    assert "pre" in jobs
    for half, job in jobs.items():
        annotations = job["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == f"{half}-install,{half}-upgrade"
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["args"] == ["migrate", "--half", half]
        url = env_of(job["spec"]["template"]["spec"])["TICKRAIL_DATABASE_URL"]["secretKeyRef"]
        assert url["key"] == "owner-url"
    assert [m["metadata"]["name"] for m in of("closed").kind("Job")] == ["jobs-migrate-pre"]


def test_only_migrations_have_the_owner_s_connection(of: Callable[..., Rendered]) -> None:
    for name, pod in of("available").pods().items():
        if "TICKRAIL_DATABASE_URL" in (env := env_of(pod)):
            url = env["TICKRAIL_DATABASE_URL"]["secretKeyRef"]
            owner = url["name"] == "tickrail-owner" or url["key"] == "owner-url"
            assert owner == ("migrate" in name)
            assert (url["key"] == "api-url") == name.endswith("-api")


def test_accounts_exist_or_are_the_cluster_s(each: Rendered) -> None:
    made = {m["metadata"]["name"] for m in each.kind("ServiceAccount")}
    for manifest in each.of_pods():
        account = manifest["spec"]["template"]["spec"]["serviceAccountName"]
        hook = "helm.sh/hook" in manifest["metadata"].get("annotations", {})
        assert account in (({"default"} if made else {"jobs"}) if hook else made or {"jobs"})


def test_the_rules_and_dashboards_are_the_files(of: Callable[..., Rendered]) -> None:
    found = of("available")
    files = [p for p in (CHART / "rules").glob("*.yaml") if not p.name.endswith(".test.yaml")]
    groups = [g for m in found.kind("PrometheusRule") for g in m["spec"]["groups"]]
    wanted = [g for p in files for g in yaml.safe_load(p.read_text())["groups"]]
    assert sorted(groups, key=lambda g: g["name"]) == sorted(wanted, key=lambda g: g["name"])
    assert groups
    boards = {p.name: json.loads(p.read_text()) for p in (CHART / "dashboards").glob("*.json")}
    shown: dict[str, Any] = {}
    for m in found.kind("ConfigMap"):
        assert m["metadata"]["labels"]["grafana_dashboard"] == "1"
        shown |= {name: json.loads(text) for name, text in m["data"].items()}
    assert shown == boards


def test_alerts_and_panels_lead_to_where_the_runbooks_are(of: Callable[..., Rendered]) -> None:
    at = "https://wiki.example.org/a&b/runbooks"
    found = of("available", "--set", f"metrics.runbooksUrl={at}/")
    rules = [
        rule
        for m in found.kind("PrometheusRule")
        for group in m["spec"]["groups"]
        for rule in group["rules"]
    ]
    led = {r["alert"]: r["annotations"].get("runbook_url") for r in rules if "alert" in r}
    assert led == {name: f"{at}/{name}.md" for name in led}
    assert len(led) > 40
    assert all("annotations" not in r for r in rules if "record" in r)
    boards = [json.loads(text) for m in found.kind("ConfigMap") for text in m["data"].values()]
    for board in boards:
        (named,) = [v for v in board["templating"]["list"] if v["name"] == "runbooks"]
        assert named["query"] == named["current"]["value"] == named["current"]["text"] == at
        assert "docs/runbooks" not in json.dumps(board)
    assert len(boards) == len(list((CHART / "dashboards").glob("*.json")))


def test_prometheus_finds_every_process(of: Callable[..., Rendered]) -> None:
    found = of("available")
    (monitor,) = found.kind("ServiceMonitor")
    services = [
        s
        for s in found.kind("Service")
        if selects(monitor["spec"]["selector"]["matchLabels"], s["metadata"]["labels"])
    ]
    assert [s["metadata"]["name"] for s in services] == ["t-tickrail-status"]
    assert services[0]["spec"]["publishNotReadyAddresses"] is True
    for one in found.kind("Deployment"):
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert selects(services[0]["spec"]["selector"], labels)
    assert monitor["spec"]["endpoints"][0]["port"] == services[0]["spec"]["ports"][0]["name"]
    assert {m.name for m in METRICS} >= {"consumer_lag", "oldest_due_seconds"}
