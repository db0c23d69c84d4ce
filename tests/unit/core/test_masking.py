"""What the audit log shows of a document."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given as given_by
from hypothesis import strategies as st

from tickrail.core.masking import _WORDS, masked, may_hold_credential

CASES: list[tuple[str, Any, Any]] = [
    ("a header", {"headers": {"Authorization": "Bearer x"}}, {"headers": {"Authorization": "***"}}),
    ("a key in a header", {"X-Api-Key": "x"}, {"X-Api-Key": "***"}),
    ("a cookie", {"cookie": "a=b"}, {"cookie": "***"}),
    ("a variable", {"env": {"DB_PASSWORD": "x"}}, {"env": {"DB_PASSWORD": "***"}}),
    ("in a payload", {"payload": [{"access_token": "x"}]}, {"payload": [{"access_token": "***"}]}),
    ("many", {"passwords": ["a", "b"]}, {"passwords": ["***", "***"]}),
    ("nested", {"credentials": {"user": "u"}}, {"credentials": {"user": "u"}}),
    ("nested deep", {"secrets": [{"token": "x", "n": 1}]}, {"secrets": [{"token": "***", "n": 1}]}),
    ("a passphrase", {"headers": {"X-Passphrase": "x"}}, {"headers": {"X-Passphrase": "***"}}),
    ("in one word", {"AccessKey": "x", "apikey": "y"}, {"AccessKey": "***", "apikey": "***"}),
    ("of functions", {"X-Functions-Key": "x"}, {"X-Functions-Key": "***"}),
    ("a short word", {"DB_PWD": "x", "x-auth": "y"}, {"DB_PWD": "***", "x-auth": "***"}),
    ("digits", {"password": 1234, "pwd": [5]}, {"password": "***", "pwd": ["***"]}),
    ("not a text", {"tokens": 7, "secret": None}, {"tokens": 7, "secret": None}),
    ("user of a URL", {"url": "https://u:p@example.org/a"}, {"url": "https://***@example.org/a"}),
    (
        "a signed URL",
        {"url": "https://example.org/a?sv=1&sig=x"},
        {"url": "https://example.org/a?sv=1&sig=***"},
    ),
    (
        "parameter of a URL",
        {"url": "https://example.org/a?n=1&access_token=x#end"},
        {"url": "https://example.org/a?n=1&access_token=***#end"},
    ),
]
KEPT: list[tuple[str, Any]] = [
    ("the name of a secret", {"headers": {"Authorization": {"secret": "billing"}}}),
    ("names of secrets", {"signature": {"secrets": [{"secret": "a"}, {"secret": "b"}]}}),
    ("an author", {"author": "Ann", "authored_at": "now"}),
    ("a key that is none", {"concurrency": {"key": "eu", "limit": 2}}),
    ("a plain URL", {"url": "https://example.org/hook?region=eu"}),
    ("a template in a URL", {"url": "https://example.org/?token={{ payload.id }}"}),
    ("a mail address", {"description": "ask ann@example.org"}),
]


@pytest.mark.parametrize(("given", "shown"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_credentials_are_masked(given: Any, shown: Any) -> None:
    assert masked(given) == shown
    if given != shown:
        assert may_hold_credential(json.dumps(given))


_CHARACTERS = st.sampled_from([*"ptaskcg_-. :/?=&@K\u212a\u017f", "auth", "PWD", "Sig", "://"])
_NAMES = st.lists(st.sampled_from(_WORDS) | _CHARACTERS, max_size=6).flatmap(
    lambda parts: st.lists(st.booleans(), min_size=40, max_size=40).map(
        lambda big: "".join(c.upper() if big[i % 40] else c for i, c in enumerate("".join(parts)))
    )
)
_DOCUMENTS = st.recursive(
    st.integers() | _NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)


@given_by(_DOCUMENTS)
def test_the_quick_look_misses_nothing_that_is_masked(document: Any) -> None:
    if masked(document) != document:
        assert may_hold_credential(json.dumps(document))
        assert may_hold_credential(json.dumps(document, ensure_ascii=False))


@pytest.mark.parametrize("given", [c[1] for c in KEPT], ids=[c[0] for c in KEPT])
def test_all_else_is_shown(given: Any) -> None:
    assert masked(given) == given
