"""Plants small plausible bugs by rule, one at a time, and lists those that the tests of their part do not notice.

    python tests/mutants.py                        some of every part, seeded (`make mutants`)
    python tests/mutants.py --part metrics --n 80  more of one part
    python tests/mutants.py --part ops --only 17   one mutant again, by its number, with the tests' output

A mutant is one change of the syntax tree: a comparison moved by its edge, a sign, a constant, a condition, a function
put in place of its opposite, a statement left out. Strings, annotations, decorators, messages and assertions are left
alone. Each mutant lives in a copy of the package and is met by the tests of its part until one fails: the examples of
its own file, the file of tests that bears its name, then the others, quick ones first. The tests run once without a
bug; those that fail or take long even so are left out.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Of each part the files that are changed, and the tests that should notice.
PARTS: dict[str, tuple[list[str], list[str]]] = {
    "sphere": (["sphere.py", "packing.py"], ["test_sphere.py", "test_packing.py", "test_margins.py", "test_heads.py"]),
    "margins": (["margins.py", "building.py"], ["test_margins.py", "test_heads.py", "test_bad_input.py"]),
    "ops": (
        ["ops/__init__.py", "ops/eager.py"],
        ["ops/test_ops.py", "test_heads.py", "ops/test_memory.py", "test_optim.py"],
    ),
    "sharded": (["ops/sharded.py", "ops/sampled.py"], ["ops/test_sharded.py"]),
    "heads": (
        ["heads.py", "admit.py"],
        ["test_heads.py", "test_headspec.py", "test_bad_input.py", "test_margins.py"],
    ),
    "optim": (["optim.py", "ops/update.py"], ["test_optim.py"]),
    "metrics": (["metrics"], ["metrics"]),
    "compare": (
        ["compare", "study/table.py", "report/conclusions.py"],
        ["compare", "study", "report/test_conclusions.py", "metrics/test_spread.py"],
    ),
    "train": (["train"], ["train"]),
    "together": (
        [f"train/{name}.py" for name in ("together", "pulse", "saving", "spread", "pieces", "classes", "checkpoint")],
        ["train/test_together.py", "train/test_checkpoints.py", "test_damaged_files.py"],
    ),
    "data": (["data", "records/preprocessing.py"], ["data", "test_preprocessing.py"]),
}
EDGES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
SIGNS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any", "argmin": "argmax", "argmax": "argmin",
             "floor": "ceil", "ceil": "floor", "sin": "cos", "cos": "sin", "minimum": "maximum", "maximum": "minimum",
             "left": "right", "right": "left"}  # fmt: skip
LONG = 15.0  # seconds; a test that takes longer is left out
SLOWER = 4.0  # times as long as the tests take without a bug, plus a quarter of a minute, before they are ended
NOTHING_FAILED, NO_VERDICT = (0, 5), (3, 4)  # pytest's exit codes: 5 is no test at all, 3 and 4 are failures of its own
WARM = ["beartype.door", "hypothesis", "jaxtyping", "matplotlib.pyplot", "pytest", "scipy.stats", "sklearn.metrics",
        "sklearn.neighbors", "torch", "triton.language"]  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What the tests said ("noticed", "slow" or "lives"), which of them failed, and the seconds of each."""

    verdict: str
    failed: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


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
    """The nodes that may be changed: no strings, annotations, decorators, messages, assertions, or what never runs."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr):
            continue
        if isinstance(node, ast.If) and re.search("TYPE_CHECKING|__name__", ast.unparse(node.test)):
            continue
        yield node
        if isinstance(node, ast.AnnAssign):
            yield from places(ast.Tuple([node.value] if node.value else []))
        elif isinstance(node, ast.FunctionDef):
            defaults = [value for value in (*node.args.defaults, *node.args.kw_defaults) if value is not None]
            yield from places(ast.Module([ast.Tuple(defaults), *node.body], []))
        elif isinstance(node, ast.ClassDef):
            yield from places(ast.Module(node.body, []))
        else:
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
    for path in changed_files(part, ROOT / "src" / "arcwise"):
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


def changed_files(part: str, package: Path) -> list[Path]:
    """The files of a part in a copy of the package."""
    named = [package / name for name in PARTS[part][0]]
    return [file for path in named for file in (sorted(path.glob("*.py")) if path.is_dir() else [path])]


def test_files(part: str) -> list[Path]:
    """The files of a part's tests."""
    named = [ROOT / "tests" / name for name in PARTS[part][1]]
    return [file for path in named for file in (sorted(path.glob("test_*.py")) if path.is_dir() else [path])]


def offset(lines: list[str], line: int, column: int) -> int:
    """Where a place of the syntax tree is, in bytes."""
    return sum(len(text.encode()) for text in lines[: line - 1]) + column


def tried(part: str, mutant: Mutant, place: Path, known: dict[str, float] | None, *, show: bool = False) -> Outcome:
    """What the tests say of a mutant: those that are known, with the seconds they take, or all."""
    (place / mutant.file).write_text(mutant.source, encoding="utf-8")
    files = [*test_files(part), place / mutant.file]
    first = [file for file in files if Path(mutant.file).stem in file.stem]
    stages = [first, [file for file in files if file not in first]] if len(first) > 1 else [files]
    outcome = Outcome("lives")
    for stage in stages:
        if stage and outcome.verdict == "lives":
            outcome = met(stage, place, known, show=show)
    shutil.copy2(ROOT / "src" / mutant.file, place / mutant.file)
    return outcome


def known_tests(part: str, place: Path) -> dict[str, float]:
    """The tests of a part that pass in good time where there is no bug, and the seconds they take."""
    # Examples after the tests, which import the package as its users do: pytest imports a file by its path alone.
    alone = met([*test_files(part), *changed_files(part, place / "arcwise")], place)
    known = {test: spent for test, spent in alone.seconds.items() if spent < LONG and test not in alone.failed}
    for test in alone.seconds.keys() - known.keys():
        print(f"  left out, {'fails even so' if test in alone.failed else 'long'}: {test}", flush=True)
    return known


def met(files: list[Path], place: Path, known: dict[str, float] | None = None, *, show: bool = False) -> Outcome:
    """What the tests and examples of some files say of the package in a folder: the known ones, until one fails."""
    child = os.fork()
    if child == 0:
        run_tests(files, place, known, show=show)
    code = wait_for(child, 3600.0 if known is None else SLOWER * sum(known.values()) + 15.0)
    if code is None or code < 0:
        return Outcome("slow" if code is None else "noticed")
    if code in NO_VERDICT:
        raise SystemExit(f"the tests cannot be run: pytest ended with {code}; --only shows what it says.")
    return Outcome("lives" if code in NOTHING_FAILED else "noticed", **json.loads((place / "told.json").read_text()))


def run_tests(files: list[Path], place: Path, known: dict[str, float] | None, *, show: bool) -> None:
    """In a process of its own: some tests against the package in a folder; leaves with their exit code."""
    os.setsid()
    os.chdir(ROOT)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(place))
    os.environ |= {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    if not show:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
    import pytest

    words = ["-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    words += ["-m", "not slow and not gpu and not browser", *(["-x"] if known or show else [])]
    words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # the plugins are warm
    watch = Watch(known)
    code = 3
    try:
        code = int(pytest.main([*words, *map(str, files)], plugins=[watch]))
        origin = Path(sys.modules["arcwise"].__file__ or "")
        assert origin.is_relative_to(place), f"the tests met {origin}"
    except BaseException:
        traceback.print_exc()
        code = 3
    finally:
        (place / "told.json").write_text(json.dumps({"failed": watch.failed, "seconds": watch.seconds}))
        os._exit(code)


class Watch:
    """A plugin of pytest: puts the known tests in order, and keeps how long each took and which failed."""

    def __init__(self, known: dict[str, float] | None):
        self.known = known
        self.seconds: dict[str, float] = {}
        self.failed: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list) -> None:
        if self.known is not None:
            known = self.known
            items[:] = sorted(
                (item for item in items if item.nodeid in known), key=lambda item: (item.path, known[item.nodeid])
            )

    def pytest_runtest_logreport(self, report) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        self.pytest_collectreport(report)

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.failed[report.nodeid] = crash.message[:300] if crash else str(report.longrepr)[-300:]


def wait_for(child: int, limit: float) -> int | None:
    """The exit code of a child, or None where it took too long and was ended, with all that it had started."""
    until, done, status = time.monotonic() + limit, 0, 0
    while not done and time.monotonic() < until:
        time.sleep(0.05)
        done, status = os.waitpid(child, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if done:
        return os.waitstatus_to_exitcode(status)
    os.waitpid(child, 0)
    return None


def warm_up() -> None:
    """Brings what every child needs into memory once; the package itself is each child's own."""
    os.environ |= {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1", "MPLBACKEND": "Agg"}
    for name in WARM:
        importlib.import_module(name)


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
            known = None if args.only is not None else known_tests(part, place)
            print(f"{part}: {len(every)} mutants, {len(some)} of them tried", flush=True)
            for mutant in some:
                outcome = tried(part, mutant, place, known, show=args.only is not None)
                about = {key: getattr(mutant, key) for key in ("number", "file", "line", "was", "now")}
                told.append({"part": part, **about, "verdict": outcome.verdict, "by": outcome.failed})
                if outcome.verdict == "lives":
                    where = f"{part} {mutant.number}  {mutant.file}:{mutant.line}"
                    print(f"  lives: {where}  {mutant.was!r} -> {mutant.now!r}", flush=True)
                if args.out:
                    args.out.write_text(json.dumps(told, indent=1), encoding="utf-8")
            lives = sum(about["part"] == part and about["verdict"] == "lives" for about in told)
            print(f"{part}: {len(some) - lives} of {len(some)} noticed", flush=True)


if __name__ == "__main__":
    main()
