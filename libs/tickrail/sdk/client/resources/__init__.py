"""The parts of the API. Each method says what it asks; see `operation.py` for how it is offered."""
