"""The command line as `python -m arcwise`."""

from arcwise.cli import main

main()
