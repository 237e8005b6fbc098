"""The search of a gallery is exact: float64 dot products of the stored rows, ties by the order of enrolment."""

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arcwise.gallery import index
from arcwise.gallery.index import Index, in_bytes


def by_hand(x, owner, q, allowed, wanted):
    """The best row of each identity, by a loop over all rows."""
    best = {}
    for row, mine in enumerate(owner.tolist()):
        if allowed is None or allowed[row]:
            score = float(np.vecdot(x[row].astype(np.float64), q.astype(np.float64)))
            if mine not in best or score > best[mine][1]:
                best[mine] = (row, score)
    return sorted(best.values(), key=lambda at: (-at[1], at[0]))[:wanted]


@st.composite
def galleries(draw):
    """Unit rows with near-duplicates, ties and outliers, their identities, queries, and who is allowed."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, d = draw(st.integers(1, 300)), draw(st.sampled_from([1, 2, 3, 16, 64, 129]))
    x = random.standard_normal((n, d))
    kind = draw(st.sampled_from(["spread", "near", "equal", "few", "axes"]))
    if kind == "near":
        x = x[:1] + 10.0 ** random.uniform(-9, 0, (n, 1)) * x
    elif kind == "equal":
        x = x[random.integers(0, max(1, n // 8), n)]
    elif kind == "few":
        x = random.integers(-1, 2, (n, d)) + 1e-3
    elif kind == "axes":  # what bytes hold worst
        x = np.eye(d)[random.integers(0, d, n)] + 1e-6 * x
    unit = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    owner = random.integers(0, max(1, n // draw(st.integers(1, 5))), n)
    q = np.concatenate([unit[random.integers(0, n, 5)], random.standard_normal((6, d)).astype(np.float32)])
    q[1] += np.float32(1e-4) * random.standard_normal(d).astype(np.float32)
    q = (q / np.linalg.norm(q.astype(np.float64), axis=1, keepdims=True)).astype(np.float32)
    allowed = random.random(n) < 0.5 if draw(st.booleans()) else None
    return unit, owner, q, allowed


@settings(max_examples=150)
@given(some=galleries(), wanted=st.integers(1, 3))
def test_whatever_finds_candidates_the_answer_is_that_of_a_loop(some, wanted):
    x, owner, queries, allowed = some
    ways = [Index(x, owner, small_from=None), Index(x, owner, small_from=0)]
    want = [by_hand(x, owner, q, allowed, wanted) for q in queries]
    for way in ways:
        one_by_one = [way.best(q, allowed=allowed, wanted=wanted) for q in queries]
        assert [list(map(tuple, found)) for found in one_by_one] == want
        assert way.best_of_many(queries, allowed=allowed, wanted=wanted) == one_by_one


def test_bytes_are_used_and_mostly_decide(monkeypatch):
    pytest.importorskip("numkong")
    random = np.random.default_rng(0)
    x = random.standard_normal((5000, 64)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    found = Index(x, np.arange(5000), small_from=0)
    asked = []
    monkeypatch.setattr(Index, "by_floats", lambda *arguments: asked.append(1))
    for row in range(0, 5000, 100):
        q = x[row] + 0.1 * random.standard_normal(64).astype(np.float32) / 8
        assert found.best((q / np.linalg.norm(q)).astype(np.float32))[0].row == row
    assert not asked


@pytest.mark.parametrize("small_from", [0, None])
def test_an_identity_with_several_templates_leaves_few_rows_open(monkeypatch, small_from):
    if small_from is not None:
        pytest.importorskip("numkong")
    random, n, d, looked = np.random.default_rng(0), 20_000, 128, []
    owner = np.arange(n) // 4
    x = random.standard_normal((n // 4, d))[owner] + 0.8 * random.standard_normal((n, d))
    x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    queries = x[::4000] + np.float32(0.8 / d**0.5) * random.standard_normal((5, d)).astype(np.float32)
    queries = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)
    found, exactly = Index(x, owner, small_from=small_from), Index.exactly

    def counted(self, rows, q, wanted):
        looked.append(len(rows))
        return exactly(self, rows, q, wanted)

    monkeypatch.setattr(Index, "exactly", counted)
    got = [list(map(tuple, mine)) for mine in found.best_of_many(queries)]
    assert got == [by_hand(x, owner, q, None, 2) for q in queries]
    assert sum(looked) / 5 < 0.1 * n  # the nearest groups hold one identity, and beside it a poor second


def test_near_duplicates_are_looked_at_again_one_and_all():
    pytest.importorskip("numkong")
    random = np.random.default_rng(0)
    one = random.standard_normal(32)
    x = one + 1e-6 * random.standard_normal((4000, 32))
    x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    q = (one / np.linalg.norm(one)).astype(np.float32)
    owner = np.arange(4000)
    found = Index(x, owner, small_from=0).best(q)
    assert list(map(tuple, found)) == by_hand(x, owner, q, None, 2)


def test_what_bytes_are_off_by_is_bounded():
    random = np.random.default_rng(0)
    x = np.concatenate([random.standard_normal((3000, 48)), np.eye(48)]).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    small = in_bytes(x)
    off = np.linalg.norm(x.astype(np.float64) - small.step * small.bytes.astype(np.float64), axis=1)
    plain = np.setdiff1d(np.arange(len(x)), small.odd)
    assert (off[plain] <= small.far).all() and len(small.odd) < 0.05 * len(x)


@pytest.mark.parametrize("d", [1, 63, 512, 4096])
def test_products_of_bytes_are_exact(d):
    pytest.importorskip("numkong")
    products = index.byte_products()
    assert products is not None
    rows = np.full((70, d), 127, np.int8)
    rows[1:, 0] = np.arange(-1, -70, -1)
    for queries in (rows[:1], rows[:2], -rows[:33]):
        assert np.array_equal(products(rows, queries), rows.astype(np.int64) @ queries.T.astype(np.int64))


@pytest.mark.parametrize("wrong", ["rounded", "raises", "as bytes"])
def test_products_that_are_not_exact_are_not_used(wrong):
    def products(rows, queries):
        if wrong == "raises":
            raise TypeError("called otherwise")
        exact = rows.astype(np.int64) @ queries.T.astype(np.int64)
        return exact.astype(np.float16 if wrong == "rounded" else np.int8)

    assert not index.are_exact(products)
    assert index.are_exact(lambda rows, queries: rows.astype(np.int64) @ queries.T.astype(np.int64))


def test_many_queries_take_no_more_memory_than_a_block():
    random = np.random.default_rng(0)
    x = random.standard_normal((20_000, 8)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    found = Index(x, np.arange(20_000), small_from=None)
    tracemalloc.start()
    found.best_of_many(np.repeat(x[:64], 64, axis=0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**28 + 2**27  # all products at once would be 330 MB and their copies as much again


def test_what_galleries_of_millions_need_is_counted_from_bytes():
    text = (Path(__file__).parents[2] / "docs/gallery.md").read_text()
    units = {"million": 1e6, "billion": 1e9, "GB": 1e9, "TB": 1e12}
    rows = re.findall(r"^\| (\d+) (million|billion) \| (.*?) \|$", text, re.M)
    assert len(rows) == 4
    for count, unit, cells in rows:
        n = int(count) * units[unit]
        told = [float(size) * units[of] for size, of in re.findall(r"([\d.]+) (GB|TB)", cells)]
        assert told == pytest.approx([4 * 512 * n, 5 * 512 * n, 512 * n], rel=0.03)
