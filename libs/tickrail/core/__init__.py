"""Pure decisions: no I/O and no clock.

The standard library, croniter (in cron.py alone) and dateutil (in recurrence_rules.py alone).
"""
