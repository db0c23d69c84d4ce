"""Tenants see their own, keys do what their scopes say, operators name whom they work for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import event, func, insert, select, text
from tests.support.api import Caller, World, unused_id, webhook

from tickrail.core.errors import TickrailError
from tickrail.core.ids import TenantId
from tickrail.store.tables import job_tags, jobs, launches
from tickrail.store.tenancy import Caller as Who
from tickrail.store.tenancy import installation_transaction, tenant_transaction

pytestmark = pytest.mark.integration

JOB_ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/v1/jobs/{job}", None),
    ("PUT", "/v1/jobs/{job}", webhook("stolen")),
    ("PATCH", "/v1/jobs/{job}", {"description": "stolen"}),
    ("POST", "/v1/jobs/{job}/pause", None),
    ("POST", "/v1/jobs/{job}/resume", None),
    ("POST", "/v1/jobs/{job}/trigger", None),
    ("GET", "/v1/jobs/{job}/upcoming", None),
    ("GET", "/v1/jobs/{job}/slots", None),
    ("POST", "/v1/jobs/{job}/skip-next", {"n": 1}),
    ("GET", "/v1/jobs/{job}/backfills", None),
    ("POST", "/v1/jobs/{job}/backfills", "a past week"),
    ("GET", "/v1/jobs/{job}/versions", None),
    ("GET", "/v1/jobs/{job}/versions/{version}", None),
    ("POST", "/v1/jobs/{job}/versions/{version}/restore", None),
    ("POST", "/v1/jobs/{job}/undelete", None),
    ("DELETE", "/v1/jobs/{job}", None),
]
LAUNCH_ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/v1/launches/{launch}", None),
    ("GET", "/v1/launches/{launch}/attempts", None),
    ("GET", "/v1/launches/{launch}/log", None),
    ("GET", "/v1/launches/{launch}/explain", None),
    ("POST", "/v1/launches/{launch}/cancel", None),
    ("POST", "/v1/launches/{launch}/redrive", None),
    ("GET", "/v1/dead-letters/{launch}", None),
]
WORK_ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/v1/backfills/{backfill}", None),
    ("POST", "/v1/backfills/{backfill}/cancel", {"in_flight": "cancel"}),
    ("GET", "/v1/operations/{operation}", None),
    ("POST", "/v1/operations/{operation}/cancel", None),
]
KEY_ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/v1/api-keys/{id}", None),
    ("DELETE", "/v1/api-keys/{id}", None),
    ("POST", "/v1/api-keys/{id}/rotate", None),
]

NAMED_ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/v1/calendars/{name}", None),
    ("PUT", "/v1/calendars/{name}", {"weekdays": ["sat"]}),
    ("PATCH", "/v1/calendars/{name}", {"weekdays": ["sat"]}),
    ("DELETE", "/v1/calendars/{name}", None),
    ("GET", "/v1/secrets/{name}", None),
    ("PUT", "/v1/secrets/{name}", {"value": "theirs"}),
    ("DELETE", "/v1/secrets/{name}", None),
]
"""What a tenant names itself: another one's name is free."""


def test_every_route_that_takes_an_id_is_tried_here(world: World) -> None:
    named = {
        (m, p)
        for m, p, _ in [*JOB_ROUTES, *LAUNCH_ROUTES, *WORK_ROUTES, *KEY_ROUTES, *NAMED_ROUTES]
    }
    served = {
        (verb.upper(), path)
        for path, operations in world.answers.document["paths"].items()
        for verb in operations
        if "{" in path
        and not path.startswith("/v1/system/")
        # An undecodable message belongs to no tenant: test_many_dead_letters.py.
        and "{offset}" not in path
        # Queues are the installation's, tenants the operators': test_queues.py.
        and not path.startswith(("/v1/queues/", "/v1/tenants/"))
    }
    assert named == served


def test_what_is_anothers_is_as_absent_as_what_is_not_there(world: World) -> None:
    job = world.acme.create("a", schedule={"every": "1h"})
    launch = world.acme.post(f"/v1/jobs/{job['id']}/trigger", expect=201)
    week = world.past_week()
    backfill = world.acme.post(f"/v1/jobs/{job['id']}/backfills", week, expect=202)
    operation = world.acme.post("/v1/jobs/pause", {"filter": {}}, expect=202)
    theirs = {
        "job": job["id"], "launch": launch["id"], "backfill": backfill["id"],
        "operation": operation["id"], "id": world.keys["acme"].key_id,
    }  # fmt: skip
    nothing = dict.fromkeys(theirs, unused_id()) | {"version": "1"}
    theirs["version"] = "1"
    before = world.acme.get(f"/v1/jobs/{job['id']}")
    for method, path, written in [*JOB_ROUTES, *LAUNCH_ROUTES, *WORK_ROUTES, *KEY_ROUTES]:
        document = week if written == "a past week" else written
        said = []
        for ids in (theirs, nothing):
            answer = world.beta.call(method, path.format(**ids), document, expect=404).json()
            answer.pop("request_id")
            for one in (v for name, v in ids.items() if name != "version"):
                answer["detail"] = answer["detail"].replace(one, "ID")
            said.append(answer)
        assert said[0] == said[1]
    assert world.acme.get(f"/v1/jobs/{job['id']}") == before
    assert world.acme.get(f"/v1/backfills/{backfill['id']}") == backfill
    assert world.acme.get(f"/v1/operations/{operation['id']}") == operation
    assert world.acme.get(f"/v1/launches/{launch['id']}")["state"] == "due"


def test_a_name_of_another_tenant_is_free_and_theirs_stays_as_it_is(world: World) -> None:
    path = "/v1/calendars/holidays"
    world.acme.put(path, {"weekdays": ["sun"]}, expect=201)
    world.acme.put("/v1/secrets/holidays", {"value": "mine"}, expect=201)
    world.acme.create("a", schedule={"every": "1h"}, calendars={"exclude": ["holidays"]})
    paths = (path, "/v1/jobs/name:a", "/v1/secrets/holidays")
    before = [world.acme.get(p) for p in paths]
    expected = {"GET": 404, "PUT": 201, "PATCH": 200, "DELETE": 204}
    world.beta.call("PATCH", path, {"weekdays": ["sat"]}, expect=404)
    for method, template, document in NAMED_ROUTES:
        answers = [
            world.beta.call(method, template.format(name=n), document, expect=expected[method])
            for n in ("holidays", "nothing-of-this-name")
        ]
        if (method, "calendars" in template) == ("PUT", True):
            assert [a.json()["moved"]["jobs"] for a in answers] == [0, 0]
    theirs = {"exclude": ["holidays"]}
    refused = world.beta.post("/v1/jobs", webhook("b", calendars=theirs), expect=422)
    assert refused["errors"][0]["pointer"] == "/calendars/exclude/0"
    assert before == [world.acme.get(p) for p in paths]


def test_names_lists_and_filters_are_each_tenants_own(world: World) -> None:
    mine = world.acme.create("a", tags={"team": "x"})
    world.acme.post("/v1/jobs/name:a/trigger", expect=201)
    theirs = world.beta.create("a", tags={"team": "x"})
    for caller, job in ((world.acme, mine), (world.beta, theirs)):
        assert caller.get("/v1/jobs/name:a")["id"] == job["id"]
        assert [j["id"] for j in caller.get("/v1/jobs", tag="team:x")["items"]] == [job["id"]]
    assert world.beta.get("/v1/launches")["items"] == []
    world.beta.get("/v1/launches", job=mine["id"], expect=404)
    asked = {"schedule": {"every": "1h"}, "job": mine["id"]}
    world.beta.post("/v1/schedules/preview", asked, expect=404)


def test_a_cursor_of_another_tenant_shows_nothing_of_theirs(world: World) -> None:
    for name in "abc":
        world.acme.create(name)
    mine = world.beta.create("z")
    cursor = world.acme.get("/v1/jobs", limit=1, sort="name")["next_cursor"]
    found = world.beta.get("/v1/jobs", limit=1, sort="name", cursor=cursor)["items"]
    assert [j["id"] for j in found] == [mine["id"]]


def test_statements_that_forget_the_tenant_see_one_tenant_or_none(world: World) -> None:
    """Row security is what divides tenants: no statement has to remember it."""
    for caller in (world.acme, world.beta):
        caller.create("a", tags={"k": "v"})
        caller.post("/v1/jobs/name:a/trigger", expect=201)
    engine = world.app.state.parts.database.engine
    hidden = {"notices"}
    rows = world.database.rows(
        "select relname from pg_class where relnamespace = 'public'::regnamespace"
        " and relkind in ('r', 'p') and not has_table_privilege('tickrail_api', oid, 'select')"
    )
    assert hidden <= {str(name) for (name,) in rows}
    tables = [t for t in jobs.metadata.sorted_tables if "tenant_id" in t.c and t.name not in hidden]
    for name in ("acme", "beta"):
        tenant = TenantId(UUID(world.tenant_id(name)))
        with tenant_transaction(engine, tenant, Who("test")) as tx:
            for table in (jobs, job_tags, launches):
                seen = tx.execute(select(table.c.tenant_id)).scalars().all()
                assert seen == [tenant]
    with installation_transaction(engine) as tx:
        for table in tables:
            assert tx.execute(select(func.count()).select_from(table)).scalar_one() == 0
    with engine.begin() as raw:
        for table in tables:
            assert raw.execute(select(func.count()).select_from(table)).scalar_one() == 0


def test_a_row_of_another_tenant_cannot_be_written(world: World) -> None:
    engine = world.app.state.parts.database.engine
    mine, theirs = (TenantId(UUID(world.tenant_id(n))) for n in ("acme", "beta"))
    row = {"id": unused_id(), "tenant_id": theirs, "name": "x", "partition": 0}
    statement = insert(jobs).values(**row, state="active", plan={})
    with (
        pytest.raises(TickrailError, match="row-level security"),
        tenant_transaction(engine, mine, Who("test")) as tx,
    ):
        tx.execute(statement)


def test_day_partitions_are_no_way_round(world: World) -> None:
    world.acme.create("a")
    world.acme.post("/v1/jobs/name:a/trigger", expect=201)
    [(day,)] = world.database.rows("select tableoid::regclass::text from launches")
    engine = world.app.state.parts.database.engine
    tenant = TenantId(UUID(world.tenant_id("beta")))
    with (
        pytest.raises(TickrailError, match="permission denied"),
        tenant_transaction(engine, tenant, Who("test")) as tx,
    ):
        tx.execute(text(f"select * from {day}"))


ABOUT_KEYS = ("find_key", "set_config", "request_buckets", "FROM quotas")
"""Statements that a request runs when what is known of its key is some seconds old."""


def test_one_statement_serves_what_is_anothers_and_what_is_not_there(world: World) -> None:
    """So nothing, time included, tells the one from the other: loadtest/api.py measures it."""
    job = world.acme.create("a", schedule={"every": "1h"})
    launch = world.acme.post(f"/v1/jobs/{job['id']}/trigger", expect=201)
    theirs = {"job": job["id"], "launch": launch["id"]}
    # A launch's id tells its instant, so what is not there has the same one.
    nothing = {"job": unused_id(), "launch": launch["id"][:-12] + unused_id()[-12:]}
    engine = world.app.state.parts.database.engine
    for method, path, document in [*JOB_ROUTES, *LAUNCH_ROUTES]:
        if document == "a past week":
            document = world.past_week()  # noqa: PLW2901 - its value of today
        said = []
        for ids in (theirs, nothing, theirs):  # the first one finds caches cold
            ran: list[str] = []

            def note(_: Any, __: Any, statement: str, *___: Any, ran: list[str] = ran) -> None:
                if not any(word in statement for word in ABOUT_KEYS):
                    ran.append(statement)

            event.listen(engine, "before_cursor_execute", note)
            world.beta.call(method, path.format(**ids, version="1"), document, expect=404)
            event.remove(engine, "before_cursor_execute", note)
            said.append(ran)
        assert said[1] == said[2], f"{method} {path}"
        assert said[1]


def test_a_setting_does_not_outlive_its_transaction(world: World) -> None:
    """One connection: an error in one tenant's request, then another tenant's."""
    from tickrail.store.engine import make_engine  # noqa: PLC0415 - beside its one use
    from tickrail.store.session import DatabaseSettings  # noqa: PLC0415 - as above

    world.acme.create("a")
    engine = make_engine(DatabaseSettings(world.database.api_url), pool_size=1)
    acme, beta = (TenantId(UUID(world.tenant_id(n))) for n in ("acme", "beta"))
    setting = text("select current_setting('tickrail.tenant', true)")
    try:
        with tenant_transaction(engine, acme, Who("t")) as tx:
            assert tx.execute(select(func.count()).select_from(jobs)).scalar_one() == 1
        with pytest.raises(TickrailError), tenant_transaction(engine, acme, Who("t")) as tx:
            tx.execute(text("select 1 / 0"))
        with tenant_transaction(engine, beta, Who("t")) as tx:
            assert tx.execute(select(jobs.c.id)).all() == []
        with engine.begin() as raw:
            assert raw.execute(setting).scalar_one() in ("", None)
            assert raw.execute(select(jobs.c.id)).all() == []
    finally:
        engine.dispose()


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        (("read",), {"read"}),
        (("run",), {"run"}),
        (("write",), {"write"}),
        (("admin",), set()),
        (("read", "run"), {"read", "run"}),
    ],
)
def test_a_key_does_what_its_scopes_say(
    world: World, scopes: tuple[str, ...], allowed: set[str]
) -> None:
    world.acme.create("a", overlap="allow")
    caller = world.caller(world.key("acme", *scopes).token)
    tries = {
        "read": [("GET", "/v1/jobs"), ("GET", "/v1/launches"), ("GET", "/v1/jobs/name:a/slots")],
        "run": [("POST", "/v1/jobs/name:a/trigger")],
        "write": [("PATCH", "/v1/jobs/name:a"), ("POST", "/v1/jobs/name:a/pause")],
    }
    for scope, calls in tries.items():
        for method, path in calls:
            document = {} if method == "PATCH" else None
            answer = caller.call(method, path, document)
            if scope in allowed:
                assert answer.status_code < 300
            else:
                assert answer.status_code == 403
                assert f"'{scope}'" in answer.json()["detail"]


def test_an_operator_names_a_tenant_and_is_audited(world: World) -> None:
    job = world.acme.create("a")
    refused = world.operator.get("/v1/jobs", expect=403)
    assert "Tickrail-Tenant" in refused["detail"]
    world.operator.post("/v1/jobs", webhook("b"), expect=403)
    for name in ("acme", world.tenant_id("acme")):
        named = world.caller(world.operator.token, name)
        assert [j["id"] for j in named.get("/v1/jobs")["items"]] == [job["id"]]
    named = world.caller(world.operator.token, "acme")
    named.patch("/v1/jobs/name:a", {"description": "by the operator"})
    world.caller(world.operator.token, "nobody").get("/v1/jobs", expect=404)
    world.caller(world.operator.token, "N o b").get("/v1/jobs", expect=404)
    who = f"operator:{world.keys['operator'].key_id}"
    rows = world.database.rows(
        "select action, subject from audit_log where actor = %s order by id", who
    )
    assert rows == [
        ("operator.read", "GET /v1/jobs"),
        ("operator.read", "GET /v1/jobs"),
        ("operator.write", "PATCH /v1/jobs/name:a"),
        ("job.change", f"job:{job['id']}"),
    ]


def test_a_tenants_key_names_no_tenant_and_sees_no_system(world: World) -> None:
    world.caller(world.acme.token, "acme").get("/v1/jobs", expect=403)
    world.acme.get("/v1/system/partitions", expect=403)
    items = world.operator.every("/v1/system/partitions", limit=3)
    assert [p["partition"] for p in items] == [0, 1, 2, 3]
    world.database.run(
        "update partitions set epoch = 7, owner = 's-1', taken_at = now() where partition = 2"
    )
    assert [
        (p["partition"], p["taken_by"])
        for p in world.operator.get("/v1/system/partitions")["items"]
        if p["epoch"] == 7
    ] == [(2, "s-1")]
    for caller in (world.acme, world.operator):
        [queue] = caller.get("/v1/queues")["items"]
        assert queue["name"] == "default"


def test_a_tenant_that_is_suspended_is_refused(world: World) -> None:
    world.database.run("update tenants set state = 'suspended' where name = 'acme'")
    fresh = world.caller(world.key("acme").token)
    assert fresh.get("/v1/jobs", expect=403)["detail"] == "The tenant is suspended."
    world.beta.get("/v1/jobs")
    gone = world.caller(world.key("acme").token)
    world.database.run("update tenants set state = 'deleted' where name = 'acme'")
    gone.get("/v1/jobs", expect=401)
    world.caller(world.operator.token, "acme").get("/v1/jobs", expect=404)


def test_keys_that_are_no_longer_good(world: World) -> None:
    for column in ("revoked_at", "expires_at"):
        key = world.key("acme")
        world.database.run(f"update api_keys set {column} = now() where id = %s", key.key_id)
        world.caller(key.token).get("/v1/jobs", expect=401)
    later = world.key("acme")
    world.database.run(
        "update api_keys set expires_at = now() + interval '1 hour' where id = %s", later.key_id
    )
    world.caller(later.token).get("/v1/jobs")


def test_only_a_keyed_hash_is_stored_and_use_is_noted(world: World) -> None:
    world.acme.get("/v1/jobs")
    secret = world.acme.token.rpartition("_")[2]
    [(row, used, length)] = world.database.rows(
        "select api_keys::text, last_used_at, length(secret_hash) from api_keys where id = %s",
        world.keys["acme"].key_id,
    )
    assert secret not in str(row)
    assert length == 32
    assert used is None
    world.app.state.parts.authenticator.write_notes()
    [(used,)] = world.database.rows(
        "select last_used_at from api_keys where id = %s", world.keys["acme"].key_id
    )
    assert isinstance(used, datetime)
    assert used.astimezone(UTC) <= datetime.now(UTC)  # noqa: TID251 - the server's clock is real


def test_one_door_to_the_data_of_a_tenant(world: World) -> None:
    """The API's role reads keys only through the function that finds one by its id."""
    engine = world.app.state.parts.database.engine
    with engine.begin() as raw:
        assert raw.execute(text("select count(*) from api_keys")).scalar_one() == 0
        found = raw.execute(
            text("select tenant_state from find_api_key(:id)"), {"id": world.keys["acme"].key_id}
        ).scalar_one()
    assert found == "active"


def test_callers_hear_the_same_of_a_wrong_secret_and_of_no_such_key(
    world: World, acme: Caller
) -> None:
    key_id, secret = world.keys["acme"].key_id, acme.token.rpartition("_")[2]
    changed = ("A" if secret[0] != "A" else "B") + secret[1:]
    wrong = world.caller(f"trk_{key_id}_{changed}").get("/v1/jobs", expect=401)
    absent = world.caller(f"trk_aaaaaaaaaaaaaaaa_{secret}").get("/v1/jobs", expect=401)
    assert {**wrong, "request_id": ""} == {**absent, "request_id": ""}
