"""CONTRIBUTING's worked examples, followed to the end: what one line of a dict adds is there wherever it should be."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

FOLLOWED = """
import json
from pathlib import Path

from arcwise.cli import code_of
from arcwise.study.subject import subject

assert len(arcwise.load("stripes[0-1]", unseen="2").unseen) > 0
comparison, table = arcwise.compare("stripes-2d", "softmax,sineface:m=0.2,s=8", "c", seeds=2, workers=1, device="cpu")
assert table.heads == ["softmax", "sineface:m=0.2,s=8"]

# the recipe, the source, the backbone and the margin: trained, and told in the Run
run = comparison.run("sineface:m=0.2,s=8", 0)
assert run.settings.data.source == "stripes" and run.settings.model.backbone == "one_layer"
assert run.head.label == "SineFace m=0.2 s=8" and run.result["test"]["accuracy"] > 0.9
assert arcwise.Embedder.load(run.path).backbone.features == 32
assert run.embeddings("test").keys[0].startswith("stripes#")

# the metric: in the comparison's table, in evaluate, in the report
written = json.loads(Path("c/metrics.json").read_text())["metrics"]
assert written["length-spread"]["better"] == "lower" and len(written["length-spread"]["heads"]) == 2
assert arcwise.measure(run)["measured"]["length-spread"] > 0.0

# the figure: alone, and in the report beside the metric
for words in (["figures", "c", "--only", "lengths"], ["report", "c", "--html"], ["evaluate", str(run.path), "--all"],
              ["recipes"], ["data", "list"], ["margins"], ["hello", "ada", "--loud"]):
    assert code_of(words) == 0, words
page = Path("c/report.html").read_text()
assert "Lengths of the test embeddings." in page and "spread of the lengths of x (%)" in page
assert "SineFace m=0.2 s=8" in page and Path("c/figures/lengths.png").stat().st_size > 1000
assert subject(["c"]).champion == "SineFace m=0.2 s=8"
assert code_of(["--help"]) == 0 and code_of(["hello"]) == 2
"""


def test_every_example_of_contributing_is_followed_to_the_end(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.S)
    assert len(blocks) == 8
    script = tmp_path / "followed.py"  # a file, so that the metric's source can be read for its fingerprint
    script.write_text("\n".join([*blocks, FOLLOWED]))
    done = subprocess.run([sys.executable, "-W", "error", str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for said in (
        "length-spread",
        "stripes-2d",
        "stripes in three directions",
        "sineface",
        "HELLO ADA",
        "Greet somebody",
    ):
        assert said in done.stdout, said


def test_a_new_definition_is_measured_again(tmp_path):
    """Numbers are kept with a fingerprint of the entries: with another entry or function they are taken anew."""
    code = """
import arcwise
from arcwise.metrics import METRICS, Metric
from arcwise.metrics.summary import definitions

run = arcwise.train("digits-2d", "run", settings=["train.epochs=1"], device="cpu")
first = arcwise.measure(run)
assert arcwise.measure(run) == first and arcwise.Run.open("run").metrics["definitions"] == definitions()
METRICS["one"] = Metric("one", "", "higher", "more", lambda evidence: 1.0)
assert arcwise.measure(run)["measured"]["one"] == 1.0
METRICS["one"] = Metric("one", "", "higher", "more", lambda evidence: 2.0)
assert arcwise.measure(run)["measured"]["one"] == 2.0
"""
    (tmp_path / "code.py").write_text(code)
    done = subprocess.run([sys.executable, "code.py"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
