"""What a launch runs: one file per kind of target."""
