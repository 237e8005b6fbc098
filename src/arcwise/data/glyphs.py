"""Images of characters, drawn from the fonts that matplotlib brings and distorted: hundreds of classes."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from arcwise.data.images import Images
from arcwise.errors import ArcwiseError

SIDE, BASE = 32, 48
FONTS = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSerif",
    "DejaVuSerif-Bold", "DejaVuSerif-Italic",
)  # fmt: skip
# Digits, Latin, Greek, Cyrillic, operators, shapes, Latin with accents; what looks the same is dropped below.
RANGES = ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A), (0x391, 0x3C9), (0x410, 0x44F), (0x2200, 0x22FF), (0x25A0, 0x25FF),
          (0xBF, 0x17F))  # fmt: skip
CLASSES, TRAIN, TEST = 400, 60, 20


def glyph_images(seed: int) -> tuple[Images, Images]:
    """A training and a test set: 400 characters, 60 and 20 drawings of each, 32 x 32, white on black."""
    characters, base = glyph_drawings()
    draw = torch.Generator().manual_seed(seed)
    per_class = TRAIN + TEST
    label = torch.arange(len(characters)).repeat_interleave(per_class)
    font = torch.randint(base.shape[1], (len(label),), generator=draw)
    pixels = torch.cat([distort(base[y, f], draw) for y, f in zip(label.split(4096), font.split(4096), strict=True)])
    images = Images(pixels=pixels.numpy(), y=label.numpy(), names=characters)
    in_test = np.arange(len(label)) % per_class >= TRAIN
    return images.take(np.flatnonzero(~in_test)), images.take(np.flatnonzero(in_test))


@functools.cache
def glyph_drawings() -> tuple[tuple[str, ...], Float[Tensor, "c fonts side side"]]:
    """The characters, and each one drawn once in every font; no two look alike."""
    fonts = [font_at(name) for name in FONTS]
    missing = [draw_character("\uffff", font) for font in fonts]
    characters, pictures, seen = [], [], set()
    for code in (code for low, high in RANGES for code in range(low, high + 1)):
        rows = [draw_character(chr(code), font) for font in fonts]
        look = rows[0].tobytes()
        there = all(row.any() and (row != blank).any() for row, blank in zip(rows, missing, strict=True))
        if there and look not in seen and len(characters) < CLASSES:
            seen.add(look)
            characters.append(chr(code))
            pictures.append(np.stack(rows))
    return tuple(characters), torch.from_numpy(np.stack(pictures)).float() / 255


def font_at(name: str):
    """One of the fonts in matplotlib's folder; matplotlib itself is not imported."""
    from PIL import ImageFont

    spec = importlib.util.find_spec("matplotlib")
    if spec is None or spec.origin is None:
        raise ArcwiseError("glyphs are drawn with the fonts that matplotlib brings: pip install 'arcwise[figures]'")
    return ImageFont.truetype(str(Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / f"{name}.ttf"), 30)


def draw_character(character: str, font) -> UInt8[np.ndarray, "side side"]:
    """One character in the middle of its square."""
    from PIL import Image, ImageDraw

    image = Image.new("L", (BASE, BASE))
    ImageDraw.Draw(image).text((BASE / 2, BASE / 2), character, fill=255, font=font, anchor="mm")
    return np.asarray(image)


def distort(base: Float[Tensor, "b base base"], draw: torch.Generator) -> UInt8[Tensor, "b side side 1"]:
    """Each drawing turned, sheared, scaled, shifted, blurred and made noisy at random, at 32 x 32."""
    b = len(base)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(b, generator=draw)

    turn, shear = uniform(-0.21, 0.21), uniform(-0.2, 0.2)
    wide, high = uniform(0.75, 0.95), uniform(0.75, 0.95)
    theta = torch.stack(
        [
            torch.stack([turn.cos() * wide, (-turn.sin() + shear) * high, uniform(-0.12, 0.12)], 1),
            torch.stack([turn.sin() * wide, turn.cos() * high, uniform(-0.12, 0.12)], 1),
        ], 1,
    )  # fmt: skip
    grid = F.affine_grid(theta, [b, 1, SIDE, SIDE], align_corners=False)
    image = F.grid_sample(base.unsqueeze(1), grid, align_corners=False)
    soft = F.avg_pool2d(image, 3, stride=1, padding=1)
    blur = uniform(0.0, 0.8).view(b, 1, 1, 1)
    image = (image * (1 - blur) + soft * blur) * uniform(0.6, 1.0).view(b, 1, 1, 1)
    image = image + 0.06 * torch.randn(image.shape, generator=draw)
    return (image.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
