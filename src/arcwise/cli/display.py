"""Progress: one object that shows how far anything is, whatever it is handed to."""

from __future__ import annotations

from typing import Any

from arcwise.cli.comparison_display import ComparisonDisplay
from arcwise.cli.progress import Counter, TrainDisplay, byte_text, teller


class Progress:
    """Shows on stderr how far `load`, `train`, `compare` and `report` are: hand it over as their `listener` or `tell`.

    >>> import arcwise
    >>> with arcwise.Progress() as progress:
    ...     parts = arcwise.load("digits", tell=progress)
    """

    def __init__(self) -> None:
        self.training, self.comparing = TrainDisplay(), ComparisonDisplay()
        self.loading, self.reporting = Counter(byte_text), teller()

    def __call__(self, *told: Any) -> None:
        """`load` tells a name and two numbers, `compare` a job and an event, `train` an event, `report` a name."""
        if len(told) == 3:
            self.loading(*told)
        elif len(told) == 2:
            self.comparing(*told)
        else:  # whatever came before is over: one live panel at a time
            self.comparing.close()
            if isinstance(told[0], dict):
                self.training(told[0])
            else:
                self.reporting(told[0])

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.training.close()
        self.comparing.close()
