"""ETag and If-Match of everything that has a version."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.api.test_bad_input import raw_request
from tests.support.api import World

pytestmark = pytest.mark.integration
PATCHES: list[tuple[str, Any]] = [
    ("/v1/jobs/name:a", {"description": "new"}),
    ("/v1/calendars/days", {"description": "new"}),
    ("/v1/queues/default", {"max_running": 7}),
    ("/v1/tenants/acme", {"weight": 3}),
]


@pytest.mark.parametrize(("path", "patch"), PATCHES)
def test_a_change_is_made_at_the_version_that_was_read_or_not_at_all(
    world: World, path: str, patch: Any
) -> None:
    world.acme.create("a")
    world.acme.put("/v1/calendars/days", {"weekdays": ["sun"]}, expect=201)
    caller = world.operator if path.startswith(("/v1/tenants", "/v1/queues")) else world.acme
    first = caller.call("GET", path, expect=200).headers["etag"]
    stale = {"If-Match": '"999999"'}
    refused = caller.call("PATCH", path, patch, headers=stale, expect=412).json()
    assert refused["code"] == "precondition_failed"
    assert caller.call("GET", path, expect=200).headers["etag"] == first
    made = caller.call("PATCH", path, patch, headers={"If-Match": f'"8888", {first}'}, expect=200)
    now = caller.call("GET", path, expect=200).headers["etag"]
    assert made.headers["etag"] == now != first
    caller.call("PATCH", path, patch, headers={"If-Match": first}, expect=412)


def test_a_weak_tag_matches_nothing(world: World) -> None:
    """RFC 9110, 13.1.1: If-Match compares strongly."""
    world.acme.create("a")
    etag = world.acme.call("GET", "/v1/jobs/name:a", expect=200).headers["etag"]
    patch = {"description": "new"}
    for given, status in ((f"W/{etag}", 412), (f'W/{etag}, "99"', 412), (f"W/{etag}, {etag}", 200)):
        answer = world.acme.call("PATCH", "/v1/jobs/name:a", patch, headers={"If-Match": given})
        assert answer.status_code == status, answer.text
    refused = world.acme.call(
        "PUT", "/v1/jobs/name:a", {}, headers={"If-None-Match": "*"}, expect=412
    ).json()
    assert refused["title"] == "What If-Match or If-None-Match says of the resource does not hold"


def test_if_match_on_several_lines_is_one_list(world: World) -> None:
    """RFC 9110, 5.3; only one of the lines names the version that is there."""
    body = b'{"description": "new"}'
    world.acme.create("a")
    for versions, status in (((8, 1), b"200"), ((8, 9), b"412"), ((2, 9), b"200")):
        lines = "".join(f'If-Match: "{v}"\r\n' for v in versions)
        head = (
            "PATCH /v1/jobs/name:a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            f"Authorization: Bearer {world.acme.token}\r\n{lines}"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        answer = raw_request(world, head.encode() + body)
        assert answer.startswith(b"HTTP/1.1 %b " % status), answer
        body = body.replace(b"new", b"newer")
