"""When the certificates of a process's settings end.

A certificate that has ended keeps the process from its servers at the next connection, which may be
days later. What counts is what the process has read: PostgreSQL's files are read at each connection
and so are looked at again and again, the others when the process starts.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from math import nan
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from cryptography import x509

from tickrail.core.clock import Clock
from tickrail.core.ports_metrics import Metrics
from tickrail.runtime.settings_fields import Settings

_EVERY: Final = 60.0
"""Seconds for which what was read is shown."""
_DATABASE: Final = "postgres_"
_KEYWORD: Final = re.compile(r"\b(ssl\w+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(\S+))")


class Certificates:
    """Tells it; reads what may have changed once a minute. Made when the process starts.

    Args:
        settings: name the files.
        clock: measures the minute.
        metrics: where it is told.
        environ: the environment, which PostgreSQL's client reads beside the URL.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._files = named_files(settings, environ)
        self._clock = clock
        self._metrics = metrics
        self._next_at = clock.monotonic()
        for name in self._files:
            self._tell(name)

    def look(self) -> None:
        """Look again at those that are read again, if it is time to."""
        now = self._clock.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + _EVERY
        for name in self._files:
            if name.startswith(_DATABASE):
                self._tell(name)

    def _tell(self, name: str) -> None:
        ends = _ends(*self._files[name])
        self._metrics.gauge("certificate_expires_timestamp_seconds", ends, certificate=name)


Choose = Callable[[Iterable[datetime]], datetime]


def named_files(
    settings: Settings, environ: Mapping[str, str]
) -> Mapping[str, tuple[Path, Choose]]:
    """By name the files of certificates, and which end counts.

    PostgreSQL's are those of the URL, else those of `PGSSLROOTCERT` and `PGSSLCERT`.

    Of a chain it is the first, since every one of them is needed. Of authorities it is the last:
    a new one stands beside the old one for as long as certificates of the old one are about.
    """
    database = _database_files(settings.database_url or "", environ)
    named = {
        "postgres_ca": (database.get("sslrootcert"), max),
        "postgres_client": (database.get("sslcert"), min),
        "etcd_ca": (settings.etcd_ca_file, max),
        "etcd_client": (settings.etcd_cert_file, min),
        "kafka_ca": (settings.kafka_ca_file, max),
        "kafka_client": (settings.kafka_cert_file, min),
        "webhook_ca": (settings.webhook_ca_file, max),
    }
    return {name: (Path(path), choose) for name, (path, choose) in named.items() if path}


def _database_files(url: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The certificates that libpq reads: what the URL or keyword string says goes first.

    `system` is no file.
    """
    if "://" in url:
        found = {name: values[-1] for name, values in parse_qs(urlsplit(url).query).items()}
    else:
        found = {m[1]: m[2] or m[3] or "" for m in _KEYWORD.finditer(url)}
    usual = {name: environ.get(f"PG{name.upper()}", "") for name in ("sslrootcert", "sslcert")}
    return {name: path for name, path in (usual | found).items() if path != "system"}


def _ends(path: Path, choose: Choose) -> float:
    try:
        with warnings.catch_warnings():
            # Of authorities that are known to all, some are odd in what does not matter here.
            warnings.simplefilter("ignore")
            found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        return nan
    return choose(c.not_valid_after_utc for c in found).timestamp()
