"""The webhook target's document: bodies, secrets, certificates, signatures."""

from __future__ import annotations

from typing import Any

import pytest

from tickrail.core.errors import InvalidInputError
from tickrail.core.secrets import SecretRef
from tickrail.core.target_webhook import Webhook, split_url
from tickrail.core.targets import parse_target, target_document, target_secrets

URL = "https://hooks.example/in"
FULL = {
    "webhook": {
        "url": "https://hooks.example/{{ payload.id }}?a={{ attempt }}",
        "method": "PUT",
        "headers": {"X-Team": "{{ job.name }}", "Authorization": {"secret": "token"}},
        "success": "2xx",
        "body": {"n": ["{{ payload.n }}", 1, None]},
        "content_type": "application/vnd.x+json",
        "redirects": 5,
        "tls": {
            "ca": {"secret": "ca"},
            "client_certificate": {"secret": "cert"},
            "client_key": {"secret": "key"},
        },
        "signature": {"secrets": [{"secret": "new"}, {"secret": "old"}]},
    }
}


def test_there_and_back() -> None:
    target = parse_target(FULL)
    assert isinstance(target, Webhook)
    assert target.signature == (SecretRef("new"), SecretRef("old"))
    assert target_document(target) == FULL
    assert parse_target(target_document(target)) == target


def test_what_was_not_given_is_not_answered() -> None:
    document = target_document(parse_target({"webhook": {"url": URL, "redirects": 0}}))
    assert document["webhook"] == {"url": URL, "method": "POST", "headers": {}, "success": "2xx"}


def test_secrets_and_where_they_are_named() -> None:
    assert target_secrets(parse_target(FULL)) == [
        ("/target/webhook/headers/Authorization/secret", "token"),
        ("/target/webhook/tls/ca/secret", "ca"),
        ("/target/webhook/tls/client_certificate/secret", "cert"),
        ("/target/webhook/tls/client_key/secret", "key"),
        ("/target/webhook/signature/secrets/0/secret", "new"),
        ("/target/webhook/signature/secrets/1/secret", "old"),
    ]


def test_the_host_of_a_template_is_known() -> None:
    target = parse_target(FULL)
    assert isinstance(target, Webhook)
    assert target.example_url == "https://hooks.example/x?a=x"


@pytest.mark.parametrize(
    ("fields", "pointer", "hint"),
    [
        ({"url": "https://{{ payload.host }}/"}, "url", "the host is fixed"),
        ({"url": "https://hooks{{ payload.a }}.example/"}, "url", "the host is fixed"),
        ({"url": "https://hooks.example:{{ payload.p }}/"}, "url", "the host is fixed"),
        ({"url": "https://hooks.example{{ payload.p }}/"}, "url", "the host is fixed"),
        ({"url": "{{ payload.scheme }}://hooks.example/"}, "url", "the host is fixed"),
        ({"url": "https://u{{ payload.u }}@hooks.example/"}, "url", "the host is fixed"),
        ({"url": URL + "/{{ paylod.id }}"}, "url", "there are payload, "),
        ({"url": f"https://{'a' * 64}.example/"}, "url", "1 to 63"),
        ({"url": f"https://{'a' * 60}{'.b' * 97}/"}, "url", "253 characters"),
        ({"url": "https://a..example/"}, "url", "1 to 63"),
        ({"url": "https://.example/{{ payload.id }}"}, "url", "1 to 63"),
        ({"url": URL + "#{{ payload.id }}"}, "url", "fragment"),
        ({"headers": {"X": "{{ nothing }}"}}, "headers/X", "there are payload, "),
        ({"headers": {"X": 7}}, "headers/X", '{"secret": "name"}'),
        ({"headers": {"X": {"secrets": "a"}}}, "headers/X", '{"secret": "name"}'),
        ({"headers": {"X": {"secret": "A"}}}, "headers/X/secret", "1 to 128"),
        ({"headers": ["X"]}, "headers", "an object of strings"),
        ({"body": {"a": [{"b": "{{ x }}"}]}}, "body", "there are payload, "),
        ({"body": "a", "method": "GET"}, "body", "a method with a body"),
        ({"body": "a\x00"}, "body", "without U+0000"),
        ({"content_type": "json"}, "content_type", "application/xml"),
        ({"content_type": "text/a\r\nX: y"}, "content_type", "application/xml"),
        ({"content_type": "a/b", "headers": {"Content-type": "a/b"}}, "content_type", "one of"),
        ({"redirects": 6}, "redirects", "0 to 5"),
        ({"redirects": True}, "redirects", "0 to 5"),
        ({"redirects": -1}, "redirects", "0 to 5"),
        ({"tls": {"ca": "PEM"}}, "tls/ca", '{"secret": "name"}'),
        ({"tls": {"client_key": {"secret": "k"}}}, "tls/client_certificate", "together"),
        ({"tls": {"client_certificate": {"secret": "k"}}}, "tls/client_key", "together"),
        ({"tls": {"verify": False}}, "tls/verify", "known: ca"),
        ({"tls": {"ca": {"secret": "c"}}, "url": "http://a.example/"}, "tls", "an https URL"),
        ({"signature": {"secret": "a"}}, "signature", '{"secrets": ['),
        ({"signature": {"secrets": []}}, "signature/secrets", "1 to 4"),
        ({"signature": {"secrets": ["whsec_x"]}}, "signature/secrets/0", '{"secret": "name"}'),
        ({"verify": False}, "verify", "known: "),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], pointer: str, hint: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_target({"webhook": {"url": URL, **fields}})
    found = {p.pointer: p.expected for p in refused.value.problems}
    assert f"/target/webhook/{pointer}" in found
    assert hint in found[f"/target/webhook/{pointer}"]


@pytest.mark.parametrize(
    "host", ["a" * 63 + ".example", "a" * 59 + ".b" * 97, "127.0.0.1", "[2001:db8::1]", "a_b.c-d"]
)
def test_hosts_that_a_name_server_may_know_are_taken(host: str) -> None:
    assert split_url(f"https://{host}/x").netloc == host
