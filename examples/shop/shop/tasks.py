"""The shop's tasks: `tickrail worker --app shop.tasks:app` runs them."""

from __future__ import annotations

import asyncio
from collections import Counter
from decimal import Decimal
from pathlib import Path

from shop.orders import FILE, orders
from tickrail.sdk import App, Context, Fail, Retry

app = App()

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@app.task
def daily_report(context: Context, currency: str = "EUR") -> dict[str, object]:
    """Add up the day of the slot: not today's, so that a late or repeated run says the same."""
    day = _DAYS[context.scheduled_at.weekday()]
    found = [order for order in orders() if order.day == day]
    total = sum((order.amount for order in found), Decimal(0))
    context.log(f"{len(found)} orders on {day}")
    return {"day": day, "orders": len(found), "total": str(total), "currency": currency}


@app.task
def import_orders(context: Context, file: str = "", pause: float = 0.5) -> dict[str, int]:
    """Take orders over one by one, tell how far it is, and stop when it is asked to."""
    path = Path(file) if file else FILE
    if not path.exists():
        raise Fail(f"there is no file {path.name}")
    found = list(orders(path))
    for done, _ in enumerate(found):
        context.heartbeat({"done": done, "of": len(found)})
        if context.cancelled.wait(pause):
            context.log(f"stopped after {done}: {context.cancelled.reason}")
            break
    else:
        context.heartbeat({"done": len(found), "of": len(found)})
        return {"imported": len(found)}
    return {"imported": done}


@app.task
async def check_prices(context: Context, skus: list[str]) -> dict[str, str]:
    """Ask the supplier for all prices at once; the supplier is busy at first."""
    if context.attempt == 1:
        raise Retry("the supplier is busy", after=3)

    async def price(sku: str) -> tuple[str, str]:
        await asyncio.sleep(0.2)
        return sku, f"{len(sku)}.99"

    return dict(await asyncio.gather(*map(price, skus)))


@app.task(process=True)
def forecast(rounds: int = 200_000) -> dict[str, int]:
    """Count for long: in a process of its own, it keeps nothing else from running."""
    sold = Counter(order.sku for order in orders())
    seed = 1
    for _ in range(rounds):
        seed = (1_103_515_245 * seed + 12_345) % 2**31
        sold[sorted(sold)[seed % len(sold)]] += 1
    return dict(sold)
