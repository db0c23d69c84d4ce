"""What a process refuses at its start, and the command that begins a new generation."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from psycopg import conninfo
from tests.support.database import Database

from tickrail.core.clock import SystemClock
from tickrail.core.errors import SetupError
from tickrail.core.ids import MAX_GENERATION
from tickrail.local.ports import any_free
from tickrail.runtime.settings import load_settings
from tickrail.store.engine import ApiDatabase
from tickrail.store.fence import raise_generation
from tickrail.store.installation import read_installation, waits_for_standby
from tickrail.store.listen import WakeListener
from tickrail.store.migrate import migrate
from tickrail.store.session import DatabaseSettings

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("url", "role", "refused"),
    [
        ("api_url", "tickrail_api", False),
        ("owner_url", "tickrail_api", True),
        ("admin_url", "tickrail_api", True),
        ("engine_url", "tickrail_api", True),
        ("engine_url", "tickrail_engine", False),
        ("api_url", "tickrail_engine", True),
    ],
)
def test_a_process_connects_as_its_own_role(
    database: Database, url: str, role: str, refused: bool
) -> None:
    settings = DatabaseSettings(getattr(database, url))
    if refused:
        with pytest.raises(SetupError, match=f"must connect to PostgreSQL as {role}"):
            read_installation(settings, role=role)
    else:
        assert read_installation(settings, role=role).partitions == 4


def several(url: str, *, as_url: bool) -> str:
    """The connection by two hosts, of which the first is down."""
    info = conninfo.conninfo_to_dict(url)
    dead = any_free({int(str(info["port"]))})
    hosts, ports = (f"127.0.0.1,{info['host']}", f"{dead},{info['port']}")
    if not as_url:
        return conninfo.make_conninfo(
            url, host=hosts, port=ports, target_session_attrs="read-write"
        )
    where = f"127.0.0.1:{dead},{info['host']}:{info['port']}/{info['dbname']}"
    who = f"{info['user']}:{quote(str(info['password']), safe='')}"
    return f"postgresql://{who}@{where}?target_session_attrs=read-write"


@pytest.mark.parametrize("as_url", [True, False], ids=["url", "keywords"])
def test_every_way_into_the_database_takes_several_hosts(database: Database, as_url: bool) -> None:
    owner, api, engine = (
        several(url, as_url=as_url)
        for url in (database.owner_url, database.api_url, database.engine_url)
    )
    shown = repr(load_settings(environ={"TICKRAIL_DATABASE_URL": engine}))
    assert "tickrail_engine-in-tests" not in shown
    assert "target_session_attrs=read-write" in shown
    assert migrate(owner) == []
    assert read_installation(DatabaseSettings(engine), role="tickrail_engine").partitions == 4
    assert raise_generation(owner) == 1
    made = ApiDatabase(DatabaseSettings(api), SystemClock())
    assert made.trouble() == {}
    made.close()
    woken: list[int] = []
    listener = WakeListener(DatabaseSettings(engine), lambda: woken.append(1))
    listener.run_once(0.1)
    assert woken
    listener.close()


@pytest.mark.parametrize(
    ("names", "commit", "waits"),
    [
        pytest.param("", "on", False, id="none"),
        pytest.param("replica", "on", True, id="one"),
        pytest.param("replica", "remote_write", True, id="written there"),
        pytest.param("replica", "local", False, id="not waited for"),
        pytest.param("replica", "off", False, id="not even flushed"),
    ],
)
def test_whether_commits_wait_for_a_standby_is_read_from_the_settings(
    database: Database, names: str, commit: str, waits: bool
) -> None:
    with database.admin() as conn:
        conn.execute(f"set synchronous_commit = {commit}".encode())
        # The server's own list cannot be set in one session: a function of the same name is asked.
        conn.execute("create schema seen")
        conn.execute(
            "create function seen.current_setting(name text) returns text language sql as"
            " $$ select case name when 'synchronous_standby_names' then "
            f"'{names}' else pg_catalog.current_setting(name) end $$".encode()
        )
        conn.execute("set search_path = seen, pg_catalog, public")
        assert waits_for_standby(conn) is waits


def test_a_new_generation_is_begun_up_to_the_last(database: Database) -> None:
    assert raise_generation(database.owner_url) == 1
    assert read_installation(DatabaseSettings(database.engine_url)).generation == 1
    for expected in range(2, MAX_GENERATION + 1):
        assert raise_generation(database.engine_url) == expected
    with pytest.raises(SetupError, match=f"its generation is {MAX_GENERATION}"):
        raise_generation(database.owner_url)
