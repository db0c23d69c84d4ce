"""Tasks as a user has them: the example's folder, `tickrail up --app`, jobs by the command line.

The commands are those of the example's README; what is asked for is read from the API.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.running import Running, data_folder
from tests.support.tree import ROOT
from tests.support.until import until

from tickrail.sdk.client import ApiError, Client

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

SHOP = ROOT / "examples/shop"
COMMANDS = re.findall(r"^\$ tickrail (.+)$", (SHOP / "README.md").read_text(), re.MULTILINE)
ARGUMENTS = ("--app", "shop.tasks:app", "--schedulers", "1", "--workers", "1")


@pytest.fixture(scope="module")
def up() -> Iterator[Running]:
    with data_folder() as folder:
        shutil.copytree(
            SHOP, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", ".*")
        )
        with Running(folder, *ARGUMENTS) as running:
            yield running


def launched(client: Client, job: str) -> Any:
    """The latest launch of a job."""
    found = client.request("GET", "/v1/launches", params={"job": f"name:{job}", "limit": 1})
    return found["items"][0]


def ended(client: Client, job: str, state: str = "succeeded", **document: object) -> Any:
    """The latest launch of a job (which is triggered first), when it has ended so."""
    if document:
        client.request("POST", "/v1/jobs", json={"name": job, **document})
    client.request("POST", f"/v1/jobs/name:{job}/trigger", json={})
    until(lambda: launched(client, job)["state"] == state, 60)
    return launched(client, job)


def test_the_readmes_commands_and_what_comes_of_them(up: Running) -> None:
    assert len(COMMANDS) == 6
    for command in COMMANDS:
        said = up.cli(*command.split())
    assert "check-prices" in said
    with up.client() as client:
        until(lambda: launched(client, "check-prices")["state"] == "succeeded", 60)
        prices = launched(client, "check-prices")
        assert (prices["attempt"], prices["failures"]) == (2, 1)
        assert prices["result"]["value"] == {"tea": "3.99", "cup": "3.99", "pot": "3.99"}
        attempts = client.request("GET", f"/v1/launches/{prices['id']}/attempts")["items"]
        assert "raised_Retry" in {attempt["outcome"] for attempt in attempts}

        report = ended(client, "daily-report")
        assert report["result"]["value"]["currency"] == "EUR"
        log = f"/v1/launches/{report['id']}/log"
        until(lambda: client.request("GET", log)["body"], 30)
        assert re.fullmatch(r"\d orders on \w{3}\n", client.request("GET", log)["body"])

        forecast = ended(client, "forecast")
        assert sum(forecast["result"]["value"].values()) == 100_010


def test_progress_is_seen_and_a_cancel_reaches_the_task(up: Running) -> None:
    with up.client() as client:
        target = {"task": {"name": "import_orders", "args": {"pause": 60}}}
        client.request(
            "POST", "/v1/jobs", json={"name": "slow", "target": target, "timeout": "20m"}
        )
        client.request("POST", "/v1/jobs/name:slow/trigger", json={})
        until(lambda: launched(client, "slow")["progress"] == {"done": 0, "of": 10}, 60)
        launch = launched(client, "slow")
        assert launch["state"] == "running"
        client.request("POST", f"/v1/launches/{launch['id']}/cancel", json={})
        until(lambda: launched(client, "slow")["state"] == "cancelled", 60)
        result = launched(client, "slow")["result"]
        assert (result["outcome"], result["body"]) == ("cancelled", "stopped after 0: cancelled\n")


def test_a_call_that_does_not_fit_says_so(up: Running) -> None:
    with up.client() as client:
        with pytest.raises(ApiError) as caught:
            client.request(
                "POST", "/v1/jobs", json={"name": "x", "target": {"task": {"nam": "forecast"}}}
            )
        assert [p.pointer for p in caught.value.problems] == [
            "/target/task/nam",
            "/target/task/name",
        ]
        wrong = {"task": {"name": "forecast", "args": {"round": 5}}}
        launch = ended(client, "wrong-argument", "dead", target=wrong)
        assert (launch["result"]["outcome"], launch["failures"]) == ("invalid_arguments", 1)
        assert "there is no argument 'round'" in launch["result"]["message"]
        unknown = {"task": {"name": "forecasts"}}
        retry = {"max_attempts": 2, "initial": "100ms"}
        launch = ended(client, "wrong-name", "dead", target=unknown, retry=retry)
        assert (launch["result"]["outcome"], launch["failures"]) == ("unknown_task", 2)
        assert "did you mean forecast?" in launch["result"]["message"]


def test_a_worker_without_the_app_refuses_the_queue(up: Running) -> None:
    done = up.worker()
    assert done.returncode == 1
    assert "The queue default serves command, task, which this worker does not run" in done.stderr
    assert "--app MODULE:APP" in done.stderr
    wrong = up.worker("--app", "shop.task:app")
    assert wrong.returncode == 2
    assert "there is no module 'shop.task'" in wrong.stderr
