"""A rule that was broken."""

from __future__ import annotations


class Violation(BaseException):
    """A rule was broken. `rule` is its name.

    No `Exception`, so that no part of the program takes it for a failure of its own and goes on.
    """

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule
