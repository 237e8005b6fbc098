"""Images as people hand them over: paths, bytes, Pillow's, arrays or tensors, one or many; and their embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from os import PathLike
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from arcwise.errors import ArcwiseError
from arcwise.records.encoder import Encoder
from arcwise.records.preprocessing import Framing, array_of, no_bombs, why_unusable

PICTURES_AT_ONCE = 256


class Unusable(ArcwiseError):  # noqa: N818
    """An image that cannot be read, or not as the model wants it; `reason` is in few words."""

    def __init__(self, key: str, reason: str, hint: str = ""):
        super().__init__(f"image {key} cannot be used ({reason}).{hint}")
        self.key, self.reason = key, reason


def rows_of(encoder: Encoder, images: Any) -> Float[np.ndarray, "n d"]:
    """The raw embeddings of one image or many, made ready by the encoder's own preprocessing."""
    many = image_list(images)
    x = np.empty((len(many), encoder.dim), np.float32)
    for start in range(0, len(many), PICTURES_AT_ONCE):
        some = range(start, min(start + PICTURES_AT_ONCE, len(many)))
        with no_bombs():
            ready = [ready_pixels(encoder.preprocessing, many[at], image_key(many[at], at)) for at in some]
        x[some.start : some.stop] = encoder.encode(np.stack(ready))
    return x


def image_list(images: Any) -> Sequence[Any]:
    """One image or many as a list.

    >>> len(image_list("a.png")), len(image_list(["a.png", "b.png"])), len(image_list(np.zeros((3, 8, 8, 1), np.uint8)))
    (1, 2, 3)
    """
    images = array_of(images)
    if isinstance(images, np.ndarray) and (images.ndim == 4 or (images.ndim == 3 and images.shape[2] not in (1, 3, 4))):
        if images.ndim == 3 and len(images) == 3:
            raise ArcwiseError(
                f"an array of {' x '.join(map(str, images.shape))} is one image with its channels first, or three grey "
                "ones: move the channels of one last, as in image.transpose(1, 2, 0), or pass a list of three."
            )
        return list(images)
    if isinstance(images, Sequence | Set | Iterator) and not isinstance(images, str | bytes):
        return images if isinstance(images, Sequence) else list(images)
    return [images]


def image_key(image: Any, place: int) -> str:
    """The path of an image that is a file; of any other its place among those handed over, as in #3."""
    if isinstance(image, str | PathLike):
        return str(image)
    return str(getattr(image, "filename", "") or f"#{place}")


def ready_pixels(look: Framing, image: Any, key: str) -> UInt8[np.ndarray, "h w channels"]:
    """One image as a model wants it, or an error that names it."""
    try:
        return look.pixels(image)
    except ArcwiseError as error:
        raise ArcwiseError(f"image {key}: {error}") from None
    except Exception as error:  # a broken file makes Pillow raise nearly anything
        raise Unusable(key, why_unusable(error), " Leave it out, or mend it.") from None
