"""For receivers of webhooks: one effect for each launch, however often it is delivered.

Tickrail runs a launch at least once: after a crash or a lost answer the same webhook comes again,
with the same `Idempotency-Key` and a higher `Fencing-Token`. What is here answers such a request
from a store in place of running its handler, turns away what comes too late, and checks signatures.

    store = PostgresStore(pool.connection)
    rules = ReceiverRules(store=store, paths=["/hooks/*"], secrets=["whsec_..."])
    app.add_middleware(AsgiReceiver, rules=rules)            # FastAPI, Starlette
    app.wsgi_app = WsgiReceiver(app.wsgi_app, rules)         # Flask

Nothing but the standard library is imported. docs/receivers.md has the rest.
"""

from tickrail.sdk.receiver.asgi import AsgiReceiver
from tickrail.sdk.receiver.delivery import Delivery, delivery_of, read_delivery
from tickrail.sdk.receiver.guard import ReceiverRules
from tickrail.sdk.receiver.memory import MemoryStore
from tickrail.sdk.receiver.postgres import Effect, PostgresStore
from tickrail.sdk.receiver.signature import SignatureError, Signed, sign, verify
from tickrail.sdk.receiver.store import (
    Answer,
    Begun,
    Done,
    Fenced,
    FencedError,
    IdempotencyStore,
    InProgress,
    Started,
)
from tickrail.sdk.receiver.wsgi import WsgiReceiver

__all__ = [
    "Answer",
    "AsgiReceiver",
    "Begun",
    "Delivery",
    "Done",
    "Effect",
    "Fenced",
    "FencedError",
    "IdempotencyStore",
    "InProgress",
    "MemoryStore",
    "PostgresStore",
    "ReceiverRules",
    "SignatureError",
    "Signed",
    "Started",
    "WsgiReceiver",
    "delivery_of",
    "read_delivery",
    "sign",
    "verify",
]
