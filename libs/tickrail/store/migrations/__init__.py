"""Migrations: `versions/` in order, each a `pre` or a `post` half."""
