"""Writes the tables of the documents from the code: `python docs/tables.py [--check]`.

The settings in README.md, docs/metrics.md, docs/errors.md, docs/states.md, docs/outcomes.md,
docs/failpoints.md, docs/alerts.md, docs/dashboards.md, docs/licences.md, the files of
helm/tickrail/dashboards and the settings in helm/tickrail/values.schema.json are never written by
hand. With `--check` nothing is written: names the files that differ from the code and exits 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs.chart_settings import schema
from docs.dashboards import DASHBOARDS
from docs.licences import CONDITIONS, licensed
from docs.panels import dashboard_json

from tickrail.core import errors
from tickrail.core.errors import TickrailError
from tickrail.core.outcomes import FAMILIES, KNOWN, NEVER
from tickrail.core.states import MOVES, PHASE, RETRYING, State
from tickrail.runtime.failpoints import ACTIONS, POINTS
from tickrail.runtime.metrics_table import METRICS, OTHER, PREFIX, TOP_TENANTS, Metric, bound_of
from tickrail.runtime.settings_table import settings_table

ROOT = Path(__file__).parents[1]
BEGIN = "<!-- settings: written by docs/tables.py -->"
END = "<!-- end of settings -->"
NOTE = "<!-- written by docs/tables.py -->"
SCHEMA = "helm/tickrail/values.schema.json"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def metrics() -> str:
    """Every metric: name, kind, labels, who tells it, meaning; and the bounds of the labels."""
    rows = [
        [
            f"`{PREFIX}{m.name}`",
            m.kind,
            ", ".join(f"`{x}`" for x in m.labels),
            ", ".join(m.told_by),
            m.help,
        ]
        for m in METRICS
    ]
    least = " and ".join(f"`{m.name}`" for m in METRICS if m.together == "least")
    bounds = [[f"`{label}`", of, str(most), values] for label, of, most, values in label_bounds()]
    buckets = {m.buckets: m.name for m in METRICS if m.kind == "histogram"}
    return (
        f"{NOTE}\n\n# Metrics\n\n"
        "Each process serves its own under `/metrics` on its status port; several processes on one "
        "machine are several targets, and nothing is shared between them. Durations are in "
        "seconds. Every process has `process_cpu_seconds_total`, `process_resident_memory_bytes` "
        "and `process_open_fds`, too. What is built on these: [alerts](alerts.md), "
        "[dashboards](dashboards.md).\n\n"
        + table(["name", "kind", "labels", "told by", "meaning"], rows)
        + "\n## Labels and their bounds\n\n"
        "A label has at most so many values in one process; what is beyond is told together as "
        f"`{OTHER}`: of a gauge the sum, of {least} the least. "
        f"A tenant is a label in a list of the {TOP_TENANTS} busiest alone, so sums "
        "over them are right and the line of one tenant is what those processes did for it in "
        "whose lists it is. Who is in the list stays until another was half as busy again; "
        "activity counts half after ten minutes.\n\n"
        + table(["label", "of", "at most", "values"], bounds)
        + "\n## Buckets\n\n"
        + table(
            ["histograms", "upper bounds in seconds"],
            [
                [
                    ", ".join(f"`{m.name}`" for m in METRICS if m.buckets == found),
                    ", ".join(f"{bound:g}" for bound in found),
                ]
                for found in buckets
            ],
        )
    )


def label_bounds() -> list[tuple[str, str, int, str]]:
    """Label, the metrics for which its bound holds, the bound, the values."""
    found: dict[tuple[str, int, str], list[Metric]] = {}
    for m in METRICS:
        for label in m.labels:
            bound = bound_of(m, label)
            found.setdefault((label, bound.most, bound.values), []).append(m)
    return [
        (label, ", ".join(f"`{m.name}`" for m in of), most, values)
        for (label, most, values), of in found.items()
    ]


def tree(root: type[TickrailError]) -> Iterator[type[TickrailError]]:
    """A class of errors and what is below it, in the order of the source."""
    yield root
    for below in root.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from tree(below)


def error_table() -> str:
    """Every error of the API."""
    rows = [
        [f"`{e.code}`", str(e.status), "yes" if e.retryable else "no", e.title()]
        for e in tree(TickrailError)
    ]
    return (
        f"{NOTE}\n\n# Errors\n\n"
        "Every error is one of these: the `code` of a problem document "
        "(`application/problem+json`), its HTTP status, and whether the same request may succeed "
        "later. `detail` says what is wrong, `errors[]` names each field and what would be "
        "right.\n\n" + table(["code", "status", "try again", "meaning"], rows)
    )


def states() -> str:
    """The states of a launch and who may make which move."""
    moves = [
        [f"`{before}`", f"`{after}`", ", ".join(sorted(a.value for a in actors))]
        for (before, after), actors in MOVES.items()
    ]
    phases = [[f"`{s}`", str(PHASE[s])] for s in State]
    return (
        f"{NOTE}\n\n# States of a launch\n\n"
        f"A launch that is `due` with a failure behind it is shown as `{RETRYING}`. The phase is "
        "the coarse state that the indexes use: 0 held, 1 due, 2 in flight, 3 ended.\n\n"
        + table(["state", "phase"], phases)
        + "\nEvery move there is, and who may make it. A redrive is the one move out of an end.\n\n"
        + table(["from", "to", "who"], moves)
    )


def outcomes() -> str:
    """The outcomes of attempts, as a retry policy names them."""
    rows = [
        [f"`{x.name}`", ", ".join(x.targets) or "any", x.certain, x.again, x.meaning]
        for x in (*FAMILIES, *KNOWN)
    ]
    never = ", ".join(f"`{name}`" for name in sorted(NEVER))
    return (
        f"{NOTE}\n\n# Outcomes of attempts\n\n"
        "What an attempt that failed ended with: in its launch's result, its attempts and dead "
        "letters. A job's `retry.not_on` names outcomes that are never tried again, `retry.on` "
        "those that are although that is usually of no use; `not_on` goes before. What neither "
        "names is tried again as the table says: `on` is no list of all that is. Both take these "
        "names and patterns: `http_404`, `http_4xx`, `http_500-503`, `exit_3`, `exit_64-78`, "
        "`signal_9`, `raised_ValueError` (which holds for the classes below it too). Another word "
        "is refused when the job is made.\n\n"
        "*Certain* is an end of which it is known that the effect did not happen; after one that "
        "is not, a job whose `if_uncertain` is `skip` is not tried again, whatever its policy "
        "says.\n\n"
        + table(["outcome", "targets", "certain", "tried again", "meaning"], rows)
        + f"\nNo policy decides about {never}: a success, an end that was asked for, a run that "
        "its worker gave back.\n"
    )


def failpoints() -> str:
    """The failpoints and what they can do."""
    return (
        f"{NOTE}\n\n# Failpoints\n\n"
        "Places in a running scheduler or worker where a test of faults makes it die, stop or "
        'wait. Off by default; `TICKRAIL_FAILPOINTS="owner.tick.after=stop@3,etcd.claim.after='
        'kill"` acts once at each of these points, the third time and the first time that the '
        "process comes there. A log line `failpoint` says so before it happens.\n\n"
        + table(["action", "meaning"], [[f"`{a}`", what] for a, what in ACTIONS.items()])
        + "\n"
        + table(["point", "where the process is"], [[f"`{p}`", what] for p, what in POINTS.items()])
    )


_CONNECTION = (
    "the connection of a superuser (`postgresql://...`); of the tables' owner where a line reads "
    "no `pg_stat_activity`"
)
_LOGS = (
    "files of the processes' logs since shortly before the alert: from `kubectl logs` or "
    "`journalctl`"
)
COMMAND_LINES = (
    "## Command lines\n\n"
    "A runbook's lines are for bash on a machine that reaches the installation, with `tickrail`, "
    "`psql`, `promtool`, `etcdctl`, `openssl` and `curl`; those that name `PROCESS` are for the "
    "machine or container of that process. `tickrail` takes `TICKRAIL_API_URL` and an operator's "
    "key in `TICKRAIL_API_KEY` (`tickrail bootstrap` makes one), or the profile of "
    "`tickrail login`. The other variables:\n\n"
    + table(
        ["variable", "is"],
        [
            ["`DATABASE`", _CONNECTION],
            ["`PROMETHEUS`", "its address, such as `http://prometheus:9090`"],
            ["`LOGS`", _LOGS],
            ["`SCHEDULERS`, `WORKERS`, `WATCHDOGS`", "their status addresses, with blanks between"],
            ["`PROCESS`", "the id of the process that the alert names in `instance`"],
            [
                "`TENANT`, `JOB`, `JOB_ID`, `VERSION`, `KEY`, `NOTICE`, `SECRET`",
                "what the log or a line before has named",
            ],
            ["`FROM`, `UNTIL`", "instants, such as `2026-03-01T09:00:00Z`"],
            ["`HOOK`", "a URL, or the document of [a channel](notices.md#notify-channels)"],
            ["`TICKRAIL_ETCD_ENDPOINTS`", "as the schedulers have it"],
            ["`CERTIFICATE`", "a file of certificates that the settings name"],
        ],
    )
    + "\nEvery line of every runbook was run while its alert fired, with the alert's fault made "
    "for real (`make load-alerts`); the page's last section, *Tried*, says how that went. In one "
    "run of 24 minutes on two cores 27 faults raised 44 alerts (`TickrailServerAway` by three "
    "of them, `TickrailSlotsMissing` by two): 47 of 47 fired and stopped, and 162 of 162 command "
    "lines ended with exit code 0. `TickrailNothingPublished` and `TickrailAlarmsNotDelivered` "
    "came later and were tried by themselves. "
    "`tests/unit/gates/test_runbooks.py` and `tests/integration/store/test_runbook_sql.py` hold "
    "the lines to the programs, metrics, logs, settings and tables that there are.\n"
)


def alerts() -> str:
    """Every alert: how bad, when, what it says, its runbook and its panel."""
    panels = {
        f"/d/{d.uid}?viewPanel={p.id}": f"{d.title.removeprefix('Tickrail: ')}: {p.title}"
        for d in DASHBOARDS
        for p in d.panels
    }
    rules: list[dict[str, Any]] = [
        rule
        for path in sorted((ROOT / "helm/tickrail/rules").glob("*.yaml"))
        if not path.name.endswith(".test.yaml")
        for group in yaml.safe_load(path.read_text("utf-8"))["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    rows = [
        [
            f"[`{r['alert']}`](runbooks/{r['alert']}.md)",
            r["labels"]["severity"],
            r.get("for", "at once"),
            panels.get(r["annotations"]["dashboard"], "?"),
            f"`{' '.join(r['expr'].split())}`".replace("|", "\\|"),
        ]
        for r in sorted(rules, key=lambda r: (r["labels"]["severity"], r["alert"]))
    ]
    return (
        f"{NOTE}\n\n# Alerts\n\n"
        "The rules are in `helm/tickrail/rules`: load them with `rule_files` of Prometheus, or let "
        "the chart make a PrometheusRule of each (`metrics.prometheusRule.enabled`). `critical` is "
        "for somebody who is woken, `warning` for the next working day. Each alert carries "
        "`runbook`, a path in this project, and `dashboard`, a path in Grafana; with "
        "`metrics.runbooksUrl`, where you publish the pages of `docs/runbooks`, the chart adds "
        "`runbook_url`, the page's address. The thresholds are those of the usual settings (a "
        "lease of 10 s, renewed every 3 s). The rules name `namespace`, which a scrape by the "
        "chart's ServiceMonitor gives each installation; with one installation and without that "
        "label they hold as they are.\n\n"
        + table(["alert", "severity", "for", "panel", "when"], rows)
        + "\n"
        + COMMAND_LINES
    )


def dashboards() -> str:
    """Every dashboard and its panels."""
    parts = [
        f"## {d.title}\n\n{d.what} `helm/tickrail/dashboards/{d.uid}.json`\n\n"
        + table(
            ["panel", "what it shows", "alerts that lead here"],
            [
                [p.title, p.what, ", ".join(f"[`{a}`](runbooks/{a}.md)" for a in p.alerts)]
                for p in d.panels
            ],
        )
        for d in DASHBOARDS
    ]
    return (
        f"{NOTE}\n\n# Dashboards\n\n"
        "For Grafana 10 and newer, with Prometheus as the source of data. They are written as code "
        "(`docs/dashboards.py`); `python docs/tables.py` makes the files. Load them with "
        "Grafana's provisioning, or let the chart make a ConfigMap of each "
        "(`metrics.dashboards.enabled`). Some panels stand on the recording rules of "
        "`helm/tickrail/rules/objectives.yaml`, so load these, too. A panel to which an alert "
        "leads has a link to the alert's runbook; the variable `runbooks` of a dashboard says "
        "where those pages are published. The chart sets it to `metrics.runbooksUrl`; elsewhere "
        "put the address in the place of `docs/runbooks` in the files, or of the variable's value "
        "in Grafana.\n\n" + "\n".join(parts)
    )


def licences() -> str:
    """Every package that users run, and its licence."""
    rows = [
        [p.name, p.version, p.licence, ", ".join(p.where), CONDITIONS.get(p.name, "")]
        for p in licensed()
    ]
    return (
        f"{NOTE}\n\n# Licences\n\n"
        "Tickrail is under the [Apache License 2.0](../LICENSE). These are the Python packages "
        "that run with it, as `requirements/image.lock` and `requirements/run.lock` pin them, each "
        "with its licence in its own words; the texts are in the packages. The image holds a bill "
        "of materials of its packages with their hashes, `/opt/tickrail/sbom.cdx.json`. A package "
        "with a licence that is not in the list of `docs/licences.py` fails the tests; *used as* "
        "says how one is used whose licence asks for more than its notice to be kept.\n\n"
        "`make up` also downloads Kafka (Apache-2.0) and starts PostgreSQL (PostgreSQL License), "
        "etcd (Apache-2.0) and OpenJDK (GPL-2.0 with class path exception) as programs of their "
        "own.\n\n" + table(["package", "version", "licence", "where", "used as"], rows)
    )


def readme(text: str) -> str:
    """The README with the settings of the code between its two marks.

    Raises:
        ValueError: a mark is missing.
    """
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"README.md must hold the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{settings_table()}{END}{after}"


def documents(root: Path = ROOT) -> dict[Path, str]:
    """What each document should hold."""
    return {
        root / "README.md": readme((root / "README.md").read_text("utf-8")),
        root / "docs/metrics.md": metrics(),
        root / "docs/errors.md": error_table(),
        root / "docs/states.md": states(),
        root / "docs/outcomes.md": outcomes(),
        root / "docs/failpoints.md": failpoints(),
        root / "docs/alerts.md": alerts(),
        root / "docs/dashboards.md": dashboards(),
        root / "docs/licences.md": licences(),
        root / SCHEMA: schema((root / SCHEMA).read_text("utf-8"), ROOT / "helm/tickrail"),
        **{
            root / f"helm/tickrail/dashboards/{d.uid}.json": json.dumps(
                dashboard_json(d), ensure_ascii=False, indent=1
            )
            + "\n"
            for d in DASHBOARDS
        },
    }


def behind(root: Path = ROOT) -> list[Path]:
    """Documents that differ from the code."""
    return [
        path
        for path, text in documents(root).items()
        if not path.exists() or path.read_text("utf-8") != text
    ]


def main(args: Sequence[str]) -> int:
    """Write what differs, or only tell."""
    texts = documents()
    paths = behind()
    for path in paths:
        if "--check" not in args:
            path.parent.mkdir(exist_ok=True)
            path.write_text(texts[path], "utf-8")
        print(f"{path.relative_to(ROOT)} {'differs' if '--check' in args else 'written'}")
    return 1 if paths and "--check" in args else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
