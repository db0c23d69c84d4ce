"""The runbooks as an operator follows them: their command lines are run, and what they say is kept.

The lines under *What to look at* must end with exit code 0 while the fault is there; those under
*What to do* are a part of the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.alert_bed import Bed, Fault, Ran
from tests.support.runbooks import PAGES, lines_of


@dataclass
class Seen:
    """What became of an alert.

    Attributes:
        seconds: from the fault until it fired; None: it did not.
        early: whether it fired before.
        mended_at: when the fault was over, seconds since 1970.
        stopped: seconds from then until it fired no more; None: it still does.
        ran: the command lines of its runbook.
    """

    alert: str
    fault: Fault
    seconds: float | None
    early: bool
    mended_at: float = 0.0
    stopped: float | None = None
    ran: list[Ran] = field(default_factory=list)

    @property
    def troubles(self) -> list[str]:
        """What is not as it should be."""
        said = []
        if self.seconds is None:
            said.append("did not fire")
        if self.early:
            said.append("had fired before")
        if self.stopped is None and self.seconds is not None:
            said.append("did not stop")
        return said + [f"exit code {r.code} of: {r.line}" for r in self.ran if r.code]


def page(alert: str) -> Path:
    """The page of an alert."""
    return PAGES / f"{alert}.md"


def follow(bed: Bed, alert: str, section: str) -> list[Ran]:
    """Run the lines of a section, as for the process that the alert names."""
    instance = bed.prometheus.instance(alert)
    return [bed.shell(line, instance) for line in lines_of(page(alert).read_text("utf-8"), section)]


def write_runbooks(seen: Sequence[Seen], times: float) -> None:
    """What was seen, as the last section of each alert's page."""
    for alert in sorted({one.alert for one in seen}):
        path = page(alert)
        before = re.split(r"\n## Tried\n", path.read_text("utf-8"))[0].rstrip()
        tried = [
            f"- {one.fault.what} The alert fired after {one.seconds:.0f} s, and stopped"
            f" {one.stopped:.0f} s after the fault was over. {_followed(one)}".rstrip()
            for one in seen
            if one.alert == alert
            and one.seconds is not None
            and one.stopped is not None
            and not one.early
        ]
        if tried:
            how = (
                "With real servers and processes (`make load-alerts`); the rule's own waits and "
                f"windows were up to {times:g} times shorter than they are.\n\n"
            )
            path.write_text(f"{before}\n\n## Tried\n\n{how}" + "\n".join(tried) + "\n", "utf-8")


def _followed(one: Seen) -> str:
    """How the command lines of the page went."""
    good = sum(r.code == 0 for r in one.ran)
    if len(one.ran) == good:
        return f"The page's command lines ran meanwhile, {good} of {good} without an error."
    return (
        f"The page's command lines ran meanwhile; {len(one.ran) - good} of {len(one.ran)} failed."
    )


def tell(seen: Sequence[Seen], file: Path) -> None:
    """What each command line said, for a reader."""
    with file.open("w", encoding="utf-8") as out:
        for one in seen:
            out.write(f"=== {one.alert} ({one.fault.name})\n")
            for ran in one.ran:
                out.write(f"$ {ran.line}\n{ran.said}\n[{ran.code}]\n")
