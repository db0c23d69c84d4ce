"""Use cases and loop bodies; imports core only."""
