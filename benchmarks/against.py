"""Two versions of arcwise against each other: training, a head, measuring and embedding, in processes that take turns.

    git worktree add /tmp/before HEAD~5
    python benchmarks/against.py /tmp/before/src                 ten rounds, the medians and their ratio
    python benchmarks/against.py /tmp/before/src --rounds 3 --only head
    python benchmarks/against.py /tmp/before/src --processor    seconds of the processor, on images made on the spot

Everything goes through the command line or `arcwise.Head`, which versions have in common. Training is the seconds that
it reports itself, the rest is wall time less what an empty `arcwise --version` takes. One thread each. With --processor
a command is given twice in one process and the second time counts, by the processor's clock: that is for machines that
have other work, and needs no MNIST.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

HEAD = """
import time, torch, arcwise
torch.manual_seed(0)
head, y = arcwise.Head(128, {classes}, s=64.0), torch.randint({classes}, (128,))
x, spent = torch.randn(128, 128, requires_grad=True), []
for _ in range({rounds}):
    start = time.perf_counter()
    head(x, y).backward()
    spent.append(time.perf_counter() - start)
print(sorted(spent)[len(spent) // 2])
"""


def python(source: Path, *words: str) -> str:
    """What a process of one version prints."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{source}: {' '.join(words[:4])} failed.\n{done.stderr}")
    return done.stdout


def trained(settings: list[str], source: Path) -> float:
    """Seconds of training that a run reports."""
    options = [word for setting in settings for word in ("--set", setting)]
    with tempfile.TemporaryDirectory() as folder:
        said = python(source, "-m", "arcwise", "train", "mnist5-2d", "--out", f"{folder}/run", "--json", *options)
    return float(json.loads(said)["seconds"])


def head_step(classes: int, rounds: int, source: Path) -> float:
    """Median seconds of forward and backward of a head."""
    return float(python(source, "-c", HEAD.format(classes=classes, rounds=rounds)))


def with_a_run(words: list[str], source: Path) -> float:
    """Seconds that a verb takes on a finished run, less those of starting the command line."""
    with tempfile.TemporaryDirectory() as folder:
        run = f"{folder}/run"
        short = ["--set", "train.epochs=1", "--set", "data.limit=2000"]
        python(source, "-m", "arcwise", "train", "mnist5-2d", "--out", run, *short)
        spent = []
        for line in (["--version"], [word.format(run=run, folder=folder) for word in words]):
            start = time.perf_counter()
            python(source, "-m", "arcwise", *line)
            spent.append(time.perf_counter() - start)
    return spent[1] - spent[0]


COMMANDS = """
import json, sys, time
from arcwise.cli import code_of
for words in json.loads(sys.argv[1]):
    start = time.process_time()
    assert code_of(words) == 0, words
    spent = time.process_time() - start
print(f"\\n{spent}")
"""


def processor(lines: list[str], source: Path) -> float:
    """Seconds of the processor that the last of some commands takes, all of them in one process."""
    with tempfile.TemporaryDirectory() as folder:
        words = [line.replace("FOLDER", folder).split() for line in lines]
        return float(python(source, "-c", COMMANDS, json.dumps(words)).splitlines()[-1])


SMALL = "train mnist5-2d --set data.source=SOURCE --set data.unseen= --set train.epochs="
DIGITS = SMALL.replace("SOURCE", "digits")
DRAWN = SMALL.replace("SOURCE", "synthetic:classes=10,per_class=300,side=28")
UNSEEN = DRAWN.replace("data.unseen=", "data.unseen=5-9 --set data.limit=400").replace("=300", "=600")
PROCESSOR_JOBS: dict[str, Callable[[Path], float]] = {
    "training, digits": partial(processor, [f"{DIGITS}2 --out FOLDER/a", f"{DIGITS}30 --out FOLDER/b"]),
    "training, 2,400 images of 28 x 28 with snapshots": partial(
        processor, [f"{DRAWN}2 --out FOLDER/a", f"{DRAWN}3 --set train.snapshots=true --out FOLDER/b"]
    ),
    "measuring (evaluate --again)": partial(
        processor, [f"{UNSEEN}2 --out FOLDER/a", *(2 * ["evaluate FOLDER/a --again --json"])]
    ),
    "embedding 10,000 images of 28 x 28": partial(
        processor,
        [f"{DRAWN}2 --out FOLDER/a"]
        + [
            f"embed FOLDER/a synthetic:classes=10,per_class={n},side=28 --out FOLDER/{n}.safetensors"
            for n in (50, 1000)
        ],
    ),
}
JOBS: dict[str, Callable[[Path], float]] = {
    "training, digits": partial(trained, ["data.source=digits", "data.unseen=", "train.epochs=15"]),
    "training, 2,000 digits of MNIST with snapshots": partial(
        trained, ["data.limit=2000", "train.epochs=2", "train.snapshots=true"]
    ),
    "head, 1,000 classes": partial(head_step, 1000, 200),
    "head, 50,000 classes": partial(head_step, 50_000, 15),
    "measuring (evaluate --again)": partial(with_a_run, ["evaluate", "{run}", "--again", "--json"]),
    "embedding 10,000 digits of MNIST": partial(with_a_run, ["embed", "{run}", "mnist[5-9]", "--out", "{folder}/e"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other version's src folder")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", default="", help="a part of a row's name")
    parser.add_argument("--processor", action="store_true", help="the processor's seconds, on images made on the spot")
    args = parser.parse_args()
    now = Path(__file__).parents[1] / "src"
    print("| what | before, s | now, s | now / before |\n| --- | ---: | ---: | ---: |")
    for name, job in (PROCESSOR_JOBS if args.processor else JOBS).items():
        if args.only in name:
            spent: dict[Path, list[float]] = {args.before: [], now: []}
            for turn in range(args.rounds):
                for source in (args.before, now) if turn % 2 else (now, args.before):
                    spent[source].append(job(source))
            before, after = (statistics.median(spent[source]) for source in (args.before, now))
            print(f"| {name} | {before:.4f} | {after:.4f} | {after / before:.3f} |", flush=True)


if __name__ == "__main__":
    main()
