"""The house's own rules, read off the source: one meaning per name, no torch after training, no odd habits."""

import ast
import collections
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "arcwise"
MODULES = sorted(SOURCE.rglob("*.py"))
assert len(MODULES) > 80, "the rules below would hold of nothing"
WITHOUT_TORCH = (
    "errors", "headspec", "config", "records", "packing", "advise", "recipes", "metrics", "measure", "study.subject",
    "study.table", "study.viewer", "figures", "data.sources",
)  # fmt: skip


def top_level_names(path):
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def test_a_top_level_name_stands_in_one_module():
    homes = collections.defaultdict(set)
    for path in MODULES:
        for name in top_level_names(path):
            homes[name].add(path)
    aside = {"_", "__all__", "__getattr__", "__version__"}
    assert {name: places for name, places in homes.items() if len(places) > 1 and name not in aside} == {}


def test_no_drawer_is_called_utils():
    assert not {path.stem for path in MODULES} & {"utils", "util", "common", "helpers", "misc", "core"}


@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_what_comes_after_training_imports_no_torch(module):
    code = f"import sys; sys.modules['torch'] = None; import arcwise.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_run_is_measured_and_drawn_without_torch(tmp_path):
    """The whole way from a Run's folder to its numbers, tables and figures."""
    import shutil

    shutil.copytree(Path(__file__).parent / "fixtures" / "v0_1" / "old" / "finished", tmp_path / "run")
    code = """
import sys
sys.modules["torch"] = None
import arcwise
from arcwise.figures import drawings
from arcwise.figures.canvas import CLASS_COLOURS, offscreen
from arcwise.study.subject import subject
from arcwise.study.viewer import viewer_data
offscreen()
assert arcwise.measure(arcwise.Run.open("run"))["measured"]["accuracy"] > 0.5
about = subject(["run"])
drawn = [drawing.name for drawing in drawings(about)]
assert {"embeddings", "circle", "samples", "sample", "neighbours", "roc", "dunn-epochs"} <= set(drawn), drawn
assert len(viewer_data(about, CLASS_COLOURS)) > 1000
assert "accuracy" in str(about.table)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def calls_and_attributes(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"


def test_only_the_command_line_reads_the_command_line():
    readers = {path.relative_to(SOURCE).parts[0] for path in MODULES if "sys.argv" in set(calls_and_attributes(path))}
    assert readers == {"cli"}


def test_nothing_is_decided_by_the_text_of_an_error():
    """No comparison in the package looks into str(error)."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
                looked_at = ast.unparse(node.comparators[0])
                assert "str(error)" not in looked_at and "error.args" not in looked_at, (path, ast.unparse(node))


def test_modules_begin_with_what_they_are():
    for path in MODULES:
        words = ast.get_docstring(ast.parse(path.read_text()))
        assert words and not words.startswith("Returns"), path
