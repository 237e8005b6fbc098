"""A model tried on images of known identity, or on pairs: errors, ranks, strangers, groups, and where it is worst."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from arcwise.data.folder import table_file
from arcwise.embed import Counting, ToEmbed, embed, listed_work
from arcwise.errors import ArcwiseError, name_list
from arcwise.metrics.folds import FoldAccuracy, accuracy_of_folds
from arcwise.metrics.rejection import Rejection, rejection
from arcwise.metrics.resting import rests_on
from arcwise.metrics.rows import row_blocks, unit_rows
from arcwise.metrics.summary import FARS, METRICS, all_metrics
from arcwise.metrics.verification import PairScores, auc, eer, equal_error_rate, score_pairs, tar_at_far
from arcwise.metrics.watchlist import Watchlist, watchlist
from arcwise.pairs import PairTable, make_pairs, possible_pairs
from arcwise.records import Embeddings, Encoder, Prototypes

LEAST_IN_A_FOLD = 6  # identities
HARDEST = 6  # pairs of each kind
PAIRS = 6000  # that the accuracy over folds is taken from, where there are as many
# The key of an image of a named source, with its part or its parameters.
FROM_SOURCE = re.compile(r"([a-z][a-z0-9-]*)(:[^#]*)?#(\d{1,15})")


class GroupRow(NamedTuple):
    """The pairs of one group: how many, their own equal error, and what the threshold of all does to them."""

    value: str
    genuine: int
    impostor: int
    eer: float
    far: float
    tar: float


class HardPair(NamedTuple):
    """A pair that is judged wrongly or nearly so: the rows of its images, and its cosine."""

    a: int
    b: int
    same: bool
    cosine: float


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What was found: numbers by name, how the main ones are to be read, and the pieces that pictures are made of.

    `marks` name the numbers that rest on too few false acceptances, with how many are expected; `shown` are the
    hardest pairs with their images.
    """

    embeddings: Embeddings
    numbers: dict[str, float]
    labels: dict[str, str]
    notes: dict[str, str]
    marks: dict[str, str]
    threshold: float
    scores: PairScores
    folds: FoldAccuracy | None = None
    watch: Watchlist | None = None
    rejection: Rejection | None = None
    groups: dict[str, list[GroupRow]] = field(default_factory=dict)
    shown: list[tuple[HardPair, tuple[np.ndarray, np.ndarray]]] = field(default_factory=list)
    left_out: int = 0
    drawn: int = 0  # pairs that were drawn, for folds and for rejecting


def try_on_pairs(
    encoder: Encoder, table: PairTable, work: ToEmbed, *, by: Sequence[str] = (), tell: Counting | None = None
) -> Trial:  # fmt: skip
    """The model on pairs that are given; `work` holds their images under the keys that the table names.

    Images that cannot be read take their pairs with them, which is told.
    """
    by = [column.lower() for column in by]  # as the table's own are read
    for column in by:
        if column not in table.columns:
            raise ArcwiseError(
                f"the table has no column {column!r}: there are {name_list(tuple(table.columns)) or 'no others'}."
            )
    broken: dict[str, str] = {}
    found = embed(encoder, work, tell=tell, broken=broken)
    assert found.keys is not None
    place = {key: at for at, key in enumerate(found.keys)}
    kept = np.array([a in place and b in place for a, b in zip(table.a, table.b, strict=True)])
    if not kept.any():
        raise ArcwiseError(f"none of the {len(table):,} pairs can be scored: their images cannot be read.")
    a, b = (np.array([place[key] for key, fine in zip(keys, kept, strict=True) if fine]) for keys in (table.a, table.b))
    same, score = table.same[kept], pair_cosines(found, a, b)
    if same.all() or not same.any():
        raise ArcwiseError("the pairs are all of one kind: some must be of one identity and some of two.")
    scores = score_pairs(score, same)
    at = eer(scores)
    fold = None if table.fold is None else table.fold[kept]
    folds = accuracy_of_folds(score, same, fold) if fold is not None and len(np.unique(fold)) > 1 else None
    groups = {
        column: group_rows(np.array(table.columns[column])[kept], score, same, at.threshold) for column in by
    }  # fmt: skip
    numbers, labels, marks = pair_numbers(scores, folds, table.identities)
    notes = {name: METRICS[name].note for name in numbers if name in METRICS and METRICS[name].note}
    return Trial(
        embeddings=found, numbers=numbers, labels=labels, notes=notes, marks=marks,
        threshold=at.threshold, scores=scores, folds=folds, rejection=by_length(found, scores, a, b, score, same),
        groups=groups, shown=with_images(work, found, hardest_of(a, b, score, same)), left_out=int((~kept).sum()),
    )  # fmt: skip


def try_on(
    encoder: Encoder,
    work: ToEmbed,
    *,
    centres: Prototypes | None = None,
    groups: Mapping[str, Mapping[str, str]] | None = None,
    seed: int = 0,
    tell: Counting | None = None,
    broken: dict[str, str] | None = None,
) -> Trial:
    """The model on labelled images: every number that embeddings allow, and those that a gallery of them would have.

    With the `centres` of its head, where all classes are known to it, also accuracy. `groups` say of a column, by the
    images' keys, which group each is of: a pair is of a group when both are.
    """
    found = embed(encoder, work, tell=tell, broken=broken)
    if found.y is None:
        raise ArcwiseError("these images have no labels: name a folder with one folder per identity, or a table.")
    numbers = all_metrics(found, None, centres)
    if "pairs-eer" not in numbers:
        raise ArcwiseError("it takes two identities, and two images of one of them, to try a model.")
    from arcwise.metrics.verification import all_pairs

    scores = all_pairs(found)
    at, (a, b, same, folds) = eer(scores), drawn_trial(found, seed)
    score = pair_cosines(found, a, b)
    judged = accuracy_of_folds(score, same, folds) if folds is not None else None
    more, labels, marks = pair_numbers(scores, judged, len(np.unique(found.labels)))
    watch = watchlist(found, ranks=(1, 2, 3, 5, 10), seed=seed)
    more |= {f"cmc-{k}": one.mean for k, one in watch.cmc.items()}
    labels |= {f"cmc-{k}": f"probes whose identity is among the {k} best of one image each" for k in watch.cmc}
    if watch.detection is not None:
        name = f"dir-{watch.fpr:g}"
        more[name] = watch.detection.mean
        labels[name] = f"known probes found and named, {watch.fpr:.0%} of strangers taken for somebody"
        if words := rests_on(watch.fpr * watch.strangers):
            marks[name] = words
    told = {name: METRICS[name].label for name in numbers}
    told["neighbour-accuracy"] += " (recall@1)"
    return Trial(
        embeddings=found, numbers={**numbers, **more}, labels={**told, **labels},
        notes={name: METRICS[name].note for name in numbers if METRICS[name].note}, marks=marks,
        threshold=at.threshold, scores=scores, folds=judged, watch=watch,
        rejection=by_length(found, scores, a, b, score, same),
        groups={column: grouped(found, values, at.threshold) for column, values in (groups or {}).items()},
        shown=with_images(work, found, hardest_among(found)), drawn=len(a),
    )  # fmt: skip


def pair_numbers(
    scores: PairScores, folds: FoldAccuracy | None, identities: int = 0
) -> tuple[dict[str, float], dict[str, str], dict[str, str]]:
    """The numbers of pairs, what they say, and those that rest on too few false acceptances."""
    numbers = {"pairs-eer": equal_error_rate(scores), "pairs-auc": auc(scores)}
    labels, marks = {"pairs-eer": "pairs: equal error rate", "pairs-auc": "pairs: AUC (AUROC)"}, {}
    for far in FARS:
        name = f"pairs-tar-{far:g}"
        numbers[name], labels[name] = tar_at_far(scores, far).tar, f"pairs: TAR at FAR {far:g}"
        if words := rests_on(far * scores.impostor.total, far, identities):
            marks[name] = words
    if folds is not None:
        numbers["fold-accuracy"] = folds.mean
        labels["fold-accuracy"] = f"pairs: accuracy over {len(folds.folds)} folds, each by the others' threshold"
    return numbers, labels, marks


def pair_cosines(found: Embeddings, a: Int[np.ndarray, " p"], b: Int[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
    """The cosine of each pair of rows, in float64; equal rows have equal ones."""
    x, out = unit_rows(found.x), np.empty(len(a))
    for part in row_blocks(len(a), 4 * found.dim):
        out[part] = x.take(a[part]).paired_cosines(x.take(b[part]))
    return np.clip(out, -1.0, 1.0)


def drawn_trial(
    found: Embeddings, seed: int
) -> tuple[np.ndarray, np.ndarray, Bool[np.ndarray, " p"], np.ndarray | None]:
    """Pairs of the images: in up to ten folds where identities allow it, else all in one."""
    y = found.labels
    place = {str(at): at for at in range(len(y))}
    keys = tuple(place)
    for folds in (10, 5, 2, 1):
        if folds > 1 and len(found.names) < LEAST_IN_A_FOLD * folds:
            continue  # impostors are of one fold: of a few identities they say too little
        n = min(PAIRS, possible_pairs(y, folds, seed)) // (2 * folds) * 2 * folds
        if n >= 2 * folds and (folds == 1 or n >= 20 * folds):
            table = make_pairs(keys, y, found.names, n=n, folds=folds, seed=seed)
            a, b = (np.array([place[key] for key in some]) for some in (table.a, table.b))
            return a, b, table.same, table.fold if folds > 1 else None
    raise ArcwiseError("it takes two identities, and two images of one of them, to try a model.")


def by_length(
    found: Embeddings, scores: PairScores, a: np.ndarray, b: np.ndarray, score: np.ndarray, same: Bool[np.ndarray, " p"]
) -> Rejection:
    """Errors against what is rejected by the length of x."""
    length = np.linalg.norm(found.x.astype(np.float64), axis=1)
    return rejection(score, same, np.minimum(length[a], length[b]), threshold=tar_at_far(scores, 0.01).threshold)


def group_rows(values: np.ndarray, score: np.ndarray, same: Bool[np.ndarray, " p"], threshold: float) -> list[GroupRow]:
    """A row for each value of a column; what is empty is no group."""
    rows = []
    for value in sorted(set(values.tolist()) - {""}):
        here = values == value
        kinds = same[here]
        if kinds.any() and not kinds.all():
            pairs = score_pairs(score[here], kinds)
            far, tar = float(pairs.impostor.above(threshold)), float(pairs.genuine.above(threshold))
            rows.append(GroupRow(value, pairs.genuine.total, pairs.impostor.total, equal_error_rate(pairs), far, tar))
        else:
            rows.append(GroupRow(value, int(kinds.sum()), int((~kinds).sum()), math.nan, math.nan, math.nan))
    return rows


def grouped(found: Embeddings, values: Mapping[str, str], threshold: float) -> list[GroupRow]:
    """The same over all pairs of images of one group."""
    from arcwise.metrics.verification import all_pairs

    assert found.keys is not None
    told, rows = np.array([values.get(key, "") for key in found.keys]), []
    for value in sorted(set(told.tolist()) - {""}):
        try:
            pairs = all_pairs(found.take(np.flatnonzero(told == value)))
        except ArcwiseError:
            rows.append(GroupRow(value, 0, 0, math.nan, math.nan, math.nan))
            continue
        far, tar = float(pairs.impostor.above(threshold)), float(pairs.genuine.above(threshold))
        rows.append(GroupRow(value, pairs.genuine.total, pairs.impostor.total, equal_error_rate(pairs), far, tar))
    return rows


def hardest_of(a: np.ndarray, b: np.ndarray, score: np.ndarray, same: Bool[np.ndarray, " p"]) -> list[HardPair]:
    """Of given pairs the most alike of two identities, and the least alike of one."""
    order = np.argsort(score, kind="stable")
    alike, unlike = order[~same[order]][::-1][:HARDEST], order[same[order]][:HARDEST]
    return [HardPair(int(a[i]), int(b[i]), bool(same[i]), float(score[i])) for i in (*alike, *unlike)]


def hardest_among(found: Embeddings) -> list[HardPair]:
    """The same among all pairs, each image at most once."""
    x, y = unit_rows(found.x), found.labels
    picked: dict[bool, list[tuple[float, int, int]]] = {False: [], True: []}
    for part in row_blocks(len(y), len(y)):
        cos = x.take(part).cosines(x)
        here = np.arange(part.start, part.stop)
        mine = y[here, None] == y[None, :]
        mine_only = np.where(mine, cos, np.inf)
        mine_only[np.arange(len(here)), here] = np.inf
        others = np.where(mine, -np.inf, cos)
        for same, column, value in (
            (False, others.argmax(axis=1), others.max(axis=1)), (True, mine_only.argmin(axis=1), mine_only.min(axis=1)),
        ):  # fmt: skip
            picked[same] += [
                (float(v), int(i), int(j)) for v, i, j in zip(value, here, column, strict=True) if np.isfinite(v)
            ]
    found_pairs = []
    for same, some in picked.items():
        used: set[int] = set()
        for value, i, j in sorted(some, reverse=not same):
            if not {i, j} & used and len(used) < 2 * HARDEST:
                used |= {i, j}
                found_pairs.append(HardPair(i, j, same, min(1.0, value)))
    return found_pairs


def with_images(
    work: ToEmbed, found: Embeddings, pairs: list[HardPair]
) -> list[tuple[HardPair, tuple[np.ndarray, np.ndarray]]]:
    """Pairs with what their images look like to the model."""
    assert found.keys is not None
    place = {key: at for at, key in enumerate(work.keys)}

    def pixels(row: int) -> np.ndarray:
        return work.read(np.array([place[found.keys[row]]]))[0][0]  # type: ignore[index]

    return [(pair, (pixels(pair.a), pixels(pair.b))) for pair in pairs]


# ------------------------------------------------------------------------------------ the images of a table of pairs


def pair_images(encoder: Encoder, table: PairTable, path: Path, source: ToEmbed | None, whole_source) -> ToEmbed:
    """The images that a table of pairs names: of a source, by the keys of named sources, or files beside the table.

    `whole_source` gives the images of a named source.
    """
    keys = tuple(dict.fromkeys((*table.a, *table.b)))
    if source is not None:
        return some_of_work(source, keys, f"which {path} names")
    named = {key: found for key in keys if (found := FROM_SOURCE.fullmatch(key))}
    if named and len(named) == len(keys):
        sources = {found[1] + (told if "=" in (told := found[2] or "") else "") for found in named.values()}
        if len(sources) > 1:
            raise ArcwiseError(
                f"{path} names images of {name_list(tuple(sorted(sources)))}: keep to one source a table."
            )
        return some_of_work(whole_source(sources.pop()), keys, f"which {path} names")
    root = path.resolve().parent
    try:
        files = [root / table_file(root, key, str(path)) for key in keys]
    except ArcwiseError as error:
        raise ArcwiseError(f"{error} If these are images of a folder, name it: --on folder:PATH") from None
    return replace(listed_work(encoder, files, keys), y=None)


def some_of_work(work: ToEmbed, keys: tuple[str, ...], where: str) -> ToEmbed:
    """The images of these keys, in this order."""
    place = {key: at for at, key in enumerate(work.keys)}
    lacking = [key for key in keys if key not in place]
    if lacking:
        raise ArcwiseError(
            f"there is no image {lacking[0]!r}, {where}; {len(lacking):,} of {len(keys):,} are not there. Name what "
            "the pairs were made of, in the same words: --on folder:PATH, --on PATH, or a source."
        )
    rows = np.array([place[key] for key in keys])
    back = {int(row): at for at, row in enumerate(rows)}

    def read(some: np.ndarray):
        pixels, fine, bad = work.read(rows[some])
        return (
            pixels,
            np.array([back[int(row)] for row in fine], np.int64),
            {back[row]: why for row, why in bad.items()},
        )

    return ToEmbed(keys, None, (), read, ())
