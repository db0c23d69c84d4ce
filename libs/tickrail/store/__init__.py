"""PostgreSQL, behind the ports of core."""
