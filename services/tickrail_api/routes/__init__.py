"""The routes. A file here with a `router` is served: adding one is all it takes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from fastapi import APIRouter


def routers() -> Iterator[APIRouter]:
    """The router of each file in this folder, by name."""
    for module in sorted(m.name for m in iter_modules(__path__)):
        yield import_module(f"{__name__}.{module}").router
