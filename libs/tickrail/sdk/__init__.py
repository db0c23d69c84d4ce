"""For users: a client of the HTTP API."""
