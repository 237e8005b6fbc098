"""Returns what the interactive view needs: points of every head over the epochs, their images, colours and names."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from arcwise.figures import class_colour
from arcwise.metrics.identification import has_linear_head
from arcwise.metrics.projection import projected
from arcwise.metrics.rows import directions
from arcwise.records import Embeddings
from arcwise.report.drawings import pixels_of
from arcwise.report.subject import Subject

if TYPE_CHECKING:
    from arcwise.data import Images

POINTS = 700
MOST = 6  # heads to choose from
EPOCHS = 25


def viewer_data(about: Subject) -> str:
    """The data as JSON: coordinates as 16-bit numbers, images as one sheet."""
    moving = {head: found for head in about.heads[:MOST] if (found := about.snapshots(head, about.watched))}
    tracks = [track(head, found) for head, found in moving.items()]
    tracks = tracks or [track(head, [about.embeddings(head)]) for head in about.heads[:MOST]]
    first = tracks[0][1]
    sheet, side = sprites(about.images(about.watched if moving else "test"), first)
    return json.dumps(
        {
            "flat": about.dim == 2, "names": list(first.names), "labels": first.y.tolist(), "sheet": sheet,
            "side": side, "colours": [class_colour(i) for i in range(len(first.names))], "columns": 32,
            "tracks": [entry for entry, _ in tracks],
        }
    )  # fmt: skip


def track(head: str, found: list[Embeddings]) -> tuple[dict, Embeddings]:
    """One head's points, epoch by epoch or at the end alone; in three dimensions or two."""
    keep = sorted(set(np.linspace(0, len(found) - 1, min(len(found), EPOCHS)).astype(int)))
    moments = [(int(i) if len(found) > 1 else -1, found[i]) for i in keep]
    rows = np.linspace(0, len(moments[-1][1].x) - 1, min(POINTS, len(moments[-1][1].x))).astype(int)
    last = moments[-1][1]
    clouds = np.stack([coordinates(e)[rows] for _, e in moments])
    extent = (
        float(np.percentile(np.linalg.norm(clouds[-1], axis=1), 99.5)) * 1.1
        if has_linear_head(last) or last.dim == 2
        else 1.0
    )
    packed = np.clip(clouds / max(extent, 1e-12) * 16000, -32767, 32767).astype("<i2")
    entry = {"head": head, "epochs": [i for i, _ in moments], "points": base64.b64encode(packed.tobytes()).decode()}
    return entry, replace(last, x=last.x[rows], y=last.y[rows], index=None if last.index is None else last.index[rows])


def coordinates(found: Embeddings) -> np.ndarray:
    """Three coordinates: the embedding itself, its direction under a normalised head, or three principal components."""
    x = found.x.astype(np.float64)
    if not has_linear_head(found) and found.dim != 2:
        x = directions(x)
    if x.shape[1] > 3:
        x = projected(x, dim=3).x
    return np.pad(x, ((0, 0), (0, 3 - x.shape[1])))


def sprites(images: Images | None, found: Embeddings) -> tuple[str, int]:
    """One picture with the image of every point, 32 in a row; empty where the images cannot be had."""
    from PIL import Image

    if images is None or found.index is None:
        return "", 0
    side = min(images.shape[0], 48)
    rows = -(-len(found.index) // 32)
    sheet = Image.new("RGB" if images.shape[2] == 3 else "L", (32 * side, rows * side), 255)
    for i, row in enumerate(found.index):
        picture = Image.fromarray(pixels_of(images, int(row)).squeeze())
        sheet.paste(picture.resize((side, side)), (i % 32 * side, i // 32 * side))
    buffer = io.BytesIO()
    kind = "JPEG" if sheet.mode == "RGB" else "PNG"  # photographs, or drawings in grey
    sheet.save(buffer, kind, quality=88, optimize=True)
    return f"data:image/{kind.lower()};base64," + base64.b64encode(buffer.getvalue()).decode(), side
