from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.support.clock import FakeClock

from tickrail.runtime.certificates import Certificates, named_files
from tickrail.runtime.metrics import PrometheusMetrics
from tickrail.runtime.settings import load_settings

FIRST, LAST = datetime(2026, 6, 1, tzinfo=UTC), datetime(2027, 6, 1, tzinfo=UTC)


def certificate(ends: datetime) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(ends - timedelta(days=900))
        .not_valid_after(ends)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def shown(metrics: PrometheusMetrics) -> dict[str, float]:
    head = 'tickrail_certificate_expires_timestamp_seconds{certificate="'
    return {
        line.removeprefix(head).split('"')[0]: float(line.rsplit(" ", 1)[1])
        for line in metrics.render()[0].decode().splitlines()
        if line.startswith(head)
    }


def test_of_a_chain_the_first_end_counts_and_of_authorities_the_last(tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(certificate(LAST) + certificate(FIRST))
    settings = load_settings(
        {"etcd_ca_file": str(both), "etcd_cert_file": str(both), "etcd_key_file": str(both)},
        environ={},
    )
    metrics = PrometheusMetrics()
    Certificates(settings, FakeClock(), metrics)
    assert shown(metrics) == {"etcd_ca": LAST.timestamp(), "etcd_client": FIRST.timestamp()}


def test_postgresql_s_are_read_again_and_the_others_with_the_process(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "kafka.pem", tmp_path / "postgres.pem"
    for file in (ours, theirs):
        file.write_bytes(certificate(FIRST))
    url = f"postgresql://u@h/d?sslrootcert={theirs}"
    settings = load_settings({"kafka_ca_file": str(ours), "database_url": url}, environ={})
    clock, metrics = FakeClock(), PrometheusMetrics()
    certificates = Certificates(settings, clock, metrics)
    first, last = FIRST.timestamp(), LAST.timestamp()
    assert shown(metrics) == {"kafka_ca": first, "postgres_ca": first}
    for file in (ours, theirs):
        file.write_bytes(certificate(LAST))
    certificates.look()
    clock.advance(59)
    certificates.look()
    assert shown(metrics) == {"kafka_ca": first, "postgres_ca": last}
    for broken in (b"no certificate", None):
        theirs.write_bytes(broken) if broken else theirs.unlink()
        clock.advance(61)
        certificates.look()
        assert math.isnan(shown(metrics)["postgres_ca"])


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p@h/d?sslmode=verify-full&sslrootcert=/x/ca.pem&sslcert=/x/me.pem",
        "host=h dbname=d sslmode=verify-full sslrootcert='/x/ca.pem' sslcert = /x/me.pem",
    ],
)
def test_a_database_url_names_its_certificates(url: str) -> None:
    others = {"PGSSLROOTCERT": "/y/ca.pem", "PGSSLCERT": "/y/me.pem"}
    found = named_files(load_settings({"database_url": url}, environ={}), others)
    assert {name: str(path) for name, (path, _) in found.items()} == {
        "postgres_ca": "/x/ca.pem",
        "postgres_client": "/x/me.pem",
    }


def test_the_system_s_authorities_are_no_file() -> None:
    settings = load_settings({"database_url": "postgresql://u@h/d"}, environ={})
    assert named_files(settings, {"PGSSLROOTCERT": "system", "PGSSLCERT": ""}) == {}
    url = "postgresql://u@h/d?sslrootcert=system"
    settings = load_settings({"database_url": url}, environ={})
    assert named_files(settings, {"PGSSLROOTCERT": "/x/ca.pem"}) == {}


def test_postgresql_s_certificates_may_be_named_by_the_environment(tmp_path: Path) -> None:
    ca, mine = tmp_path / "ca.pem", tmp_path / "mine.pem"
    ca.write_bytes(certificate(LAST))
    mine.write_bytes(certificate(FIRST))
    settings = load_settings({"database_url": "postgresql://u@h/d"}, environ={})
    metrics = PrometheusMetrics()
    Certificates(settings, FakeClock(), metrics, {"PGSSLROOTCERT": str(ca), "PGSSLCERT": str(mine)})
    assert shown(metrics) == {
        "postgres_ca": LAST.timestamp(),
        "postgres_client": FIRST.timestamp(),
    }
