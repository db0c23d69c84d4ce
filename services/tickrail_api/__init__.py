"""The HTTP API: a composition root."""
