"""The report as blocks: the answer first, then results, method, how to repeat it, and every table in an appendix."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from arcwise.config import Config, DataConfig, override
from arcwise.data.folder import counted
from arcwise.errors import name_list
from arcwise.figures import FIGURES
from arcwise.figures.canvas import SIDE_BY_SIDE, shown_heads
from arcwise.figures.dunn_epochs import PUBLISHED, is_published
from arcwise.headspec import folder_name
from arcwise.metrics import clusters
from arcwise.metrics.summary import (
    BETWEEN_INSIDE,
    FOUND_FIRST,
    MARGIN_KEPT,
    METRICS,
    TRUE_ACCEPTS,
    dunn_name,
    in_unit,
    metrics_in,
    with_unit,
)  # fmt: skip
from arcwise.recipes import RECIPES, recipe
from arcwise.records import Comparison, Run
from arcwise.report import conclusions, worked
from arcwise.report.biases import bias
from arcwise.report.blocks import (
    Answer,
    Block,
    Code,
    Film,
    Formula,
    Heading,
    Lead,
    Link,
    Paragraph,
    PictureFile,
    TableRows,
    Viewer,
    number_blocks,
)
from arcwise.report.scales import sweep
from arcwise.report.words import listed, range_words
from arcwise.study.subject import Subject
from arcwise.study.table import Table


def title(about: Subject) -> str:
    """The report's title."""
    titles = [about.specs[head].title or about.specs[head].name for head in about.heads]
    kinds = list(dict.fromkeys(title.partition(" + ")[0] for title in titles))
    names = kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} and {kinds[-1]}"
    return f"{names[0].upper()}{names[1:]} on {source_title(about.config.data.source)}"


def source_title(source: str) -> str:
    """A source as a title has it: of a folder its own name.

    >>> source_title("mnist[0-4]"), source_title("folder:../my/photos")
    ('mnist[0-4]', 'photos')
    """
    kind, _, path = source.partition(":")
    name = Path(path).name
    return name if kind == "folder" and name.strip(".") else source


def content(
    about: Subject, pictures: dict[str, list[PictureFile]], films: list[Film], viewer: Viewer | None
) -> list[Block]:
    """The whole report: the answer on page one, then results, then the method, then an appendix with every table."""

    def shown(section: str, more: str = "", *, floats: bool = False) -> list[Block]:
        names = [name for name in pictures if FIGURES[name].section == section]
        said = [Paragraph(block.text) for block in lead(names, more)] if floats else lead(names, more)
        return [*said, *(one._replace(floats=floats) for name in names for one in pictures[name])]

    taught = is_introductory(about.config)
    images = [Heading("The images", new_page=True), *image_facts(about), *shown("data")]
    clips = [Paragraph("The same over the epochs: see [[film]].")] if films else []
    blocks: list[Block] = [
        *first_page(about, shown("first")),
        *([] if taught else images),
        Heading("Results", new_page=taught), *shown("glance", floats=True),
        *results(about.table, about.champion, about.weak),
        Heading("The embeddings", 2), *shown("embeddings"), *([viewer] if viewer else []), *clips, *films,
        Heading("Training", 2), *shown("training", LOSSES if len(about.heads) > 1 else ""),
        Heading("Class by class", 2), *shown("classes"),
        Heading("Pairs and neighbours", 2), *shown("pairs"),
        *sweep(about, shown("sweep", floats=True)),
        *bias(about, shown("bias", floats=True)),
        Heading("Discussion"), *discussion(about),
        Heading("Conclusion"),
        Paragraph("These sentences are computed from the numbers in the JSON file beside this report; intervals are "
            "95 % of paired differences over seeds."),
        *(Paragraph(text) for text in conclusions.sentences(about.table, about.champion)),
        Heading("Method"),
        *(taught_method(about, shown("method", floats=True)) if taught else [LECTURE]),
        Heading("Set-up", 2), *setup(about), *([*image_facts(about), *shown("data")] if taught else []),
        Heading("To repeat it", 2), *repeat(about),
        *appendix(about, shown),
    ]  # fmt: skip
    return number_blocks(
        [block for block, after in zip(blocks, [*blocks[1:], None], strict=True) if kept(block, after)]
    )


def kept(block: Block, after: Block | None) -> bool:
    """Whether a block is worth its place: a small heading with nothing below it is not."""
    return not (isinstance(block, Heading) and block.level == 2 and (after is None or isinstance(after, Heading)))


def lead(names: list[str], more: str = "") -> list[Lead]:
    """A sentence that says what the figures of a section show, each by its number, and what else is to be known."""
    if not names:
        return []
    said = "See " + ", ".join(f"[[{name}]] ({FIGURES[name].words})" for name in names) + "."
    return [Lead(f"{said} {more}".strip())]


LOSSES = (
    "The losses of different heads are different functions: each tells how its own head gets on, and their heights are "
    "not compared."
)


LECTURE = Link(
    "From softmax to ArcFace, one change at a time, with numbers to check by hand: method.html", "method.html"
)


def is_introductory(config: Config) -> bool:
    """Whether this is one of the experiments that the heads are introduced by, on its own data."""
    known = RECIPES[config.recipe]().data.source if config.recipe in RECIPES else "folder:"
    return not known.startswith("folder:") and source_kind(known) == source_kind(config.data.source)


def source_kind(source: str) -> str:
    """The name of a source without its classes.

    >>> source_kind("mnist[0-4]"), source_kind("folder:photos")
    ('mnist', 'folder')
    """
    return re.split(r"[\[:]", source)[0]


def first_page(about: Subject, picture: list[Block]) -> list[Block]:
    """The question, the answer, one picture, five numbers, and what they rest on."""
    table, head = about.table, about.champion
    judged = conclusions.first_metrics(table)
    return [
        Paragraph(" ".join([question(about), *heads_in_words(about)])),
        Answer(" ".join(conclusions.answer(table, head, judged))),
        *picture[1:],  # the sentence below names it
        Paragraph(" ".join([basis(about), *seen_before(about)])),
        first_numbers(table, head, judged, table.heads if len(table.heads) <= conclusions.ROOM else shown_heads(about)),
    ]


def question(about: Subject) -> str:
    """What was asked, in a sentence or two."""
    heads, what = about.table.heads, f"{classes_words(about)} of {source_words(about.config.data)}"
    if len(heads) == 1:
        return f"What has {heads[0]} learned of {what}?"
    plain = [head for head in heads if not about.specs[head].m]
    if about.specs[about.champion].m and plain:
        others = listed([head for head in heads if head != about.champion])
        others = others if len(heads) <= conclusions.ROOM else f"{len(heads) - 1} other heads"
        return f"{margin_question(about)} {about.champion} beside {others}, trained alike on {what}."
    which = listed(heads) if len(heads) <= conclusions.ROOM else f"{len(heads)} heads"
    return f"Which of {which} is best on {what}, and by how much?"


HEADS_IN_WORDS = {
    "softmax": "softmax scores a class by the dot product of the embedding with the class's centre",
    "softmax-bias": "softmax + bias adds a number of the class's own to it",
    "normface": "NormFace scores a class by the cosine between embedding and centre, times a scale s",
    "cosface": "CosFace scores a class by the cosine between embedding and centre, less m for the own one in training",
    "arcface": "ArcFace scores a class by the cosine of the angle between embedding and centre, and in training adds m "
    "to the own angle, so that the own class must win by m",
}  # fmt: skip


def heads_in_words(about: Subject) -> list[str]:
    """What the best known heads do, in a sentence, where there are several."""
    there = {spec.name for spec in about.specs.values()}
    said = [words for name, words in HEADS_IN_WORDS.items() if name in there]
    return [f"{conclusions.capital('; '.join(said))}."] if len(said) > 1 else []


def margin_question(about: Subject) -> str:
    """What sets the champion apart from the others: its margin alone, or its scale and normalised x too."""
    spec, others = about.specs[about.champion], [about.specs[head] for head in about.heads if head != about.champion]
    if any(other.s not in (None, spec.s) for other in others):
        return "What do a scale s and an angular margin m change together?"
    if any(other.s == spec.s and not other.m for other in others):
        return "What does an angular margin change?"
    return "What do a normalised embedding and an angular margin change together?"


def classes_words(about: Subject) -> str:
    """How many classes were trained on."""
    return counted(len(about.embeddings(about.heads[0]).names), "class", "classes")


def source_words(data: DataConfig) -> str:
    """The images by the name of their source."""
    return f"`{data.source.replace('`', '')}`"


def basis(about: Subject) -> str:
    """What the numbers rest on: seeds and images."""
    table, config = about.table, about.config
    counts = {head: len(found) for head, found in table.seeds.items()}
    every = set(counts.values())
    seeds = (
        f"{counted(every.pop(), 'seed')}{' of each head' if len(counts) > 1 else ''}"
        if len(every) == 1
        else "seeds: " + ", ".join(f"{head} {count}" for head, count in counts.items())
    )
    test = about.embeddings(about.heads[0])
    judged = len(np.unique(test.labels))
    parts = [f"{len(test):,} test images" + (f" of {judged:,} of the classes" if judged < len(test.names) else "")]
    images = about.images("train")
    if images is not None:
        height, width, channels = images.shape
        looks = f"{height} x {width} pixels, {'colour' if channels == 3 else 'grey'}"
        parts.insert(0, f"{len(images):,} training images ({looks})")
    if config.data.unseen:
        unseen = about.embeddings(about.heads[0], "unseen")
        parts.append(
            f"{len(unseen):,} of {counted(len(unseen.names), 'class', 'classes')} that took no part in training"
        )
    same = " For a given seed every head begins with the same network and meets the images in the same order."
    picture = "sphere" if about.dim == 3 else "embeddings"
    many = len(about.heads)
    drawn = f" under {SIDE_BY_SIDE} of the {many} heads" if many > SIDE_BY_SIDE else " under each head" * (many > 1)
    return (
        f"[[{picture}]] shows the test images{drawn}, [[first]] the main numbers. They rest on {seeds}; "
        f"{listed(parts)}.{same if len(counts) > 1 else ''} {CENTRE_AND_MEAN}"
    )


CENTRE_AND_MEAN = (
    "The centre of a class is the vector w that the head has learned for it, the class mean the mean direction of its "
    "test images."
)


def seen_before(about: Subject) -> list[str]:
    """Which images to test on were trained on by the models that the runs began from, each said once."""
    told = [words for many in about.runs.values() for run in many for words in run.result.get("seen_before", [])]
    return list(dict.fromkeys(f"Beware: {words}" for words in told))


def first_numbers(table: Table, head: str, names: list[str], heads: list[str]) -> TableRows:
    """A row of means and spreads for each number, and below it how far the head in question is from these others."""
    rows, strong = [], set()
    rivals = [other for other in conclusions.rivals_of(table, head) if other in heads]
    for name in names:
        rows.append([with_unit(name), *(table.cell(name, other) for other in heads)])
        if rivals:
            gaps = {other: conclusions.gap_text(table, name, head, other, unit=False) for other in rivals}
            rows.append(["    difference", *(gaps.get(other, "") for other in heads)])
            strong |= {
                (len(rows) - 1, 1 + j)
                for j, other in enumerate(heads)
                if other in rivals and conclusions.verdict(table, name, head, other) != "open"
            }
    words = seeds_words(table)
    if rivals:
        words += (
            f" Difference: {head} minus the head of the column, taken before rounding, with the 95 % interval over "
            "paired seeds; bold where it leaves 0 out."
        )
    if len(heads) < len(table.heads):
        words += f" Shown are {len(heads)} of {len(table.heads)} heads; the results have all."
    return TableRows(["", *heads], rows, words + explained(names), frozenset(strong), "first")


MEANINGS = {
    "Dunn": "Dunn: the smallest distance between classes over the largest extent of one, the larger the better",
    "equal error rate": "Equal error rate: the share of pairs that are judged wrongly, at the threshold where both "
        "kinds of error are equally frequent",
    "TAR at FAR": f"TAR at FAR: {TRUE_ACCEPTS}",
    "rad kept": f"Margin kept: {MARGIN_KEPT}",
    "recall@1": f"Recall@1: {FOUND_FIRST}",
}  # fmt: skip


def explained(names: list[str], told: str = "") -> str:
    """What the words mean by which some numbers are called, but for those that were told.

    >>> explained(["accuracy", "dunn-nearest-diameter-unit-95"])
    ' Dunn: the smallest distance between classes over the largest extent of one, the larger the better.'
    """
    found = [word for word in MEANINGS if any(word in METRICS[name].label for name in names)]
    said = [f" {MEANINGS[word]}." for word in found]
    return "".join(words for words in said if words not in told)


def head_groups(table: Table) -> list[list[str]]:
    """The heads by as many as a table has room for."""
    few = [table.heads[at : at + SIDE_BY_SIDE] for at in range(0, len(table.heads), SIDE_BY_SIDE)]
    return few if len(table.heads) > conclusions.ROOM else [table.heads]


def image_facts(about: Subject) -> list[Block]:
    """What the images are: how many, of how many classes, how large; nothing where they cannot be had any more."""
    if about.splits is None:
        return []
    train, data = about.splits.train, about.config.data
    counts = train.counts
    height, width, channels = train.shape
    rows = [["source", data.source], ["classes", f"{train.classes:,}: {name_list(train.names)}"]]
    rows += [[part, counted(len(images), "image")] for part, images in about.splits.parts.items()]
    rows.append(["training images of a class", range_words(counts)])
    looks = f"{height} x {width}, {'colour' if channels == 3 else 'grey'}"
    framing = about.splits.framing
    if data.source.startswith("folder:") and framing is not None:
        rows.append(["as they came", original_sizes(data, train.files or ())])
        looks += f", {FITTED[framing.fit]}, resampled {framing.resample}"
    rows.append(["as they are shown to the network", looks])
    tested = int((about.splits.test.counts > 0).sum())
    if tested < train.classes:
        rows.append(["classes that have test images", f"{tested:,} of {train.classes:,}"])
    if data.unseen:
        rows.append(["kept unseen", f"{data.unseen}: {name_list(about.splits.part('unseen').names)}"])
    if about.splits.broken:
        rows.append(["left out, for they cannot be read", counted(len(about.splits.broken), "image")])
    notes = [Paragraph(f"Beside them: {note}") for note in about.splits.notes]
    table = TableRows(["", ""], rows, "The images.", name="images")
    return [Lead("[[images]] says what the images are."), table, *notes]


FITTED = {
    "crop": "cut to the middle square", "pad": "padded to a square by drawing out their edges",
    "stretch": "stretched to a square",
}  # fmt: skip
LOOKED_AT = 200  # files whose own size is read


def original_sizes(data: DataConfig, files: tuple[str, ...]) -> str:
    """How large the files are themselves, from some of them."""
    from arcwise.data.folder import sizes_of

    some = files[:: max(1, len(files) // LOOKED_AT)]
    found = sizes_of(Path(data.source.partition(":")[2]), some)
    if not found:
        return "their files cannot be read any more"
    wide, high = zip(*found, strict=True)
    if len(set(found)) == 1:
        return f"{high[0]} x {wide[0]} pixels"
    return f"{min(high)} to {max(high)} pixels high, {min(wide)} to {max(wide)} wide"


def appendix(about: Subject, shown: Callable[..., list[Block]]) -> list[Block]:
    """Every table that page one and the results do without."""
    return [
        Heading("Appendix: the Dunn index in its variants"), *dunn(about), *shown("dunn"),
        *published(about),
        *per_class(about),
    ]  # fmt: skip


def method(about: Subject | None = None) -> list[Block]:
    """The formulas, one change at a time; with the sizes of these runs."""
    d, c = (512, 1000) if about is None else (about.dim, len(about.embeddings(about.heads[0]).names))
    where = "With embeddings of" if about is None else "Here, with"
    return [
        Paragraph(
            "An embedding network turns an image into d numbers, x. The head holds one vector w per class, its centre, "
            f"and is needed in training only. {where} {d:,} numbers and {c:,} classes, w is a table of {d:,} x {c:,}; "
            "the class of the sample at hand is y, and θ is the angle between x and a centre."
        ),
        Formula('L = -log e^(w_y dot x + b_y) / (sum_j e^(w_j dot x + b_j))', "Softmax with bias, the usual loss of "
            "a classifier:"),
        Formula('L = -log e^(w_y dot x) / (sum_j e^(w_j dot x))', "Drop the bias: every boundary now passes through "
            "the origin."),
        Formula('L = -log e^(|x| cos theta_y) / (sum_j e^(|x| cos theta_j)), quad |w_j| = 1', "Normalise w: only the "
            "angle to a centre and the length of x count."),
        Formula('L = -log e^(s cos theta_y) / (sum_j e^(s cos theta_j)), quad |x| = 1', "Normalise x and rescale to "
            "s (NormFace, Wang et al. 2017): only angles count."),
        Formula(
            'L = -log e^(s cos(theta_y + m)) / (e^(s cos(theta_y + m)) + sum_(j != y) e^(s cos theta_j))',
            "Add the margin to the own angle (ArcFace, Deng et al. 2019): a sample must be nearer to its centre by m "
            "to get the same loss.",
        ),
        Formula(
            'psi_"CosFace" = cos theta - m, quad psi_"SphereFace" = cos m theta',
            "Its siblings move the own logit in other ways (Wang et al. 2018; Liu et al. 2017):",
        ),
        Formula(
            'L = log(1 + e^(ell - s psi(theta_y))), quad ell = log sum_(j != y) e^(s cos theta_j)',
            "NormFace (with ψ = cos θ), ArcFace and its siblings are one equation, in which the margin ψ meets the "
            "other classes in a single number; this is how arcwise computes them:",
        ),
        Formula(
            'psi(theta) = cases(cos(theta + m) & "if" theta <= pi - m, cos theta - (1 - cos m) & "beyond")',
            "Past π − m ArcFace's cosine would rise again; there ψ goes on falling instead, without a jump:",
        ),
        Paragraph(
            "What all of this is for: classes that were not in training. Faces, products and landmarks are verified "
            "and identified by the angle between two embeddings, with a threshold that was chosen on other data."
        ),
    ]  # fmt: skip


def taught_method(about: Subject, drawn: list[Block]) -> list[Block]:
    """The method as a report of the experiments has it that the heads are introduced by."""
    return [*method(about), *drawn, *worked.worked_examples(), *references()]


def lecture() -> list[Block]:
    """The formulas and their worked examples, as a page of its own."""
    return number_blocks([Heading("The formulas"), *method(), *worked.worked_examples(), *references()])


PAPERS = (
    "W. Liu, Y. Wen, Z. Yu, M. Li, B. Raj, L. Song. SphereFace: deep hypersphere embedding for face recognition. "
    "CVPR 2017.",
    "F. Wang, X. Xiang, J. Cheng, A. L. Yuille. NormFace: L2 hypersphere embedding for face verification. ACM "
    "Multimedia 2017.",
    "H. Wang, Y. Wang, Z. Zhou, X. Ji, D. Gong, J. Zhou, Z. Li, W. Liu. CosFace: large margin cosine loss for deep "
    "face recognition. CVPR 2018.",
    "J. Deng, J. Guo, N. Xue, S. Zafeiriou. ArcFace: additive angular margin loss for deep face recognition. CVPR "
    "2019.",
)


def references() -> list[Block]:
    """The papers that the formulas are from."""
    return [Heading("References", 2), *map(Paragraph, PAPERS)]


def setup(about: Subject) -> list[Block]:
    """What was trained, on what, how."""
    config, run = about.config, about.first
    train, metrics = config.train, run.result
    facts = [
        [
            "training",
            f"{counted(metrics['epochs'], 'epoch')}, {counted(metrics['steps'], 'step')} of "
            f"{metrics['images'] // max(metrics['steps'], 1)} images",
        ],
        ["changes to images", listed(changes) if (changes := image_changes(config.data)) else "none"],
        ["network", f"{config.model.backbone}, {metrics['parameters']:,} parameters, d = {config.model.dim}"],
        ["heads" if len(about.heads) > 1 else "head", ", ".join(about.specs[head].label for head in about.heads)],
        [
            "optimiser",
            f"{train.optimiser}, learning rate {train.lr:g}, {train.schedule}, weight decay {train.weight_decay:g}"
            + (f", averaged weights {train.ema:g}" if train.ema else ""),
        ],
        ["device", f"{metrics['device']}, {seconds_text(about.table)} of training per run"],
    ]
    if config.init:
        rest = f", whose backbone rested for {counted(train.frozen_epochs, 'epoch')}" if train.frozen_epochs else ""
        facts.insert(0, ["began with", f"the model {config.init}{rest}"])
    left = f"Left out of this report: {'; '.join(note.rstrip('.') for note in about.notes)}."
    return [
        Lead("[[setup]] is the same for every head." if len(about.heads) > 1 else "[[setup]] says how it was trained."),
        TableRows(["", ""], facts, "The set-up.", name="setup"),
        *([Paragraph(left)] if about.notes else []),
    ]


def image_changes(data: DataConfig) -> list[str]:
    """How images are changed by chance in training."""
    sizes = (
        ("shift", data.shift), ("rotation", data.rotate),
        ("cutout", data.covered(data.size or data.cutout * 2)),
    )  # fmt: skip
    return [f"{name} {value:g}" for name, value in sizes if value] + ["mirror images"] * bool(data.flip)


def seconds_text(table: Table) -> str:
    """How long the runs took."""
    every = [s for many in table.seconds.values() for s in many if math.isfinite(s)]
    if not every:
        return "unknown time"
    low, high = f"{min(every):.0f}", f"{max(every):.0f}"
    return f"{low} s" if low == high else f"{low} to {high} s"


def number_table(
    table: Table,
    names: list[str],
    caption: str,
    name: str,
    heads: list[str] | None = None,
    weak: Mapping[str, str] | None = None,
    told: str = "",
) -> TableRows:
    """A table of metrics by head (all of them, or these), the best mean of all heads marked in each row.

    `weak` says what those rest on that rest on too little: a dagger marks them. What `told` explains is not said again.
    """
    some, heads = [name for name in names if name in table.values], heads or table.heads
    shown = {n: {h: table.cell(n, h).partition(" ")[0] for h in table.heads} for n in some}
    strong = frozenset(
        (i, 1 + j)
        for i, n in enumerate(some)
        for j, h in enumerate(heads)
        if len(set(shown[n].values())) > 1 and h in table.several and shown[n][h] == shown[n][table.best(n)]
    )
    marked = {n: weak[n] for n in some if weak and n in weak}
    rows = [[with_unit(n) + " †" * (n in marked), *(table.cell(n, h) for h in heads)] for n in some]
    caption += "".join(f" † {conclusions.capital(conclusions.label_words(n))} {words}." for n, words in marked.items())
    return TableRows(["", *heads], rows, caption + explained(some, told), strong, name)


def results(table: Table, champion: str, weak: dict[str, str]) -> list[Block]:
    """Tables of the closed and the open set, and paired differences; `weak` numbers rest on too little."""
    words = seeds_words(table)
    if len(table.several) > 1:
        words += " The best mean of each row, and what equals it, is bold."
    closed, unseen, groups = metrics_in("closed"), metrics_in("open"), head_groups(table)
    told = explained([name for name in closed if name in table.values])
    caption = f"Classes that were trained on, test images. {words}"
    out: list[Block] = [number_table(table, closed, caption, "closed", heads, weak) for heads in groups]
    said = "The classes that were trained on are in [[closed]]"
    if any(name in table.values for name in unseen):
        caption = f"Classes nobody has seen. {words}"
        out += [number_table(table, unseen, caption, "open", heads, weak, told) for heads in groups]
        said += ", classes nobody has seen in [[open]]"
    if conclusions.rivals_of(table, champion):
        out += paired(table, champion)
        said += f", differences of {champion} to each other head, seed by seed, in [[paired]]"
    return [Lead(f"{said}."), *out]


def seeds_words(table: Table) -> str:
    """What the cells of a table of numbers are."""
    counts = {head: len(found) for head, found in table.seeds.items()}
    if max(counts.values()) == 1:
        return "One seed."
    every = set(counts.values())
    told = counted(every.pop(), "seed") if len(every) == 1 else ", ".join(f"{h}: {n}" for h, n in counts.items())
    return f"Mean ± standard deviation over seeds ({told})."


INTERVALS = 3  # columns of differences that have room beside each other


def paired(table: Table, head: str) -> list[Block]:
    """Differences of one head to the others, seed by seed, a few heads to a table."""
    names, every = conclusions.judged_metrics(table), conclusions.rivals_of(table, head)
    out: list[Block] = []
    for start in range(0, len(every), INTERVALS):
        others = every[start : start + INTERVALS]
        rows = [[gap_label(n), *(conclusions.gap_text(table, n, head, o, unit=False) for o in others)] for n in names]
        strong = frozenset(
            (i, 1 + j)
            for (i, n), (j, o) in itertools.product(enumerate(names), enumerate(others))
            if conclusions.verdict(table, n, head, o) != "open"
        )
        caption = (
            f"{head} minus each other head, over the same seeds: mean and 95 % interval, taken before rounding (no "
            "p-value is claimed from so few seeds). Bold: the interval leaves 0 out."
        )
        out.append(TableRows([f"{head} minus", *others], rows, caption, strong, "paired"))
    return out


def gap_label(name: str) -> str:
    """What a difference is of, with its unit."""
    unit = {"%": " (points)", "°": " (°)", "": ""}[METRICS[name].unit]
    return METRICS[name].label + unit


MOST_CLASSES = 200  # rows of the table of classes


def per_class(about: Subject) -> list[Block]:
    """Recall and precision of each class under the champion."""
    head = about.champion
    found = [run.metrics.get("classes", []) for run in about.runs[head]]
    matrix = summed_confusion(about.runs[head])
    if not all(found) or matrix is None:
        return []
    rows = class_rows(head, found, matrix, about.embeddings(head).names)
    return [Heading("Appendix: class by class"), Lead(f"[[classes]] is of {head}."), rows]


def summed_confusion(runs: list[Run]) -> Int[np.ndarray, "c c"] | None:
    """What was taken for what, counted over all these runs; nothing where one of them has not kept it."""
    matrices = [run.metrics.get("confusion", []) for run in runs]
    return np.sum(matrices, axis=0) if all(matrices) and len({len(one) for one in matrices}) == 1 else None


def class_rows(head: str, found: list[list[dict]], matrix: np.ndarray, names: Sequence[str]) -> TableRows:
    """A row per class, from what every run says of its classes; of very many classes the least often found.

    `matrix` counts over all runs what was taken for what, of the classes `names`.
    """

    def mean(i: int, key: str) -> float:
        return float(np.mean([many[i][key] for many in found if i < len(many)]))

    recalls = [mean(i, "recall") for i in range(len(found[0]))]
    order, present = list(range(len(recalls))), np.flatnonzero(matrix.sum(axis=1))
    caption = f"Per class under {head}, means over seeds."
    if len(found) > 1:
        caption = f"Per class under {head}, means over {len(found)} seeds; the last column counts over all of them."
    if len(recalls) > MOST_CLASSES:
        order = np.argsort(recalls, kind="stable")[:MOST_CLASSES].tolist()
        caption += f" The {MOST_CLASSES} of {len(recalls):,} classes that are found least often."
    rows = [
        [row["name"], f"{row['n']:,}", f"{recalls[i]:.2%}", f"{mean(i, 'precision'):.2%}",
         mistaken_words(matrix[present[i]], int(present[i]), names)]
        for i, row in ((i, found[0][i]) for i in order)
    ]  # fmt: skip
    columns = ["class", "test images", "recall", "precision", "most often taken for (times)"]
    return TableRows(columns, rows, caption, name="classes")


LISTED_EQUALS = 3  # classes that are named where a class is taken for them equally often


def mistaken_words(row: np.ndarray, own: int, names: Sequence[str]) -> str:
    """What a class is taken for most often, with how many times; equals are named together, many of them counted.

    >>> mistaken_words(np.array([9, 2, 0, 2]), 0, "abcd"), mistaken_words(np.array([0, 9]), 1, "ab")
    ('b and d (2)', '-')
    """
    wrong = np.where(np.arange(len(row)) == own, 0, row)
    most = int(wrong.max())
    if not most:
        return "-"
    equals = [names[int(i)] for i in np.flatnonzero(wrong == most)]
    return (listed(equals) if len(equals) <= LISTED_EQUALS else f"{len(equals)} classes alike") + f" ({most:,})"


def dunn(about: Subject) -> list[Block]:
    """All variants, and for the published experiment which of them comes near its numbers."""
    table = about.table
    out: list[Block] = [
        Paragraph(
            "Dunn's index is the smallest distance between classes over the largest extent of a class. There are "
            "many of them: between classes the nearest members or the centroids; inside a class its diameter, its "
            "radius or the mean distance to the centroid; Euclidean on x as it is, Euclidean on x/|x| (unit), cosine "
            "or angle. Of each class the 95 % of members nearest to the centroid are kept, and the centroid is taken "
            "again. Indices of different variants cannot be compared, and neither can raw distances of a linear head "
            "with those of a normalised one: the rows on x/|x| (unit) can. All of them are in [[variants]]."
        )
    ]
    variants = {
        f"{a} / {b} / {distance}": name
        for a, b in BETWEEN_INSIDE
        for distance in clusters.DISTANCES
        if (name := dunn_name(a, b, distance)) in table.values
    }
    for heads in head_groups(table):
        rows = [[words, *(table.cell(name, head) for head in heads)] for words, name in variants.items()]
        caption = f"Every variant, test images. {seeds_words(table)}"
        out.append(TableRows(["between / inside / distance", *heads], rows, caption, name="variants"))
    return out


class NearPublished(NamedTuple):
    """A variant at the epoch at which it comes nearest to both published numbers; `off` is the worse factor."""

    variant: str
    epoch: int
    softmax: float
    normface: float
    off: float


def near_published(about: Subject) -> list[NearPublished]:
    """The variants that pass near both published numbers, the nearest first; none but for that experiment."""
    plain, normal = about.heads_named("softmax"), about.heads_named("normface")
    if not is_published(about) or not plain or not normal:
        return []
    soft, norm = about.dunn_series(plain[0]), about.dunn_series(normal[0])
    if not soft or not norm:
        return []
    found = []
    for (a, b), d in itertools.product(BETWEEN_INSIDE, (*clusters.DISTANCES, "native")):
        first, second = (dunn_name(a, b, other if d == "native" else d) for other in ("euclidean", "unit"))
        for epoch in range(1, min(len(soft[0]), len(norm[0]))):
            u, v = (float(np.mean([run[epoch][n] for run in many])) for n, many in ((first, soft), (second, norm)))
            if u > 0 and v > 0 and np.isfinite([u, v]).all():
                miss = max(abs(math.log(u / PUBLISHED[0][0])), abs(math.log(v / PUBLISHED[1][0])))
                found.append(NearPublished(f"{a} / {b} / {d}", epoch, u, v, math.exp(miss)))
    best: dict[str, NearPublished] = {}
    for entry in sorted(found, key=lambda entry: entry.off):
        best.setdefault(entry.variant, entry)
    return list(best.values())


def published(about: Subject) -> list[Block]:
    """Which variants pass near both published numbers, and when."""
    rows = [
        [near.variant, str(near.epoch), f"{near.softmax:.2f}", f"{near.normface:.2f}", f"{near.off:.2f}x"]
        for near in near_published(about)[:6]
    ]
    if not rows:
        return []
    plain, normal = about.heads_named("softmax")[0], about.heads_named("normface")[0]
    return [
        Heading("Appendix: the published pair"),
        Paragraph(
            "The document that this experiment comes from gives 5.31 for softmax and 29.11 for NormFace and says "
            "neither which variant it took nor how long it trained, and its NormFace has no scale. Nothing was tuned "
            f"to hit the pair. [[published]] lists the variants of {plain} and {normal} that come nearest "
            "to both at one epoch (native: Euclidean on x for softmax, on x/|x| for NormFace); the last column is "
            "the factor by which the worse of the two is off."
        ),
        TableRows(
            ["variant", "epoch", "softmax", normal, "off by"],
            rows,
            "Nearest to the published pair 5.31 / 29.11.",
            name="published",
        ),
    ]


def accuracy_words(table: Table) -> str:
    """How far apart the heads' accuracies are, and whether that is told."""
    means = [float(f"{in_unit('accuracy', table.spread('accuracy', head).mean):.2f}") for head in table.several]
    apart = max(means) - min(means)
    said = f"On classes that were trained on, mean accuracies lie within {apart:.2f} points of each other"
    gaps = [table.difference("accuracy", a, b) for a, b in itertools.combinations(table.several, 2)]
    if any(gap.clear for gap in gaps):
        return f"{said}, and for some pairs of heads the interval of the difference leaves 0 out."
    ends = [abs(end) for gap in gaps for end in (gap.low, gap.high) if gap.n > 1 and math.isfinite(end)]
    if not ends:
        return f"{said}; one seed does not tell which head is right more often."
    return (
        f"{said}, and no interval of a difference leaves 0 out. That does not make them equal: which head is right "
        f"more often is not told, and the intervals reach to differences of {100 * max(ends):.2f} points."
    )


def discussion(about: Subject) -> list[Block]:
    """What the spread says, and what was not measured."""
    table = about.table
    several = table.several
    out = [accuracy_words(table)] if "accuracy" in table.values and len(several) > 1 else []
    if "angle-own" in table.values and len(several) > 1:
        tight, wide = table.best("angle-own"), table.best("angle-closest")
        out.append(
            f"By the means, classes are tightest under {tight} ({table.cell('angle-own', tight)} degrees to the class "
            f"mean) and furthest apart under {wide} (closest means {table.cell('angle-closest', wide)} degrees, "
            f"{100 * table.spread('packing', wide).mean:.1f} % of what {about.dim} dimensions allow)."
        )
    if "unseen-auc" in table.values:
        best = table.best("unseen-auc")
        which = f"the best mean AUC over pairs is {table.cell('unseen-auc', best)} % ({best})"
        out.append(
            f"On classes nobody has seen {which if len(several) > 1 else which.replace('best mean ', '')}. "
            + (
                "So few dimensions are chosen to be looked at; they leave little room for new classes."
                if about.dim <= 3
                else ""
            )
        )
    changed = image_changes(about.config.data)
    by_chance = ", the order and the changes to images" if changed else " and the order of images"
    out.append(
        "All numbers are of one data set and one network; a conclusion here is about these. Seeds change the first "
        f"weights{by_chance}, not the split of the data."
    )
    return [Paragraph(text.strip()) for text in out]


def run_groups(about: Subject) -> dict[str, dict[str, list[Run]]]:
    """Every run that the report speaks of, by what it is there for and by head; each once."""
    groups = {"": about.runs}
    groups |= {f" of {head} alone": {head: many} for head, many in about.aside.items()}
    if about.sweep and {run.path for many in about.sweep.values() for run in many} != {
        run.path for many in about.runs.values() for run in many
    }:
        groups[" over s and m"] = about.sweep
    if about.imbalanced is not None:
        groups[" on classes of unequal size"] = {about.imbalanced.head.label: [about.imbalanced]}
    return groups


def runs_words(about: Subject) -> str:
    """How many runs the report rests on."""
    counts = {words: sum(map(len, many.values())) for words, many in run_groups(about).items()}
    rest = [f"{n}{words}" for words, n in counts.items() if words]
    return counted(counts[""], "run") + (f", with {listed(rest)}" if rest else "")


def repeat(about: Subject) -> list[Block]:
    """The commands, versions and seeds."""
    run = about.first.about
    versions = ", ".join(f"{name} {version}" for name, version in run.get("versions", {}).items())
    seeds = sorted({seed for found in about.table.seeds.values() for seed in found})
    commands = [repeat_command(runs) for runs in run_groups(about).values()]
    if given := about.first.given:
        objects = ", ".join(f"{name}={kind}" for name, kind in given.items())
        commands = [f"arcwise.train(..., {objects})  # objects that were handed over, with the settings of config.json"]
    return [
        Code("\n".join(commands)),
        Paragraph(
            f"Versions: {versions}. Seeds: {', '.join(map(str, seeds))}. "
            + (f"Commit: {run['commit']}. " if run.get("commit") else "")
            + "The measured numbers of the tables are in the JSON file beside this report, with those of every seed, "
            "the counts of images, what was taken for what, and the biases; what figures alone show (curves, "
            "histograms, single images) is in figures/."
        ),
    ]


def repeat_command(runs: dict[str, list[Run]]) -> str:
    """The command that makes these runs: their recipe, heads and seeds, and what was changed in the recipe.

    Runs of heads that had more seeds than others are made by it too.
    """
    config = next(iter(runs.values()))[0].settings
    heads = ",".join(head_as_given(found[0]) for found in runs.values())
    if sum(map(len, runs.values())) == 1:
        words = ["arcwise", "train", config.recipe, "--head", heads, "--seed", str(config.seed)]
    else:
        words = ["arcwise", "compare", config.recipe, "--heads", heads, "--seeds", str(max(map(len, runs.values())))]
    words += ["--init", config.init] if config.init else []
    known = recipe(config.recipe).flat() if config.recipe in RECIPES else {}
    for key, value in config.flat().items():
        if known.get(key) != value and not key.startswith("head.") and key not in ("seed", "recipe", "init"):
            words += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return fold_command(shlex.join(words))


def head_as_given(run: Run) -> str:
    """The head as the comparison that trained it was given it, where that says the same in its recipe; else in full."""
    known, comparison = run.settings, Comparison(run.path.parent)
    if comparison.exists() and known.recipe in RECIPES:
        for head in comparison.heads:
            if folder_name(head, known.seed) == run.path.name:
                again = override(recipe(known.recipe), [f"head.name={head}"]).head
                same = (again.m, again.k, again.gradient) == (known.head.m, known.head.k, known.head.gradient)
                if same and again.s in (None, known.head.s):
                    return head
    return str(known.head.spec)


UNBROKEN = r"""(?:'[^']*'|"[^"]*"|[^, '"])+"""  # what is quoted cannot be broken


def fold_command(command: str, width: int = 84) -> str:
    """A long command over several lines, broken after commas and before options, as a shell joins it again.

    >>> print(fold_command("arcwise train mnist --set train.epochs=5", 36))
    arcwise train mnist \\
    --set train.epochs=5
    """
    lines = [""]
    for piece in re.findall(rf"--\S+ {UNBROKEN},?|{UNBROKEN},?|[ ,]", command):
        if len(lines[-1]) + len(piece) > width:
            lines[-1] += "\\"
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)
