"""The scheduler: ownership, tick, relay, reaper, retention."""
