"""Plants small plausible bugs by rule, one at a time, and lists those that the tests of their part do not notice.

    python tests/mutants.py                        some of every part, seeded (`make mutants`)
    python tests/mutants.py --part metrics --n 80  more of one part
    python tests/mutants.py --part ops --only 17   one mutant again, by its number, with the tests' output

A mutant is one change of the syntax tree: a comparison moved by its edge, a sign, a constant, a condition, a function
put in place of its opposite, a statement left out. Strings, annotations, messages and assertions are left alone. Each
mutant lives in a copy of the package and is met by the tests of its part, the likeliest first, until one fails.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Of each part the files that are changed, and the tests that should notice.
PARTS: dict[str, tuple[list[str], list[str]]] = {
    "sphere": (["sphere.py", "packing.py"], ["test_sphere.py", "test_packing.py", "test_margins.py", "test_heads.py"]),
    "margins": (["margins.py", "building.py"], ["test_margins.py", "test_heads.py", "test_bad_input.py"]),
    "ops": (["ops/__init__.py", "ops/eager.py"], ["ops/test_ops.py", "test_heads.py", "ops/test_memory.py"]),
    "heads": (["heads.py", "admit.py"], ["test_heads.py", "test_bad_input.py", "test_margins.py"]),
    "optim": (["optim.py", "ops/update.py"], ["test_optim.py"]),
    "metrics": (["metrics"], ["metrics"]),
    "compare": (
        ["compare", "study/table.py", "report/conclusions.py"],
        ["compare", "report", "metrics/test_spread.py"],
    ),
    "train": (["train"], ["train"]),
    "data": (["data", "records/preprocessing.py"], ["data", "test_preprocessing.py"]),
}
EDGES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
SIGNS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any", "argmin": "argmax", "argmax": "argmin",
             "floor": "ceil", "ceil": "floor", "sin": "cos", "cos": "sin", "minimum": "maximum", "maximum": "minimum",
             "left": "right", "right": "left"}  # fmt: skip
SLOWER = 8.0  # times as long as the tests take without a bug, plus a quarter of a minute, before they are ended


@dataclass(frozen=True)
class Mutant:
    """One planted bug: where it is, what was there and what is there now."""

    number: int
    file: str
    line: int
    was: str
    now: str
    source: str


def places(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that may be changed: no strings, annotations, messages, assertions, or imports for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        if isinstance(node, ast.AnnAssign):
            yield from places(ast.Module([ast.Expr(node.value)] if node.value else [], []))
        elif isinstance(node, ast.FunctionDef):
            body = ast.Module([*(ast.Expr(value) for value in node.args.defaults), *node.body], [])
            yield from places(body)
        elif not isinstance(node, ast.arg):
            yield from places(node)


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What a node may become."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in EDGES:
        yield altered(node, ops=[EDGES[type(node.ops[0])]()])
    elif isinstance(node, ast.BinOp) and type(node.op) in SIGNS:
        yield altered(node, op=SIGNS[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield altered(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield altered(node, body=node.orelse, orelse=node.body)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1 if isinstance(node.value, int) else 2.0 * node.value + 0.1)
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in OPPOSITES:
            func = altered(node.func, **{"attr" if isinstance(node.func, ast.Attribute) else "id": OPPOSITES[name]})
            yield altered(node, func=func)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.Expr(ast.Constant(None))


def altered(node: ast.AST, **fields: object) -> ast.AST:
    """A copy of a node with some fields changed."""
    twin = copy.copy(node)
    for name, value in fields.items():
        setattr(twin, name, value)
    return twin


def mutants_of(part: str) -> list[Mutant]:
    """Every mutant of a part, numbered in the order of its files."""
    found: list[Mutant] = []
    paths = [path for name in PARTS[part][0] for path in sorted_files(ROOT / "src" / "arcwise" / name)]
    for path in paths:
        source = path.read_text(encoding="utf-8")
        lines = source.splitlines(keepends=True)
        for node in places(ast.parse(source)):
            for changed in changes(node):
                begin, end = (
                    offset(lines, node.lineno, node.col_offset),
                    offset(lines, node.end_lineno, node.end_col_offset),
                )
                was, now = source.encode()[begin:end].decode(), ast.unparse(ast.fix_missing_locations(changed))
                whole = source.encode()[:begin] + f"({now})".encode() + source.encode()[end:]
                if isinstance(node, ast.Expr):
                    whole = source.encode()[:begin] + b"pass" + source.encode()[end:]
                name = str(path.relative_to(ROOT / "src"))
                found.append(Mutant(len(found), name, node.lineno, was, now, whole.decode()))
    return found


def sorted_files(path: Path) -> list[Path]:
    """A file, or the Python files of a folder."""
    return sorted(path.glob("*.py")) if path.is_dir() else [path]


def offset(lines: list[str], line: int, column: int) -> int:
    """Where a place of the syntax tree is, in bytes."""
    return sum(len(text.encode()) for text in lines[: line - 1]) + column


def tried(part: str, mutant: Mutant | None, place: Path, limit: float, *, show: bool = False) -> tuple[str, float]:
    """What the tests say of a mutant ("noticed", "slow" or "lives"), and how long they took; None is no mutant."""
    target = place / "arcwise"
    if mutant is not None:
        (place / mutant.file).write_text(mutant.source, encoding="utf-8")
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        run_tests(part, place, show=show)
    status = wait_for(child, limit)
    if mutant is not None:
        shutil.copy2(ROOT / "src" / mutant.file, place / mutant.file)
    for left in target.rglob("__pycache__"):
        shutil.rmtree(left, ignore_errors=True)
    spent = time.monotonic() - began
    return ("slow" if status is None else "lives" if status == 0 else "noticed"), spent


def run_tests(part: str, place: Path, *, show: bool) -> None:
    """In a process of its own: the tests of a part against the package in a folder; leaves with their exit code."""
    os.setsid()
    os.chdir(ROOT)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(place))
    os.environ["PYTHONPATH"] = str(place)
    if not show:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
    import pytest

    tests = [str(ROOT / "tests" / name) for name in PARTS[part][1]]
    words = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu and not browser", *tests]
    code = 3
    try:
        code = int(pytest.main(words))
    finally:
        os._exit(code)


def wait_for(child: int, limit: float) -> int | None:
    """The exit code of a child, or None where it took too long and was ended, with all that it had started."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def warm_up() -> None:
    """Brings what every child needs into memory once; the package itself is each child's own."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import hypothesis  # noqa: F401
    import matplotlib  # noqa: F401
    import numpy  # noqa: F401
    import pytest  # noqa: F401
    import scipy.stats  # noqa: F401
    import torch

    torch.set_num_threads(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--n", type=int, default=30, help="mutants of each part, drawn with the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="one mutant by its number")
    parser.add_argument("--out", type=Path, help="a JSON file for the outcome of every mutant")
    args = parser.parse_args()
    warm_up()
    told: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        shutil.copytree(ROOT / "src" / "arcwise", place / "arcwise", ignore=shutil.ignore_patterns("__pycache__"))
        for part in args.part or PARTS:
            every = mutants_of(part)
            some = every if args.n >= len(every) else random.Random(args.seed).sample(every, args.n)
            some = [every[args.only]] if args.only is not None else sorted(some, key=lambda mutant: mutant.number)
            outcome, alone = tried(part, None, place, 3600.0)
            if outcome != "lives":
                raise SystemExit(f"the tests of {part} fail without any bug: mend them first.")
            print(f"{part}: {len(every)} mutants, {len(some)} of them tried; the tests take {alone:.0f} s", flush=True)
            lives = 0
            for mutant in some:
                outcome, spent = tried(part, mutant, place, SLOWER * alone + 15.0, show=args.only is not None)
                lives += outcome == "lives"
                about = {key: getattr(mutant, key) for key in ("number", "file", "line", "was", "now")}
                told.append({"part": part, **about, "outcome": outcome, "seconds": round(spent, 1)})
                if outcome == "lives":
                    where = f"{part} {mutant.number}  {mutant.file}:{mutant.line}"
                    print(f"  lives: {where}  {mutant.was!r} -> {mutant.now!r}", flush=True)
                if args.out:
                    args.out.write_text(json.dumps(told, indent=1), encoding="utf-8")
            print(f"{part}: {len(some) - lives} of {len(some)} noticed", flush=True)


if __name__ == "__main__":
    main()
