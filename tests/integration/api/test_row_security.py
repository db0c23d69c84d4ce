"""Row security as the database has it: nothing lets the API's role see beyond its tenant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.support.database import Database

from tickrail.store.tables import jobs

pytestmark = pytest.mark.integration

MINE = "(tenant_id = (NULLIF(current_setting('tickrail.tenant'::text, true), ''::text))::uuid)"
EVERYBODYS = "(tenant_id = '00000000-0000-0000-0000-000000000000'::uuid)"
OPERATORS = {"is_operator()", "(is_operator() AND (tenant_id IS NULL))"}
SHARED = {("limits", "api_shared", "SELECT"), ("quotas", "api_shared", "SELECT")}
"""Policies that show a tenant rows of the installation, and those alone."""
NOTED = ("audit_log", "api_operator", "INSERT")
"""Whoever acts for the installation leaves an entry; without a tenant, so no tenant sees it."""
OWN_VIEW = "installation_audit"
"""The one view that its owner's rights count for: it asks itself who looks."""
HOLES = [
    "create policy more on jobs to public using (true)",
    "alter policy api_operator on operator_answers using (true)",
    "create policy more on jobs for select to tickrail_api using (true)",
    "create policy api_operator on jobs to tickrail_api using (is_operator() or true)",
    "create policy api_operator on jobs to tickrail_api using (tenant_id is null)",
    "alter policy api on jobs using (true)",
    "alter policy api_shared on limits using (true)",
    "alter policy api on jobs to public",
    "alter table jobs no force row level security",
    "create table more (tenant_id uuid)",
    "create view more as select * from jobs; grant select on more to tickrail_api",
    "create view more as select * from jobs; grant select (name) on more to public",
    ("alter view dead_letters_owed reset (security_invoker);"
     " grant select on dead_letters_owed to tickrail_api"),
    ("create or replace view installation_audit as select id, at, actor, action, subject, before,"
     " after, request_id, address from audit_log where tenant_id is null or is_operator()"),
    "grant tickrail_engine to tickrail_api",
]  # fmt: skip


def holes(conn: psycopg.Connection[Any]) -> Iterator[str]:
    """What is not as it has to be."""

    def rows(query: str) -> list[Any]:
        return conn.execute(query.encode()).fetchall()

    found = dict(
        rows(
            "select c.relname, c.relrowsecurity and c.relforcerowsecurity from pg_class c"
            " join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id'"
            " where c.relkind in ('r', 'p') and not c.relispartition"
        )
    )
    known = {t.name for t in jobs.metadata.sorted_tables if "tenant_id" in t.c}
    yield from (f"table {name}" for name in known ^ set(found))
    yield from (f"not forced: {name}" for name, forced in found.items() if not forced)
    for table, name, verb, roles, seen, written in rows(
        "select tablename, policyname, cmd, roles::text[], qual, with_check from pg_policies"
        " where roles && array['tickrail_api', 'public']::name[]"
    ):
        conditions = {c for c in (seen, written) if c is not None}
        fine = (
            (name == "api" and conditions == {MINE})
            or (
                (table, name) == ("tenants", "api")
                and conditions == {MINE.replace("tenant_id", "id")}
            )
            or ((table, name, verb) in SHARED and conditions == {EVERYBODYS})
            or ((table, name, verb) == NOTED and conditions == {"(tenant_id IS NULL)"})
            or (name == "api_operator" and conditions <= OPERATORS)
        )
        if not fine or roles != ["tickrail_api"]:
            yield f"policy {name} of {table}: {conditions} for {roles}"
    for name, definition in rows(
        "select relname, pg_get_viewdef(oid) from pg_class"
        " where relkind in ('v', 'm') and relnamespace = 'public'::regnamespace"
        " and has_any_column_privilege('tickrail_api', oid, 'select, insert, update')"
        " and not coalesce('security_invoker=true' = any(reloptions), false)"
    ):
        asks = definition.endswith("WHERE ((tenant_id IS NULL) AND is_operator());")
        if name != OWN_VIEW or not asks:
            yield f"view {name}: {definition}"
    yield from (
        f"role {name}"
        for (name,) in rows(
            "select rolname from pg_roles where rolname like 'tickrail%'"
            " and (rolsuper or rolbypassrls or (rolname = 'tickrail_api'"
            " and exists (select from pg_auth_members m where m.member = pg_roles.oid)))"
        )
    )


def test_every_table_of_a_tenant_is_under_forced_row_security(database: Database) -> None:
    """A table that is added without it, or with another condition, fails here."""
    with database.admin() as conn:
        assert list(holes(conn)) == []
        granted = conn.execute(
            "select relname from pg_class c where relkind in ('r', 'p') and not relispartition"
            " and has_any_column_privilege('tickrail_api', oid, 'select, insert, update')"
            " and exists (select from pg_attribute a"
            "   where a.attrelid = c.oid and a.attname = 'tenant_id')"
            " and not exists (select from pg_policies p"
            "   where p.tablename = c.relname and 'tickrail_api' = any(p.roles))"
        ).fetchall()
        assert granted == []


def test_each_kind_of_hole_is_seen(database: Database) -> None:
    with database.admin() as conn:
        for hole in HOLES:
            with conn.transaction(force_rollback=True):
                for statement in hole.split(";"):
                    conn.execute(statement.encode())
                assert list(holes(conn)), hole
