"""Training: `train` takes a configuration to a finished, resumable folder."""

from arcwise.train.loop import train as train

__all__ = ["train"]
