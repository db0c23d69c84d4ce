"""States of a launch, the moves allowed between them, and who may make each.

`phase` is the coarse state that the database indexes (docs/protocols.md 8).
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of a launch as stored; `retrying` is how `due` is shown after a failure."""

    HELD = "held"
    DUE = "due"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    ABANDONED = "abandoned"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Actor(StrEnum):
    """Who makes a move."""

    OWNER = "owner"
    WORKER = "worker"
    API = "api"


RETRYING = "retrying"

OPEN = frozenset({State.HELD, State.DUE, State.QUEUED, State.RUNNING})
TERMINAL = frozenset(State) - OPEN

PHASE: dict[State, int] = {
    State.HELD: 0,
    State.DUE: 1,
    State.QUEUED: 2,
    State.RUNNING: 2,
    State.SUCCEEDED: 3,
    State.DEAD: 3,
    State.ABANDONED: 3,
    State.CANCELLED: 3,
    State.EXPIRED: 3,
}

_O, _W, _A = Actor.OWNER, Actor.WORKER, Actor.API

MOVES: dict[tuple[State, State], frozenset[Actor]] = {
    (State.HELD, State.DUE): frozenset({_O}),
    (State.HELD, State.CANCELLED): frozenset({_A, _O}),
    (State.DUE, State.QUEUED): frozenset({_O}),
    (State.DUE, State.RUNNING): frozenset({_W}),
    (State.DUE, State.CANCELLED): frozenset({_A, _O}),
    (State.DUE, State.EXPIRED): frozenset({_O}),
    (State.DUE, State.DEAD): frozenset({_O}),
    (State.QUEUED, State.RUNNING): frozenset({_W}),
    (State.QUEUED, State.DUE): frozenset({_O}),
    (State.QUEUED, State.CANCELLED): frozenset({_A, _O}),
    (State.QUEUED, State.EXPIRED): frozenset({_O}),
    (State.RUNNING, State.SUCCEEDED): frozenset({_W}),
    (State.RUNNING, State.DUE): frozenset({_W, _O}),
    (State.RUNNING, State.DEAD): frozenset({_W, _O}),
    (State.RUNNING, State.ABANDONED): frozenset({_W, _O}),
    (State.RUNNING, State.CANCELLED): frozenset({_W, _O}),
    (State.DEAD, State.DUE): frozenset({_A}),
    (State.DEAD, State.HELD): frozenset({_A}),
    (State.ABANDONED, State.DUE): frozenset({_A}),
    (State.ABANDONED, State.HELD): frozenset({_A}),
}
"""Every move there is. A redrive is the one move out of a terminal state."""


def allowed(before: State, after: State, actor: Actor) -> bool:
    """Whether this actor may make this move."""
    return actor in MOVES.get((before, after), frozenset())


def shown(state: State, failures: int) -> str:
    """The state as a user sees it."""
    return RETRYING if state is State.DUE and failures > 0 else state.value
