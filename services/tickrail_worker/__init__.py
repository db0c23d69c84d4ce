"""The worker: intake and executors."""
