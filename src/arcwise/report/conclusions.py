"""Sentences that are computed from a table: who is better at what, by how much, and where nothing was shown."""

from __future__ import annotations

import math

from arcwise.metrics.summary import METRICS, headline_metrics, in_unit, number_text
from arcwise.study.table import Table


def judged_metrics(table: Table) -> list[str]:
    """The numbers that heads are judged by, of those that every run has and that are finite."""
    return [
        name
        for name in headline_metrics()
        if name in table.values and all(math.isfinite(v) for many in table.values[name].values() for v in many)
    ]


def verdict(table: Table, name: str, head: str, other: str) -> str:
    """ "better", "worse" or "open": whether the 95 % interval of the paired difference leaves 0 out."""
    gap = table.difference(name, head, other)
    if not gap.clear:
        return "open"
    return "better" if (gap.mean > 0) == (METRICS[name].better == "higher") else "worse"


def gap_text(table: Table, name: str, head: str, other: str) -> str:
    """A paired difference as text, with its interval."""
    gap = table.difference(name, head, other)
    unit = {"%": " points", "°": "°", "": ""}[METRICS[name].unit]
    mean, low, high = (signed(in_unit(name, value)) for value in (gap.mean, gap.low, gap.high))
    if gap.n < 2:
        return f"{mean}{unit} (one seed, no interval)"
    return f"{mean}{unit} [{low}, {high}]"


def signed(value: float) -> str:
    """A difference with its sign, of which a zero has none.

    >>> signed(0.123), signed(-0.001)
    ('+0.12', '0.00')
    """
    text = f"{value:+.2f}"
    return text if float(text) else text[1:]


def sentences(table: Table, head: str) -> list[str]:
    """The conclusion on one head: one paragraph per rival, then what it amounts to."""
    names = judged_metrics(table)
    rivals = [other for other in table.heads if other != head]
    if not rivals:
        return ["One head was trained, so there is nothing to compare it with."]
    if min(map(len, table.seeds.values())) < 2:
        return [
            "With one seed no difference can be judged: another seed may turn it round.",
            best_sentence(table, names),
        ]
    out, tally = [], {"better": 0, "worse": 0, "open": 0}
    for other in rivals:
        by = {kind: [n for n in names if verdict(table, n, head, other) == kind] for kind in tally}
        tally = {kind: tally[kind] + len(by[kind]) for kind in tally}
        parts = [
            f"{words} in {'; '.join(f'{METRICS[n].label} ({gap_text(table, n, head, other)})' for n in by[kind])}"
            for kind, words in (("better", f"{head} is better than {other}"), ("worse", "it is worse"))
            if by[kind]
        ]
        if by["open"]:
            parts.append(f"no difference is shown in {'; '.join(METRICS[n].label for n in by['open'])}")
        text = ". ".join(part[0].upper() + part[1:] for part in parts)
        if not by["better"] and text:
            text = f"{head} against {other}: {text[0].lower()}{text[1:]}"
        out.append(text + ".")
    out.append(overall(table, head, tally))
    out.append(best_sentence(table, names))
    return out


def overall(table: Table, head: str, tally: dict[str, int]) -> str:
    """What the verdicts amount to."""
    total, seeds = sum(tally.values()), min(map(len, table.seeds.values()))
    verb = "won most of them" if tally["better"] > total / 2 else "did not win most of them"
    return (
        f"Of {total} comparisons {head} was clearly better in {tally['better']}, clearly worse in {tally['worse']}, "
        f"and in {tally['open']} the 95 % interval of the paired difference includes 0: it {verb}. With {seeds} "
        f"seed{'s' if seeds != 1 else ''} an interval is wide, and what is called open here may be a difference too "
        "small for so few runs."
    )


def best_sentence(table: Table, names: list[str]) -> str:
    """Which head has the best mean in what."""
    best: dict[str, list[str]] = {}
    for name in names:
        means = {head: number_text(name, table.spread(name, head).mean) for head in table.heads}
        top = means[table.best(name)]
        equals = " and ".join(head for head, mean in means.items() if mean == top)
        best.setdefault(equals, []).append(f"{METRICS[name].label} ({top})")
    return (
        "By the mean over seeds alone, the best were: "
        + "; ".join(f"{head} in {', '.join(what)}" for head, what in best.items())
        + "."
    )
