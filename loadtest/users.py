"""Locust's users of the API: many tenants of unequal size, and one that makes a herd.

Run by loadtest/load.py, which names a file in TICKRAIL_LOAD: the tenants with their keys and jobs,
what the herd is to be, and where to write down what the API has said is done. By itself, against
an installation that runs: TICKRAIL_LOAD=FILE locust -f loadtest/users.py TenantUser
"""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from locust import between, task
from locust.contrib.fasthttp import FastHttpUser
from locust.env import Environment
from locust.exception import StopUser

GIVEN = json.loads(Path(os.environ["TICKRAIL_LOAD"]).read_text("utf-8"))
TENANTS: list[dict[str, Any]] = GIVEN["tenants"]
WEIGHTS = [tenant["weight"] for tenant in TENANTS]
RNG = random.Random(GIVEN["seed"])
SAID = Path(GIVEN["said"]).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115 - until the end
NUMBERS = count()
BATCHES = count()
CREATED, OK = 201, 200
TRIES = 5
"""Of a user's first job: without any there is nothing to do."""
EVERY_MINUTE = {"every": "1m", "anchor": "2026-01-01T00:00:00Z"}


def say(what: str, **fields: object) -> None:
    """Write down what an answer has promised."""
    SAID.write(json.dumps({"what": what, **fields}) + "\n")


def now() -> str:
    """This instant; for the intervals in which a job was paused."""
    return datetime.now(UTC).isoformat()  # noqa: TID251 - a process of Locust, outside the product


class Caller(FastHttpUser):
    """What both kinds of users do."""

    abstract = True
    token = ""

    def __init__(self, environment: Environment) -> None:
        self.host = RNG.choice(GIVEN["hosts"])
        super().__init__(environment)

    def call(
        self, method: str, path: str, name: str, status: int, body: object = None
    ) -> dict[str, Any] | None:
        """One request: its document; None where the answer was another one, which is a failure."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body)
        with self.client.request(
            method, path, name=name, data=data, headers=headers, catch_response=True
        ) as answer:
            if answer.status_code != status:
                answer.failure(f"answered {answer.status_code}: {(answer.text or '')[:300]}")
                return None
            found: dict[str, Any] = json.loads(answer.text or "{}")
            return found


class TenantUser(Caller):
    """Somebody of a tenant: reads most of the time, and changes jobs of their own.

    Large tenants have more of these users. The jobs that were there before are read and triggered,
    never changed: what is due of them is known before the run.
    """

    wait_time = between(*GIVEN["wait"])

    def on_start(self) -> None:
        """Take a tenant."""
        (tenant,) = RNG.choices(TENANTS, WEIGHTS)
        self.token = tenant["token"]
        self.there: list[str] = tenant["jobs"]
        self.own: list[str] = []
        for _ in range(TRIES):
            if not self.own:
                self.create()
        if not self.own:
            raise StopUser

    def any_job(self) -> str:
        """A job of the tenant."""
        return RNG.choice(self.there + self.own)

    @task(10)
    def list_jobs(self) -> None:
        """A page of jobs, and the next."""
        page = self.call("GET", "/v1/jobs?limit=50", "GET /v1/jobs", OK)
        if page and page["next_cursor"]:
            path = f"/v1/jobs?limit=50&cursor={page['next_cursor']}"
            self.call("GET", path, "GET /v1/jobs, next page", OK)

    @task(10)
    def get_job(self) -> None:
        """A job."""
        self.call("GET", f"/v1/jobs/{self.any_job()}", "GET /v1/jobs/{job}", OK)

    @task(6)
    def history(self) -> None:
        """The latest launches of the tenant, and one of them with its attempts."""
        page = self.call("GET", "/v1/launches?limit=50", "GET /v1/launches", OK)
        if page and page["items"]:
            launch = RNG.choice(page["items"])["id"]
            self.call("GET", f"/v1/launches/{launch}", "GET /v1/launches/{id}", OK)
            path = f"/v1/launches/{launch}/attempts"
            self.call("GET", path, "GET /v1/launches/{id}/attempts", OK)

    @task(6)
    def ledger(self) -> None:
        """The ledger of a job."""
        path = f"/v1/jobs/{self.any_job()}/slots?limit=50"
        self.call("GET", path, "GET /v1/jobs/{job}/slots", OK)

    @task(3)
    def upcoming(self) -> None:
        """The next slots of a job."""
        path = f"/v1/jobs/{self.any_job()}/upcoming?n=10"
        self.call("GET", path, "GET /v1/jobs/{job}/upcoming", OK)

    @task(6)
    def trigger(self) -> None:
        """A launch now."""
        job = self.any_job()
        path = f"/v1/jobs/{job}/trigger"
        launch = self.call("POST", path, "POST /v1/jobs/{job}/trigger", CREATED, {})
        if launch:
            say("triggered", launch=launch["id"], job=job)

    @task(4)
    def create(self) -> None:
        """A job that is due each minute."""
        document = {
            "name": f"made-{next(NUMBERS)}-{RNG.getrandbits(32):08x}",
            "schedule": EVERY_MINUTE,
            "overlap": "allow",
            "target": {"noop": {}},
            "tags": {"team": f"team-{RNG.randrange(10)}"},
        }
        job = self.call("POST", "/v1/jobs", "POST /v1/jobs", CREATED, document)
        if job:
            self.own.append(job["id"])
            say("created", job=job["id"])

    @task(2)
    def pause(self) -> None:
        """Pause a job of one's own, and resume it."""
        if not self.own:
            return
        job, path = RNG.choice(self.own), "/v1/jobs/{job}/pause"
        if not self.call("POST", path.format(job=job), f"POST {path}", OK, {}):
            return
        since, path = now(), "/v1/jobs/{job}/resume"
        self.wait()  # type: ignore[no-untyped-call]
        until = now()
        say("paused", job=job, since=since, until=until)
        self.call("POST", path.format(job=job), f"POST {path}", OK, {})

    @task(2)
    def change(self) -> None:
        """Change a job of one's own."""
        if self.own:
            job, text = RNG.choice(self.own), f"change {next(NUMBERS)}"
            body = {"description": text}
            if self.call("PATCH", f"/v1/jobs/{job}", "PATCH /v1/jobs/{job}", OK, body):
                say("changed", job=job)


class HerdUser(Caller):
    """Makes the herd: one-off jobs of one tenant, a thousand by a request, all due at once."""

    fixed_count = 2
    token = GIVEN["herd_token"]

    @task
    def batch(self) -> None:
        """The next thousand; nobody makes them twice."""
        number, size = next(BATCHES), GIVEN["batch"]
        left = GIVEN["herd"] - number * size
        if left <= 0:
            raise StopUser
        jobs = [
            {
                "name": f"herd-{number * size + n}",
                "schedule": {"at": GIVEN["herd_at"]},
                "overlap": "allow",
                "target": {"noop": {}},
            }
            for n in range(min(size, left))
        ]
        answer = self.call("POST", "/v1/jobs/batch", "POST /v1/jobs/batch", OK, {"jobs": jobs})
        if answer:
            made = [item["job"]["id"] for item in answer["items"] if item["job"]]
            say("herd", jobs=made)
