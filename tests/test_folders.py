"""Folders know what they are, and a verb writes only where it belongs."""

import hashlib
import json

import pytest

import arcwise
from arcwise.cli import code_of
from arcwise.errors import ArcwiseError
from arcwise.records import claim_folder, kind_of_folder

SHORT = ["train.epochs=1", "data.limit=200"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run, a comparison, a report and a stranger's folder, side by side."""
    place = tmp_path_factory.mktemp("kinds")
    arcwise.train("digits-2d", place / "run", settings=SHORT, device="cpu")
    arcwise.compare("digits-2d", "softmax,arcface", place / "both", seeds=1, settings=SHORT, workers=1, device="cpu")
    arcwise.report(place / "run", place / "paper", pdf=False)
    (place / "theirs").mkdir()
    for name in ("metrics.json", "report.html", "comparison.txt"):
        (place / "theirs" / name).write_text('{"mine": 1}')
    return place


def contents(folder):
    """Every file below a folder with a checksum of its bytes; locks aside."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }


def test_each_kind_is_known(made, tmp_path):
    kinds = {name: kind_of_folder(made / name) for name in ("run", "both", "paper", "theirs", "nowhere")}
    assert kinds == {"run": "run", "both": "comparison", "paper": "report", "theirs": "strange", "nowhere": ""}
    assert kind_of_folder(made / "run" / "config.json") == "file" and kind_of_folder(tmp_path) == ""


def test_a_report_from_before_folders_were_marked_is_known(made, tmp_path):
    for name in ("metrics.json", "report.html"):
        (tmp_path / name).write_bytes((made / "paper" / name).read_bytes())
    assert kind_of_folder(tmp_path) == "report"
    (tmp_path / "metrics.json").write_text('{"loss": 0.1}')
    assert kind_of_folder(tmp_path) == "strange"


def test_a_run_whose_configuration_is_damaged_is_still_a_run(made, tmp_path):
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "journal.jsonl").write_text("")
    assert kind_of_folder(tmp_path) == "run"
    with pytest.raises(ArcwiseError, match="holds a run, and a comparison needs a folder of its own"):
        claim_folder(tmp_path, "comparison")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compare digits-2d --heads softmax,arcface --seeds 1 --out {place}/run", "holds a run"),
        ("compare digits-2d --heads softmax,arcface --seeds 1 --out {place}/paper", "holds a report"),
        ("compare digits-2d --heads softmax,arcface --seeds 1 --out {place}/theirs", "holds other files"),
        ("train digits-2d --out {place}/both", "holds a comparison"),
        ("train digits-2d --out {place}/both --resume", "holds a comparison"),
        ("train digits-2d --out {place}/paper", "holds a report"),
        ("train digits-2d --out {place}/theirs", "holds other files"),
        ("train digits-2d --out {place}/run/figures/more", "lies inside of"),
        ("compare digits-2d --heads softmax --seeds 1 --out {place}/both/more", "lies inside of"),
        ("gallery create {place}/both/people --model {place}/run", "lies inside of"),
        ("report {place}/run --out {place}/run", "holds a run"),
        ("report {place}/run --out {place}/theirs", "holds other files"),
        ("report {place}/run --out {place}/both", "holds a comparison"),
        ("report {place}/run --out {place}/run/figures", "lies inside of"),
        ("figures {place}/run --out {place}/theirs", "holds other files"),
        ("figures {place}/run --out {place}/both", "holds a comparison"),
        ("embed {place}/run digits --out {place}/run/model.safetensors", "holds no embeddings"),
        ("embed {place}/run digits --out {place}/run/all.safetensors", "is a run: embeddings in it go to"),
        ("embed {place}/run digits --out {place}/theirs/metrics.json", "embeddings are written as safetensors"),
        ("embed {place}/run digits --out {place}/theirs", "is a folder: name a file"),
        ("margins --page {place}/theirs/metrics.md", None),
    ],
)
def test_nobody_writes_into_another_kinds_folder(made, capsys, words, said):
    if said is None:
        (made / "theirs" / "metrics.md").write_text("my own page")
        said = "is not a page of margins"
    before = contents(made)
    assert code_of(words.format(place=made).split()) == 1
    assert said in capsys.readouterr().err
    assert contents(made) == before


def test_a_verb_may_write_where_it_belongs(made, capsys):
    for words in (
        "evaluate {place}/run", "figures {place}/run --only circle", "figures {place}/both --only circle",
        "report {place}/both --html", "report {place}/run --out {place}/paper --html",
        "embed {place}/run digits --out {place}/run/embeddings/all.safetensors",
        "embed {place}/run digits --out {place}/run/embeddings/all.safetensors",
        "figures {place}/run --out {place}/drawn --only circle",
        "figures {place}/run --out {place}/drawn --only angles",
    ):  # fmt: skip
        assert code_of(words.format(place=made).split()) == 0, (words, capsys.readouterr().err)
    assert kind_of_folder(made / "run") == "run" and kind_of_folder(made / "both") == "comparison"
    assert json.loads((made / "run" / "result.json").read_text())["steps"] > 0
