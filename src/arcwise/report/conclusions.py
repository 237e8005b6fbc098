"""Sentences that are computed from a table: who is better at what, by how much, and where nothing was shown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from arcwise.metrics.summary import (
    MAIN_DUNN,
    METRICS,
    digits_shown,
    headline_metrics,
    in_unit,
    metrics_in,
    number_text,
)
from arcwise.report.words import listed
from arcwise.study.table import Table

# The numbers of page one: as many as have room, of those that the runs have.
FIRST = ("accuracy", "angle-own", MAIN_DUNN, "open-auroc", "unseen-auc", "angle-closest", "pairs-eer")
ROOM = 5


def first_metrics(table: Table) -> list[str]:
    """The numbers of page one."""
    return finite_metrics(table, FIRST)[:ROOM]


def judged_metrics(table: Table) -> list[str]:
    """The numbers that heads are judged by, those of page one among them, where every run has them and finite."""
    wanted = {*headline_metrics(), *first_metrics(table)}
    return finite_metrics(table, [name for name in METRICS if name in wanted])


def other_metrics(table: Table) -> list[str]:
    """The numbers that the tables of the results have beside those that heads are judged by."""
    judged = judged_metrics(table)
    return [name for name in finite_metrics(table, metrics_in("closed", "open")) if name not in judged]


def finite_metrics(table: Table, names: Sequence[str]) -> list[str]:
    """Those of these numbers that every run has and that are finite."""
    return [
        name
        for name in names
        if name in table.values and all(math.isfinite(v) for many in table.values[name].values() for v in many)
    ]


def rivals_of(table: Table, head: str) -> list[str]:
    """The other heads that have at least two seeds in common with this one: with fewer nothing can be judged."""
    seeds = set(table.seeds[head])
    return [other for other in table.heads if other != head and len(seeds & set(table.seeds[other])) > 1]


def answer(table: Table, head: str, names: list[str]) -> list[str]:
    """What the numbers say, in two sentences: where the head is clearly better than all others, and where it is not."""
    if len(table.heads) == 1:
        return lone_answer(table, head, names)
    table, rivals = judged_together(table, head)
    if not rivals:
        return [nothing_judged(table, head, "nothing"), best_sentence(table, names)]
    verdicts = {name: [verdict(table, name, head, other) for other in rivals] for name in names}
    clear = [name for name in names if set(verdicts[name]) == {"better"}]
    whom = " and ".join(rivals) if len(rivals) <= 2 else f"all {len(rivals)} others"
    if clear:
        what = "; ".join(beside(table, name, head, rivals) for name in clear)
        first = f"{capital(head)} is clearly better than {whom} in {what}."
    else:
        first = f"None of these numbers shows {head} to be clearly better than {whom}."
    silent = [name for name in names if set(verdicts[name]) == {"open"}]
    rest = [part_answer(table, name, head, rivals) for name in names if name not in (*clear, *silent)]
    if silent:
        rest.append(f"no difference is shown in {listed_words([short_words(name) for name in silent])}")
    return [first] + ([f"{capital('; '.join(rest))}."] if rest else [])


def judged_together(table: Table, head: str) -> tuple[Table, list[str]]:
    """A head and the rivals that share two seeds or more with it and with each other, over just these seeds."""
    together = [head]
    for other in sorted(
        rivals_of(table, head), key=lambda other: -len(set(table.seeds[other]) & set(table.seeds[head]))
    ):
        if len(table.shared([*together, other]).seeds[head]) > 1:
            together.append(other)
    rivals = [other for other in table.heads if other in together[1:]]
    return (table.shared([head, *rivals]), rivals) if rivals else (table, [])


def nothing_judged(table: Table, head: str, what: str) -> str:
    """Why a head is not judged."""
    if max(len(seeds) for seeds in table.seeds.values()) < 2:
        return f"With one seed {what} can be judged: another seed may turn it round."
    return f"{capital(head)} shares fewer than two seeds with any other head, so {what} can be judged of it."


def part_answer(table: Table, name: str, head: str, rivals: list[str]) -> str:
    """What one number says where it does not speak for the head against everybody."""
    by = {kind: [o for o in rivals if verdict(table, name, head, o) == kind] for kind in ("better", "worse", "open")}
    said = [f"it is {kind} than {rivals_words(by[kind])}" for kind in ("better", "worse") if by[kind]]
    what = beside(table, name, head, rivals)
    return f"in {what} {' and '.join(said)}" + (", no more is shown" if by["open"] else "")


LISTED_RIVALS = 4  # other heads that are listed one by one


def rivals_words(names: list[str]) -> str:
    """Other heads by name, or how many they are."""
    return " and ".join(names) if len(names) <= LISTED_RIVALS else f"{len(names)} others"


def beside(table: Table, name: str, head: str, rivals: list[str]) -> str:
    """A number of a head beside those of others, of more than two beside the best."""
    means = {other: table.spread(name, other).mean for other in (head, *rivals)}
    others = " and ".join(number_text(name, means[other]) for other in rivals)
    if len(rivals) > 2:
        best = (max if METRICS[name].better == "higher" else min)(rivals, key=means.__getitem__)
        others = f"{number_text(name, means[best])} of {best}, the best other"
    return f"{short_words(name)} ({number_text(name, means[head])} against {others})"


def lone_answer(table: Table, head: str, names: list[str]) -> list[str]:
    """The numbers of the only head there is."""
    said = [f"{short_words(name)} {number_text(name, table.spread(name, head).mean)}" for name in names]
    seeds = len(table.seeds[head])
    rest = "One seed: another may give other numbers." if seeds == 1 else f"Means over {seeds} seeds."
    return [f"{capital('; '.join(said))}.", rest] if said else [rest]


def listed_words(words: list[str]) -> str:
    """Words in a row; those with a comma of their own are parted by semicolons.

    >>> listed_words(["a", "b", "c"])
    'a, b and c'
    """
    return listed(words, "; " if any("," in word for word in words) else ", ")


def short_words(name: str) -> str:
    """What a number says, in few words of a sentence."""
    return in_sentence(METRICS[name].short or METRICS[name].label)


def label_words(name: str) -> str:
    """What a number says, as words of a sentence."""
    return in_sentence(METRICS[name].label)


def in_sentence(label: str) -> str:
    """A label without its colon.

    >>> in_sentence("all pairs: equal error rate"), in_sentence("Dunn: nearest, diameter, unit")
    ('equal error rate of all pairs', 'Dunn index (nearest, diameter, unit)')
    """
    whose, colon, what = label.partition(": ")
    if not colon:
        return label
    return f"{whose} index ({what})" if whose.endswith("Dunn") else f"{what} of {whose}"


def capital(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def verdict(table: Table, name: str, head: str, other: str) -> str:
    """ "better", "worse" or "open": whether the 95 % interval of the paired difference leaves 0 out."""
    gap = table.difference(name, head, other)
    if not gap.clear:
        return "open"
    return "better" if (gap.mean > 0) == (METRICS[name].better == "higher") else "worse"


MOST_DIGITS = 6


def gap_text(table: Table, name: str, head: str, other: str, *, unit: bool = True) -> str:
    """A paired difference as text, with its interval."""
    gap = table.difference(name, head, other)
    words = {"%": " points", "°": "°", "": ""}[METRICS[name].unit] if unit else ""
    shown = [in_unit(name, value) for value in (gap.mean, gap.low, gap.high)]
    digits = max(2, digits_shown(name, max((abs(value) for value in shown if math.isfinite(value)), default=0.0)))
    while gap.clear and digits < MOST_DIGITS and any(value and not round(value, digits) for value in shown):
        digits += 1  # an interval that leaves 0 out is not to end in a rounded one
    mean, low, high = (signed(value, digits) for value in shown)
    if gap.n < 2:
        return f"{mean}{words} (one seed, no interval)"
    if gap.equal and gap.mean:
        return f"{mean}{words} (the same for all {gap.n} seeds, no interval)"
    return f"{mean}{words} [{low}, {high}]"


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign, of which a zero has none.

    >>> signed(0.123), signed(-0.001), signed(-0.001, 3)
    ('+0.12', '0.00', '-0.001')
    """
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def sentences(table: Table, head: str) -> list[str]:
    """The conclusion on one head: one paragraph per rival, then what it amounts to."""
    names = judged_metrics(table)
    rivals = rivals_of(table, head)
    if len(table.heads) == 1:
        return ["One head was trained, so there is nothing to compare it with."]
    if not rivals:
        return [nothing_judged(table, head, "no difference"), best_sentence(table, names)]
    out, tally = [], {"better": 0, "worse": 0, "open": 0}
    for other in rivals:
        by = {kind: [n for n in names if verdict(table, n, head, other) == kind] for kind in tally}
        tally = {kind: tally[kind] + len(by[kind]) for kind in tally}
        parts = [
            f"{words} in {'; '.join(f'{label_words(n)} ({gap_text(table, n, head, other)})' for n in by[kind])}"
            for kind, words in (("better", f"{head} is better than {other}"), ("worse", "it is worse"))
            if by[kind]
        ]
        if by["open"]:
            parts.append(f"no difference is shown in {'; '.join(map(label_words, by['open']))}")
        text = ". ".join(part[0].upper() + part[1:] for part in parts)
        if not by["better"] and text:
            text = f"{head} against {other}: {text[0].lower()}{text[1:]}"
        out.append(text + ".")
    out += [
        f"{other} shares fewer than two seeds with {head} and is not judged."
        for other in table.heads
        if other not in (head, *rivals)
    ]
    out.append(overall(table, head, rivals, tally))
    out += rest_sentence(table, head, rivals)
    out.append(best_sentence(table, names))
    return out


def rest_sentence(table: Table, head: str, rivals: list[str]) -> list[str]:
    """What the numbers say that the tables of the results have and the differences do not; nothing without any."""
    names = other_metrics(table)
    every = {(n, o): verdict(table, n, head, o) for n in names for o in rivals}
    if not every:
        return []
    worse = list(dict.fromkeys(n for (n, _), said in every.items() if said == "worse"))
    where = " and ".join(
        f"[[{part}]]" for part in ("closed", "open") if any(n in table.values for n in metrics_in(part))
    )
    counts = {kind: sum(said == kind for said in every.values()) for kind in ("better", "worse")}
    return [
        f"Of the {len(every)} differences in the other rows of {where} it was clearly better in "
        f"{counts['better']} and clearly worse in {counts['worse']}"
        + (f": {'; '.join(map(label_words, worse))}." if worse else ".")
    ]


def overall(table: Table, head: str, rivals: list[str], tally: dict[str, int]) -> str:
    """What the verdicts amount to."""
    total = sum(tally.values())
    seeds = min(len(set(table.seeds[head]) & set(table.seeds[other])) for other in rivals)
    verb = "won most of them" if tally["better"] > total / 2 else "did not win most of them"
    return (
        f"Of the {total} differences in [[paired]], {head} was clearly better in {tally['better']}, clearly worse in "
        f"{tally['worse']}, and in {tally['open']} the 95 % interval includes 0: it {verb}. They are not independent: "
        "they share runs, and some numbers, and some heads, are much alike. "
        f"With {seeds} seeds an interval is wide, and where it includes 0 there may be a difference too small for so "
        "few runs."
    )


def best_sentence(table: Table, names: list[str]) -> str:
    """Which head has the best mean in what, of those of several seeds, over the seeds that these share."""
    best: dict[str, list[str]] = {}
    shared = table.shared(table.several)
    table = shared if shared.seeds[shared.heads[0]] else table
    for name in names:
        means = {head: number_text(name, table.spread(name, head).mean) for head in table.several}
        top = means[table.best(name)]
        equals = listed_words([head for head, mean in means.items() if mean == top])
        best.setdefault(equals, []).append(f"{label_words(name)} ({top})")
    alone = max(len(seeds) for seeds in table.seeds.values()) < 2
    return (
        ("In this one seed" if alone else "By the mean over seeds alone,")
        + " the best were: "
        + ". ".join(f"{capital(head)} in {'; '.join(what)}" for head, what in best.items())
        + "."
    )
