"""What a report says of biases, scales, classes and runs follows from the numbers, whichever way they point."""

import itertools
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from arcwise.compare import compare
from arcwise.config import override
from arcwise.headspec import HeadSpec
from arcwise.recipes import recipe
from arcwise.report.biases import Biases, bias, equal_sentence, learned_biases, skewed_sentence, slope_over_log
from arcwise.report.blocks import Formula, Lead, Paragraph, PictureFile, TableRows, unbroken
from arcwise.report.content import (
    class_rows,
    content,
    image_changes,
    lecture,
    margin_question,
    repeat,
    results,
    runs_words,
)
from arcwise.report.make import film_words, report
from arcwise.report.numbers import report_numbers
from arcwise.report.paper import blocks_as_data, in_words, paper_pdf
from arcwise.report.scales import floor_of, scale_sentences, sweep, sweep_sentences
from arcwise.study.subject import Subject, subject
from arcwise.study.table import Table

SHORT = ["train.epochs=1", "data.source=digits[0-4]", "data.unseen=5-9"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two heads of two seeds, one of them with a bias, and one run on classes of unequal size beside them."""
    place = tmp_path_factory.mktemp("told")
    compare(override(recipe("digits-2d"), SHORT), ["softmax-bias", "arcface"], place / "c", seeds=2, workers=1)
    skewed = override(recipe("digits-2d"), [*SHORT, "head.name=softmax-bias", "data.imbalance=5"])
    compare(skewed, ["softmax-bias"], place / "skewed", seeds=[0], workers=1)
    return [place / "c", place / "skewed"]


def biases(values, counts):
    values = np.atleast_2d(np.array(values, float))
    names = tuple("abcdefgh"[: len(counts)])
    return Biases("softmax + bias", list(range(len(values))), values, np.array(counts), names)


COUNTS = [10, 30, 100, 300, 1000, 3000]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0.0, 1.1, 2.2, 3.4, 4.5, 5.7], "frequent classes have the larger biases"),
        ([5.7, 4.4, 3.4, 2.2, 1.1, 0.0], "frequent classes have the smaller biases"),
        ([0.2, -0.4, 0.3, -0.3, 0.4, -0.2], "does not show whether frequent classes get the larger bias"),
    ],
)
def test_the_direction_of_biases_is_told_only_where_the_numbers_show_it(values, said):
    found = skewed_sentence(biases(values, COUNTS))
    assert said in found and "trained once (seed 0) on 6 classes" in found
    assert f"the rarest, a (10 training images), has a bias of {values[0]:+.2f}".replace("+0.00", "0.00") in found
    assert "f (3,000)" in found


def test_the_interval_of_a_slope_is_that_of_a_least_squares_line():
    from scipy.stats import linregress

    values = np.array([0.2, 0.1, 0.5, 0.3, 0.9, 0.7])
    known = linregress(np.log(COUNTS), values)
    slope, low, high = slope_over_log(np.array(COUNTS), values)
    assert slope == pytest.approx(known.slope) and (high - low) / 2 == pytest.approx(2.776 * known.stderr)
    assert slope_over_log(np.array([5, 5, 9]), np.array([0.1, 0.2, 0.3])) is None


def test_biases_on_equal_classes_are_described_by_what_they_are():
    said = equal_sentence(biases([[-0.5, 0.0, 0.5], [0.5, 0.0, -0.5]], [20, 20, 20]))
    assert "In the 2 runs of softmax + bias on its 3 classes (training images of a class: 20 each)" in said
    assert "between -0.50 and +0.50; within a run they differ by a standard deviation of 0.50" in said
    assert said.endswith("class by class, have one of 0.00.")


def test_the_run_on_unequal_classes_is_counted_repeated_and_kept_in_the_numbers(folders):
    about = subject(folders)
    assert runs_words(about) == "4 runs, with 1 on classes of unequal size"
    commands = repeat(about)[0].text
    assert "data.imbalance=5" in commands and commands.count("arcwise ") == 2
    alone, every = learned_biases(about)
    assert alone is not None and [len(one.values) for one in every] == [2]
    words = " ".join(block.text for block in bias(about, []) if isinstance(block, Paragraph))
    assert "trained once" in words and "In the 2 runs of softmax + bias" in words
    assert f"{alone.values[0][int(alone.counts.argmin())]:+.2f}" in words


def test_the_json_holds_what_the_report_says_it_holds(folders, tmp_path):
    assert report(folders, tmp_path / "r", html=True, pdf=False)
    found = json.loads((tmp_path / "r" / "metrics.json").read_text())
    about = subject(folders)
    assert found == json.loads(json.dumps(report_numbers(about)))
    parts = about.splits.parts
    assert {part: found["images"][part] for part in parts} == {part: len(images) for part, images in parts.items()}
    for head, matrix in found["confusion"].items():
        assert np.sum(matrix) == 2 * found["images"]["test"]
        hits, counts = np.diag(matrix) / 2, np.array([row["n"] for row in found["classes"][head]])
        recalls = [np.mean(row["recall"]) for row in found["classes"][head]]
        np.testing.assert_allclose(recalls, hits / counts)
    assert set(found["biases"]["softmax + bias"]["by_seed"]) == {"0", "1"}
    assert len(found["biases_on_unequal_classes"]["training_images"]) == 5
    page = (tmp_path / "r" / "report.html").read_text()
    assert "4 runs, with 1 on classes of unequal size" in page and "Every number of this report" not in page


def test_what_a_class_is_taken_for_is_counted_over_all_seeds_and_equals_are_named_together():
    def row(name):
        return {"name": name, "n": 5, "recall": 0.6, "precision": 0.5, "mistaken_for": "a"}

    matrix = np.array([[9, 0, 0, 1], [1, 6, 0, 3], [2, 2, 6, 0], [0, 0, 0, 10]])
    rows = class_rows("arcface", [[row(c) for c in "abcd"]] * 2, matrix, "abcd").rows
    assert [one[-1] for one in rows] == ["d (1)", "d (3)", "a and b (2)", "-"]
    matrix = np.array([[8, 2, 0], [0, 0, 0], [0, 3, 7]])  # the second class has no test images, and no row
    assert [one[-1] for one in class_rows("arcface", [[row("a"), row("c")]], matrix, "abc").rows] == ["b (2)", "b (3)"]


KINDS = ("normface:", "arcface:m=0.5,")


def swept(accuracy):
    """A sweep of NormFace and ArcFace at s = 1 and 8, two seeds."""
    heads = {f"{name} s={s}": HeadSpec.parse(f"{name}s={s}") for name in KINDS for s in (1, 8)}
    table = Table(heads=list(heads), seeds={h: [0, 1, 2] for h in heads}, seconds={},
                  values={"accuracy": accuracy, "dunn-nearest-diameter-unit-95": accuracy})  # fmt: skip
    about = Subject({}, {}, None, [])
    vars(about).update(sweep_table=table, specs=heads)
    return about


def at_scales(low, high):
    heads = [f"{name} s={s}" for name in KINDS for s in (1, 8)]
    return dict(zip(heads, [low, high, low, high], strict=True))


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        ([0.90, 0.91, 0.925], [0.80, 0.80, 0.80], "accuracy is clearly better for 2 of 2 margins"),
        ([0.80, 0.80, 0.80], [0.90, 0.91, 0.925], "accuracy is clearly worse for 2 of 2 margins"),
        ([0.80, 0.90, 0.80], [0.90, 0.80, 0.85], "no difference is shown in accuracy"),
    ],
)
def test_what_a_small_scale_costs_is_computed(low, high, said):
    [words] = scale_sentences(swept(at_scales(low, high)))
    assert said in words and "(from 1)" in words and "(up to 8)" in words
    assert "panels" not in " ".join(sweep_sentences(swept(at_scales(low, high))))


def test_a_loss_of_normface_cannot_get_under_its_floor():
    # c centres as far apart as can be, every sample at its own: all other cosines are -1 / (c - 1)
    for c, s in ((2, 1.0), (5, 4.0), (100, 0.5)):
        logits = np.full(c, -s / (c - 1))
        logits[0] = s
        assert floor_of(c, s) == pytest.approx(np.log(np.exp(logits).sum()) - s)


def test_a_question_names_the_scale_where_heads_differ_in_it():
    def asked(*heads):
        about = Subject({}, {}, None, [])
        specs = {text: HeadSpec.parse(text) for text in heads}
        object.__setattr__(about, "runs", {head: [] for head in heads})
        vars(about).update(specs=specs)
        return margin_question(about)

    assert asked("softmax", "normface:s=4", "arcface:m=0.5,s=4") == "What does an angular margin change?"
    assert "scale s and an angular margin m" in asked("softmax", "arcface:m=1.1,s=128", "arcface:m=0.5,s=15")
    assert "normalised embedding and an angular margin" in asked("softmax", "arcface:m=0.5,s=4")


def test_seeds_change_images_only_where_they_are_changed():
    assert image_changes(override(recipe("digits-2d"), ["data.shift=0", "data.rotate=0", "data.cutout=0"]).data) == []
    assert image_changes(override(recipe("digits-2d"), ["data.flip=true"]).data)[-1] == "mirror images"


def test_formulas_are_set_and_cited_papers_are_listed():
    blocks = lecture()
    text = " ".join(block.text for block in blocks if isinstance(block, Paragraph))
    text += " ".join(block.words for block in blocks if isinstance(block, Formula))
    assert not re.search(r"theta|\bpsi\b|\bpi\b|e\^|e\+\d", text)
    for name, year in re.findall(r"(Wang|Deng|Liu) et al\. (\d{4})", text):
        assert re.search(rf"[A-Z]\. {name}[^.]*\..*?{year}", text[text.index("SphereFace: deep") - 80 :]), (name, year)
    assert "normface (with ψ" in text.lower() and "All of them are one equation" not in text


def test_numbers_stay_with_their_signs():
    assert unbroken("95 % of (°), 1 ± 2, Figure 3") == "95\u00a0% of\u00a0(°), 1\u00a0±\u00a02, Figure\u00a03"
    assert in_words("`95 %` 95 %")[0]["text"] == "95 %" and in_words("95 %")[0]["text"] == "95\u00a0%"


def test_what_leads_to_a_table_stays_with_it_and_text_may_pass_only_what_floats(folders, tmp_path):
    about = subject(folders)
    some = PictureFile("figures/glance.png", "", 1.0, "glance")
    blocks = content(about, {"glance": [some], "confusion": [some._replace(name="confusion")]}, [], None)
    for before, after in itertools.pairwise(blocks):
        if isinstance(after, TableRows) and after.name in ("images", "setup", "classes", "closed"):
            assert isinstance(before, Lead)
    told = [one for one in blocks_as_data(blocks) if one["kind"] == "picture"]
    assert [one["floats"] for one in told] == [True, False]
    assert all(isinstance(block, Lead | TableRows) for block in results(about.table, about.champion, {}))


def test_a_film_names_the_images_that_the_tables_are_of():
    from arcwise.figures.animation import Track
    from arcwise.records import Embeddings

    some = Embeddings(np.eye(4), np.arange(4))
    track = Track("a", [some, some], [None, None], ["", ""], 0.0)
    said = film_words("validation", ["a"], track, seed=0, tested=9)
    assert "of the 4 validation images that every epoch keeps; the tables' are of all 9 test images." in said
    assert "tables" not in film_words("test", ["a"], track, seed=0, tested=4)


def test_floating_figures_and_broken_tables_can_be_set(tmp_path):
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(2, 2))
    figure.savefig(tmp_path / "a.png")
    plt.close(figure)
    rows = TableRows(["", "a"], [[str(i), "1"] for i in range(80)], "Many rows.", name="t")
    blocks = [PictureFile("a.png", "One.", floats=True), rows, PictureFile("a.png", "Two.")]
    assert paper_pdf("title", "", blocks, tmp_path).startswith(b"%PDF")


def test_a_section_on_scales_has_its_numbers_before_its_figure_may_come(folders):
    about = swept(at_scales([0.9, 0.9, 0.91], [0.8, 0.8, 0.8]))
    object.__setattr__(about, "runs", subject(folders).runs)
    found = sweep(about, [])
    assert any(isinstance(block, Formula) for block in found) and found[1].text.startswith("[[equal-s]]")


@pytest.mark.parametrize("before", [24, 28, 30, 31])
def test_a_table_that_breaks_leaves_three_rows_at_least_on_either_page(tmp_path, before):
    if shutil.which("pdftotext") is None:
        pytest.skip("there is no pdftotext here")
    rows = TableRows(["", "a"], [[f"row {i}", "1"] for i in range(16)], "Many rows.", name="t")
    pdf = paper_pdf("title", "", [*[Paragraph("words")] * before, rows], tmp_path)
    said = subprocess.run(
        ["pdftotext", "-layout", "-", "-"], input=pdf, capture_output=True, check=True
    ).stdout.decode()
    pages = said.split("\f")
    counts = [len(re.findall(r"row \d+", page)) for page in pages]
    assert sum(counts) == 16 and all(n == 0 or n >= 3 for n in counts)
    assert all(("Many rows." in page) <= ("row 0" in page) for page in pages)  # no caption stands alone
