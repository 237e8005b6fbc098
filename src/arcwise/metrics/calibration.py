"""A threshold for a wanted rate of false acceptance, with an interval over identities, or why they are too few.

Pairs that share an identity are not independent: a few people whom many others look like decide the rate. So every pair
of identities counts the same, however many images they have, and the interval asks what other identities would have
given, not other pairs of these.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from arcwise.errors import ArcwiseError, number_in
from arcwise.metrics.rows import ClassRows, UnitRows, admit_rows, by_class, directions, has_twins, row_blocks, unit_rows
from arcwise.metrics.spread import student
from arcwise.records import CalibratedThreshold, Embeddings

LEAST_IDENTITIES = 10
LEAST_ACCEPTED = 10  # false acceptances that a threshold must rest on
BINS = 2**16
SLOTS = 5  # at most so many images of an identity are asked whom they match


class Threshold(NamedTuple):
    """A threshold on the cosine, and the rates of false and true acceptance it has on the identities at hand.

    `far_low` and `far_high` bound the rate on other identities of the same kind, `tar_low` and `tar_high` likewise.
    `evenness` says how evenly false acceptances are spread over people (`false_positive_rate`). `few` is set where
    identities were too few and somebody wanted a threshold all the same.
    """

    value: float
    far: float
    far_low: float
    far_high: float
    tar: float
    tar_low: float
    tar_high: float
    identities: int
    images: int
    impostors: int
    genuine: int
    evenness: float
    few: bool = False


class Interval(NamedTuple):
    """A number and the 95 % interval it has over identities."""

    value: float
    low: float
    high: float


def threshold_for(embeddings: Embeddings, far: float, *, few_identities: bool = False) -> Threshold:
    """The lowest threshold whose FAR over pairs of identities is at most `far`.

    FAR(t) = mean over pairs i < j of identities of h_ij(t), the share of their pairs of images with cosine >= t. The
    interval is exp(log FAR -+ t_{k-1} se) with se by deleting one identity at a time (Arvesen 1969, for means over
    pairs) and Student's t for k = (sum r)^2 / sum r^2 identities that count, r_i = sum_j h_ij.

    >>> random = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(40), 5)
    >>> x = random.standard_normal((40, 16))[y] + random.standard_normal((200, 16))
    >>> found = threshold_for(Embeddings(x, y), 0.01)
    >>> round(found.far, 4), found.far_low < 0.01 < found.far_high
    (0.01, True)
    """
    far = number_in("far", far, 1e-12, 0.5)
    if not isinstance(embeddings, Embeddings):
        raise ArcwiseError(f"a threshold is found from labelled embeddings, not from {type(embeddings).__name__}.")
    admit_rows(embeddings, classes=2)
    people = People.of(embeddings)
    pairs = people.identities * (people.identities - 1) // 2
    reason = too_few(people.sizes, far)
    if reason and not few_identities:
        raise ArcwiseError(reason)
    value, accepted = accepted_at(people, far * pairs)
    rate, steady = false_rate(accepted.false, accepted.squares)
    if not steady and not few_identities:
        raise ArcwiseError(
            f"at FAR {far:g} the false acceptances are those of one identity and its likes: no interval can be given. "
            "Bring more identities, ask for a larger rate, or take it all the same with few_identities=True "
            "(--few-identities)."
        )
    true = mean_interval(accepted.true[people.sizes > 1])
    return Threshold(
        value, *rate, *true, people.identities, len(people.owner), people.impostors, people.genuine,
        evenness_of(accepted.matched, people.identities - 1), few=bool(reason) or not steady,
    )  # fmt: skip


def calibrated(
    embeddings: Embeddings, far: float, *, source: str, few_identities: bool = False
) -> CalibratedThreshold:  # fmt: skip
    """The record of `threshold_for`, to be kept beside the model whose embeddings these are; `source` says of whom.

    >>> random = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(40), 5)
    >>> x = random.standard_normal((40, 16))[y] + random.standard_normal((200, 16))
    >>> calibrated(Embeddings(x, y, model="my model"), 0.01, source="forty people").identities
    40
    """
    if not embeddings.model:
        raise ArcwiseError(
            "these embeddings do not say which model they are of: take those that arcwise.embed "
            "gives, or name it yourself, as in Embeddings(x, y, model='mine')."
        )
    t = threshold_for(embeddings, far, few_identities=few_identities)
    return CalibratedThreshold(
        far=far, cosine=t.value, far_found=t.far, far_low=t.far_low, far_high=t.far_high,
        tar=None if math.isnan(t.tar) else t.tar, tar_low=t.tar_low, tar_high=t.tar_high, identities=t.identities,
        images=t.images, impostor_pairs=t.impostors, genuine_pairs=t.genuine, evenness=t.evenness, source=source,
        date=time.strftime("%Y-%m-%dT%H:%M:%S%z"), model=embeddings.model, few_identities=t.few,
    )  # fmt: skip


class People(NamedTuple):
    """Directions sorted by identity, in float32, or split where rows repeat, and how many images each identity has."""

    x: UnitRows
    owner: Int[np.ndarray, " n"]
    sizes: Int[np.ndarray, " c"]

    @classmethod
    def of(cls, embeddings: Embeddings) -> People:
        """The rows of labelled embeddings."""
        rows: ClassRows = by_class(embeddings.x, embeddings.labels)
        unit = directions(rows.x)
        x = unit_rows(rows.x) if has_twins(unit) else UnitRows(unit.astype(np.float32))
        return cls(x, rows.owner, rows.sizes)

    @property
    def identities(self) -> int:
        """How many identities there are."""
        return len(self.sizes)

    @property
    def genuine(self) -> int:
        """Pairs of images of one identity."""
        return int((self.sizes * (self.sizes - 1) // 2).sum())

    @property
    def impostors(self) -> int:
        """Pairs of images of different identities."""
        n = len(self.owner)
        return n * (n - 1) // 2 - self.genuine

    def blocks(self) -> Iterator[PairTile]:
        """The cosines of all pairs of images, each once: some rows against those that come after their first."""
        n, rank = len(self.owner), np.arange(len(self.owner))
        for part in row_blocks(n, 4 * n):
            rest = slice(part.start, n)
            cos = self.x.take(part).cosines(self.x.take(rest)).astype(np.float32, copy=False)
            mine, theirs = self.owner[part, None], self.owner[None, rest]
            yield PairTile(part, rest, cos, mine < theirs, (mine == theirs) & (rank[part, None] < rank[None, rest]))


class PairTile(NamedTuple):
    """Cosines of some rows with some columns, and which of them are pairs of two identities, or of one."""

    rows: slice
    columns: slice
    cos: Float[np.ndarray, "r k"]
    impostor: Bool[np.ndarray, "r k"]
    genuine: Bool[np.ndarray, "r k"]


class Accepted(NamedTuple):
    """At a threshold, per identity: r_i, the share of its own pairs accepted; and, per image, whom it matches.

    `matched[a, s]` is how many other identities image a is taken for when each of them shows one image only, another
    in every slot s. `squares` is the sum of h_ij^2 over pairs of identities.
    """

    false: Float[np.ndarray, " c"]
    true: Float[np.ndarray, " c"]
    matched: Int[np.ndarray, "n slots"]
    squares: float


def too_few(sizes: Int[np.ndarray, " c"], far: float) -> str:
    """Why a threshold for this rate would mean nothing for identities with so many images each, with what it takes.

    Nothing where it means something.

    >>> too_few(np.full(9, 5), 0.1).partition(":")[0], too_few(np.full(50, 5), 0.1)
    ('9 identities are too few for FAR 0.1', '')
    """
    sizes = sizes[sizes > 0]
    n, images = len(sizes), int(sizes.sum())
    pairs, impostors = n * (n - 1) // 2, (images**2 - int((sizes**2).sum())) // 2
    needed = max(LEAST_IDENTITIES, math.ceil(0.5 + math.sqrt(0.25 + 2.0 / far - 1e-9)))
    if n < LEAST_IDENTITIES or far * pairs < 1.0 - 1e-9:
        reason = "so that a pair of them is expected there" if needed > LEAST_IDENTITIES else "whatever the rate"
        why = f"{n} identities are too few for FAR {far:g}: it takes {needed}, {reason}"
    elif far * impostors < LEAST_ACCEPTED - 1e-9:
        each = math.ceil(LEAST_ACCEPTED / far - 1e-9)
        why = f"{impostors:,} impostor pairs are too few for FAR {far:g}: it takes {each:,}"
    else:
        return ""
    least = max(1.0 / pairs if pairs else 1.0, LEAST_ACCEPTED / impostors if impostors else 1.0)
    other = (
        f" Ask for FAR {round_up(least):.2g} or more, or bring" if n >= LEAST_IDENTITIES and least < 0.5 else " Bring"
    )
    return f"{why}.{other} more, or take it all the same with few_identities=True (--few-identities)."


def round_up(share: float) -> float:
    """The share in two digits, rounded up."""
    step = 10.0 ** (math.floor(math.log10(share)) - 1)
    return math.ceil(share / step - 1e-9) * step


def accepted_at(people: People, allowed: float) -> tuple[float, Accepted]:
    """The lowest threshold at which pairs of identities that weigh at most `allowed` are accepted, and who they are.

    A pair of images weighs 1 / (n_i n_j), so that those of two identities weigh 1 together. Cosines are ordered by
    their bits: one pass finds the upper half of the threshold's, the next the lower, a third counts. No list of pairs
    is ever kept.
    """
    weight, limit = 1.0 / people.sizes[people.owner], allowed * (1.0 + 1e-12)
    value, above, upper = -1.0, 0.0, -1
    for part in range(2):
        heavy = np.zeros(BINS)
        for block in people.blocks():
            key = order_of(block.cos)
            some = block.impostor if part == 0 else block.impostor & (key >> 16 == upper)
            bins = (key[some] >> 16 if part == 0 else key[some] & 0xFFFF).astype(np.int64)
            heavy += np.bincount(bins, pair_weights(block, weight)[some], minlength=BINS)
        reached = above + np.cumsum(heavy[::-1])[::-1]  # the weight in each bin and beyond
        if reached[0] <= limit:
            break
        last = int(np.flatnonzero(reached > limit)[-1])
        above = reached[last + 1] if last + 1 < BINS else above
        upper, lower = (last, 0) if part == 0 else (upper, last)
        value = float(np.nextafter(cosine_of((upper << 16) + lower), np.float32(np.inf)))
    return value, count_accepted(people, np.float32(value), weight)


def count_accepted(people: People, value: np.float32, weight: Float[np.ndarray, " n"]) -> Accepted:
    """Who is accepted at a threshold."""
    slots = slot_table(people).astype(np.float32)
    n, c = len(people.owner), people.identities
    false, true, matched = np.zeros(c), np.zeros(c), np.zeros((n, slots.shape[1]), np.int64)
    squares, unfinished = 0.0, np.zeros(c)
    for block in people.blocks():
        rows, columns, passed = block.rows, block.columns, block.cos >= value
        wrong = (block.impostor & passed).astype(np.float32)
        np.add.at(false, people.owner[rows], weight[rows] * (wrong @ weight[columns]))
        np.add.at(false, people.owner[columns], weight[columns] * (wrong.T @ weight[rows]))
        matched[rows] += np.rint(wrong @ slots[columns]).astype(np.int64)
        matched[columns] += np.rint(wrong.T @ slots[rows]).astype(np.int64)
        np.add.at(true, people.owner[rows], (block.genuine & passed).sum(axis=1))
        shares = identity_pairs(wrong, people.owner[rows], people.owner[columns], weight[rows], weight[columns])
        shares[0] += unfinished[-shares.shape[1] :]
        ends = rows.stop == n or people.owner[rows.stop] != people.owner[rows.stop - 1]
        squares += float((shares[: len(shares) if ends else -1] ** 2).sum())
        unfinished[:] = 0.0
        if not ends:  # the identity goes on in the next rows
            unfinished[-shares.shape[1] :] = shares[-1]
    return Accepted(false, true / np.maximum(people.sizes * (people.sizes - 1) // 2, 1), matched, squares)


def identity_pairs(
    wrong: Float[np.ndarray, "r k"], mine: Int[np.ndarray, " r"], theirs: Int[np.ndarray, " k"],
    of_mine: Float[np.ndarray, " r"], of_theirs: Float[np.ndarray, " k"],
) -> Float[np.ndarray, "a b"]:  # fmt: skip
    """The weight of what is accepted between each identity of the rows and each of the columns, both sorted."""
    across = np.add.reduceat(wrong * of_theirs.astype(np.float32), starts_of(theirs), axis=1)
    return np.add.reduceat(across * of_mine[:, None], starts_of(mine), axis=0)


def starts_of(owner: Int[np.ndarray, " n"]) -> Int[np.ndarray, " c"]:
    """Where each identity begins, of rows sorted by identity."""
    return np.flatnonzero(np.diff(owner, prepend=-1))


def order_of(cos: np.ndarray) -> np.ndarray:
    """Whole numbers that rise as float32 cosines do."""
    bits = (cos + np.float32(0.0)).view(np.uint32)  # -0 is 0
    return np.where(bits >> 31, ~bits, bits | np.uint32(2**31))


def cosine_of(key: int) -> np.float32:
    """The cosine of such a number."""
    bits = np.uint32(key)
    return (bits & np.uint32(2**31 - 1) if bits >> 31 else ~bits).view(np.float32)


def pair_weights(block: PairTile, weight: np.ndarray) -> Float[np.ndarray, "r k"]:
    """What each pair of images weighs."""
    return weight[block.rows, None] * weight[None, block.columns]


def slot_table(people: People) -> Int[np.ndarray, "n slots"]:
    """Which images stand for their identity in each slot: one of each identity, another one in the next slot."""
    slots = min(SLOTS, int(people.sizes.max()))
    starts = np.cumsum(people.sizes) - people.sizes
    table = np.zeros((len(people.owner), slots), np.int64)
    for slot in range(slots):
        table[starts + slot % people.sizes, slot] = 1
    return table


def false_rate(r: Float[np.ndarray, " c"], squares: float = 0.0) -> tuple[Interval, bool]:
    """FAR with its interval over identities, and whether there is one: without any one identity some rate is left.

    `squares` = sum of h_ij^2 over pairs. The error is at least that of as many independent pairs as the rate rests on,
    (sum h)^2 / sum h^2, also where everybody has exactly one twin, and deleting anybody changes nothing.
    """
    n, total = len(r), float(r.sum())
    rate = total / (n * (n - 1))
    without = (total - 2.0 * r) / max(1, (n - 1) * (n - 2))
    if n < 3 or (without <= 1e-12 * max(rate, 1e-300)).any():
        return Interval(rate, 0.0, 1.0), False
    logs = np.log(without)
    spread = (n - 1) / n * float(((logs - logs.mean()) ** 2).sum())
    error = math.sqrt(max(spread, squares / (total / 2.0) ** 2))
    counting = total**2 / float((r**2).sum())
    wide = student(max(1.0, counting - 1.0)) * error
    return Interval(rate, rate * math.exp(-wide), min(1.0, rate * math.exp(wide))), True


def mean_interval(values: Float[np.ndarray, " c"]) -> Interval:
    """A mean over identities with Student's interval; nothing is known of none.

    A share of 1 - 0.025^(1/n) of all identities may be of a kind that n of them do not show (Clopper & Pearson 1934,
    at none of n): the interval leaves room for that, also where all that were seen are accepted.
    """
    if not len(values):
        return Interval(math.nan, 0.0, 1.0)
    mean = float(values.mean())
    half = student(len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 1.0
    unseen = 1.0 - 0.025 ** (1.0 / len(values))
    below, above = max(half, mean * unseen), max(half, (1.0 - mean) * unseen)
    return Interval(mean, max(0.0, mean - below), min(1.0, mean + above))


# ------------------------------------------------------------------------- of a gallery: one against many


def evenness_of(matched: Int[np.ndarray, "n slots"], others: int) -> float:
    """a + b of the Beta(a, b) from which the match rates of people come, likeliest where its mean is what was seen.

    Large: everybody is mistaken for others equally often. Small: a few are, and the others hardly ever.
    """
    counts, times = np.unique(matched, return_counts=True)
    mean = float((counts * times).sum()) / (others * matched.size)
    if not 0.0 < mean < 1.0:
        return 1e6

    def unlikely(log: float) -> float:
        both = math.exp(log)
        a, b = mean * both, (1.0 - mean) * both
        fixed = math.lgamma(both) - math.lgamma(a) - math.lgamma(b) - math.lgamma(both + others)
        return -sum(
            k * (math.lgamma(a + c) + math.lgamma(b + others - c) + fixed)
            for c, k in zip(counts.tolist(), times.tolist(), strict=True)
        )

    return math.exp(lowest(unlikely, math.log(1e-2), math.log(1e6)))


def lowest(function, low: float, high: float) -> float:
    """Where a function of one number is lowest: the best of a grid, then by golden section around it."""
    grid = np.linspace(low, high, 33)
    best = int(np.argmin([function(float(v)) for v in grid]))
    left, right = float(grid[max(0, best - 1)]), float(grid[min(32, best + 1)])
    share = (math.sqrt(5.0) - 1.0) / 2.0
    for _ in range(40):
        a, b = right - share * (right - left), left + share * (right - left)
        left, right = (left, b) if function(a) < function(b) else (a, right)
    return (left + right) / 2.0


def false_positive_rate(far: float, evenness: float, enrolled: int) -> float:
    """The chance that a stranger is taken for one of so many templates: 1 - E[(1 - f)^n], f ~ Beta(a, b), mean FAR.

    With a + b = evenness this is 1 - B(a, b + n) / B(a, b). It grows with the gallery, at most as 1 - (1 - FAR)^n,
    and more slowly where a few people account for most mistakes. Beyond as many identities as were calibrated on it
    is an extrapolation.

    >>> round(false_positive_rate(0.001, 1e6, 1000), 3), round(false_positive_rate(0.001, 0.1, 1000), 3)
    (0.632, 0.002)
    """
    if not 0.0 < far < 1.0 or not enrolled:
        return far if enrolled else 0.0
    a, b = far * evenness, (1.0 - far) * evenness
    kept = math.lgamma(b + enrolled) + math.lgamma(a + b) - math.lgamma(b) - math.lgamma(a + b + enrolled)
    return max(0.0, -math.expm1(kept))
