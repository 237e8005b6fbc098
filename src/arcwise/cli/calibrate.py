"""`arcwise calibrate`: the threshold for a wanted false accept rate, kept beside the model."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from arcwise.cli.advise import Share, Whole
from arcwise.cli.embed import works_of
from arcwise.cli.progress import Counter, image_text
from arcwise.errors import ArcwiseError, note, number_in


def calibrate_command(
    model: Path,
    /,
    *,
    on: list[str],
    far: Share = 1e-3,
    depth: Whole = 0,
    few_identities: bool = False,
    allow_overlap: bool = False,
    device: str = "auto",
    data_dir: Path | None = None,
    json_: bool = False,
) -> None:
    """Find the threshold for a wanted false accept rate, and keep it beside the model.

    Every pair of identities counts the same, and the interval is of the rate that other identities would have.

    Parameters
    ----------
    model
        A run's folder, a model.safetensors, insightface's .pth, or an .onnx file that arcwise exported.
    on
        Images of identities that were not trained on: folders, or sources as in glyphs[200-299].
    far
        The share of pairs of different identities that may be taken for the same.
    depth
        An identity is a folder at this depth below the one that is named; 0: as the model was trained, else 1.
    few_identities
        Take a threshold even where identities are too few for that rate; the record says so for ever.
    allow_overlap
        Go on although some of the images were trained on.
    device
        auto, cpu, cuda or cuda:1.
    data_dir
        Where data sets are cached, in place of $ARCWISE_DATA.
    json_
        Print the record for a machine.
    """
    import numpy as np

    from arcwise.embed import embed, watched
    from arcwise.encoders import load_encoder
    from arcwise.metrics import calibrated
    from arcwise.metrics.calibration import too_few
    from arcwise.overlap import OverlapWatch, trained_on
    from arcwise.records.thresholds import keep_threshold, read_thresholds, thresholds_file

    number_in("far", far, 1e-12, 0.5)
    place = thresholds_file(model)
    read_thresholds(place)  # somebody else's file is refused before any work is done
    encoder = load_encoder(model, device=device)
    broken: dict[str, str] = {}
    work = works_of(encoder, on, depth, data_dir, broken)
    if work.y is None:
        raise ArcwiseError(
            "calibrating needs to know who is who: name folders with one folder per identity, or sources."
        )
    named = shlex.join(on) + (f" --depth {depth}" if depth else "")
    known = trained_on(model)
    if known is None:
        note(f"{model} does not tell what it was trained on: whether these images were among it cannot be looked up.")
    watch, counter = OverlapWatch(known, encoder.names), Counter(image_text)
    reason = "" if few_identities or watch.names & set(work.names) else too_few(np.bincount(work.y), far)
    if reason:  # before anything is embedded for it; where names are those of training, images are looked at first
        raise ArcwiseError(reason)
    found = embed(
        encoder, watched(work, watch), broken=broken, tell=lambda done, total: counter("embedding", done, total)
    )
    for name, reason in broken.items():
        print(f"skipped {name}: {reason}", file=sys.stderr)
    watch.refuse(found, what=named, allow=allow_overlap)
    record = calibrated(found, far, source=named, few_identities=few_identities)
    keep_threshold(place, record)
    if json_:
        print(json.dumps(record.as_values()))
        return
    print(record.told())
    tar = "no identity has two images, so nothing is known of how many of the same it accepts"
    if record.tar is not None:
        tar = f"true accept rate there {record.tar:.1%} ({record.tar_low:.1%} to {record.tar_high:.1%})"
    print(
        f"{tar}; {record.impostor_pairs:,} impostor and {record.genuine_pairs:,} genuine pairs of {record.images:,} "
        f"images\n\n{place} holds it."
    )
    named = shlex.quote(str(model))
    print(f"A gallery of this model takes it over with: arcwise gallery calibrate PLACE --model {named}")
    print(f"Next: arcwise verify {named} A.jpg B.jpg")
