"""Test accuracy and training time of recipes under several heads, with their spread over seeds.

    python benchmarks/train_quality.py                       # mnist and cifar10; meant for a GPU
    python benchmarks/train_quality.py --recipes digits-2d   # anywhere, in a minute

Each run is one `arcwise train` process and one folder under --out; runs that are finished there are not repeated.
Seconds are those of training, evaluations included, without the start of Python.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from arcwise.records import Run

SEEDS = {"arcface": 5, "softmax": 3, "normface": 3}


def trained(recipe: str, head: str, seed: int, out: Path, threads: int) -> Run:
    """One finished run; processes that share a CPU must share its cores, or they wait for each other."""
    folder = out / f"{recipe}-{head}-{seed}"
    command = [sys.executable, "-m", "arcwise", "train", recipe, "--seed", str(seed), "--out", str(folder), "--resume"]
    if head != "arcface":
        command += ["--head", head]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    run = Run.open(folder)
    accuracy, seconds = run.metrics["test"]["accuracy"], run.metrics["seconds"]
    print(f"{folder.name:24} {accuracy:.2%} in {seconds:.1f} s", file=sys.stderr, flush=True)
    return run


def row(recipe: str, head: str, runs: list[Run]) -> str:
    """One line of the table: mean, smallest and largest accuracy, and the longest training."""
    accuracy = [100 * run.metrics["test"]["accuracy"] for run in runs]
    spread = statistics.stdev(accuracy) if len(runs) > 1 else 0.0
    seconds = [run.metrics["seconds"] for run in runs]
    own, other = (
        statistics.mean(run.metrics["test"][k] for run in runs) * 57.29578 for k in ("angle_own", "angle_other")
    )
    return (
        f"| {recipe} | {head} | {len(runs)} | {statistics.mean(accuracy):.2f} ± {spread:.2f} | "
        f"{min(accuracy):.2f} to {max(accuracy):.2f} | {own:.1f}° / {other:.1f}° | {max(seconds):.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="+", default=["mnist", "cifar10"])
    parser.add_argument("--heads", nargs="+", default=list(SEEDS))
    parser.add_argument("--out", type=Path, default=Path("runs/quality"))
    parser.add_argument("--workers", type=int, default=1, help="runs at once; more than one blurs the seconds")
    args = parser.parse_args()
    jobs = [(recipe, head, seed) for recipe in args.recipes for head in args.heads for seed in range(SEEDS[head])]
    with ThreadPoolExecutor(args.workers) as workers:
        threads = max(1, (os.cpu_count() or 1) // args.workers)
        runs = dict(
            zip(jobs, workers.map(lambda job: trained(job[0], job[1], job[2], args.out, threads), jobs), strict=True)
        )
    about = next(iter(runs.values())).about
    print(f"{about['device']}, torch {about['versions']['torch']}, arcwise {about['versions']['arcwise']}\n")
    print("| recipe | head | seeds | test accuracy, % | range | angle to own / nearest other | seconds, longest |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for recipe in args.recipes:
        for head in args.heads:
            print(row(recipe, head, [runs[recipe, head, seed] for seed in range(SEEDS[head])]))


if __name__ == "__main__":
    main()
