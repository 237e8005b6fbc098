"""The section on scale and margin: a sweep at equal s, at the best s of each, what a small s gives and costs."""

from __future__ import annotations

import math

from arcwise.figures.sweep import sweep_lines
from arcwise.metrics.spread import difference
from arcwise.metrics.summary import MAIN_DUNN, MEAN_DUNN, METRICS
from arcwise.report import conclusions
from arcwise.report.blocks import Block, Formula, Heading, Lead, Paragraph, TableRows
from arcwise.study.subject import Subject, scale_and_margin


def sweep(about: Subject, drawn: list[Block]) -> list[Block]:
    """Heads at equal s, and each at its own best s."""
    table = about.sweep_table
    if table is None or not sweep_lines(about, MAIN_DUNN):
        return []
    out: list[Block] = [
        Heading("Scale and margin"),
        *drawn,
        Lead("[[equal-s]] compares margins at equal s, [[best-s]] each at its own best s."),
    ]
    name = MAIN_DUNN
    lines = {line.label: line for line in sweep_lines(about, name)}
    scales = sorted({pair[0] for head in table.heads if (pair := scale_and_margin(about.specs[head]))})
    rows = [
        [
            f"s = {s:g}",
            *(f"{line.values[:, list(line.s).index(s)].mean():.2f}" if s in line.s else "-" for line in lines.values()),
        ]
        for s in scales
    ]
    out.append(
        TableRows(
            ["", *lines],
            rows,
            f"{METRICS[name].label}, test images: every margin at equal s (means over seeds).",
            name="equal-s",
        )
    )
    out.append(best_scales(about))
    out += [Paragraph(text) for text in sweep_sentences(about)]
    return [*out, *small_scale(about)]


def best_scales(about: Subject) -> TableRows:
    """For each margin and number the s with the best mean, and that mean."""
    names = (MAIN_DUNN, MEAN_DUNN, "accuracy", "unseen-auc", "open-auroc")
    table = about.sweep_table
    assert table is not None
    rows = []
    for name in (n for n in names if n in table.values):
        row = [METRICS[name].label]
        for line in sweep_lines(about, name):
            means = line.values.mean(axis=0)
            best = int(means.argmax() if METRICS[name].better == "higher" else means.argmin())
            unit = {"%": " %", "°": "°", "": ""}[METRICS[name].unit]
            row.append(f"{means[best]:.2f}{unit} at s = {line.s[best]:g}")
        rows.append(row)
    return TableRows(
        ["", *(line.label for line in sweep_lines(about, names[0]))],
        rows,
        "Every margin at its own best s.",
        name="best-s",
    )


def sweep_sentences(about: Subject) -> list[str]:
    """Where the margin wins and where it does not, from the numbers."""
    table = about.sweep_table
    assert table is not None
    out = []
    for name in (MAIN_DUNN, "accuracy", "unseen-auc"):
        lines = sweep_lines(about, name) if name in table.values else []
        if len(lines) < 2:
            continue
        base, top = lines[0], lines[-1]
        both = [(base.values[:, i], top.values[:, list(top.s).index(s)]) for i, s in enumerate(base.s) if s in top.s]
        up = METRICS[name].better == "higher"
        wins = sum(bool(v.mean() > u.mean()) == up and v.mean() != u.mean() for u, v in both)
        sure = sum(bool(v.min() > u.max() if up else v.max() < u.min()) for u, v in both)
        label = conclusions.capital(conclusions.label_words(name))
        out.append(
            f"{label}: at equal s the largest margin ({top.label}) has the better mean than {base.label} at {wins} of "
            f"{len(both)} scales, and all its seeds are on the better side of all of the other's at {sure} of them."
        )
        low, high = base.values[:, 0].mean(), top.values[:, -1].mean()
        if name == MAIN_DUNN and low > high:
            out.append(
                f"Across scales it is another matter: {base.label} at s = {base.s[0]:g} ({low:.2f}) beats "
                f"{top.label} at s = {top.s[-1]:g} ({high:.2f}). So an index says little about a margin unless the "
                "scale is said too."
            )
    return [*out, *scale_sentences(about)]


def scale_sentences(about: Subject) -> list[str]:
    """What the smallest s gives and costs beside the largest, in what is judged, from paired seeds."""
    table = about.sweep_table
    assert table is not None
    told, silent = [], []
    for name in ("accuracy", "unseen-auc", "open-auroc"):
        lines = [line for line in sweep_lines(about, name) if len(line.s) > 1] if name in table.values else []
        gaps = [difference(line.values[:, 0].tolist(), line.values[:, -1].tolist()) for line in lines]
        if not gaps or min(gap.n for gap in gaps) < 2:
            continue
        up, words = METRICS[name].better == "higher", conclusions.short_words(name)
        better = sum(gap.clear and (gap.mean > 0) == up for gap in gaps)
        counts = {"better": better, "worse": sum(gap.clear for gap in gaps) - better}
        said = [f"clearly {kind} for {n} of {len(gaps)} margins" for kind, n in counts.items() if n]
        (told if said else silent).append(f"{words} is {' and '.join(said)}" if said else words)
    if silent:
        told.append(f"no difference is shown in {conclusions.listed_words(silent)}")
    scales = sorted({float(s) for line in sweep_lines(about, MAIN_DUNN) for s in line.s})
    if not told:
        return []
    return [
        f"What a small s gives and costs: at the smallest s (from {scales[0]:g}) beside the largest (up to "
        f"{scales[-1]:g}) {'; '.join(told)}, by the 95 % interval over paired seeds."
    ]


def small_scale(about: Subject) -> list[Block]:
    """Why a small s keeps pulling: the least that the loss can be, of these classes."""
    c = len(about.embeddings(about.heads[0]).names)
    if c < 2:
        return []
    scales = sorted({float(s) for line in sweep_lines(about, MAIN_DUNN) for s in line.s})
    low, high = scales[0], scales[-1]
    many = floor_of(100 * c, low)
    return [
        Formula(
            r'L >= log(1 + (c - 1) e^(-s c \/ (c - 1)))',
            "Why a small s keeps pulling: over c classes of equal size, NormFace's mean loss has a floor that no "
            "embedding gets under (Wang et al. 2017), and a margin can only raise it:",
        ),
        Paragraph(
            f"With {c:,} classes the floor is {floor_text(floor_of(c, low))} at s = {low:g} and "
            f"{floor_text(floor_of(c, high))} at s = {high:g}. Where the loss stays far from 0, every sample goes on "
            "being drawn to its centre; where it comes near 0, samples rest where they are, unless a margin takes the "
            f"sureness away. The more classes, the higher the floor: with {100 * c:,} it is {floor_text(many)} at s = "
            f"{low:g}, where guessing costs {floor_text(math.log(100 * c))}."
        ),
    ]  # fmt: skip


def floor_text(loss: float) -> str:
    """A loss as a person reads it.

    >>> floor_text(5.23), floor_text(8e-9)
    ('5.23', 'nearly 0')
    """
    return f"{loss:.2f}" if loss >= 0.005 else "nearly 0"


def floor_of(c: int, s: float) -> float:
    """The least mean loss of NormFace over c classes of equal size (Wang et al. 2017).

    >>> round(floor_of(2, 1.0), 4)
    0.1269
    """
    return math.log1p((c - 1) * math.exp(-s * c / (c - 1)))
