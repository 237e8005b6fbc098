"""Search among enrolled templates, peers beside ours: one query and 64 at once; adding, reopening, memory.

    python benchmarks/gallery.py                        100,000 and 1,000,000 templates of 512 dimensions (ten minutes)
    python benchmarks/gallery.py --rows 100000          one size
    python benchmarks/gallery.py --no-store             the search alone

All contenders hold the same unit rows in one process and are asked in turn; times are medians of the rounds. arcwise
answers exactly (best and second-best identity by float64 products), numpy and faiss's flat index by float32 products,
faiss's SQ8 and usearch's own search approximately; how often the best row is the exact one is printed beside the time.
Who would take more than a minute for 64 queries at once is asked for one alone.
`pip install faiss-cpu usearch` brings the peers; without them their lines are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from arcwise.gallery.index import Index
from arcwise.gallery.people import Gallery
from arcwise.records import Preprocessing

DIM, QUERIES, ROUNDS, EACH = 512, 64, 7, 4  # templates of each identity
LONG, TOO_LONG = 3.0, 60.0  # seconds, after which a contender is asked only once, and not at all
SIDE = 23  # of grey images whose first 512 pixels are the embedding
Search = Callable[[np.ndarray], np.ndarray]  # queries to the best row of each


class FirstPixels:
    """An Encoder that costs nothing, so that what is measured is the gallery."""

    dim, fingerprint = DIM, "first pixels"
    preprocessing = Preprocessing(side=SIDE, channels=1, mean=(0.5,), std=(0.5,))

    def encode(self, pixels: np.ndarray) -> np.ndarray:
        return pixels.reshape(len(pixels), -1)[:, :DIM].astype(np.float32) - np.float32(127.5)


def unit(x: np.ndarray) -> np.ndarray:
    """Rows of length 1, in blocks."""
    for at in range(0, len(x), 65_536):
        x[at : at + 65_536] /= np.linalg.norm(x[at : at + 65_536], axis=1, keepdims=True)
    return x


def templates(n: int, *, near: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows around a direction of each identity, and whose they are; `near`: all of them around one direction."""
    random = np.random.default_rng(0)
    owner = np.arange(n) // EACH
    x = np.empty((n, DIM), np.float32)
    one = random.standard_normal(DIM, np.float32)
    for at in range(0, n, 65_536):
        mine = owner[at : at + 65_536]
        centres = random.standard_normal((mine[-1] - mine[0] + 1, DIM), np.float32)[mine - mine[0]]
        noise = random.standard_normal((len(mine), DIM), np.float32)
        x[at : at + 65_536] = one + 1e-3 * noise if near else centres + 0.8 * noise
    return unit(x), owner


def questions(x: np.ndarray) -> np.ndarray:
    """Queries near some of the rows."""
    random = np.random.default_rng(1)
    some = x[random.choice(len(x), QUERIES, replace=False)]
    return unit(some + np.float32(0.8 / DIM**0.5) * random.standard_normal(some.shape, np.float32))


def contenders(x: np.ndarray, owner: np.ndarray, folder: Path) -> dict[str, Search]:
    """Everybody who searches, by name."""
    index = Index(x, owner)

    def ours(q: np.ndarray) -> np.ndarray:
        best = index.best_of_many(q) if len(q) > 1 else [index.best(q[0])]
        return np.array([found[0].row for found in best])

    found: dict[str, Search] = {"arcwise, exact": ours, "numpy product": lambda q: (q @ x.T).argmax(axis=1)}
    if importlib.util.find_spec("usearch") is not None and index.small is not None:
        from usearch.compiled import MetricKind  # pyright: ignore[reportMissingImports]
        from usearch.index import search  # pyright: ignore[reportMissingImports]

        small = index.small

        def bytes_alone(q: np.ndarray) -> np.ndarray:
            shrunk = np.clip(np.rint(q / small.step), -127, 127).astype(np.int8)
            return search(small.bytes, shrunk, 2, MetricKind.IP, exact=True).keys.reshape(len(q), 2)[:, 0]

        found["usearch, int8 alone"] = bytes_alone
    if importlib.util.find_spec("faiss") is not None:
        import faiss

        faiss.omp_set_num_threads(os.cpu_count() or 1)
        bytes_each = faiss.ScalarQuantizer.QT_8bit
        for name, built in (
            ("faiss flat", faiss.IndexFlatIP(DIM)),
            ("faiss SQ8", faiss.IndexScalarQuantizer(DIM, bytes_each, faiss.METRIC_INNER_PRODUCT)),
        ):
            built.train(x[:100_000])
            built.add(x)
            found[name] = lambda q, built=built: built.search(q, 2)[1][:, 0]
    found["lancedb, its own scan"] = lance_scan(x, folder)
    return found


def lance_scan(x: np.ndarray, folder: Path) -> Search:
    """LanceDB's search without an index."""
    import lancedb
    import pyarrow as pa

    database = lancedb.connect(str(folder / "plain"))
    schema = pa.schema([("row", pa.int64()), ("x", pa.list_(pa.float32(), DIM))])
    table: Any = database.create_table("x", schema=schema)
    for at in range(0, len(x), 100_000):
        part = x[at : at + 100_000]
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), DIM)
        table.add(pa.table([pa.array(np.arange(at, at + len(part))), vectors], schema=schema))
    return lambda q: np.array(
        [
            table.search(one).distance_type("dot").select(["row", "_distance"]).limit(2).to_arrow()["row"][0].as_py()
            for one in q
        ]
    )


def exact_rows(x: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The best row of each query by float64 products, in blocks; of equals the first."""
    best, row = np.full(len(queries), -np.inf), np.zeros(len(queries), np.int64)
    for at in range(0, len(x), 65_536):
        cos = x[at : at + 65_536].astype(np.float64) @ queries.T.astype(np.float64)
        better = cos.max(axis=0) > best
        row[better], best[better] = at + cos.argmax(axis=0)[better], cos.max(axis=0)[better]
    return row


def race(found: dict[str, Search], queries: np.ndarray, exact: np.ndarray) -> dict[str, tuple[float, float]]:
    """Seconds of each contender, asked in turn, and how often its best row is the exact one."""
    times: dict[str, list[float]] = {name: [] for name in found}
    right: dict[str, float] = {}
    for turn in range(ROUNDS + 1):
        for name, search in found.items():
            if turn > 1 and times[name][0] > LONG:
                continue
            began = time.perf_counter()
            rows = search(queries)
            if turn:  # the first warms up
                times[name].append(time.perf_counter() - began)
            else:
                right[name] = float((rows == exact).mean())
    return {name: (statistics.median(times[name]), right[name]) for name in found}


def show_race(n: int, *, near: bool = False) -> None:
    """The table of one size."""
    x, owner = templates(n, near=near)
    queries = questions(x)
    print(f"\n{n:,} templates x {DIM}, {n // EACH:,} identities{', all near one direction' if near else ''}")
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        found = contenders(x, owner, Path(folder))
        print(f"set up in {time.perf_counter() - began:.0f} s; arcwise holds {Index(x, owner).nbytes / 2**20:,.0f} MiB")
        exact = exact_rows(x, queries)
        single = race(found, queries[:1], exact[:1])
        quick = {name: search for name, search in found.items() if QUERIES * single[name][0] < TOO_LONG}
        many = race(quick, queries, exact)
    print(f"{'':24}{'one query':>12}{'of numpy':>10}{'64 queries':>14}{'of numpy':>10}{'best row right':>17}")
    for name, (one, _) in single.items():
        told = f"{name:24}{1e3 * one:9.2f} ms{one / single['numpy product'][0]:10.2f}"
        if name in many:
            seconds, right = many[name]
            told += f"{1e3 * seconds:11.1f} ms{seconds / many['numpy product'][0]:10.2f}{right:16.0%}"
        print(told, flush=True)


def show_store(n: int) -> None:
    """Adding, reopening, removing, and what it takes."""
    random = np.random.default_rng(2)
    pixels = random.integers(0, 256, (n, SIDE, SIDE, 1), dtype=np.uint8)
    people = {f"person {at:07}": list(pixels[at : at + EACH]) for at in range(0, n, EACH)}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "people"
        made = Gallery.create(place, FirstPixels())
        began, busy = time.perf_counter(), time.process_time()
        made.add_many(people)
        seconds, busy = time.perf_counter() - began, time.process_time() - busy
        print(f"\nadding {n:,} templates of {len(people):,} identities: {seconds:.1f} s, {n / seconds:,.0f} a second; "
              f"{busy:.1f} s of CPU, {n / busy:,.0f} a second")  # fmt: skip
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began, busy = time.perf_counter(), time.process_time()
        again = Gallery.open(place, FirstPixels())
        again.identify(pixels[0], threshold=0.5)
        seconds, busy = time.perf_counter() - began, time.process_time() - busy
        told = again.stats()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"reopening to the first answer: {seconds:.2f} s ({busy:.2f} of CPU); in memory "
              f"{told['memory_bytes'] / 2**20:,.0f} MiB (the process grew by {grown:,.0f} at most), on the disk "
              f"{told['disk_bytes'] / 2**20:,.0f} MiB")  # fmt: skip
        began = time.perf_counter()
        again.remove("person 0000004")
        print(f"removing somebody, which writes all others anew: {time.perf_counter() - began:.2f} s")


def main() -> None:
    """Prints everything."""
    parser = argparse.ArgumentParser(description="Search among enrolled templates, peers beside ours.")
    parser.add_argument("--rows", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--no-store", action="store_true")
    parser.add_argument("--store-rows", type=int, default=100_000)
    asked = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}")
    if not asked.no_store:  # first, while the process is small
        show_store(asked.store_rows)
    for n in asked.rows:
        show_race(n)
    if asked.rows:
        show_race(min(asked.rows), near=True)


if __name__ == "__main__":
    main()
