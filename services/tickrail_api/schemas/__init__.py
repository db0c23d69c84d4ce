"""The documents of the API as models: they document, and never validate a request.

The one validator of a job is `tickrail.core.definition`; a test holds these fields and defaults to
its canonical document.
"""
