"""The watchdog: whether every due slot was launched, and who has not succeeded in time."""
