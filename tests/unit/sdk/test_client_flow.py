"""What a client does with lost connections and busy answers, without a server."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.support.clock import FakeClock

from tickrail.sdk.client import UnexpectedAnswerError, UnreachableError
from tickrail.sdk.client.errors import ApiError, RateLimitedError, UnavailableError, error_class
from tickrail.sdk.client.flow import Lost, Pause, Policy, Reply, Send, decoded, exchange

KEYED = {"Idempotency-Key": "k"}
GUARDED = {"If-Match": '"7"'}
CREATES = {"If-None-Match": "*"}
OK = Reply(200, "OK", {}, b"{}")
CUT = Lost("the connection was cut", sent=True)
REFUSED = Lost("connection refused", sent=False)


def reply(status: int, retry_after: str = "", content: bytes = b"") -> Reply:
    return Reply(status, "", {"retry-after": retry_after} if retry_after else {}, content)


def carried_out(
    method: str,
    headers: Mapping[str, str],
    outcomes: list[Reply | Lost],
    policy: Policy | None = None,
) -> tuple[Reply | Exception, int, list[float]]:
    """What came of it, how often it was sent, and the pauses."""
    clock, left, pauses, sent = FakeClock(), iter(outcomes), list[float](), 0
    flow = exchange(
        "http://api", lambda timeout: Send(method, "/v1/jobs", (), headers, None, timeout),
        policy or Policy(), clock.monotonic,
    )  # fmt: skip
    outcome: Reply | Lost | None = None
    while True:
        try:
            step = flow.send(outcome)
        except StopIteration as done:
            found: Reply = done.value
            return found, sent, pauses
        except UnreachableError as error:
            return error, sent, pauses
        if isinstance(step, Pause):
            clock.advance(step.seconds)
            pauses.append(step.seconds)
            outcome = None
        else:
            sent += 1
            outcome = next(left)


@pytest.mark.parametrize(
    ("method", "headers", "repeated"),
    [
        ("GET", {}, True),
        ("PUT", {}, True),
        ("PATCH", {}, True),
        ("DELETE", {}, True),
        ("POST", KEYED, True),
        ("POST", {"idempotency-key": "k"}, True),
        ("POST", {}, False),
        ("PUT", GUARDED, False),
        ("PUT", CREATES, False),
        ("PATCH", GUARDED, False),
        ("DELETE", {"if-match": '"1"'}, False),
        ("POST", KEYED | GUARDED, True),  # the answer is kept under the key
    ],
)
@pytest.mark.parametrize("trouble", [CUT, reply(502), reply(503, "1"), reply(504)], ids=repr)
def test_what_may_have_been_carried_out_is_repeated_only_where_that_does_no_harm(
    method: str, headers: Mapping[str, str], trouble: Reply | Lost, *, repeated: bool
) -> None:
    found, sent, _ = carried_out(method, headers, [trouble, OK])
    assert sent == (2 if repeated else 1)
    if repeated:
        assert found is OK
    elif isinstance(trouble, Reply):
        assert found is trouble
    else:
        assert isinstance(found, UnreachableError)
        assert found.may_have_arrived
        assert str(found).endswith("cut; the request may have been carried out all the same")


@pytest.mark.parametrize("method", ["POST", "PATCH", "GET"])
@pytest.mark.parametrize("trouble", [REFUSED, reply(429), reply(409, "1")], ids=repr)
def test_what_was_not_carried_out_is_repeated_always(method: str, trouble: Reply | Lost) -> None:
    found, sent, _ = carried_out(method, GUARDED, [trouble, OK])
    assert (found, sent) == (OK, 2)


@pytest.mark.parametrize(
    "final",
    [
        *(reply(status) for status in (200, 201, 301, 400, 401, 403, 404, 409, 412, 422, 500)),
        reply(429, "31"),
    ],
    ids=repr,
)
def test_every_other_answer_is_final(final: Reply) -> None:
    found, sent, pauses = carried_out("GET", {}, [final])
    assert (found, sent, pauses) == (final, 1, [])


def test_pauses_grow_and_are_as_long_as_asked() -> None:
    _, _, pauses = carried_out("GET", {}, [CUT, reply(503, "9"), CUT, OK])
    first, second, third = pauses
    assert 0.1 <= first <= 0.2
    assert second == 9
    assert 0.4 <= third <= 0.8


def test_a_retry_after_that_is_a_date_or_nonsense_is_no_number() -> None:
    for text in ("Fri, 31 Dec 2027 23:59:59 GMT", "-1", "1.5", "²"):
        _, _, [pause] = carried_out("GET", {}, [reply(429, text), OK])
        assert pause <= 0.2


def test_tries_are_counted_and_a_hopeless_one_is_the_last() -> None:
    found, sent, _ = carried_out("GET", {}, [CUT] * 9, Policy(tries=3))
    assert isinstance(found, UnreachableError)
    assert sent == 3
    hopeless = Lost("unknown scheme", sent=False, hopeless=True)
    assert carried_out("GET", {}, [hopeless, OK])[1] == 1


def test_the_time_of_a_call_bounds_its_tries() -> None:
    found, sent, _ = carried_out("GET", {}, [reply(503, "3")] * 9, Policy(within=7, tries=9))
    assert isinstance(found, Reply)
    assert sent == 3


def test_an_error_has_the_class_of_its_code_or_of_its_status() -> None:
    assert error_class("rate_limited", 429) is RateLimitedError
    assert error_class("of_a_newer_server", 429) is RateLimitedError
    assert error_class("of_a_newer_server", 503) is UnavailableError
    assert error_class("of_a_newer_server", 418) is ApiError
    limited = reply(429, "7", b'{"code": "rate_limited", "detail": "slow down"}')
    with pytest.raises(RateLimitedError, match="slow down") as e:
        decoded("http://api", limited)
    assert e.value.retry_after == 7


def test_an_answer_that_sends_elsewhere_says_where() -> None:
    moved = Reply(308, "", {"location": "https://api.example.org/v1/jobs"}, b"")
    with pytest.raises(UnexpectedAnswerError, match=r"sends on to https://api\.example\.org/v1"):
        decoded("http://api.example.org", moved)
