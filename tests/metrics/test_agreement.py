"""Every measure against its definition on rows with ties: to the last sample, in any order, in blocks of any size.

The rule for ties: equal rows have equal scores; a tie counts half in an AUC; among equals, those of other classes come
first in a ranking; and a nearest neighbour or centre that another class has as near is a wrong one.
"""

import contextlib
import importlib
import itertools
import math
import os
import pkgutil

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import arcwise.metrics
from arcwise.errors import ArcwiseError
from arcwise.metrics import (
    accuracy,
    all_pairs,
    auc,
    auroc,
    conflicts,
    davies_bouldin,
    detection_rate,
    dunn_index,
    eer,
    margin_kept,
    nearest_neighbour_accuracy,
    retrieval,
    silhouette,
    tar_at_far,
)
from arcwise.metrics.clusters import BETWEEN, DISTANCES, INSIDE
from arcwise.records import Prototypes
from metrics import definitions
from metrics.samples import embeddings
from metrics.strategies import Drawn, labelled_rows, rows_and_centres

EXAMPLES = settings(max_examples=int(os.environ.get("HOSTILE_EXAMPLES", "60")))  # a few thousand take some minutes
MODULES = [
    importlib.import_module(f"arcwise.metrics.{info.name}") for info in pkgutil.iter_modules(arcwise.metrics.__path__)
]
BLOCKS = st.sampled_from([(None, None), (8, 1), (64, 2), (300, 3)])  # bytes of a block, rows of a tile


@contextlib.contextmanager
def small_blocks(blocks):
    """Takes pairs in blocks of so many bytes and tiles of so many rows, while it is entered."""
    with pytest.MonkeyPatch.context() as patch:
        for module, (name, value) in itertools.product(MODULES, zip(("BLOCK_BYTES", "TILE_ROWS"), blocks, strict=True)):
            if value is not None and hasattr(module, name):
                patch.setattr(module, name, value)
        yield


def in_every_way(drawn, blocks, measure):
    """The measure of the rows, after it was the same in another order and in blocks."""
    found = measure(drawn)
    wanted = pytest.approx(found, rel=1e-9, abs=1e-12, nan_ok=True)
    assert measure(drawn.shuffled()) == wanted, "the order of rows matters"
    with small_blocks(blocks):
        assert measure(drawn) == wanted, "the size of blocks matters"
    return found


def has_pairs(y):
    """Whether there are pairs of one class and pairs of two."""
    counts = np.bincount(y)
    return (counts > 1).any() and (counts > 0).sum() > 1


# ---------------------------------------------------------------------------------------------- pairs


SAME = np.full((3, 2), [27.0, -19.0])  # the same row three times, in three lengths


@EXAMPLES
@given(labelled_rows(most=40, one_repeated=True), BLOCKS, st.booleans())
@example(
    Drawn(np.ldexp(SAME, [[60], [100], [-3]]).astype(np.float32), SAME, np.array([1, 0, 1]), np.arange(3)),
    (8, 1),
    False,
)
def test_pairs_are_told_apart_as_often_as_by_definition(drawn, blocks, counted):
    def measure(rows):
        pairs = all_pairs(embeddings32(rows), **({"exact": 0} if counted else {}))
        found = eer(pairs)
        return [
            auc(pairs),
            *(tar_at_far(pairs, far).tar for far in (0.0, 0.01, 0.1, 0.5)),
            (found.far + 1 - found.tar) / 2,
        ]

    if not has_pairs(drawn.y):
        with pytest.raises(ArcwiseError):
            measure(drawn)
        return
    genuine, impostor = definitions.all_scores(drawn.x.astype(np.float64), drawn.y)
    *rates, equal = in_every_way(drawn, blocks, measure)
    assert rates[0] == pytest.approx(definitions.auc(genuine, impostor), abs=1e-12)
    assert rates[1:] == [definitions.tar_at_far(genuine, impostor, far) for far in (0.0, 0.01, 0.1, 0.5)]
    assert any(equal == pytest.approx(one, abs=1e-12) for one in definitions.equal_error_rates(genuine, impostor))


def embeddings32(drawn):
    """Embeddings in the precision that was drawn."""
    made = embeddings(drawn.x, drawn.y, classes=int(drawn.y.max()) + 1)
    return type(made)(drawn.x, made.y, made.names)


# ---------------------------------------------------------------------------------------------- ranks


@EXAMPLES
@given(labelled_rows(most=30), BLOCKS)
def test_ranks_are_those_of_the_definition(drawn, blocks):
    n = len(drawn.y)
    depths = tuple(sorted({1, min(2, n - 1), n - 1} - {0}))

    def measure(rows):
        found = retrieval(embeddings32(rows), k=depths)
        return [*found.recall_at.values(), found.r_precision, found.map_at_r]

    if np.bincount(drawn.y).max() < 2:
        with pytest.raises(ArcwiseError):
            measure(drawn)
        return
    recall, r_precision, map_at_r = definitions.retrieval(drawn.x.astype(np.float64), drawn.y, depths)
    wanted = [*recall.values(), r_precision, map_at_r]
    assert in_every_way(drawn, blocks, measure) == pytest.approx(wanted, abs=1e-12)


CROSS = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])  # the first is as near to the second as to the third


@EXAMPLES
@given(labelled_rows(most=40), BLOCKS)
@example(Drawn(CROSS, CROSS, np.array([0, 0, 1]), np.array([0, 2, 1])), (None, None))
def test_nearest_neighbours_are_right_where_no_other_is_as_near(drawn, blocks):
    def measure(rows):
        return nearest_neighbour_accuracy(embeddings32(rows))

    if len(drawn.y) < 2:
        with pytest.raises(ArcwiseError):
            measure(drawn)
        return
    wanted = definitions.nearest_neighbour_accuracy(drawn.x.astype(np.float64), drawn.y)
    assert in_every_way(drawn, blocks, measure) == pytest.approx(wanted, abs=1e-12, nan_ok=True)


# ---------------------------------------------------------------------------------------------- centres


@EXAMPLES
@given(rows_and_centres(most=30), BLOCKS)
def test_centres_name_whom_no_other_centre_is_as_near_to(given_rows, blocks):
    drawn, centres = given_rows
    made = Prototypes(centres)
    margins = (0.0, 0.1, 0.5)
    leads = [definitions.lead(row, centres, own) for row, own in zip(drawn.x.astype(np.float64), drawn.y, strict=True)]
    assume(all(lead == 0.0 or abs(lead - m) > 1e-6 for lead in leads for m in margins))

    def measure(rows):
        e = embeddings(rows.x, rows.y, classes=len(centres))
        return [accuracy(e, made), *(margin_kept(e, made, m) for m in margins)]

    wanted = [sum(lead > 0.0 for lead in leads), *(sum(lead >= m for lead in leads) for m in margins)]
    if len(centres) == 1:
        wanted = [len(leads)]
        assert in_every_way(drawn, blocks, lambda rows: measure(rows)[:1]) == [1.0]
        return
    assert in_every_way(drawn, blocks, measure) == pytest.approx([count / len(leads) for count in wanted], abs=1e-12)


AXES = np.eye(2)  # the first is known, and both centres are as near to it


@EXAMPLES
@given(rows_and_centres(most=20), st.lists(st.booleans(), min_size=20, max_size=20), BLOCKS)
@example((Drawn(AXES, AXES, np.array([0, 1]), np.arange(2)), AXES[[0, 0]]), [True, False], (None, None))
def test_known_and_unseen_are_told_apart_as_by_definition(given_rows, known, blocks):
    drawn, centres = given_rows
    known = np.array(known[: len(drawn.y)])
    assume(known.any() and not known.all())
    x, made = drawn.x.astype(np.float64), Prototypes(centres)

    def measure(rows):
        here = known if rows is drawn else known[drawn.order]
        inside = embeddings(rows.x[here], rows.y[here], classes=len(centres))
        outside = embeddings(rows.x[~here], rows.y[~here], classes=len(centres))
        rates = [detection_rate(inside, outside, made, fpr).rate for fpr in (0.0, 0.1, 0.5)]
        return [auroc(inside, outside, made), *rates]

    wanted = [definitions.open_auroc(x[known], x[~known], centres)]
    wanted += [definitions.detection_rate(x[known], drawn.y[known], x[~known], centres, fpr) for fpr in (0.0, 0.1, 0.5)]
    assert in_every_way(drawn, blocks, measure) == pytest.approx(wanted, abs=1e-12)


# ---------------------------------------------------------------------------------------------- clusters


@contextlib.contextmanager
def without_dust():
    """Distances of the definitions that are nothing but rounding are 0, while it is entered."""
    plain = definitions.between_points

    def snapped(a, b, distance):
        far = plain(a, b, distance)
        return 0.0 if far < 1e-7 else far

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(definitions, "between_points", snapped)
        yield


def by_definition(compute):
    """The number, or None where the definition has none: a mean without a direction, fewer than two classes."""
    try:
        with without_dust():
            return compute()
    except (ZeroDivisionError, ValueError):  # max() and min() of nothing are a ValueError
        return None


def agree(drawn, blocks, measure, wanted):
    """The measure is the definition's, or refused where that has none."""
    if wanted is None or len(np.unique(drawn.y)) < 2:
        with contextlib.suppress(ArcwiseError):
            assert not math.isnan(measure(drawn))
        return
    assert in_every_way(drawn, blocks, measure) == pytest.approx(wanted, rel=1e-6, abs=1e-9)


@EXAMPLES
@given(labelled_rows(common=True), st.sampled_from(DISTANCES), st.sampled_from([100.0, 95.0, 60.0]), BLOCKS)
def test_dunn_indices_are_those_of_the_definition(drawn, distance, trim, blocks):
    for between, inside in itertools.product(BETWEEN, INSIDE):
        how = {"between": between, "inside": inside, "distance": distance, "trim": trim}
        wanted = by_definition(lambda how=how: definitions.dunn(drawn.points, drawn.y, **how))
        agree(drawn, blocks, lambda rows, how=how: dunn_index(embeddings32(rows), **how), wanted)


@EXAMPLES
@given(labelled_rows(common=True), st.sampled_from(DISTANCES), BLOCKS)
def test_silhouettes_are_those_of_the_definition(drawn, distance, blocks):
    wanted = by_definition(lambda: definitions.silhouette(drawn.points, drawn.y, distance))
    agree(drawn, blocks, lambda rows: silhouette(embeddings32(rows), distance=distance), wanted)


@EXAMPLES
@given(labelled_rows(common=True), st.sampled_from(DISTANCES), BLOCKS)
def test_davies_bouldin_is_that_of_the_definition(drawn, distance, blocks):
    wanted = by_definition(lambda: definitions.davies_bouldin(drawn.points, drawn.y, distance))
    agree(drawn, blocks, lambda rows: davies_bouldin(embeddings32(rows), distance=distance), wanted)


@EXAMPLES
@given(labelled_rows(classes=(2, 4), most=10, common=True), st.sampled_from(DISTANCES), BLOCKS)
def test_conflicts_are_those_of_the_definition(drawn, distance, blocks):
    def measure(rows):
        found = conflicts(embeddings32(rows), distance=distance)
        return [found.triples, found.anchors, found.nearest]

    if len(np.unique(drawn.y)) < 2:
        with pytest.raises(ArcwiseError):
            measure(drawn)
        return
    with without_dust():
        wanted = definitions.conflicts(drawn.points, drawn.y, distance)[:3]
    assert in_every_way(drawn, blocks, measure) == pytest.approx(list(wanted), abs=1e-12, nan_ok=True)
