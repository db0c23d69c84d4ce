"""The schema's revisions by file name are those that alembic finds; which half holds which."""

from __future__ import annotations

import pytest
from alembic.script import ScriptDirectory

from tickrail.core.errors import SetupError
from tickrail.store.installation import head, needed, revisions
from tickrail.store.migrate import Half, alembic_config, pending_of

KNOWN = ("01_pre", "02_pre", "03_post", "04_pre", "05_pre", "06_post", "07_post")


def test_the_files_names_say_what_alembic_reads() -> None:
    script = ScriptDirectory.from_config(alembic_config())
    assert revisions() == tuple(r.revision for r in script.walk_revisions())[::-1]
    assert head() == script.get_current_head()


def test_no_two_revisions_have_one_number() -> None:
    """Else their order by name would not be the order in which they are applied."""
    numbers = [r.partition("_")[0] for r in revisions()]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize(
    ("at", "half", "applied"),
    [
        (None, None, KNOWN),
        (None, "pre", KNOWN[:5]),
        ("03_post", "pre", ("04_pre", "05_pre")),
        ("04_pre", "pre", ("05_pre",)),
        ("05_pre", "pre", ()),
        ("06_post", "pre", ()),
        ("05_pre", "post", ("06_post", "07_post")),
        ("06_post", "post", ("07_post",)),
        ("07_post", "post", ()),
        ("02_pre", None, KNOWN[2:]),
    ],
)
def test_what_each_half_applies(at: str | None, half: Half | None, applied: tuple[str]) -> None:
    assert tuple(pending_of(KNOWN, at, half)) == applied


@pytest.mark.parametrize(
    ("at", "half", "why"),
    [
        ("02_pre", "pre", "03_post lies between the schema .02_pre. and 05_pre"),
        ("04_pre", "post", "run `tickrail migrate --half pre`"),
        (None, "post", "run `tickrail migrate --half pre`"),
        ("08_pre", "pre", "knows up to 07_post: update Tickrail"),
        ("08_pre", None, "knows up to 07_post: update Tickrail"),
    ],
)
def test_a_half_that_cannot_be_run_by_itself(at: str | None, half: Half | None, why: str) -> None:
    with pytest.raises(SetupError, match=why):
        pending_of(KNOWN, at, half)


@pytest.mark.parametrize(
    ("known", "wanted"),
    [(KNOWN, "05_pre"), (KNOWN[:2], "02_pre"), (KNOWN[:3], "02_pre"), (KNOWN[:5], "05_pre")],
)
def test_a_process_needs_what_was_added(known: tuple[str, ...], wanted: str) -> None:
    assert needed(known) == wanted
