"""Signatures of webhooks as receivers check them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook

from tickrail.sdk.receiver import SignatureError, Signed, sign, verify

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
OTHER = "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="
AT = datetime.fromtimestamp(1767225600, UTC)
BODY = b'{"b":1, "a":2}'
SIGNATURE = "v1,3b2M3sdO5/F1Gkecyoy04MK7WO7k7jeWbBNuYXIAVDI="


def signed(**changes: str) -> dict[str, str]:
    headers = {"Webhook-Id": "msg_0001", "Webhook-Timestamp": "1767225600"}
    return {**headers, "Webhook-Signature": SIGNATURE, **changes}


def test_f15_the_signature_is_over_the_bytes_as_they_came() -> None:
    assert sign("msg_0001", AT, BODY, [SECRET]) == SIGNATURE
    assert verify(signed(), BODY, [SECRET], now=AT) == Signed("msg_0001", AT)
    compact = json.dumps(json.loads(BODY), separators=(",", ":")).encode()
    assert sign("msg_0001", AT, compact, [SECRET]) == (
        "v1,kEE0xZFAOAw+lwR46oBkUOwyfpC5GgMTocPqVJ3FNWw="
    )
    with pytest.raises(SignatureError, match="no signature"):
        verify(signed(), compact, [SECRET], now=AT)


@pytest.mark.parametrize("seconds", [-300, 0, 300])
def test_f15_a_fresh_signature_is_right(seconds: int) -> None:
    assert verify(signed(), BODY, [SECRET], now=AT + timedelta(seconds=seconds)).at == AT


@pytest.mark.parametrize("seconds", [-301, 301, 86_400])
def test_f15_one_that_is_not_fresh_is_refused(seconds: int) -> None:
    with pytest.raises(SignatureError, match="too old or from the future"):
        verify(signed(), BODY, [SECRET], now=AT + timedelta(seconds=seconds))


def test_f15_during_a_rotation_either_secret_does_on_either_side() -> None:
    both = sign("msg_0001", AT, BODY, [SECRET, OTHER])
    assert both.startswith(SIGNATURE + " v1,")
    headers = signed(**{"Webhook-Signature": both})
    for secrets in ([SECRET], [OTHER], [OTHER, SECRET]):
        verify(headers, BODY, secrets, now=AT)
    verify(signed(), BODY, [OTHER, SECRET], now=AT)
    with pytest.raises(SignatureError):
        verify(signed(), BODY, [OTHER], now=AT)


def test_what_the_reference_library_signs_is_right_and_the_other_way_round() -> None:
    now = datetime.now(UTC)  # noqa: TID251 - the library reads the wall clock itself
    library = Webhook(SECRET)
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": library.sign("msg_1", now, "{}"),
    }
    assert verify(headers, b"{}", [SECRET], now=now).id == "msg_1"
    headers["webhook-signature"] = sign("msg_1", now, b"[1]", [OTHER, SECRET])
    assert library.verify(b"[1]", headers) == [1]


def test_a_secret_without_the_prefix_is_taken_as_it_is() -> None:
    for secret in ("plain secret", b"plain secret", "plain secret\n"):
        headers = signed(**{"Webhook-Signature": sign("msg_0001", AT, BODY, [secret])})
        verify(headers, BODY, ["plain secret"], now=AT)


@pytest.mark.parametrize("secret", ["", b" \n", "whsec_", "whsec_no base64", "whsec_%%%%"])
def test_a_secret_that_cannot_be_one_is_refused(secret: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"base64|empty"):
        verify(signed(), BODY, [secret], now=AT)


@pytest.mark.parametrize("missing", ["Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"])
def test_each_header_must_be_there(missing: str) -> None:
    with pytest.raises(SignatureError, match="not signed"):
        verify(signed(**{missing: " "}), BODY, [SECRET], now=AT)


@pytest.mark.parametrize(
    "value",
    [
        "v1",
        "v1,",
        "v1,AAAA",
        "v2,3b2M3sdO5/F1Gkecyoy04MK7WO7k7jeWbBNuYXIAVDI=",
        "v1a,3b2M3sdO5/F1Gkecyoy04MK7WO7k7jeWbBNuYXIAVDI=",
        "v1,\xe9",
        "\xe9",
        "v1,\x00",
        "🙂",
        "x" * 1_000_000,
        " ".join(["v1,AAAA"] * 100_000),
        SIGNATURE[:-2],
        SIGNATURE.replace("v1", "V1"),
    ],
)
def test_f13_no_value_does_more_than_be_wrong(value: str) -> None:
    with pytest.raises(SignatureError):
        verify(signed(**{"Webhook-Signature": value}), BODY, [SECRET], now=AT)


@pytest.mark.parametrize("value", ["now", "-1", "1e9", "1767225600.0", "١٧٦٧٢٢٥٦٠٠", "9" * 400])
def test_a_time_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(SignatureError, match="number of seconds"):
        verify(signed(**{"Webhook-Timestamp": value}), BODY, [SECRET], now=AT)


def test_another_id_or_time_than_was_signed_is_refused() -> None:
    for changed in ({"Webhook-Id": "msg_0002"}, {"Webhook-Timestamp": "1767225601"}):
        with pytest.raises(SignatureError, match="no signature"):
            verify(signed(**changed), BODY, [SECRET], now=AT)
