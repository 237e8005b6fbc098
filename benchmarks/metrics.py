"""Time and peak memory of our measures of embeddings, scikit-learn and pytorch-metric-learning beside them.

    python benchmarks/metrics.py                     10,000 x 512 embeddings of 100 classes (about five minutes)
    python benchmarks/metrics.py --n 2000 --dim 64   a smaller set
    python benchmarks/metrics.py --large             our Dunn index and all pairs of 100,000 x 512, 1,000 classes

Times are medians of the rounds, all contenders in one process, in turn, on the same float32 embeddings. Where a
contender measures the same thing, its numbers must equal ours; the script fails where they do not. Memory is taken in
a process of its own for each contender: the high-water mark of the resident set during one call (VmHWM, reset just
before it), less what was resident before, so embeddings, libraries and their warm-up do not count. The plain
getrusage(RUSAGE_SELF).ru_maxrss would count them.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from arcwise import metrics
from arcwise.metrics.verification import equal_error_rate
from arcwise.records import Embeddings

Values = dict[str, float]
FAR = 1e-3


@dataclass(frozen=True)
class Contender:
    """One way to take a measure, and how near its numbers must come to ours."""

    measure: str
    name: str
    run: Callable[[Embeddings], Values]
    within: float = 1e-4


# ------------------------------------------------------------------------------------------ ours


def our_pairs(e: Embeddings) -> Values:
    pairs = metrics.all_pairs(e)
    return {
        "auc": metrics.auc(pairs),
        "eer": equal_error_rate(pairs),
        "tar": metrics.tar_at_far(pairs, FAR).tar,
    }


def our_retrieval(e: Embeddings) -> Values:
    found = metrics.retrieval(e, k=(1, 5, 10))
    return {"recall@1": found.recall_at[1], "r-precision": found.r_precision, "map@r": found.map_at_r}


def our_conflicts(e: Embeddings) -> Values:
    found = metrics.conflicts(e)
    return {"triples": found.triples, "anchors": found.anchors}


# ------------------------------------------------------------------------------------------ peers


def plain_dunn(e: Embeddings) -> Values:
    """As one writes it: all distances at once, the largest of one class, the smallest of two."""
    from sklearn.metrics import pairwise_distances

    far, same = pairwise_distances(e.x), e.labels[:, None] == e.labels[None, :]
    return {"index": float(far[~same].min() / far[same].max())}


def their_silhouette(metric: str) -> Callable[[Embeddings], Values]:
    def run(e: Embeddings) -> Values:
        from sklearn.metrics import silhouette_score

        return {"mean": float(silhouette_score(e.x, e.labels, metric=metric))}

    return run


def their_davies_bouldin(e: Embeddings) -> Values:
    from sklearn.metrics import davies_bouldin_score

    return {"index": float(davies_bouldin_score(e.x, e.labels))}


def their_pairs(e: Embeddings) -> Values:
    """The cosines of all pairs, then roc_curve."""
    from sklearn.metrics import auc, roc_curve

    x = e.x / np.linalg.norm(e.x, axis=1, keepdims=True)
    i, j = np.triu_indices(len(x), 1)
    score, same = (x @ x.T)[i, j], e.labels[i] == e.labels[j]
    far, tar, _ = roc_curve(same, score)
    nearest = int(np.abs(far - (1 - tar)).argmin())
    return {
        "auc": float(auc(far, tar)),
        "eer": float(far[nearest] + 1 - tar[nearest]) / 2,
        "tar": float(tar[far <= FAR].max()),
    }


def their_neighbours(e: Embeddings) -> Values:
    """The neighbours alone, as many as the largest class has others."""
    from sklearn.neighbors import NearestNeighbors

    depth = int(np.bincount(e.labels).max()) - 1
    found = NearestNeighbors(n_neighbors=depth, metric="cosine").fit(e.x).kneighbors(return_distance=False)
    return {"recall@1": float((e.labels[found[:, 0]] == e.labels).mean())}


def their_retrieval(e: Embeddings) -> Values:
    """AccuracyCalculator with the neighbours found by torch, for faiss is not among its requirements."""
    import torch
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    calculator = AccuracyCalculator(
        include=("precision_at_1", "r_precision", "mean_average_precision_at_r"),
        k="max_bin_count",
        device=torch.device("cpu"),
        knn_func=CustomKNN(CosineSimilarity()),
    )
    found = calculator.get_accuracy(torch.from_numpy(e.x), torch.from_numpy(e.labels))
    return {
        "recall@1": found["precision_at_1"],
        "r-precision": found["r_precision"],
        "map@r": found["mean_average_precision_at_r"],
    }


CONTENDERS = (
    Contender("Dunn index, nearest/diameter", "arcwise", lambda e: {"index": metrics.dunn_index(e)}),
    Contender("Dunn index, nearest/diameter", "scikit-learn pairwise_distances", plain_dunn),
    Contender("silhouette, euclidean", "arcwise", lambda e: {"mean": metrics.silhouette(e)}),
    Contender("silhouette, euclidean", "scikit-learn", their_silhouette("euclidean")),
    Contender("silhouette, cosine", "arcwise", lambda e: {"mean": metrics.silhouette(e, distance="cosine")}),
    Contender("silhouette, cosine", "scikit-learn", their_silhouette("cosine")),
    Contender("Davies-Bouldin", "arcwise", lambda e: {"index": metrics.davies_bouldin(e)}),
    Contender("Davies-Bouldin", "scikit-learn", their_davies_bouldin),
    Contender("all pairs: AUC, EER, TAR", "arcwise", our_pairs),
    Contender("all pairs: AUC, EER, TAR", "scikit-learn roc_curve", their_pairs),
    Contender("retrieval", "arcwise", our_retrieval),
    Contender("retrieval", "pytorch-metric-learning", their_retrieval),
    Contender("retrieval", "scikit-learn NearestNeighbors, no ranks", their_neighbours),
    Contender("conflicts", "arcwise", our_conflicts),
)
LARGE = (
    Contender("Dunn index, nearest/diameter", "arcwise", lambda e: {"index": metrics.dunn_index(e)}),
    Contender("all pairs: AUC, EER, TAR", "arcwise", our_pairs),
)


# ------------------------------------------------------------------------------------------ measuring


def made(n: int, dim: int, classes: int) -> Embeddings:
    """Embeddings in classes that overlap a little, of various lengths, float32."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((classes, dim), np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    y = rng.permutation(np.arange(n) % classes)
    x = rng.standard_normal((n, dim), np.float32)
    x *= np.float32(2.5 / dim**0.5)
    x += centres[y]
    x *= rng.uniform(0.8, 1.25, (n, 1)).astype(np.float32)
    return Embeddings(x=x, y=y, names=tuple(str(i) for i in range(classes)))


def status(field: str) -> int:
    """A line of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def one_call(contender: Contender, e: Embeddings) -> dict[str, float]:
    """Seconds, values and peak bytes beyond what was resident before, of one call in a process of its own."""
    contender.run(made(60, 8, 3))  # imports and threads' buffers are not the measure's
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    start = time.perf_counter()
    values = contender.run(e)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "bytes": status("VmHWM") - before, **values}


def in_a_child(contender: Contender, args: argparse.Namespace) -> dict[str, float]:
    """The same, asked of a child."""
    command = [sys.executable, __file__, "--n", str(args.n), "--dim", str(args.dim), "--classes", str(args.classes)]
    run = subprocess.run(
        [*command, "--one", f"{contender.measure}|{contender.name}"], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(run.stdout)


def timed(e: Embeddings, rounds: int) -> tuple[dict[Contender, float], dict[Contender, Values]]:
    """Median seconds and the values of every contender, in turn, after a warm-up on a small set."""
    small = made(60, 8, 3)
    for contender in CONTENDERS:
        contender.run(small)
    times: dict[Contender, list[float]] = {contender: [] for contender in CONTENDERS}
    values = {}
    for _ in range(rounds):
        for contender in CONTENDERS:
            start = time.perf_counter()
            values[contender] = contender.run(e)
            times[contender].append(time.perf_counter() - start)
            gc.collect()
    return {contender: statistics.median(some) for contender, some in times.items()}, values


def farthest(theirs: Values, ours: Values) -> float:
    """The largest difference between numbers of one name, relative to ours."""
    return max(abs(theirs[name] - ours[name]) / max(abs(ours[name]), 1e-12) for name in theirs)


def machine() -> str:
    """Processor, threads and versions, in one line."""
    from threadpoolctl import threadpool_info

    models = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    threads = max(pool["num_threads"] for pool in threadpool_info())
    names = ("arcwise", "numpy", "scikit-learn", "pytorch-metric-learning", "torch")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    return f"{models[0] if models else platform.machine()}, {threads} threads; {versions}"


def told(values: Values) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())


def compare(args: argparse.Namespace) -> int:
    """Prints the table; the number of contenders whose values are not ours."""
    seconds, values = timed(made(args.n, args.dim, args.classes), args.rounds)
    print(machine())
    print(f"{args.n:,} x {args.dim} float32, {args.classes} classes, median of {args.rounds}; TAR at FAR {FAR:g}")
    print("\n| measure | by | time | of ours | peak memory | of ours | values | off ours by |")
    print("| --- | --- | ---: | ---: | ---: | ---: | --- | ---: |")
    ours, our_bytes, wrong = CONTENDERS[0], 1.0, 0
    for contender in CONTENDERS:
        used = in_a_child(contender, args)["bytes"]
        if contender.name == "arcwise":
            ours, our_bytes = contender, max(used, 1)
        off = farthest(values[contender], values[ours])
        wrong += off > contender.within
        shares = (f"{seconds[contender] / seconds[ours]:.2f}x", f"{used / our_bytes:.2f}x", f"{off:.0e}")
        of_time, of_memory, by = ("", "", "") if contender is ours else shares
        print(
            f"| {contender.measure} | {contender.name} | {seconds[contender]:.2f} s | {of_time} "
            f"| {used / 2**20:,.0f} MiB | {of_memory} | {told(values[contender])} | {by} |",
            flush=True,
        )
    print(f"\n{'all values equal' if not wrong else f'{wrong} contenders DIFFER'} (within 1e-4 of ours)")
    return wrong


def large(args: argparse.Namespace) -> None:
    """Prints what a large set takes, each measure in a process of its own."""
    print(machine())
    size = args.n * args.dim * 4 / 2**20
    print(f"{args.n:,} x {args.dim} float32 ({size:,.0f} MiB), {args.classes:,} classes, one call each")
    print("\n| measure | time | peak memory beyond the embeddings | values |")
    print("| --- | ---: | ---: | --- |")
    for contender in LARGE:
        found = in_a_child(contender, args)
        seconds, used = found.pop("seconds"), found.pop("bytes")
        print(f"| {contender.measure} | {seconds:.0f} s | {used / 2**20:,.0f} MiB | {told(found)} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--classes", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="our Dunn index and all pairs of 100,000 samples")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.n = args.n or (100_000 if args.large else 10_000)
    args.classes = args.classes or (1000 if args.large else 100)
    if args.one:
        contender = next(c for c in CONTENDERS if f"{c.measure}|{c.name}" == args.one)
        print(json.dumps(one_call(contender, made(args.n, args.dim, args.classes))))
        return 0
    if args.large:
        large(args)
        return 0
    return 1 if compare(args) else 0


if __name__ == "__main__":
    sys.exit(main())
