"""Equal rows have equal scores, to the last bit: whatever the block, the order, the class or the set they are in."""

import numpy as np
import pytest

from arcwise.metrics import rows
from arcwise.metrics.identification import accuracy, nearest_neighbour_accuracy, nearest_prototype
from arcwise.metrics.openset import auroc, best_match, detection_rate
from arcwise.metrics.retrieval import retrieval
from arcwise.metrics.verification import all_pairs, auc, equal_error_rate, given_pairs, tar_at_far
from arcwise.records import Embeddings, Prototypes


def copies(n=67, classes=4, dim=37, seed=0):
    """One row, again and again, in several classes."""
    row = np.random.default_rng(seed).standard_normal((1, dim)).astype(np.float32)
    return Embeddings(np.repeat(row, n, axis=0), np.arange(n) % classes)


@pytest.fixture(params=[1 << 10, 1 << 14, None], ids=["tiny blocks", "small blocks", "whole"])
def blocks(request, monkeypatch):
    """Blocks of a few rows, of some, and as large as ever."""
    if request.param:
        monkeypatch.setattr(rows, "BLOCK_BYTES", request.param)


@pytest.mark.parametrize("dim", [2, 3, 37, 512, 2000])
@pytest.mark.usefixtures("blocks")
def test_copies_of_one_row_in_four_classes_tell_nothing(dim):
    found = copies(dim=dim)
    pairs, ranked = all_pairs(found), retrieval(found, k=(1, 5))
    assert auc(pairs) == 0.5 and equal_error_rate(pairs) == 0.5 and tar_at_far(pairs, 0.99).tar == 0.0
    assert ranked.map_at_r == ranked.recall_at[1] == ranked.r_precision == 0.0
    assert nearest_neighbour_accuracy(found) == 0.0 == nearest_neighbour_accuracy(found, copies(dim=dim))
    binned = all_pairs(found, exact=0)
    assert auc(binned) == 0.5 and binned.genuine.total == pairs.genuine.total


def test_zero_is_equal_to_its_negative():
    assert rows.has_twins(np.array([[0.0, 1.0], [-0.0, 1.0]]))
    assert not rows.has_twins(np.array([[0.0, 1.0], [0.0, -1.0]]))


def drawn(seed):
    """A few distinct rows, repeated, with labels; the table of their cosines; which row is which."""
    random = np.random.default_rng(seed)
    base = random.standard_normal((int(random.integers(2, 7)), int(random.integers(2, 70)))).astype(np.float32)
    unit = base.astype(np.float64) / np.linalg.norm(base.astype(np.float64), axis=1, keepdims=True)
    table = np.round(unit @ unit.T, 12)
    n = int(random.integers(12, 90))
    return base, table, random.integers(0, len(base), n), np.r_[0, 0, 1, 1, random.integers(0, 3, n - 4)], random


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.usefixtures("blocks")
def test_auc_of_repeated_rows_is_that_of_their_table_in_any_order(seed):
    base, table, which, y, random = drawn(seed)
    a, b = np.triu_indices(len(y), 1)
    score, same = table[which[a], which[b]], y[a] == y[b]
    wins = (score[same][:, None] > score[~same]).mean() + (score[same][:, None] == score[~same]).mean() / 2
    for order in (np.arange(len(y)), random.permutation(len(y))):
        found = Embeddings(base[which[order]], y[order], names=("a", "b", "c"))
        assert auc(all_pairs(found)) == pytest.approx(wins, abs=1e-12)
        assert all_pairs(found).genuine.total == same.sum() and all_pairs(found).impostor.total == (~same).sum()


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.usefixtures("blocks")
def test_retrieval_of_repeated_rows_ranks_others_first_in_any_order(seed):
    base, table, which, y, random = drawn(seed)
    first, precision = [], []
    for i in (i for i in range(len(y)) if (y == y[i]).sum() > 1):
        rest = [j for j in range(len(y)) if j != i]
        ranked = sorted(rest, key=lambda j: (-table[which[i], which[j]], y[j] == y[i]))  # of equals the others first
        r = (y == y[i]).sum() - 1
        hits = [y[j] == y[i] for j in ranked[:r]]
        first.append(y[ranked[0]] == y[i])
        precision.append(sum(sum(hits[: k + 1]) / (k + 1) for k in range(r) if hits[k]) / r)
    for order in (np.arange(len(y)), random.permutation(len(y))):
        found = retrieval(Embeddings(base[which[order]], y[order], names=("a", "b", "c")), k=(1,))
        assert found.recall_at[1] == pytest.approx(np.mean(first)) and found.map_at_r == pytest.approx(
            np.mean(precision)
        )


@pytest.mark.usefixtures("blocks")
def test_equal_samples_score_equally_whether_their_class_is_known_or_not():
    random = np.random.default_rng(3)
    x = random.standard_normal((5, 33)).astype(np.float32)[random.integers(0, 5, 200)]
    centres = Prototypes(random.standard_normal((7, 33)))
    known, unseen = Embeddings(x, np.arange(200) % 7), Embeddings(x[random.permutation(200)], np.arange(200) % 3)
    assert auroc(known, unseen, centres) == 0.5
    assert sorted(set(best_match(known, centres).score)) == sorted(set(best_match(unseen, centres).score))
    assert detection_rate(known, unseen, centres, 0.0).rate == 0.0


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("classes", [2, 9, 40])
def test_a_sample_between_two_equal_centres_is_named_wrongly(classes, linear):
    random = np.random.default_rng(classes)
    w = np.repeat(random.standard_normal((1, 19)), classes, axis=0)
    centres = Prototypes(w, np.full(classes, 0.25)) if linear else Prototypes(w)
    found = Embeddings(random.standard_normal((50, 19)).astype(np.float32), np.arange(50) % classes)
    assert accuracy(found, centres) == 0.0
    assert not (nearest_prototype(found, centres).predicted == found.labels).any()


def test_pairs_by_hand_of_equal_rows_are_equal():
    base, _, which, y, _ = drawn(1)
    found = Embeddings(base[which], y, names=("a", "b", "c"))
    a, b = np.triu_indices(len(y), 1)
    score, _ = given_pairs(found, np.stack((a, b), axis=1))
    for kind in {(which[i], which[j]) for i, j in zip(a, b, strict=True)}:
        ours = [s for s, i, j in zip(score, a, b, strict=True) if (which[i], which[j]) == kind]
        assert len(set(ours)) == 1


@pytest.mark.parametrize("dim", [2, 100, 1024, 5000])
def test_split_rows_multiply_exactly(dim):
    from fractions import Fraction

    random = np.random.default_rng(dim)
    unit = rows.directions(random.standard_normal((4, dim)))
    split = rows.split_rows(unit)
    assert np.abs(split.high + split.low - unit).max() < 2.0**-46
    whole = [[Fraction(v) for v in row] for row in split.high], [[Fraction(v) for v in row] for row in split.low]
    for i, j in ((0, 1), (2, 3), (1, 1)):
        high = sum(whole[0][i][k] * whole[0][j][k] for k in range(dim))
        cross = sum(whole[0][i][k] * whole[1][j][k] + whole[1][i][k] * whole[0][j][k] for k in range(dim))
        assert Fraction(float(high)) == high and Fraction(float(cross)) == cross  # float64 holds them as they are
        assert split.cosines(split)[i, j] == float(high) + float(cross)
