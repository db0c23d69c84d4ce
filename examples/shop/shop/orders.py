"""The shop's orders, in a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

FILE = Path(__file__).parent.parent / "data/orders.csv"


@dataclass(frozen=True)
class Order:
    """One order."""

    number: int
    day: str
    sku: str
    amount: Decimal


def orders(file: Path = FILE) -> Iterator[Order]:
    """All orders of a file."""
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            yield Order(int(row["number"]), row["day"], row["sku"], Decimal(row["amount"]))
