"""A rule that was broken."""

from __future__ import annotations


class Violation(AssertionError):  # noqa: N818 - what was broken, not an error of the program
    """A rule was broken. `rule` is its name."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule
