"""`arcwise export`: writes a model as an ONNX file that needs no torch, and proves that it gives the same."""

from __future__ import annotations

import math
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from arcwise.cli.embed import source_config, trained_with, work_for
from arcwise.cli.progress import byte_text
from arcwise.errors import ArcwiseError, one_of
from arcwise.export.encoder import PRECISIONS
from arcwise.records.folders import refuse_new_file

if TYPE_CHECKING:
    from arcwise.embed import ToEmbed
    from arcwise.model import Embedder

COMPARED = 1000  # images at most


def export_command(
    model: Path,
    out: Path,
    /,
    *,
    on: list[str] | None = None,
    precision: str = "float32",
    licence: str = "",
    data_dir: Path | None = None,
) -> None:
    """Write a model as an ONNX file, and compare the two on images.

    Everything is inside: from bytes of pixels to directions and lengths, with class names, thresholds and preprocessing
    beside them. What embed, verify, calibrate, evaluate and gallery do, they do with the file, without torch.

    Parameters
    ----------
    model
        A run's folder, a model.safetensors, or insightface's .pth.
    out
        The file, which ends in .onnx and is not overwritten.
    on
        Images to compare the two on: folders, or sources; the test images of the run if not given.
    precision
        float32; or fp16 or int8, which are smaller, and are told with their cost in errors.
    licence
        Words on who may do what with the model, kept in the file.
    data_dir
        Where data sets are cached, in place of $ARCWISE_DATA.
    """
    one_of("precision", precision, PRECISIONS)
    if out.suffix != ".onnx":
        raise ArcwiseError(f"an exported model ends in .onnx: {out.with_name(out.name + '.onnx')}, for example."
                           if out.name else "an exported model ends in .onnx: model.onnx, for example.")  # fmt: skip
    refuse_new_file(out, own=model)
    if model.suffix == ".onnx":
        raise ArcwiseError(f"{model} is an exported model already: name the run that it is from.")
    from arcwise.export.onnx import export_model, refuse_without_onnx
    from arcwise.model import Embedder
    from arcwise.records.thresholds import read_thresholds, thresholds_file

    refuse_without_onnx()
    embedder = Embedder.load(model)
    beside = read_thresholds(thresholds_file(model))
    known = [one for one in beside if one.model == embedder.fingerprint]
    broken: dict[str, str] = {}
    work = images_to_compare(embedder, model, on, data_dir, broken)
    some = np.unique(np.linspace(0, len(work) - 1, min(len(work), COMPARED)).round().astype(np.int64))
    pixels, _, bad = work.read(some)
    for key, reason in {**broken, **{work.keys[row]: reason for row, reason in bad.items()}}.items():
        print(f"skipped {key}: {reason}", file=sys.stderr)
    done = export_model(embedder, out, pixels, precision=precision, thresholds=known, licence=licence)
    kept = len(done.encoder.thresholds)
    print(f"{out}: {byte_text(out.stat().st_size)}, {precision}, {embedder.dim} dimensions, fingerprint "
          f"{done.encoder.fingerprint[:12]}")  # fmt: skip
    print(f"largest angle between the two on {done.images:,} images: {math.degrees(done.largest_angle):.2g} degrees")
    if precision != "float32":
        print(cost_text(embedder, done.encoder, work, precision))
    if known:
        anew = f"arcwise calibrate {shlex.quote(str(out))} --on {shlex.join(on) if on else 'SOURCE'}"
        lost = "" if kept else f"; they were calibrated on other numbers: {anew}"
        print(f"{kept} of {len(known)} thresholds are in it{lost}")
    print(f"Next: arcwise verify {shlex.quote(str(out))} A.jpg B.jpg")


def images_to_compare(
    embedder: Embedder, model: Path, on: list[str] | None, data_dir: Path | None, broken: dict[str, str]
) -> ToEmbed:
    """The images that were named, or the test images that a run was judged by; `broken` takes what cannot be read."""
    from arcwise.data.sources import load
    from arcwise.embed import joined, work_of

    if on:
        return joined([work_for(embedder, one, "all", 0, data_dir, broken) for one in on])
    source = trained_with(embedder, "data").get("source")
    if source in (None, "given"):
        raise ArcwiseError(f"{model} names no images of its own to compare the two on: name some with --on.")
    splits = load(source_config(embedder, source, "test"), data_dir=data_dir)
    broken |= splits.broken
    return work_of(embedder, splits.test)


def cost_text(embedder: Embedder, small, work: ToEmbed, precision: str) -> str:
    """What the smaller numbers cost in errors, on the same images."""
    from arcwise.embed import embed
    from arcwise.metrics import all_pairs, tar_at_far
    from arcwise.metrics.verification import equal_error_rate

    if work.y is None or not (np.bincount(work.y) > 1).any() or len(np.unique(work.y)) < 2:
        return "without labels its cost in errors cannot be told: name labelled images with --on."
    found = []
    for encoder in (embedder, small):
        pairs = all_pairs(embed(encoder, work, broken={}))
        found.append((equal_error_rate(pairs), tar_at_far(pairs, 0.01).tar))
    (eer, tar), (its_eer, its_tar) = found
    return (
        f"cost of {precision} on {len(work):,} images: equal error {eer:.2%} -> {its_eer:.2%}, TAR at FAR 0.01 "
        f"{tar:.2%} -> {its_tar:.2%}"
    )
