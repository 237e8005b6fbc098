"""What the interactive view needs: points of every head over the epochs, their images, colours and names."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence

import numpy as np

from arcwise.data.images import Images
from arcwise.metrics.projection import project
from arcwise.metrics.rows import directions
from arcwise.records import Embeddings
from arcwise.study.subject import Subject

POINTS = 700
HEADS_TO_CHOOSE = 6  # heads to choose from
EPOCHS = 25


def viewer_data(about: Subject, colours: Sequence[str]) -> str:
    """The data as JSON: coordinates as 16-bit numbers, images as one sheet, `colours` for the classes in turn."""
    moving = {head: found for head in about.heads[:HEADS_TO_CHOOSE] if (found := about.snapshots(head, about.watched))}
    tracks = [track_of(about, head, found) for head, found in moving.items()]
    tracks = tracks or [track_of(about, head, [about.embeddings(head)]) for head in about.heads[:HEADS_TO_CHOOSE]]
    first = tracks[0][1]
    sheet, side = sprites(about.images(about.watched if moving else "test"), first)
    return json.dumps(
        {
            "flat": about.dim == 2, "names": list(first.names), "labels": first.labels.tolist(), "sheet": sheet,
            "side": side, "colours": [colours[i % len(colours)] for i in range(len(first.names))], "columns": 32,
            "tracks": [entry for entry, _ in tracks],
        }
    )  # fmt: skip


def track_of(about: Subject, head: str, found: list[Embeddings]) -> tuple[dict, Embeddings]:
    """One head's points, epoch by epoch or at the end alone; in three dimensions or two."""
    keep = sorted(set(np.linspace(0, len(found) - 1, min(len(found), EPOCHS)).astype(int)))
    moments = [(int(i) if len(found) > 1 else -1, found[i]) for i in keep]
    rows = np.linspace(0, len(moments[-1][1].x) - 1, min(POINTS, len(moments[-1][1].x))).astype(int)
    last, linear = moments[-1][1], about.specs[head].linear
    clouds = np.stack([coordinates(e, linear=linear)[rows] for _, e in moments])
    extent = float(np.percentile(np.linalg.norm(clouds[-1], axis=1), 99.5)) * 1.1 if linear or last.dim == 2 else 1.0
    packed = np.clip(clouds / max(extent, 1e-12) * 16000, -32767, 32767).astype("<i2")
    entry = {"head": head, "epochs": [i for i, _ in moments], "points": base64.b64encode(packed.tobytes()).decode()}
    return entry, last.take(rows)


def coordinates(found: Embeddings, *, linear: bool) -> np.ndarray:
    """Three coordinates: the embedding itself, its direction under a normalised head, or three principal components."""
    x = found.x.astype(np.float64)
    if not linear and found.dim != 2:
        x = directions(x)
    if x.shape[1] > 3:
        x = project(x, dim=3).x
    return np.pad(x, ((0, 0), (0, 3 - x.shape[1])))


def sprites(images: Images | None, found: Embeddings) -> tuple[str, int]:
    """One picture with the image of every point, 32 in a row; empty where the images cannot be had."""
    from PIL import Image

    at = None if images is None else images.positions(found.keys)
    if images is None or at is None:
        return "", 0
    side = min(images.shape[0], 48)
    rows = -(-len(at) // 32)
    sheet = Image.new("RGB" if images.shape[2] == 3 else "L", (32 * side, rows * side), 255)
    for i, row in enumerate(at):
        picture = Image.fromarray(np.asarray(images.pixels[np.array([row])])[0].squeeze())
        sheet.paste(picture.resize((side, side)), (i % 32 * side, i // 32 * side))
    buffer = io.BytesIO()
    kind = "JPEG" if sheet.mode == "RGB" else "PNG"  # photographs, or drawings in grey
    sheet.save(buffer, kind, quality=88, optimize=True)
    return f"data:image/{kind.lower()};base64," + base64.b64encode(buffer.getvalue()).decode(), side
