"""Returns what the command line returns: `python -m arcwise`."""

from arcwise.cli import main

main()
