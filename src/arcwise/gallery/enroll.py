"""Images of somebody made into templates, and images of templates made out again."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from arcwise.data.folder import images_under
from arcwise.data.images import Images, pixel_hash
from arcwise.embed import ToEmbed, embed, watched
from arcwise.errors import ArcwiseError
from arcwise.records import Encoder, image_list
from arcwise.records.gallery import Templates

IN_ONE_COMMIT = 2048  # templates at least, whole identities


def templates_of(
    encoder: Encoder, name: str, work: ToEmbed, *, tags: tuple[str, ...], keep: bool, broken: dict[str, str] | None
) -> Templates | None:
    """The templates of one identity, whose id is still open; None where no image could be read."""
    digests: dict[int, int] = {}
    kept: dict[int, bytes | None] = {}
    origins: dict[int, int] = {}

    def see(rows: np.ndarray, pixels: np.ndarray) -> None:
        for row, image in zip(rows.tolist(), pixels, strict=True):
            digests[row], found = pixel_hash(image), work.original(row)
            origins[row] = 0 if found is None else content_hash(found)
            kept[row] = (as_png(image) if found is None else found) if keep else None

    found = embed(encoder, watched(work, see), broken=broken)
    if not len(found):
        if broken is None:
            raise ArcwiseError(f"{name} needs at least one image.")
        return None
    length = np.linalg.norm(found.x.astype(np.float64), axis=1)
    if not (length > 0).all():
        raise ArcwiseError(f"an image of {name} has an embedding of length 0, which points nowhere: leave it out.")
    rows, n = sorted(digests), len(found)
    return Templates(
        np.zeros(n, np.int64), ("",) * n, (name,) * n, (tags,) * n, found.keys or (),
        np.array([digests[row] for row in rows], np.uint64), length.astype(np.float32),
        (found.x / length[:, None]).astype(np.float32), np.array([origins[row] for row in rows], np.uint64),
        tuple(kept[row] for row in rows) if keep else (),
    )  # fmt: skip


def batches_of(works: dict[str, ToEmbed]) -> Iterator[list[str]]:
    """Names in batches of whole identities."""
    names, size = [], 0
    for name, work in works.items():
        names.append(name)
        size += len(work)
        if size >= IN_ONE_COMMIT:
            yield names
            names, size = [], 0
    if names:
        yield names


def runs_of_names(every: Templates) -> list[Templates]:
    """Templates in their order, cut wherever another name begins."""
    starts = [row for row in range(len(every)) if not row or every.name[row] != every.name[row - 1]]
    return [every.take(np.arange(a, b)) for a, b in zip(starts, [*starts[1:], len(every)], strict=True)]


def is_one(images: Any) -> bool:
    """Whether one image was handed over rather than a list of them."""
    many = isinstance(images, list | tuple | set | ToEmbed | Images)
    return not many and getattr(images, "ndim", 3) < 4 and len(image_list(images)) == 1


def content_hash(content: bytes) -> int:
    """A number that two files share when they hold the same bytes, and hardly ever otherwise; never 0."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") or 1


def as_png(pixels: np.ndarray) -> bytes:
    """An image that was no file, as one."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(out, "PNG")
    return out.getvalue()


def images_again(every: Templates, folder: str | Path | None) -> list[Any]:
    """The image of each template: the one that is kept, or the file below a folder that holds the same bytes.

    Wherever it lies by now and whatever it is called: nobody is taken for a namesake.
    """
    lacking = [row for row in range(len(every)) if not every.images or every.images[row] is None]
    if not lacking:
        return list(every.images)
    first = lacking[0]
    if folder is None:
        raise ArcwiseError(
            f"the image of {every.name[first]} ({every.key[first]}) was not kept: name the folder that images are in."
        )
    there = {content_hash(path.read_bytes()): path for path in images_under(Path(folder))}
    out: list[Any] = list(every.images) or [None] * len(every)
    for row in lacking:
        found = there.get(int(every.origin[row])) if every.origin[row] else None
        if found is None:
            raise ArcwiseError(
                f"the image of {every.name[row]} ({every.key[row]}) is not in {folder}, has changed, or was no file: "
                "bring it, or remove whom it shows and add her anew."
            )
        out[row] = found
    return out
