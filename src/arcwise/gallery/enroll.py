"""Images of somebody made into templates, and images of templates made out again."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from arcwise.data.images import pixel_hash
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

    def see(rows: np.ndarray, pixels: np.ndarray) -> None:
        for row, image in zip(rows.tolist(), pixels, strict=True):
            digests[row] = pixel_hash(image)
            kept[row] = image_bytes(work, row, image) if keep else None

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
        (found.x / length[:, None]).astype(np.float32), tuple(kept[row] for row in rows) if keep else (),
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


def is_one(images: Any) -> bool:
    """Whether one image was handed over rather than a list of them."""
    return not isinstance(images, list | tuple | set | ToEmbed) and len(image_list(images)) == 1


def image_bytes(work: ToEmbed, row: int, pixels: np.ndarray) -> bytes:
    """An image to keep: its file as it is, or its pixels as PNG."""
    from PIL import Image

    if row < len(work.files):
        return work.files[row].read_bytes()
    out = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(out, "PNG")
    return out.getvalue()


def kept_image(every: Templates, row: int, folder: str | Path | None) -> Any:
    """The image of a template: the one that is kept, or its file."""
    if every.images and every.images[row] is not None:
        return every.images[row]
    if folder is None:
        raise ArcwiseError(
            f"the image of {every.name[row]} ({every.key[row]}) was not kept: name the folder that the images are in."
        )
    key = Path(every.key[row])
    named = [] if key.is_absolute() or ".." in key.parts else [Path(folder) / key]
    for there in (*named, Path(folder) / key.parent.name / key.name):
        if there.is_file():
            return there
    raise ArcwiseError(f"the image of {every.name[row]} is not in {folder}: there is no {every.key[row]}.")
