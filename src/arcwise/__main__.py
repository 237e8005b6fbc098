"""The command line as `python -m arcwise`."""

from arcwise.cli import main

if __name__ == "__main__":  # processes that are spawned import this file too
    main()
