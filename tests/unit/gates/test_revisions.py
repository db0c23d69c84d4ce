"""The schema's revisions by file name are those that alembic finds."""

from __future__ import annotations

from alembic.script import ScriptDirectory

from tickrail.store.installation import head, revisions
from tickrail.store.migrate import alembic_config


def test_the_files_names_say_what_alembic_reads() -> None:
    script = ScriptDirectory.from_config(alembic_config())
    assert revisions() == tuple(r.revision for r in script.walk_revisions())[::-1]
    assert head() == script.get_current_head()
