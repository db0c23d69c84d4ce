"""The shell of a process: settings, logs, metrics, health, signals."""
