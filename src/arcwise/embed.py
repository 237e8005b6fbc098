"""Embeddings of images: an Encoder applied batch by batch, whatever runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from os import PathLike
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from arcwise.data.images import Images, read_ahead
from arcwise.errors import ArcwiseError, NotFinite, count_at_least
from arcwise.records import Embeddings, Encoder
from arcwise.records.preprocessing import array_of, why_unusable

BATCH = 512


def embed(
    encoder: Encoder,
    images: Any,
    *,
    batch: int = BATCH,
    mirror: bool = False,
    about: Mapping[str, Any] | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> Embeddings:
    """The embeddings of all images, in their order, each with its key; `mirror` adds those of the mirror images.

    Images are those of a source (`arcwise.load`), or paths, bytes, Pillow's images or arrays, which the encoder's own
    preprocessing makes ready.

    >>> import arcwise
    >>> grey = arcwise.Preprocessing(side=8, channels=1, mean=(0.3,), std=(0.4,))
    >>> model = arcwise.Embedder(arcwise.ModelConfig(dim=2), preprocessing=grey)
    >>> found = embed(model, arcwise.load("digits").test)
    >>> found.x.shape, found.keys[0].startswith("digits#")
    ((359, 2), True)
    """
    count_at_least("batch", batch, 1)
    if isinstance(images, Images):
        encoder.preprocessing.refuse_other_shapes(images.shape)
        y, names, keys, read = images.y, images.names, images.keys, lambda row: np.asarray(images.pixels[row])
    else:
        many = image_list(images)
        y, names, keys = None, (), tuple(image_key(image, at) for at, image in enumerate(many))
        read = lambda row: np.stack([ready_pixels(encoder, many[at], keys[at]) for at in row])  # noqa: E731
    x = np.empty((len(keys), encoder.dim), np.float32)
    for row, pixels in read_ahead(read, batches_of(len(keys), batch)):
        x[row] = encode_rows(encoder, pixels, mirror=mirror)
        bad = ~np.isfinite(x[row]).all(axis=1)
        if bad.any():
            name = keys[row[bad.argmax()]]
            raise NotFinite(f"the embedding of image {name} is not finite: the model overflows on it. Train it again.")
        if tell is not None:
            tell(int(row[-1]) + 1, len(keys))
    return Embeddings(x, y, names, keys, encoder.fingerprint, about)


def encode_rows(
    encoder: Encoder, pixels: UInt8[np.ndarray, "n h w channels"], *, mirror: bool
) -> Float[np.ndarray, "n d"]:
    """The rows of one batch."""
    out = encoder.encode(pixels)
    return out + encoder.encode(pixels[:, :, ::-1]) if mirror else out


def ready_pixels(encoder: Encoder, image: Any, key: str) -> UInt8[np.ndarray, "h w channels"]:
    """One image as the encoder wants it, or an error that names it."""
    try:
        return encoder.preprocessing.pixels(image)
    except ArcwiseError as error:
        raise ArcwiseError(f"image {key}: {error}") from None
    except Exception as error:  # a broken file makes Pillow raise nearly anything
        raise ArcwiseError(f"image {key} cannot be used ({why_unusable(error)}). Leave it out, or mend it.") from None


def batches_of(n: int, batch: int) -> Iterator[Int[np.ndarray, " b"]]:
    """The rows of each batch, in order."""
    for start in range(0, n, batch):
        yield np.arange(start, min(start + batch, n))


def image_list(images: Any) -> Sequence[Any]:
    """One image or many as a list."""
    images = array_of(images)
    if isinstance(images, np.ndarray) and (images.ndim == 4 or (images.ndim == 3 and images.shape[2] not in (1, 3, 4))):
        return list(images)
    if isinstance(images, Sequence | Set | Iterator) and not isinstance(images, str | bytes):
        return images if isinstance(images, Sequence) else list(images)
    return [images]


def image_key(image: Any, place: int) -> str:
    """The path of an image that is a file; of any other its place among those handed over, as in #3."""
    if isinstance(image, str | PathLike):
        return str(image)
    return str(getattr(image, "filename", "") or f"#{place}")
