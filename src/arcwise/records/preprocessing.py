"""Preprocessing: what is done to an image before a network sees it, in numpy and Pillow, the same wherever it runs."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8

from arcwise.config import FITS, RESAMPLES
from arcwise.errors import ArcwiseError, count_in, number_in, one_of

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

# What files are decoded as, and nothing else, whatever they are called: no format that runs a program of its own, as
# EPS does with Ghostscript.
FORMATS = (
    "AVIF", "BMP", "DIB", "GIF", "ICO", "JPEG", "JPEG2000", "MPO", "PCX", "PNG", "PPM", "QOI", "SGI", "TGA", "TIFF",
    "WEBP",
)  # fmt: skip
LONGEST_PADDED = 8192  # pixels of a side, before an image is padded to a square
LARGEST_IMAGE = 256_000_000  # pixels; today's largest telephones take 200 million
GREY = (19595, 38470, 7471)  # ITU-R 601 in 1/65536, as Pillow has it
RESIZED_AT_ONCE = 4096  # images of an array


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """How an image becomes a square: its side and channels, how it is fitted into it, how it is resampled.

    fit: "crop" takes the middle square, "pad" draws the border out until the image is square, "stretch" takes all of
    it. resample: "bicubic" is Pillow's, "bilinear" a triangle filter in floating point, as torch's.
    """

    side: int
    channels: int
    fit: str = "crop"
    resample: str = "bicubic"

    def __post_init__(self) -> None:
        count_in("side", self.side, 1, 2**15)
        count_in("channels", self.channels, 1, 4096)
        one_of("fit", self.fit, FITS)
        one_of("resample", self.resample, RESAMPLES)

    def pixels(self, image: str | Path | bytes | Picture | np.ndarray) -> UInt8[np.ndarray, "side side channels"]:
        """One image, from its file, its bytes, Pillow's object or an array of 0 to 255, as the network is to see it.

        Upright, transparency on white, 16 bits brought to 8, grey or colour as asked for.

        >>> Framing(side=2, channels=1).pixels(np.full((4, 6, 3), 200, np.uint8)).ravel().tolist()
        [200, 200, 200, 200]
        """
        image = array_of(image)
        if isinstance(image, np.ndarray):
            return self.framed(with_channels(checked_array(image, self.channels), self.channels))
        return self.framed(self.opened(image))

    def opened(self, image: str | Path | bytes | Picture) -> UInt8[np.ndarray, "h w channels"]:
        """The pixels of a file, of bytes or of Pillow's object, upright, at their own size."""
        from PIL import Image, ImageOps

        if self.channels not in (1, 3):
            raise ArcwiseError(f"files are grey or colour, and the model takes {self.channels} channels: pass arrays.")
        mode = "RGB" if self.channels == 3 else "L"
        source = io.BytesIO(image) if isinstance(image, bytes) else image
        if not isinstance(source, str | PathLike | io.BytesIO | Image.Image):
            raise ArcwiseError(f"an image is a path, bytes, Pillow's image or an array, got {type(image).__name__}.")
        with contextlib.ExitStack() as stack:
            if isinstance(source, Image.Image):
                picture = source
            else:
                picture = stack.enter_context(Image.open(source, formats=known_formats()))
                picture.draft(mode, (2 * self.side, 2 * self.side))
            picture = ImageOps.exif_transpose(picture)
            if picture.mode.startswith(("I", "F")):
                picture = Image.fromarray(eight_bits(np.asarray(picture)))  # 16 bits: 65535 is white; floats: 1 is
            if "A" in picture.mode or "transparency" in picture.info:
                picture = picture.convert("RGBA")
                picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
            pixels = np.asarray(picture.convert(mode))
        return pixels.reshape(*pixels.shape[:2], self.channels)

    def framed(self, pixels: UInt8[np.ndarray, "h w channels"]) -> UInt8[np.ndarray, "side side channels"]:
        """Pixels of the right channels, fitted and resampled."""
        height, width = pixels.shape[:2]
        if (height, width) == (self.side, self.side):
            return pixels
        left, top, right, bottom = 0.0, 0.0, float(width), float(height)
        if self.fit == "crop":
            short = min(height, width)
            left, top = (width - short) * 0.5, (height - short) * 0.5
            right, bottom = left + short, top + short
        elif self.fit == "pad" and height != width:
            pixels = shrunk_to(pixels, LONGEST_PADDED)
            height, width = pixels.shape[:2]
            more = abs(height - width)
            beside, none = (more // 2, more - more // 2), (0, 0)
            sides = (beside, none, none) if width > height else (none, beside, none)
            pixels = np.pad(pixels, sides, mode="edge")
            right = bottom = float(max(height, width))
        if self.resample == "bilinear":
            return bilinear(pixels[None], self.side, rows=(top, bottom), columns=(left, right))[0]
        return bicubic(pixels, self.side, (left, top, right, bottom))

    def framed_all(self, pixels: UInt8[np.ndarray, "n h w _"]) -> UInt8[np.ndarray, "n side side channels"]:
        """The same of an array of images that are all of one size."""
        pixels = with_channels(pixels, self.channels)
        if pixels.shape[1:3] == (self.side, self.side):
            return pixels
        if self.fit == "stretch" and self.resample == "bilinear":
            blocks = range(0, len(pixels), RESIZED_AT_ONCE)
            made = [bilinear(np.asarray(pixels[i : i + RESIZED_AT_ONCE]), self.side) for i in blocks]
        else:
            made = [self.framed(image)[None] for image in pixels]
        return np.concatenate(made) if made else np.zeros((0, self.side, self.side, self.channels), np.uint8)


def shrunk_to(pixels: UInt8[np.ndarray, "h w c"], longest: int) -> UInt8[np.ndarray, "h2 w2 c"]:
    """Pixels no side of which is longer: means of blocks where one is, for padded to a square they would fill memory.

    >>> shrunk_to(np.zeros((1, 10, 1), np.uint8), 4).shape
    (1, 4, 1)
    """
    factor = -(-max(pixels.shape[:2]) // longest)
    if factor == 1:
        return pixels
    for axis in (0, 1):
        starts = np.arange(0, pixels.shape[axis], factor)
        sizes = np.diff(starts, append=pixels.shape[axis]).reshape([-1, 1, 1] if axis == 0 else [1, -1, 1])
        pixels = np.round(np.add.reduceat(pixels, starts, axis, np.uint32) / sizes).astype(np.uint8)
    return pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing(Framing):
    """What is done to an image before the network sees it: made a square, then (x / 255 - mean) / std by channel.

    >>> look = Preprocessing(side=2, channels=1, mean=(0.5,), std=(0.25,))
    >>> look.batch(look.pixels(np.full((2, 2), 255, np.uint8))[None]).ravel().tolist()
    [2.0, 2.0, 2.0, 2.0]
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        Framing.__post_init__(self)
        if not len(self.mean) == len(self.std) == self.channels:
            raise ArcwiseError(f"mean and std need {self.channels} numbers each, got {self.mean} and {self.std}.")
        for mean, std in zip(self.mean, self.std, strict=True):
            number_in("mean", mean, -1e6, 1e6)
            number_in("std", std, 1e-6, 1e6)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Preprocessing:
        """The preprocessing in a model's file."""
        try:
            return cls(**{**values, "mean": tuple(values["mean"]), "std": tuple(values["std"])})
        except (KeyError, TypeError) as error:
            raise ArcwiseError(f"the preprocessing is not as arcwise writes it ({error}).") from None

    def batch(self, pixels: UInt8[np.ndarray, "n h w channels"]) -> Float[np.ndarray, "n channels h w"]:
        """The images as float32, normalised, channels first: what the network itself takes."""
        self.admit_pixels(pixels)
        out = np.empty((len(pixels), self.channels, *pixels.shape[1:3]), np.float32)
        for c, (factor, shift) in enumerate(self.normalisation):
            out[:, c] = pixels[..., c]
            out[:, c] *= np.float32(factor)
            out[:, c] -= np.float32(shift)
        return out

    @property
    def normalisation(self) -> list[tuple[float, float]]:
        """For each channel the factor of a byte, and what is then taken away."""
        return [(1 / (255 * std), mean / std) for mean, std in zip(self.mean, self.std, strict=True)]

    def admit_pixels(self, pixels: np.ndarray) -> None:
        """Raises unless these are bytes of images of the side and channels that the model was made for."""
        if pixels.dtype != np.uint8:
            raise ArcwiseError(
                f"pixels are bytes, 0 to 255 in uint8, got {pixels.dtype}. If they were divided by 255 or normalised, "
                "pass them as they were before: the model does that itself."
            )
        self.refuse_other_shapes(pixels.shape[1:])

    def refuse_other_shapes(self, shape: tuple[int, ...]) -> None:
        """Raises unless images are of the side and channels that the model was made for."""
        wanted = (self.side, self.side, self.channels)
        if tuple(shape) != wanted:
            raise ArcwiseError(
                f"the model takes images of {' x '.join(map(str, wanted))}, these are {' x '.join(map(str, shape))}: "
                f"load them with size={self.side} and channels={self.channels}."
            )


@lru_cache(maxsize=1)
def known_formats() -> list[str]:
    """Those of FORMATS that this Pillow reads."""
    from PIL import Image

    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


def array_of(image: Any) -> Any:
    """A tensor as an array; anything else as it is."""
    tensor = hasattr(image, "__array__") and not hasattr(image, "__array_interface__")
    try:
        return np.asarray(image) if tensor else image
    except TypeError:
        kind = getattr(image, "dtype", type(image).__name__)
        raise ArcwiseError(f"an image is an array of bytes, 0 to 255, got {kind}.") from None


def checked_array(image: np.ndarray, channels: int) -> UInt8[np.ndarray, "h w channels"]:
    """An array that can be an image, with a channel axis; what is not bytes is named, never guessed."""
    if image.dtype == np.uint16:
        image = eight_bits(image)
    if image.dtype != np.uint8:
        raise ArcwiseError(
            f"an image is an array of bytes, 0 to 255, got {image.dtype}. If it was divided by 255 or normalised, pass "
            "it as it was before: the model does that itself."
        )
    image = image[..., None] if image.ndim == 2 else image
    if image.ndim != 3 or image.shape[2] not in (1, 3, 4, channels) or 0 in image.shape:
        hint = " Move the channels last." if image.ndim == 3 and image.shape[0] in (1, 3) else ""
        raise ArcwiseError(f"an image is (height, width) or (height, width, channels), got {image.shape}.{hint}")
    if image.shape[2] == 4 != channels:  # transparency on white
        alpha = image[..., 3:].astype(np.float32) / 255
        image = np.round(image[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
    return image


def with_channels(pixels: UInt8[np.ndarray, "*n c"], channels: int) -> UInt8[np.ndarray, "*n k"]:
    """Grey as colour, colour as grey (by ITU-R 601), or the pixels as they are."""
    found = pixels.shape[-1]
    if found == channels:
        return pixels
    if found == 1:
        return np.repeat(pixels, channels, axis=-1)
    if (found, channels) == (3, 1):
        weighted = np.asarray(pixels).astype(np.uint32) @ np.array(GREY, np.uint32)
        return ((weighted + 0x8000) >> 16).astype(np.uint8)[..., None]
    raise ArcwiseError(f"images of {found} channels cannot be made into images of {channels}.")


def eight_bits(values: np.ndarray) -> UInt8[np.ndarray, ...]:
    """Grey values of 16 bits (65535 is white) or floats (1 is white) as 0 to 255; the same scale for every image."""
    top = 1.0 if values.dtype.kind == "f" else 65535.0
    if not (values.min(initial=0) >= 0 and values.max(initial=0) <= top):  # not a number is neither
        raise ValueError(f"grey values outside 0 to {top:g}")
    return np.round(values.astype(np.float64) * (255.0 / top)).astype(np.uint8)


def bicubic(pixels: UInt8[np.ndarray, "h w c"], side: int, box: tuple[float, ...]) -> UInt8[np.ndarray, "s s c"]:
    """A part of one image, (left, top, right, bottom), at side x side."""
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    made = np.asarray(image.resize((side, side), Image.Resampling.BICUBIC, box=box))  # type: ignore[arg-type]
    return made.reshape(side, side, pixels.shape[2])


def bilinear(
    pixels: UInt8[np.ndarray, "n h w c"],
    side: int,
    *,
    rows: tuple[float, float] | None = None,
    columns: tuple[float, float] | None = None,
) -> UInt8[np.ndarray, "n s s c"]:
    """Images at side x side by a triangle filter, as wide as a pixel of the result where they shrink.

    The arithmetic is that of torch's antialiased interpolation, to the bit: float32, a multiplication and an addition
    rounded once.
    """
    height, width = pixels.shape[1:3]
    made = pixels.astype(np.float32)
    for axis, length, span in ((2, width, columns), (1, height, rows)):
        made = filtered(made, axis, triangle(length, side, *(span or (0.0, float(length)))))
    return made.round().clip(0, 255).astype(np.uint8)


class Taps(NamedTuple):
    """For each pixel of a result the pixels it is made of, and how much each counts."""

    places: Int[np.ndarray, "side taps"]
    weight: Float[np.ndarray, "side taps"]


def filtered(values: Float[np.ndarray, "n h w c"], axis: int, taps: Taps) -> Float[np.ndarray, "n a b c"]:
    """The weighted sums along one axis, term by term."""
    shape = [1, 1, 1, 1]
    shape[axis] = -1
    total = values.take(taps.places[:, 0], axis) * taps.weight[:, 0].reshape(shape)
    for place, weight in zip(taps.places.T[1:], taps.weight.T[1:], strict=True):
        term = values.take(place, axis).astype(np.float64) * weight.astype(np.float64).reshape(shape)
        total = (total + term).astype(np.float32)
    return total


@lru_cache(maxsize=64)
def triangle(length: int, side: int, start: float, stop: float) -> Taps:
    """How `side` pixels that cover start to stop are made of `length` pixels.

    >>> (7 * triangle(4, 2, 0.0, 4.0).weight).round().tolist()
    [[3.0, 3.0, 1.0], [1.0, 3.0, 3.0]]
    """
    one, half = np.float32(1), np.float32(0.5)
    scale = np.float32((stop - start) / side)
    wide = max(scale, one)
    middle = np.float32(start) + scale * (np.arange(side, dtype=np.float32) + half)
    first = np.maximum((middle - wide + half).astype(np.int64), 0)
    last = np.minimum((middle + wide + half).astype(np.int64), length)
    index = first[:, None] + np.arange(int((last - first).max()))
    far = np.abs((index.astype(np.float32) - middle[:, None] + half) * (one / wide))
    weight = np.where((far < one) & (index < last[:, None]), one - far, np.float32(0))
    total = np.zeros(side, np.float32)
    for column in weight.T:
        total = total + column
    return Taps(np.minimum(index, length - 1), weight / total[:, None])


@contextlib.contextmanager
def no_bombs() -> Iterator[None]:
    """Makes Pillow refuse images of more than 256 million pixels, and keeps its other warnings quiet."""
    from PIL import Image

    before = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        Image.MAX_IMAGE_PIXELS = LARGEST_IMAGE
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = before


def why_unusable(error: Exception) -> str:
    """Why an image cannot be used, in few words."""
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, (Image.DecompressionBombWarning, Image.DecompressionBombError)):
        return "larger than any photograph (a decompression bomb)"
    if isinstance(error, UnidentifiedImageError):
        return "no image that Pillow can read"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"
