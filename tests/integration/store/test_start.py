"""What a process refuses at its start, and the command that begins a new generation."""

from __future__ import annotations

import pytest
from tests.support.database import Database

from tickrail.core.errors import SetupError
from tickrail.core.ids import MAX_GENERATION
from tickrail.store.fence import raise_generation
from tickrail.store.installation import read_installation
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


def test_a_new_generation_is_begun_up_to_the_last(database: Database) -> None:
    assert raise_generation(database.owner_url) == 1
    assert read_installation(DatabaseSettings(database.engine_url)).generation == 1
    for expected in range(2, MAX_GENERATION + 1):
        assert raise_generation(database.engine_url) == expected
    with pytest.raises(SetupError, match=f"its generation is {MAX_GENERATION}"):
        raise_generation(database.owner_url)
