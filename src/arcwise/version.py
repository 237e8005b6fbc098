"""The version, where whoever needs it finds it without the rest of the package."""

__version__ = "0.1.0"
