"""TLS of webhooks: whom they trust, and the certificates they show."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import httpx

from tickrail.core.errors import Problem, SettingsError


class Certificates(NamedTuple):
    """PEM texts of a call: authorities in place of the usual ones, what it shows, and the key."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None


def usual_context(ca_file: str) -> ssl.SSLContext:
    """The usual authorities of the HTTP client, those of this system, and the operator's.

    Raises:
        SettingsError: the operator's file cannot be read.
    """
    context = httpx.create_ssl_context(trust_env=False)
    context.load_default_certs()
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                "The webhook settings are not valid.",
                [Problem("/webhook/ca_file", f"cannot be read: {error}", "a PEM file")],
            ) from error
    context.set_alpn_protocols(["http/1.1"])
    return context


def own_context(certificates: Certificates, ca_file: str) -> ssl.SSLContext:
    """A context of a target's own certificates; takes some milliseconds.

    Raises:
        ValueError: one of them cannot be used; says which.
    """
    if certificates.ca is None:
        context = usual_context(ca_file)
    else:
        context = ssl.create_default_context(cadata="")
        try:
            context.load_verify_locations(cadata=certificates.ca.decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(f"ca holds no certificates in PEM: {error}") from error
        context.set_alpn_protocols(["http/1.1"])
    if certificates.certificate is not None and certificates.key is not None:
        pem = certificates.key.rstrip() + b"\n" + certificates.certificate
        with _file_of(pem) as path:
            try:
                context.load_cert_chain(path, password=b"")
            except (ssl.SSLError, OSError, ValueError) as error:
                raise ValueError(
                    f"client_certificate and client_key are no pair in PEM: {error}"
                ) from error
    return context


@contextmanager
def _file_of(content: bytes) -> Iterator[str]:
    """A file with this content, since keys can be loaded from nothing else; on Linux in memory."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("pem", os.MFD_CLOEXEC)
        try:
            os.write(fd, content)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name
