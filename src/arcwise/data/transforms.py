"""Batches changed at random: all images flipped, shifted, turned and covered at random, at once, on their device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from arcwise.config import DataConfig

Pixels = UInt8[Tensor, "n h w channels"]
Picked = UInt8[Tensor, "b h w channels"]
FloatImages = Float[Tensor, "b channels h w"]


class SharedDraw(NamedTuple):
    """The random numbers of a whole batch of `b` images, of which only the rows `some` are handled here.

    So what happens to an image does not depend on how many processes share the batch out.
    """

    draw: torch.Generator
    b: int
    some: Int[Tensor, " n"]

    @property
    def device(self) -> torch.device:
        """Where the numbers are drawn."""
        return self.draw.device


Draw = torch.Generator | SharedDraw


def uniform(draw: Draw, b: int, *shape: int) -> Tensor:
    """Numbers from 0 to 1, one row for each of b images."""
    if isinstance(draw, SharedDraw):
        return torch.rand(draw.b, *shape, generator=draw.draw, device=draw.device)[draw.some]
    return torch.rand(b, *shape, generator=draw, device=draw.device)


def whole_numbers(draw: Draw, low: int, high: int, b: int) -> Int[Tensor, "b 1"]:
    """Whole numbers from low to high - 1, one for each of b images."""
    if isinstance(draw, SharedDraw):
        return torch.randint(low, high, (draw.b, 1), generator=draw.draw, device=draw.device)[draw.some]
    return torch.randint(low, high, (b, 1), generator=draw, device=draw.device)


def pick_rows(pixels: Pixels, index: Int[Tensor, " b"], config: DataConfig, draw: Draw) -> Picked:
    """The rows of `index`, shifted by up to `config.shift` pixels and mirrored half of the time, in one gather.

    What a shift brings in from outside is the image reflected at its border.
    """
    if not (config.flip or config.shift):
        return pixels[index]
    _, h, w, _ = pixels.shape
    rows = shift_positions(len(index), h, config.shift, draw)
    columns = shift_positions(len(index), w, config.shift, draw)
    if config.flip:
        mirror = uniform(draw, len(index), 1) < 0.5
        columns = torch.where(mirror, columns.flip(1), columns)
    return pixels[index.view(-1, 1, 1), rows.unsqueeze(2), columns.unsqueeze(1)]


def shift_positions(b: int, length: int, most: int, draw: Draw) -> Int[Tensor, "b length"]:
    """For each image the positions 0..length-1 moved by -most..most, reflected at both ends."""
    most = min(most, length - 1)
    by = whole_numbers(draw, -most, most + 1, b)
    position = (torch.arange(length, device=draw.device) + by).abs()
    return (length - 1) - (length - 1 - position).abs()


def normalise_pixels(pixels: Pixels, mean: Sequence[float], std: Sequence[float]) -> FloatImages:
    """(x / 255 - mean) / std as floating-point numbers, channels first in shape and last in memory.

    >>> normalise_pixels(torch.full((1, 1, 1, 1), 255, dtype=torch.uint8), [0.5], [0.5])
    tensor([[[[1.]]]])
    """
    channels = pixels.shape[3]
    if channels == 1:  # numbers, not tensors: nothing waits for a copy to the device
        return pixels.permute(0, 3, 1, 2).float().mul(1 / (255 * std[0])).sub(mean[0] / std[0])
    planes = [pixels[..., c].float().mul(1 / (255 * std[c])).sub(mean[c] / std[c]) for c in range(channels)]
    return torch.stack(planes, dim=3).permute(0, 3, 1, 2)


def turn_images(x: FloatImages, degrees: float, draw: Draw) -> FloatImages:
    """Each image turned about its middle by up to so many degrees; the border is drawn out."""
    b = len(x)
    angle = (2 * uniform(draw, b) - 1) * math.radians(degrees)
    zero = torch.zeros_like(angle)
    across = x.shape[2] / x.shape[3]
    theta = torch.stack([angle.cos(), -angle.sin() * across, zero, angle.sin() / across, angle.cos(), zero], 1)
    grid = F.affine_grid(theta.view(b, 2, 3), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


def cover_squares(x: FloatImages, side: int, draw: Draw) -> FloatImages:
    """Each image with one square set to 0, the mean, somewhere wholly or partly inside  (DeVries & Taylor 2017)."""
    b, _, h, w = x.shape

    def inside(length: int) -> Tensor:
        middle = whole_numbers(draw, 0, length, b)
        distance = torch.arange(length, device=x.device) - middle + side // 2
        return (distance >= 0) & (distance < side)

    hole = inside(h).unsqueeze(2) & inside(w).unsqueeze(1)
    return x.masked_fill(hole.unsqueeze(1), 0.0)


def change_batch(x: FloatImages, config: DataConfig, draw: Draw) -> FloatImages:
    """A normalised batch turned and covered as the configuration asks."""
    if config.rotate:
        x = turn_images(x, config.rotate, draw)
    if config.cutout:
        x = cover_squares(x, config.covered(x.shape[3]), draw)
    return x
