"""Pure decisions: the standard library and croniter (in cron.py alone); no I/O and no clock."""
