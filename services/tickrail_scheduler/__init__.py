"""The scheduler: ownership, tick, relay, reaper, history."""
