"""The command line `tickrail`."""
