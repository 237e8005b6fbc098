"""Images by name: sources, class filters, splits, and batches that are changed on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arcwise.data.images import Images as Images
from arcwise.data.sources import SOURCES as SOURCES
from arcwise.data.sources import Source as Source
from arcwise.data.sources import Splits as Splits
from arcwise.data.sources import load as load

if TYPE_CHECKING:
    from arcwise.data.loader import Batch as Batch
    from arcwise.data.loader import Loader as Loader


def __getattr__(name: str) -> object:
    """Batches need torch; images and their sources do not."""
    if name not in ("Batch", "Loader"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from arcwise.data import loader

    return getattr(loader, name)
