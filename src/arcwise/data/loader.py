"""Batches on the training device: from pixels that lie there whole, or streamed ahead of need from disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from arcwise.config import DataConfig
from arcwise.data.images import Images, MappedRows, read_ahead
from arcwise.data.samplers import stream
from arcwise.data.transforms import SharedDraw, change_batch, normalise_pixels, pick_rows

PLAIN = DataConfig()


class Batch(NamedTuple):
    """Normalised images, their labels, and the rows of their set."""

    x: Float[Tensor, "b channels h w"]
    y: Int[Tensor, " b"]
    rows: Int[Tensor, " b"]


class Loader:
    """Batches of a set. `mean` and `std` are the preprocessing; `config` says how batches are changed at random.

    Up to `resident` bytes the pixels lie on the device as they are and a batch is one gather; beyond, workers
    read the coming batches from disk.

    >>> images = Images(pixels=np.zeros((6, 8, 8, 1), np.uint8), y=np.arange(6), names=tuple("abcdef"))
    >>> [len(batch.y) for batch in Loader(images, mean=(0.1,), std=(0.3,)).in_order(4)]
    [4, 2]
    """

    def __init__(
        self,
        images: Images,
        *,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        config: DataConfig = PLAIN,
        device: torch.device | str = "cpu",
        resident: int | None = None,
    ):
        self.images, self.mean, self.std, self.config = images, mean, std, config
        self.device = torch.device(device)
        self.draw = torch.Generator(device=self.device)
        limit = room(self.device) if resident is None else resident
        self.y = torch.from_numpy(np.ascontiguousarray(images.y)).to(self.device)
        self.pixels = as_tensor(images.pixels).to(self.device) if images.pixels.nbytes <= limit else None
        self.pinned = self.device.type == "cuda"

    def in_order(self, size: int) -> Iterator[Batch]:
        """Every image once, unchanged, the last batch as small as it comes."""
        rows = np.array_split(np.arange(len(self.images)), range(size, len(self.images), size))
        for index, pixels, place in self.read(rows):
            yield Batch(normalise_pixels(pixels[place], self.mean, self.std), self.y[index], index)

    def training(
        self,
        order: Iterable[np.ndarray],
        *,
        seed: int,
        first: int = 0,
        some: Callable[[int], np.ndarray] | None = None,
    ) -> Iterator[Batch]:
        """The batches of one epoch from `first` on; what happens to batch i depends on the seed and i alone.

        `some` says which places of a batch of so many are handled here, where processes share it out.
        """
        rows = list(order)[first:]
        places = [None if some is None else some(len(row)) for row in rows]
        mine = [row if place is None else row[place] for row, place in zip(rows, places, strict=True)]
        for step, (index, pixels, place) in enumerate(self.read(mine)):
            self.draw.manual_seed(stream("batch", seed, first + step))
            draw = self.draw
            if (here := places[step]) is not None:
                draw = SharedDraw(self.draw, len(rows[step]), torch.from_numpy(here).to(self.device))
            x = normalise_pixels(pick_rows(pixels, place, self.config, draw), self.mean, self.std)
            yield Batch(change_batch(x, self.config, draw), self.y[index], index)

    def read(self, rows: Iterable[np.ndarray]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each batch: its rows, pixels on the device, and where among those pixels its images are."""
        if self.pixels is not None:
            rows = list(rows)
            everything = torch.from_numpy(np.concatenate(rows)) if rows else torch.zeros(0, dtype=torch.int64)
            for index in everything.to(self.device).split([len(row) for row in rows]):
                yield index, self.pixels, index
            return
        for row, pixels in ahead(self.images.pixels, rows, pinned=self.pinned):
            index = torch.from_numpy(row).to(self.device, non_blocking=True)
            yield index, pixels.to(self.device, non_blocking=True), torch.arange(len(row), device=self.device)


def as_tensor(pixels: np.ndarray | MappedRows) -> Tensor:
    """The pixels as a tensor, in the same memory where that can be."""
    array = np.asarray(pixels)
    return torch.from_numpy(array if array.flags.c_contiguous and array.flags.writeable else array.copy())


def ahead(
    pixels: np.ndarray | MappedRows, rows: Iterable[np.ndarray], *, pinned: bool
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Batches of pixels, read by workers while the ones before are trained on."""

    def read(row: np.ndarray) -> Tensor:
        batch = torch.from_numpy(np.asarray(pixels[row]))
        return batch.pin_memory() if pinned else batch

    return read_ahead(read, rows)


def room(device: torch.device) -> int:
    """How many bytes of pixels may lie on the device: a third of what is free on a GPU, 4 GiB elsewhere."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free // 3
    return 4 * 2**30
