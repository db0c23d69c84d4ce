"""What the audit log tells of: every action that an entry may have."""

from __future__ import annotations

from typing import Final

_BY_SUBJECT: Final = {
    "authentication": ("slowed",),
    "backfill": ("create", "cancel"),
    "calendar": ("create", "change", "delete"),
    "dead_letters": ("purge",),
    "job": (
        "create", "change", "delete", "pause", "restore", "resume", "skip_next", "trigger",
        "undelete",
    ),
    "key": ("create", "revoke", "rotate"),
    "launch": ("cancel", "redrive"),
    "member": ("drain", "undrain"),
    "operation": ("create", "cancel"),
    "operator": ("read", "write"),
    "queue": ("put", "change", "delete", "limits", "pause", "resume"),
    "quota": ("reached",),
    "quotas": ("change", "notify"),
    "secret": ("create", "change", "delete"),
    "tenant": ("create", "change", "delete", "resume", "suspend"),
    "undecodable": ("purge",),
}  # fmt: skip
ACTIONS: Final = frozenset(f"{what}.{done}" for what, all_ in _BY_SUBJECT.items() for done in all_)
"""All of them, `job.create` and the like. An entry of another one is not written."""


def known(action: str) -> str:
    """The action, where it is one.

    Raises:
        ValueError: it is none: the caller's mistake.
    """
    if action not in ACTIONS:
        raise ValueError(f"{action!r} is no action of the audit log: core/audit_actions.py")
    return action
