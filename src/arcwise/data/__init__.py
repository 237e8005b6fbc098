"""Returns images by name: sources, class filters, splits, batches that are changed on the device."""

from arcwise.data.images import Images as Images
from arcwise.data.loader import Batch as Batch
from arcwise.data.loader import Loader as Loader
from arcwise.data.sources import SOURCES as SOURCES
from arcwise.data.sources import Splits as Splits
from arcwise.data.sources import load as load

__all__ = ["SOURCES", "Batch", "Images", "Loader", "Splits", "load"]
