"""`python -m tickrail_cli` is `tickrail`."""

from tickrail_cli.main import main

main()
