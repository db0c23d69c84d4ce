"""Documents of the issuer of tokens, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import httpx

from tickrail.core.clock import Clock
from tickrail.core.errors import UnavailableError

_MOST: Final = 1024 * 1024
_PATIENCE: Final = 3.0


def fetch_document(url: str, clock: Clock) -> Mapping[str, Any]:
    """The JSON object at a URL: of 1 MiB at most, within 3 s, no redirect followed.

    Raises:
        UnavailableError: it cannot be had.
    """
    until = clock.monotonic() + _PATIENCE
    raw = b""
    try:
        with (
            httpx.Client(timeout=_PATIENCE, trust_env=False) as client,
            client.stream("GET", url, headers={"Accept": "application/json"}) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                raise UnavailableError(f"{url} answers {answer.status_code}.")
            for chunk in answer.iter_bytes():
                raw += chunk
                if len(raw) > _MOST:
                    raise UnavailableError(f"{url} answers more than {_MOST} bytes.")
                if clock.monotonic() > until:
                    raise UnavailableError(f"{url} takes longer than {_PATIENCE:g} s.")
        found = json.loads(raw)
    except (httpx.HTTPError, httpx.InvalidURL) as e:
        raise UnavailableError(f"{url} does not answer ({type(e).__name__}).") from e
    except (ValueError, RecursionError) as e:
        raise UnavailableError(f"{url} does not answer JSON.") from e
    if not isinstance(found, dict):
        raise UnavailableError(f"{url} does not answer a JSON object.")
    return found
