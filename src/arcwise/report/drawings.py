"""Returns the pictures of a report: each with its file name and the caption that says what to see."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from arcwise.errors import ArcwiseError
from arcwise.figures import (
    COLOURS,
    angles,
    bias,
    circle,
    confidence,
    confusion,
    heads,
    pictures,
    plane,
    roc,
    sample,
    sphere,
    story,
    sweep,
    training,
)
from arcwise.metrics import clusters, identification, planar, projection, verification
from arcwise.metrics.conflicts import conflicts
from arcwise.metrics.rows import directions
from arcwise.metrics.summary import DUNN, METRICS, dunn_indices, dunn_name, in_unit, plain
from arcwise.records import Embeddings, Run, read_json, write
from arcwise.report.subject import Subject, config_of, scale_and_margin, snapshot_files

if TYPE_CHECKING:
    from arcwise.data import Images

GLANCE = (
    "accuracy", "margin-kept-0.5", "angle-own", "angle-closest", "dunn-nearest-diameter-unit-95",
    "conflict-triples-cosine", "unseen-auc", "open-auroc",
)  # fmt: skip
PUBLISHED = ((5.31, "5.31, published for softmax"), (29.11, "29.11, published for NormFace"))
MOST = 4  # heads side by side
SIDE_BY_SIDE = ("embeddings", "circle", "sample", "angles", "confidence", "dunn-epochs", "roc", "confusion")
NAMED_BARS = 12  # classes at most whose logits can be told apart as bars
OWN, OTHER = COLOURS[0], COLOURS[4]  # frames of images of the own and of another class


WIDTHS = {"samples": 0.6, "conflicts": 0.9, "neighbours": 0.75, "bias": 0.6, "schematic": 0.75}  # shares of a page


class Drawing(NamedTuple):
    """A picture: its name, its caption, and the figure."""

    name: str
    caption: str
    figure: Any


def drawings(about: Subject, *, only: str = "") -> Iterator[Drawing]:
    """Every picture that these runs allow, in the order of the report; `only` picks one by its name."""
    some = f" Shown are the first {MOST} of {len(about.heads)} heads." if len(about.heads) > MOST else ""
    for name, draw in FIGURES.items():
        if only in ("", name):
            try:
                for caption, figure in draw(about):
                    yield Drawing(name, caption + (some if name in SIDE_BY_SIDE else ""), figure)
            except ArcwiseError as error:
                if only:  # asked for by name: say why it cannot be; else the others go on without it
                    raise
                about.note(f"the figure {name}, because {str(error)[0].lower()}{str(error)[1:]}")


def is_published(about: Subject) -> bool:
    """Whether this is the experiment whose two Dunn indices were published."""
    return about.config.recipe == "mnist5-2d" and about.config.data.source.startswith("mnist")


Drawn = Iterator[tuple[str, Any]]


def shown_heads(about: Subject) -> list[str]:
    """The heads that are drawn side by side."""
    return about.heads[:MOST]


def at_a_glance(about: Subject) -> Drawn:
    """The main numbers, every seed a point."""
    table = about.table
    some = [name for name in GLANCE if name in table.values]
    shown = [
        heads.Panel(
            titled(name),
            {head: [in_unit(name, v) for v in table.values[name][head]] for head in table.heads},
            METRICS[name].better,
        )
        for name in some
        if all(math.isfinite(v) for values in table.values[name].values() for v in values)
    ]  # fmt: skip
    if shown:
        yield (
            "Every seed is a point, bars are mean and standard deviation; arrows say which way is better.",
            heads.draw(shown),
        )


def titled(name: str) -> str:
    """A number's words and unit, short enough for a panel."""
    label = METRICS[name].label.replace(", by the head without margin", "").replace(" than the own", "")
    label = label.replace("nearest other centre at least 0.5 rad further", "margin of 0.5 rad kept")
    return f"{label}, {METRICS[name].unit}" if METRICS[name].unit else label


def samples(about: Subject) -> Drawn:
    """Some training images of each class."""
    images = about.images("train")
    if images is None:
        return
    rows = []
    for c in range(min(images.classes, 10)):
        here = np.flatnonzero(images.y == c)[:10]
        rows.append([pictures.Picture(pixels_of(images, int(i))) for i in here])
    yield "Training images, one row per class.", pictures.draw(rows, titles=list(images.names[:10]), side=0.8)


def embedding_plane(about: Subject) -> Drawn:
    """2-D embeddings as they are, or the first two principal components."""
    shown = []
    for head in shown_heads(about):
        found = about.embeddings(head)
        accuracy = f"test accuracy {identification.accuracy(found):.2%}" if found.prototypes is not None else ""
        if found.dim == 2:
            extent = reach(found.x)
            grid = planar.decision_grid(found, extent=extent) if found.prototypes is not None else None
            shown.append(plane.Panel(head, found, extent, grid, accuracy))
        else:
            shown.append(projected_panel(head, found))
    flat = about.dim == 2
    words = (
        "Test embeddings as the networks give them, centres as vectors (lengths in proportion), decision boundaries "
        "as lines."
        if flat
        else "Test embeddings in the two directions of largest variance: a projection, in which distances are "
        "shortened."
    )
    yield words, plane.draw(shown)


def projected_panel(head: str, found: Embeddings) -> plane.Panel:
    """A panel of the first two principal components; directions for a normalised head."""
    x = found.x if identification.has_linear_head(found) else directions(found.x)
    flat = projection.projected(x, dim=2)
    points = replace(found, x=flat.x.astype(np.float32), prototypes=None, bias=None)
    return plane.Panel(head, points, reach(flat.x), None, flat.method)


def reach(x: np.ndarray) -> float:
    """How far a panel must extend for nearly all points."""
    return 1.15 * float(np.percentile(np.linalg.norm(x, axis=1), 99.5))


def unit_circle(about: Subject) -> Drawn:
    """2-D directions on the circle."""
    if about.dim != 2:
        return
    largest = max([planar.head_number(about.embeddings(head), "m", 0.0) for head in about.heads] + [0.0]) or 0.5
    shown = []
    for head in shown_heads(about):
        found = about.embeddings(head)
        kept = identification.margin_kept(found, largest)
        shown.append(circle.Panel(head, found, largest, f"{kept:.1%} outside the wedges"))
    yield (
        "The same directions on the unit circle: bars are histograms (square root of the count), arrows the centres, "
        f"grey wedges the margin of {largest:g} rad around each boundary, in which the nearest other centre is less "
        f"than {largest:g} rad further than the own.",
        circle.draw(shown),
    )


def unit_sphere(about: Subject) -> Drawn:
    """3-D directions on the sphere."""
    if about.dim != 3:
        return
    shown = []
    for head in shown_heads(about)[:3]:
        found = about.embeddings(head)
        facts = clusters.class_angles(found)
        centres = identification.mean_centres(found)
        closest, best, own = (math.degrees(angle) for angle in (facts.closest, facts.best_possible, facts.own))
        note = f"closest means {closest:.1f}° of {best:.1f}°, own {own:.2f}°"
        shown.append(sphere.Panel(head, found, centres, facts.best_possible / 2, note))
    yield (
        "Directions of the test embeddings on the sphere, with the class means. The caps have half the angle of the "
        "best possible packing: in it they just touch, so where they overlap two classes are too close, and gaps are "
        "room left.",
        sphere.draw(shown),
    )


def one_sample(about: Subject) -> Drawn:
    """One digit among the centres, with its logits."""
    first = about.embeddings(about.heads[0])
    if about.dim != 2 or first.prototypes is None or len(first.names) > NAMED_BARS:
        return
    row = int(np.flatnonzero(identification.right(first))[0])
    shown = []
    for head in shown_heads(about):
        found = about.embeddings(head)
        if found.prototypes is None or found.prototypes.ndim != 2:
            continue
        logits = identification.centre_logits(found, slice(row, row + 1))[0] * planar.scale(found)
        m, s, y = planar.head_number(found, "m", 0.0), planar.scale(found), int(found.y[row])
        margin = None
        if m and head.startswith("ArcFace"):
            theta = math.acos(max(-1.0, min(1.0, logits[y] / s)))
            margin = s * (math.cos(theta + m) if theta + m <= math.pi else math.cos(theta) - (1 - math.cos(m)))
        shown.append(sample.Panel(head, found.x[row], y, found.prototypes, found.names, logits, margin))
    images = about.images("test")
    picture = None if images is None or first.index is None else pixels_of(images, int(first.index[row]))
    if not shown:
        return
    yield "One test image among the centres of each head, and the logits it gets there.", sample.draw(shown, picture)


def angle_histograms(about: Subject) -> Drawn:
    """Own and nearest other angles, after training and before."""
    shown = []
    for head in shown_heads(about):
        found = about.embeddings(head)
        if found.prototypes is None:
            return
        first = [e for e in about.snapshots(head, "test")[:1] if e.prototypes is not None]
        before = [side for e in first for side in both_angles(e)] or [None, None]
        shown.append(angles.Panel(head, *both_angles(found), *before))
    yield (
        "Angles of the test samples to their own and to the nearest other centre; outlines show them before training.",
        angles.draw(shown),
    )


def both_angles(found: Embeddings) -> tuple[np.ndarray, np.ndarray]:
    """Angles to the own and the nearest other centre."""
    named = identification.nearest_prototype(found)
    return named.angle_own, named.angle_other


def confidence_surface(about: Subject) -> Drawn:
    """What the heads say over the whole plane."""
    if about.dim != 2 or about.embeddings(about.heads[0]).prototypes is None:
        return
    shown = []
    for head in shown_heads(about):
        found = about.embeddings(head)
        extent = 2.0 * reach(found.x)
        grid = planar.decision_grid(found, extent=extent)
        sides = grid.confidence[[0, -1]], grid.confidence[:, [0, -1]]
        edge = float(np.mean([side.mean() for side in sides]))
        shown.append(plane.Panel(head, found, extent, grid, f"mean confidence at the edge {edge:.1%}"))
    yield (
        "What each head says over the plane, twice as far out as its data (black): a linear head grows surer with "
        "distance from the origin, a normalised one depends on the direction alone.",
        confidence.draw(shown),
    )


def training_curves(about: Subject) -> Drawn:
    """Loss, accuracy and angles over the epochs."""
    degree = math.degrees(1.0)
    wanted = (
        ("loss", "loss", 1.0, True),
        ("accuracy", "accuracy, %", 100.0, False),
        ("angle_own", "angle to own centre, °", degree, False),
        ("angle_other", "angle to nearest other, °", degree, False),
    )
    shown = []
    for key, title, factor, logarithmic in wanted:
        every = [curve_of(head, runs, key, factor) for head, runs in about.runs.items()]
        curves = [curve for curve in every if curve is not None]
        if curves:
            shown.append(training.Panel(title, curves, logarithmic=logarithmic))
    if shown:
        yield (
            f"On the {about.watched} images over the epochs: lines are means over the seeds, bands reach from the "
            "smallest to the largest.",
            training.draw(shown),
        )


def curve_of(head: str, runs: list[Run], key: str, factor: float) -> training.Curve | None:
    """One number over the epochs, of the runs that were judged at the same epochs as the first of them."""
    series = [
        {e["epoch"]: factor * e[key] for e in run.journal("evaluation") if is_number(e.get(key), e.get("epoch"))}
        for run in runs
    ]
    series = [values for values in series if len(values) > 1]
    alike = [values for values in series if values.keys() == series[0].keys()]
    if not alike:
        return None
    return training.Curve(head, np.array(list(alike[0])), np.array([list(values.values()) for values in alike]))


def is_number(*values: object) -> bool:
    """Whether all of them are numbers, which a journal edited by hand may not hold."""
    return all(isinstance(value, int | float) for value in values)


def dunn_over_epochs(about: Subject) -> Drawn:
    """Every Dunn index over the epochs, with the published pair where it belongs."""
    series = {head: dunn_series(about, head) for head in shown_heads(about)}
    if not all(len(found) and found[0] for found in series.values()):
        return
    lines = PUBLISHED if is_published(about) else ()
    for distance in clusters.DISTANCES:
        shown = []
        for a, b, d in DUNN:
            if d == distance:
                name = dunn_name(a, b, d)
                curves = [
                    training.Curve(
                        head, np.arange(len(found[0])), np.maximum([[e[name] for e in run] for run in found], 1e-2)
                    )
                    for head, found in series.items()
                ]
                shown.append(training.Panel(f"{a} / {b}", curves, logarithmic=True, lines=lines))
        yield (
            f"Dunn indices over the epochs, distance: {distance}; 95 % of each class kept, snapshots of the test "
            "images.",
            training.draw(shown, most=3, high=3.2),
        )


def dunn_series(about: Subject, head: str, part: str = "test") -> list[list[dict[str, float]]]:
    """The Dunn indices of every seed's snapshots."""
    every = [run_series(run, part) for run in about.runs[head]]
    return [series for series in every if series]


def run_series(run: Run, part: str) -> list[dict[str, float]]:
    """The Dunn indices of one run's snapshots, kept beside them once computed."""
    files = snapshot_files(run, part)
    if not files:
        return []
    kept, names = run.path / "embeddings" / f"dunn-{part}.json", [path.name for path in files]
    known = kept_series(kept, names)
    if known is None:
        known = [plain(dunn_indices(Embeddings.load(path))) for path in files]
        write(kept, json.dumps({"of": names, "values": known}))
    return [{k: math.inf if v is None else v for k, v in e.items()} for e in known]


def kept_series(path: Path, names: list[str]) -> list[dict[str, float | None]] | None:
    """The indices that were kept, if they are of these snapshots and whole."""
    wanted = {dunn_name(*variant) for variant in DUNN}
    try:
        known = read_json(path)
    except ArcwiseError:
        return None
    values = known.get("values")
    whole = isinstance(values, list) and all(isinstance(e, dict) and wanted <= e.keys() for e in values)
    return values if whole and known.get("of") == names and len(values) == len(names) else None  # type: ignore[arg-type]


def scale_sweep(about: Subject) -> Drawn:
    """Indices over s for each m, closed set and open set."""
    table = about.sweep_table
    if table is None:
        return
    chosen = [
        ("dunn-nearest-diameter-unit-95", "Dunn: nearest, diameter, unit", True),
        ("dunn-centroid-mean-unit-95", "Dunn: centroid, mean, unit", True),
        ("dunn-centroid-radius-cosine-95", "Dunn: centroid, radius, cosine", True),
        ("accuracy", "test accuracy, %", False),
        ("unseen-dunn-centroid-mean-unit-95", "unseen classes, Dunn: centroid, mean, unit", False),
        ("unseen-auc", "pairs of unseen classes, AUC, %", False),
        ("open-auroc", "known against unseen, AUROC, %", False),
        ("angle-own", "angle to own class mean, °", True),
    ]
    shown = [
        sweep.Panel(title, sweep_lines(about, name), softmax_level(about, name), log)
        for name, title, log in chosen
        if name in table.values
    ]
    seeds = max(map(len, table.seeds.values()))
    yield (
        f"Over the scale s, one line per margin m (m = 0 is NormFace): mean of {seeds} seeds, bands from the "
        "smallest to the largest; grey is softmax.",
        sweep.draw(shown),
    )


def sweep_lines(about: Subject, name: str) -> list[sweep.Line]:
    """The values of the sweep by margin."""
    table = about.sweep_table
    assert table is not None
    found: dict[float, dict[float, list[float]]] = {}
    for head in table.heads:
        pair = scale_and_margin(head)
        if pair is not None:
            found.setdefault(pair[1], {})[pair[0]] = [in_unit(name, v) for v in table.values[name][head]]
    lines = []
    for m, by_scale in sorted(found.items()):
        seeds = min(map(len, by_scale.values()))
        s = sorted(by_scale)
        lines.append(sweep.Line(f"m = {m:g}", np.array(s), np.array([by_scale[v][:seeds] for v in s]).T))
    return lines


def softmax_level(about: Subject, name: str) -> tuple[float, float, float] | None:
    """Mean, smallest and largest of softmax, where it was trained too."""
    if "softmax" not in about.table.heads or name not in about.table.values:
        return None
    values = [in_unit(name, v) for v in about.table.values[name]["softmax"]]
    return float(np.mean(values)), min(values), max(values)


def verification_curves(about: Subject) -> Drawn:
    """ROC and score histograms, on unseen classes where there are any."""
    unseen = bool(about.config.data.unseen)
    shown = []
    for head in shown_heads(about):
        found = about.embeddings(head, "unseen" if unseen else "test")
        pairs = verification.all_pairs(found)
        at = verification.eer(pairs)
        edges = np.linspace(-1, 1, 81)
        counts = [histogram(scores, edges) for scores in (pairs.genuine, pairs.impostor)]
        note = f"threshold {at.threshold:.3f}: equal error {(at.far + 1 - at.tar) / 2:.1%}"
        shown.append(roc.Panel(head, verification.roc(pairs), edges, counts[0], counts[1], at.threshold, note))
    where = "pairs of classes nobody has seen" if unseen else "all pairs of test images"
    yield (
        f"Verification on {where}: ROC, and scores of pairs of the same and of different classes with the threshold "
        "of equal error.",
        roc.draw(shown, title="ROC"),
    )


def histogram(scores: verification.Scores, edges: np.ndarray) -> np.ndarray:
    """How many scores fall into each bin."""
    below = scores.total - scores.at_least(edges)
    below[-1] = scores.total
    return np.diff(below)


def confusion_matrices(about: Subject) -> Drawn:
    """Mistakes of each head, all seeds together."""
    shown = []
    for head in shown_heads(about):
        matrices = [run.metrics.get("confusion", []) for run in about.runs[head]]
        if not all(matrices):
            return
        shown.append(confusion.Panel(head, np.sum(matrices, axis=0), about.embeddings(head).names))
    yield (
        "Confusion matrices, summed over the seeds: rows are what is there, columns what it was taken for; colours "
        "show mistakes only.",
        confusion.draw(shown),
    )


def conflict_triples(about: Subject) -> Drawn:
    """The worst triples with their images."""
    images = about.images("test")
    if images is None:
        return
    rows, titles = [], []
    for head in shown_heads(about):
        found = about.embeddings(head)
        right = identification.right(found) if found.prototypes is not None else None
        worst = conflicts(found, distance="cosine", correct=right, worst=3, limit=4000).worst
        if not worst or found.index is None:
            continue
        row = []
        for t in worst:
            three = (
                (t.anchor, f"{t.anchor}", "black"),
                (t.positive, f"{t.positive}: {t.to_positive:.3f}", OWN),
                (t.negative, f"{t.negative}: {t.to_negative:.3f}", OTHER),
            )
            row += [pictures.Picture(pixels_of(images, int(found.index[i])), words, frame) for i, words, frame in three]
        rows.append(row)
        titles.append(head.replace(" ", "\n", 1))
    if rows:
        yield (
            "The worst conflicts of each head: a rightly classified sample (black), one of its own class (blue) and "
            "one of another (orange) that is nearer. Numbers are rows of the test set and cosine distances.",
            pictures.draw(rows, titles=titles, side=1.05),
        )


def neighbours(about: Subject) -> Drawn:
    """Queries with their nearest neighbours, from classes nobody has seen where there are any."""
    part = "unseen" if about.config.data.unseen else "test"
    images = about.images(part)
    if images is None:
        return
    head = about.heads[-1]
    found = about.embeddings(head, part)
    if found.index is None:
        return
    x = directions(found.x)
    rows, titles = [], []
    for c in np.unique(found.y)[:5]:
        query = int(np.flatnonzero(found.y == c)[0])
        cos = x @ x[query]
        cos[query] = -np.inf
        nearest = np.argsort(-cos)[:8]
        row = [pictures.Picture(pixels_of(images, int(found.index[query])), "query", "black")]
        row += [
            pictures.Picture(
                pixels_of(images, int(found.index[i])),
                f"{math.degrees(math.acos(min(1.0, cos[i]))):.2f}°",
                OWN if found.y[i] == c else OTHER,
            )
            for i in nearest
        ]
        rows.append(row)
        titles.append(found.names[c])
    where = "of classes nobody has seen" if part == "unseen" else "of the test set"
    yield (
        f"Nearest neighbours {where} under {head}, with their angles; blue frames are of the query's class, orange "
        "ones are not.",
        pictures.draw(rows, titles=titles, side=1.0),
    )


def bias_and_frequency(about: Subject) -> Drawn:
    """Biases against counts, of the run that was trained on an imbalanced set."""
    run = about.imbalanced
    if run is None or run.embeddings("test").bias is None:
        return
    from arcwise.data.sources import load

    found = run.embeddings("test")
    assert found.bias is not None
    try:
        counts = np.bincount(load(config_of(run).data).train.y, minlength=len(found.names))
    except (ArcwiseError, OSError):
        return
    yield (
        "A softmax head with bias, trained on classes of unequal size: its biases against the number of images.",
        bias.draw(counts, found.bias, found.names),
    )


def eight_classes(about: Subject) -> Drawn:
    """The schematic of softmax and ArcFace."""
    yield (
        "Schematic, not measured: eight classes in the plane. Softmax needs only the right side of each boundary; "
        "ArcFace asks for room beside it, measured along the circle.",
        story.draw(),
    )


FIGURES: dict[str, Callable[[Subject], Drawn]] = {
    "schematic": eight_classes,
    "samples": samples,
    "glance": at_a_glance,
    "embeddings": embedding_plane,
    "circle": unit_circle,
    "sphere": unit_sphere,
    "sample": one_sample,
    "angles": angle_histograms,
    "confidence": confidence_surface,
    "training": training_curves,
    "dunn-epochs": dunn_over_epochs,
    "sweep": scale_sweep,
    "roc": verification_curves,
    "confusion": confusion_matrices,
    "conflicts": conflict_triples,
    "neighbours": neighbours,
    "bias": bias_and_frequency,
}


def pixels_of(images: Images, i: int) -> np.ndarray:
    """One image."""
    return np.asarray(images.pixels[np.array([i])])[0]
