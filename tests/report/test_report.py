"""The report: every figure of a comparison, numbers that are those of metrics.json, sentences that follow from them."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from arcwise.cli import code_of
from arcwise.compare import compare
from arcwise.config import override
from arcwise.errors import ArcwiseError
from arcwise.figures import FIGURES, drawings
from arcwise.figures.canvas import PAGE, figure_bytes, point_look, reach
from arcwise.figures.confusion import ConfusionPanel, draw_mistakes
from arcwise.figures.plane import PlanePanel, draw_planes
from arcwise.heads import head_from
from arcwise.headspec import HeadSpec
from arcwise.margins import MARGINS
from arcwise.measure import measure, measure_epochs
from arcwise.recipes import recipe
from arcwise.records import Embeddings, Run
from arcwise.report import conclusions
from arcwise.report.blocks import Paragraph
from arcwise.report.content import accuracy_words, class_rows, content, fold_command, is_introductory, number_table
from arcwise.report.make import known_psi
from arcwise.report.paper import paper_pdf
from arcwise.report.worked import worked_examples as worked
from arcwise.study.subject import scale_and_margin, subject
from arcwise.study.table import Table
from arcwise.train import train

SHORT = ["train.epochs=2", "data.source=digits[0-4]", "data.unseen=5-9", "train.snapshots=true"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "c"
    heads = ["softmax", "softmax-bias", "normface", "arcface"]
    compare(override(recipe("digits-2d"), SHORT), heads, out, seeds=[0, 1], workers=1, device="cpu")
    skewed = override(recipe("digits-2d"), [*SHORT, "head.name=softmax-bias", "data.imbalance=5"])
    compare(skewed, ["softmax-bias"], out.parent / "skewed", seeds=[0], workers=1, device="cpu")
    assert code_of(["report", str(out), str(out.parent / "skewed"), "--html", "--pdf", "--zip"]) == 0
    return out


def test_everything_a_report_promises_is_there(folder):
    assert {p.name for p in folder.iterdir()} >= {
        "report.html",
        "report.pdf",
        "report.zip",
        "metrics.json",
        "report.json",
    }
    drawn = {p.stem for p in (folder / "figures").glob("*.png")}
    assert drawn >= set(FIGURES) - {"sphere", "sweep", "boundaries"}  # both heads stand in the first figure
    assert {p.name for p in (folder / "animations").glob("*.gif")} == {"test.gif", "train.gif"}
    assert all(p.stat().st_size < 5 * 2**20 for p in (folder / "animations").iterdir())
    assert (folder / "report.pdf").read_bytes().startswith(b"%PDF")


def test_the_page_needs_nothing_else(folder):
    page = (folder / "report.html").read_text()
    assert not re.search(r"(src|href)=[\"']?(?!data:|#)[a-z]", page)
    assert "@import" not in page and "{{" not in page
    assert page.count("data:image/gif") == 2


def test_every_mean_in_the_tables_is_one_of_metrics_json(folder):
    page = (folder / "report.html").read_text()
    found = json.loads((folder / "report.json").read_text())["metrics"]
    mean = found["accuracy"]["heads"]["ArcFace m=0.3"]["mean"]
    assert f"{100 * mean:.2f} ±" in page
    every = {
        f"{entry['mean'] * factor:.{digits}f}"
        for metric in found.values()
        for entry in metric["heads"].values()
        if entry["mean"] is not None
        for factor in (1, 100, 180 / np.pi)
        for digits in range(1, 8)
    }
    cells = re.findall(r"<td[^>]*>(-?[\d.]+) ± ", page)
    assert len(cells) > 100 and set(cells) <= every


def test_the_zip_holds_code_figures_numbers_and_the_pdf(folder):
    names = zipfile.ZipFile(folder / "report.zip").namelist()
    assert "report.pdf" in names and "code/arcwise/heads.py" in names and "report.json" in names
    assert any(name.startswith("figures/") for name in names)
    assert any(name.startswith("runs/arcface") for name in names)


def test_a_report_says_what_its_words_mean_and_which_rates_rest_on_too_little(folder):
    page = (folder / "report.html").read_text()
    first, rest = page.split('id="s1"', 1)
    assert "Dunn: the smallest distance between classes over the largest extent of one" in first
    [row] = re.findall(r"<td>([^<]*TAR at FAR 0.001[^<]*)</td>", rest)
    assert row.endswith("†") and "TAR at FAR: the share of pairs of one class that is taken for the same" in rest
    assert re.search(r"† TAR at FAR 0.001 of all pairs rests on \d", rest)


def test_a_single_run_and_a_run_without_snapshots_can_be_reported(folder, tmp_path):
    run = Run.open(folder / "arcface-seed0")
    assert code_of(["report", str(run.path), "--html", "--out", str(tmp_path / "one")]) == 0
    page = (tmp_path / "one" / "report.html").read_text()
    assert "What has ArcFace m=0.3 s=8 learned of 5 classes" in page and "One seed: another may give" in page
    assert "They rest on 1 seed;" in page and "Seed 0 of each head" not in page and "each panel at" not in page


def test_figures_alone_and_as_svg(folder, tmp_path, capsys):
    assert code_of(["figures", str(folder), "--only", "circle", "--svg", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "figures" / "circle.svg").read_text().startswith("<?xml")
    assert "circle.png" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["figures", "{c}", "--only", "circel"], "did you mean 'circle'"),
        (["figures", "{c}", "--only", "sphere", "--out", "{t}"], "do not allow"),
        (["report", "/nowhere"], "holds no run"),
        (["report", "{c}/arcface-seed0", "--out", "{c}/arcface-seed0"], "a folder of its own"),
        (["evaluate", "{c}/arcface-seed0", "--only", "nothing"], "no number is called"),
        (["evaluate", "/nowhere.safetensors"], "no file"),
    ],
)
def test_wrong_input_ends_in_a_message(folder, tmp_path, capsys, words, said):
    words = [word.format(c=folder, t=tmp_path) for word in words]
    assert code_of(words) == 1
    assert said in capsys.readouterr().err


def test_runs_of_two_experiments_are_refused(folder, tmp_path):
    other = compare(
        override(recipe("digits-2d"), ["train.epochs=1"]), ["softmax"], tmp_path / "o", seeds=[0], workers=1
    )
    with pytest.raises(ArcwiseError, match="these are several"):
        subject([folder, other[0].path])


def test_a_half_written_run_is_named(folder, tmp_path):
    run = Run.open(folder / "softmax-seed0")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "config.json").write_text((run.path / "config.json").read_text())
    with pytest.raises(ArcwiseError, match="not finished"):
        subject([tmp_path / "half"])


def test_a_run_from_another_version_is_named(folder, tmp_path):
    about = {**Run.open(folder / "softmax-seed0").about, "format": 99}
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.json").write_text(json.dumps(about))
    with pytest.raises(ArcwiseError, match="format 99"):
        subject([tmp_path / "new"])


def test_evaluate_prints_numbers_by_name_and_for_machines(folder, capsys):
    run = str(folder / "arcface-seed0")
    assert code_of(["evaluate", run, "--only", "dunn-*-cosine-95"]) == 0
    assert capsys.readouterr().out.count("  dunn-") == 6
    file = run + "/embeddings/test.safetensors"
    assert code_of(["evaluate", file, "--json"]) == 0
    assert "accuracy" not in json.loads(capsys.readouterr().out)[file]
    assert code_of(["evaluate", file, "--prototypes", run, "--json"]) == 0
    assert "accuracy" in json.loads(capsys.readouterr().out)[run + "/embeddings/test.safetensors"]


def table(**heads):
    return Table(
        heads=list(heads), seeds={h: list(range(len(v))) for h, v in heads.items()},
        seconds={h: [1.0] * len(v) for h, v in heads.items()},
        values={"accuracy": {h: list(v) for h, v in heads.items()}},
    )  # fmt: skip


def test_a_conclusion_says_so_when_arcface_did_not_win():
    def sentences(**heads):
        return conclusions.sentences(table(**heads), "ArcFace")

    lost = sentences(softmax=(0.90, 0.91, 0.93), ArcFace=(0.80, 0.81, 0.82))
    assert "worse" in lost[0] and "did not win" in lost[-2] and "Softmax in accuracy" in lost[-1]
    won = sentences(softmax=(0.80, 0.81, 0.82), ArcFace=(0.90, 0.91, 0.93))
    assert "ArcFace is better than softmax" in won[0] and "+10.33 points [+8.90, +11.77]" in won[0]
    open_ = sentences(softmax=(0.80, 0.92), ArcFace=(0.90, 0.81))
    assert "no difference is shown" in open_[0]
    one = sentences(softmax=(0.80,), ArcFace=(0.90,))
    assert "no difference can be judged" in one[0]
    assert "nothing to compare" in sentences(ArcFace=(0.90, 0.91))[0]


def test_the_worked_numbers_are_those_of_the_documents():
    text = " ".join(str(block) for block in worked())
    for number in ("2.83", "7.9 degrees", "6.80", "0.106, 0.014, 0.064, 0.030, 0.785", "0.88", "0.54", "-0.88"):
        assert number in text
    logits = next(block.rows[1][1:] for block in worked() if hasattr(block, "rows"))
    assert np.allclose([float(v) for v in logits], [18.30, -13.03, 8.16, 6.22, -10.52], atol=0.1)
    cosines = [block for block in worked() if hasattr(block, "rows")][1].rows[2][1:]
    assert cosines == ["1.00", "0.28", "-0.81", "0.33", "-0.83"]


def label(text):
    return head_from(text, 2, 5).spec.label


def test_labels_and_scales():
    assert label("cosface:m=0.2,s=7") == "CosFace m=0.2 s=7"
    assert label("softmax-bias") == "softmax + bias"


def test_a_run_given_twice_counts_once(folder):
    runs = subject([folder, folder, folder / "arcface-seed0"]).runs
    assert [[run.settings.seed for run in found] for found in runs.values()] == [[0, 1]] * 4


def test_only_normface_and_arcface_have_a_place_in_a_sweep():
    assert label("arcface:s=16") == "ArcFace m=0.5 s=16"
    assert scale_and_margin(HeadSpec.parse("arcface:m=0.3,s=8")) == (8.0, 0.3)
    assert all(scale_and_margin(HeadSpec.parse(text)) is None for text in ("sphereface:m=1.5,s=8", "cosface:m=0.2,s=8"))


def test_nine_heads_are_a_report_of_their_own(tmp_path):
    heads = [f"arcface:m={m},s={s}" for m in (0.1, 0.3) for s in (1, 4, 16)] + [f"normface:s={s}" for s in (1, 4, 16)]
    base = override(recipe("digits-2d"), ["train.epochs=1"])
    made = compare(base, heads, tmp_path / "c", seeds=[0], workers=1, device="cpu")
    assert code_of(["figures", str(made[0].path), "--only", "sweep"]) == 0
    assert (made[0].path / "figures" / "sweep.png").is_file()


def test_names_with_signs_of_formulas_are_drawn_as_they_are():
    from arcwise.figures.canvas import class_legend, figure_bytes, panels

    with panels(1) as (figure, _):
        class_legend(figure, ("a$b$c", r"$\frac{$", "<!-- <script>"))
        assert figure_bytes(figure).startswith(b"\x89PNG")


CRAFTED = (
    "`dog",
    "``",
    '#read("/etc/passwd")',
    "#(40+2)",
    "$x$ @a <b> *c* _d_ \\ ]",
    "\udcff",
    'say "yes"',
    "`#(40+2)",
)


@pytest.mark.parametrize("text", CRAFTED)
def test_whatever_a_text_says_it_reaches_typst_as_data(tmp_path, monkeypatch, text):
    """The source that Typst compiles is the same for any text; the text itself is an input."""
    from arcwise.report import blocks, paper

    sources, compiled = set(), paper.typst_compiler()

    def compile_and_keep(path, **options):
        sources.add(Path(path).read_text(encoding="utf-8"))
        return compiled(path, **options)

    monkeypatch.setattr(paper, "typst_compiler", lambda: compile_and_keep)
    for words in ("plain", text):
        shown: list = [
            blocks.Heading(words), blocks.Paragraph(words), blocks.Answer(words), blocks.Code(words),
            blocks.Link(words, f"https://{words}"), blocks.TableRows(["", words], [[words, words]], words),
        ]  # fmt: skip
        assert paper_pdf(words, words, shown, tmp_path).startswith(b"%PDF")
    assert len(sources) == 1 and text not in sources.pop()


@pytest.mark.browser
def test_the_page_runs_in_a_browser_without_errors(folder, tmp_path):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no Chromium here")
    page = tmp_path / "page.html"
    probe = "<script>window.onerror = m => { document.title = 'FAILED ' + m; };</script>"
    count = "document.querySelectorAll"
    late = f"<script>document.body.append({count}('table.sortable').length + ' tables, ' "
    late += f"+ {count}('#viewer button').length + ' buttons')</script>"
    text = (folder / "report.html").read_text()
    text = text.replace("<title>", probe + "<title>").replace("</html>", late + "</html>")
    page.write_text(text)
    options = f"--headless --no-sandbox --disable-gpu --user-data-dir={tmp_path} --dump-dom {page.as_uri()}"
    command = [chromium, *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "<title>FAILED" not in done.stdout
    assert re.search(r"[1-9]\d* tables, 5 buttons", done.stdout)  # four heads and play


def test_reading_a_report_needs_no_torch_for_its_metrics():
    modules = "arcwise.metrics, arcwise.figures.animation, arcwise.study.table"
    code = f"import sys; sys.modules['torch'] = None; import {modules}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------------ what is damaged, gone or not finished


@pytest.fixture
def copied(folder, tmp_path):
    """A comparison to be damaged: softmax and ArcFace, one seed."""
    out = tmp_path / "c"
    out.mkdir()
    for name in ("softmax-seed0", "arcface-seed0"):
        shutil.copytree(folder / name, out / name)
    about = json.loads((folder / "comparison.json").read_text())
    (out / "comparison.json").write_text(json.dumps({**about, "heads": ["softmax", "arcface"], "seeds": [0]}))
    return out


def paragraphs(about):
    return " ".join(block.text for block in content(about, {}, [], None) if isinstance(block, Paragraph))


def test_an_unfinished_comparison_says_what_is_missing(copied):
    about = json.loads((copied / "comparison.json").read_text())
    (copied / "comparison.json").write_text(json.dumps({**about, "seeds": [0, 1, 2]}))
    assert "4 of the 6 runs of c, which are not finished" in paragraphs(subject([copied]))


def test_images_that_changed_since_are_not_shown(copied):
    for run in copied.glob("*-seed0"):
        about = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps({**about, "images": "others"}))
    about = subject([copied])
    assert about.images("test") is None
    assert "pictures of the images, because the images are not those" in paragraphs(about)
    assert not list(drawings(about, only="samples"))


def test_a_damaged_snapshot_costs_its_animation_and_says_so(copied):
    some = sorted((copied / "arcface-seed0" / "embeddings").glob("test-epoch-*"))[0]
    some.write_bytes(some.read_bytes()[:100])
    about = subject([copied])
    assert about.snapshots("ArcFace m=0.3 s=8", "test") == []
    assert some.name in paragraphs(about)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"of": ["test-epoch-000.safetensors"], "values": [1]}'])
def test_damaged_numbers_beside_snapshots_are_measured_again(copied, text):
    kept = copied / "arcface-seed0" / "epochs-test.json"
    run = Run.open(kept.parent)
    before = measure_epochs(run, "test")
    kept.write_text(text)
    assert measure_epochs(run, "test") == before


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("arcface-seed0/result.json", '{"test": {}}', "it lacks steps"),
        ("comparison.json", '{"format": 1}', "it lacks heads"),
        ("arcface-seed0/config.json", '{"format": 1}', "names no configuration"),
    ],
)
def test_files_with_the_wrong_content_end_in_a_message(copied, capsys, file, text, said):
    (copied / file).write_text(text)
    assert code_of(["report", str(copied)]) == 1
    assert said in capsys.readouterr().err


def test_a_journal_with_strange_lines_is_drawn_without_them(copied):
    with (copied / "arcface-seed0" / "journal.jsonl").open("a") as file:
        file.write('{"kind": "evaluation", "accuracy": 1.0}\n{"kind": "evaluation", "epoch": 9, "loss": "x"}\n')
    assert len(list(drawings(subject([copied]), only="training"))) == 1


def test_embeddings_that_are_not_finite_name_their_run(copied):
    run = Run.open(copied / "arcface-seed0")
    found = run.embeddings("test")
    found.x[3, 0] = np.nan
    found.save(run.path / "embeddings" / "test.safetensors")
    with pytest.raises(ArcwiseError, match=r"arcface-seed0: 1 of .* not finite"):
        measure(run, again=True)


def test_equal_means_are_marked_together():
    rows = number_table(table(softmax=[0.9, 0.9], arcface=[0.9, 0.9], normface=[0.8, 0.8]), ["accuracy"], "", "t")
    assert rows.strong == {(0, 1), (0, 2)}
    assert not number_table(table(softmax=[0.9, 0.9], arcface=[0.9, 0.9]), ["accuracy"], "", "t").strong


def test_a_comparison_is_evaluated_run_by_run(folder, capsys):
    assert code_of(["evaluate", str(folder), "--only", "accuracy", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 8


@pytest.mark.parametrize("where", ["arcface-seed0/embeddings/new", "arcface-seed0/config.json"])
def test_nothing_is_written_into_a_run_or_over_a_file(folder, capsys, where):
    assert code_of(["figures", str(folder), "--only", "circle", "--out", str(folder / where)]) == 1
    assert "choose" in capsys.readouterr().err


def test_every_margin_has_a_title_of_its_own():
    titles = [head_from(name, 2, 5).spec.title for name in MARGINS]
    assert len(set(titles)) == len(titles) and all(titles)


def contents(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_drawing_writes_nothing_into_runs(copied):
    for run in copied.glob("*-seed0"):
        for kept in run.glob("epochs-*.json"):
            kept.unlink()
    about = subject([copied])
    before = contents(copied)
    drawn = set()
    for drawing in drawings(about):
        drawn.add(drawing.name)
        figure_bytes(drawing.figure, "svg")  # which closes it
    assert drawn >= {"dunn-epochs", "confusion", "glance", "roc"}
    assert contents(copied) == before


def test_the_repair_command_that_measuring_prints_gives_the_same_numbers(copied):
    run = Run.open(copied / "arcface-seed0")
    before = measure(run)["measured"]
    run.embeddings_path("test").unlink()
    with pytest.raises(ArcwiseError, match="holds no embeddings of its test images") as caught:
        measure(run, again=True)
    command = str(caught.value).partition("again with: arcwise ")[2]
    assert code_of(shlex.split(command)) == 0
    assert measure(run, again=True)["measured"] == before and "accuracy" in before


@pytest.mark.parametrize("text", ["{", "[]", '{"measured": {}}', '{"measured": {"zzz": 1.0}}'])
def test_damaged_numbers_of_a_run_are_measured_again(copied, text):
    run = Run.open(copied / "arcface-seed0")
    before = measure(run)
    (run.path / "metrics.json").write_text(text)
    assert measure(run) == before and Run.open(run.path).finished


# ---------------------------------------------------------------- the first page, numbers of figures, letters


def test_the_answer_stands_before_everything_else_and_is_computed_from_the_table(folder):
    page = (folder / "report.html").read_text()
    answer = re.search(r'<p class="answer">(.*?)</p>', page, re.DOTALL)
    assert answer is not None
    assert page.index("What does an angular margin change?") < answer.start() < page.index('id="s1"')
    first = page[: page.index('id="s1"')]
    assert first.count("<img") == 1 and first.count("<table") == 1 and "2 seeds of each head" in first
    rows = re.findall(r"<tr><td>([^<]*)</td>", first)
    assert len([row for row in rows if "difference" not in row]) == 5


def test_the_answer_says_better_worse_and_not_shown():
    values = {"accuracy": {"softmax": [0.9, 0.91, 0.92], "arcface": [0.9, 0.92, 0.91]}}
    values["angle-own"] = {"softmax": [0.3, 0.31, 0.33], "arcface": [0.1, 0.11, 0.12]}
    values["unseen-auc"] = {"softmax": [0.8, 0.81, 0.83], "arcface": [0.7, 0.71, 0.72]}
    seeds = {"softmax": [0, 1, 2], "arcface": [0, 1, 2]}
    found = Table(heads=["softmax", "arcface"], seeds=seeds, values=values, seconds={h: [1.0] * 3 for h in seeds})
    first, second = conclusions.answer(found, "arcface", list(values))
    assert first == "Arcface is clearly better than softmax in mean angle to the own class mean (6.30° against 17.95°)."
    assert second.startswith("In AUC of pairs of unseen classes (71.00 % against 81.33 %) it is worse than softmax; ")
    assert second.endswith("; no difference is shown in accuracy.")


def test_a_head_with_one_seed_is_shown_but_not_judged():
    values = {"accuracy": {"softmax": [0.9, 0.91], "bias": [0.5], "arcface": [0.95, 0.96]}}
    seeds = {"softmax": [0, 1], "bias": [0], "arcface": [0, 1]}
    found = Table(heads=list(seeds), seeds=seeds, values=values, seconds={h: [1.0] * len(s) for h, s in seeds.items()})
    assert conclusions.rivals_of(found, "arcface") == ["softmax"]
    said = " ".join(conclusions.sentences(found, "arcface"))
    assert "bias shares fewer than two seeds with arcface and is not judged." in said
    assert "With 2 seeds" in said


def test_every_figure_and_table_of_a_report_is_numbered_and_referred_to_in_its_text(folder):
    page = (folder / "report.html").read_text()
    captions = re.findall(r"<figcaption><b>(Figure|Table) (\d+)\.</b>", page)
    text = " ".join(re.findall(r"<p[^>]*>(.*?)</p>", page, re.DOTALL))
    assert len(captions) > 20 and "[[" not in text
    named = set(re.findall(r"(Figure|Table) (\d+)", text))
    for kind, first, last in re.findall(r"(Figure|Table)s (\d+) (?:to|and) (\d+)", text):
        named |= {(kind, str(n)) for n in range(int(first), int(last) + 1)}
    assert set(captions) <= named


def test_letters_of_every_figure_are_at_least_seven_points_at_their_printed_size(folder):
    from matplotlib.text import Text

    about = subject([folder], psi=known_psi)
    drawn = set()
    for drawing in drawings(about):
        drawn.add(drawing.name)
        drawing.figure.canvas.draw()
        printed = min(1.0, PAGE / drawing.figure.get_figwidth())
        sizes = [text.get_fontsize() for text in drawing.figure.findobj(Text) if text.get_text().strip()]
        assert sizes and min(sizes) * printed >= 7.0, drawing.name
        box, (wide, high) = drawing.figure.get_tightbbox(), drawing.figure.get_size_inches()
        assert box.x0 > -0.05 and box.y0 > -0.05 and box.x1 < wide + 0.05 and box.y1 < high + 0.05, drawing.name
        words = [text.get_text() for text in drawing.figure.findobj(Text)]
        assert not any("mathdefault" in word or "$" in word for word in words), drawing.name
        plt.close(drawing.figure)
    assert drawn >= set(FIGURES) - {"sphere", "sweep", "bias", "boundaries"}


def test_the_lecture_is_in_reports_of_introductory_recipes_and_a_page_of_its_own_beside_others(folder, tmp_path):
    assert "one change at a time" not in (folder / "report.html").read_text()
    assert "Drop the bias" in (folder / "report.html").read_text() and not (folder / "method.html").exists()
    other = ["data.source=synthetic:classes=4,per_class=20", "train.epochs=2"]
    run = train(override(recipe("digits-2d"), other), tmp_path / "run", device="cpu")
    assert code_of(["report", str(run.path), "--html", "--out", str(tmp_path / "r")]) == 0
    page = (tmp_path / "r" / "report.html").read_text()
    assert "Drop the bias" not in page and 'href="method.html"' in page
    assert "Drop the bias" in (tmp_path / "r" / "method.html").read_text()
    assert "The images" in page and "4: 0, 1, 2, 3" in page and "8 x 8, grey" in page
    assert is_introductory(recipe("mnist")) and not is_introductory(recipe("folder"))
    assert not is_introductory(override(recipe("mnist"), ["data.source=folder:photos"]))


@pytest.mark.parametrize("classes", [15, 136])
def test_with_many_classes_figures_name_what_can_be_read(classes):
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), 6)
    x = random.standard_normal((classes, 2))[y] * 5 + random.standard_normal((len(y), 2))
    names = tuple(f"Alphabet_of_the_Magi/character{i:02d}" for i in range(classes))
    found = Embeddings(x.astype(np.float32), y, names)
    figure = draw_planes([PlanePanel("arcface", found, reach(x))])
    labels = [text.get_text() for text in figure.axes[0].texts]
    assert 5 < len(labels) <= (classes if classes <= 20 else 10) and len(set(labels)) == len(labels)
    assert all(len(label) <= 16 and label[-2:].isdigit() for label in labels)
    assert not figure.legends
    plt.close(figure)
    matrix = np.diag(np.full(classes, 9)) + random.integers(0, 2, (classes, classes))
    figure = draw_mistakes(ConfusionPanel("arcface", matrix, names))
    figure.canvas.draw()
    box = figure.get_tightbbox()
    assert box.x0 >= -0.05 and box.x1 <= figure.get_figwidth() + 0.05
    assert len(figure.axes[0].patches) == 15
    plt.close(figure)


@pytest.mark.parametrize("classes", [5, 31, 136, 1000])
def test_every_class_stands_in_the_appendix_and_of_very_many_those_that_are_found_least(classes):
    rows = [
        {"name": f"c{i}", "n": 4, "recall": (i * 7 % classes) / classes, "precision": 0.5, "mistaken_for": "c0"}
        for i in range(classes)
    ]
    taken = np.diag(np.full(classes, 7)) + np.eye(classes, k=1, dtype=int)
    table = class_rows("arcface", [rows, rows], taken, [row["name"] for row in rows])
    worst = sorted(rows, key=lambda row: row["recall"])[:200]
    expected = [row["name"] for row in (rows if classes <= 200 else worst)]
    assert [row[0] for row in table.rows] == expected
    assert ("200 of 1,000 classes" in table.caption) == (classes == 1000)
    assert table.rows[0][2] == f"{(rows[0] if classes <= 200 else worst[0])['recall']:.2%}"


def test_accuracies_that_are_far_apart_and_not_told_apart_are_not_called_alike():
    heads = ["softmax", "arcface"]

    def said(first, second):
        values = {"accuracy": {"softmax": first, "arcface": second}}
        return accuracy_words(Table(heads=heads, seeds={h: [0, 1] for h in heads}, values=values, seconds={}))

    near, far = said([0.98, 0.983], [0.982, 0.98]), said([0.6, 0.9], [0.5, 0.7])
    assert "within 15.00 points" in far and all("does not make them equal" in words for words in (near, far))
    # gaps of 0.2 and -0.3 points: mean -0.05, half 12.706 * 0.3536 / sqrt(2) = 3.18
    assert "reach to differences of 3.23 points" in near
    assert "one seed does not tell" in accuracy_words(table(softmax=(0.9,), arcface=(0.8,)))


def test_the_page_says_which_images_the_numbers_of_a_film_are_of(folder):
    page = (folder / "report.html").read_text()
    assert re.search(r"softmax beside ArcFace m=0.3, seed 0. Accuracy and Dunn index are of the \d+ test images", page)
    assert re.search(
        r"of the \d+ training images that every epoch keeps; the tables&#x27; are of all \d+ test images", page
    )


@pytest.mark.browser
@pytest.mark.parametrize("classes", [4, 15])
def test_the_interactive_view_lists_the_classes_where_their_colours_differ(classes, tmp_path):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no Chromium here")
    other = [f"data.source=synthetic:classes={classes},per_class=20", "train.epochs=1"]
    run = train(override(recipe("digits-2d"), other), tmp_path / "run", device="cpu")
    assert code_of(["report", str(run.path), "--html", "--out", str(tmp_path / "r")]) == 0
    page = tmp_path / "r" / "report.html"
    options = f"--headless --no-sandbox --disable-gpu --user-data-dir={tmp_path / 'chrome'} --dump-dom {page.as_uri()}"
    done = subprocess.run([chromium, *options.split()], capture_output=True, text=True, timeout=120)
    key = re.search(r'<div class="key">(.*?)</div>', done.stdout).group(1)
    assert key.count("<span>") == (classes if classes <= 10 else 0)
    assert ("Colours repeat" in page.read_text()) == (classes > 10)


def test_few_points_are_drawn_larger():
    assert point_look(30)["markersize"] > 2 * point_look(5000)["markersize"]


@pytest.mark.parametrize("width", [10, 40, 84])
def test_a_command_over_several_lines_is_the_command(width):
    words = [
        "compare",
        "folder",
        "--heads",
        "softmax,arcface:m=0.5,s=4",
        "--set",
        "data.source=folder:my  photos, 12 years'",
    ]
    folded = fold_command(shlex.join(words), width)
    said = subprocess.run(["bash", "-c", f"printf '%s\\0' {folded}"], capture_output=True, text=True, check=True).stdout
    assert said.split("\0")[:-1] == words
