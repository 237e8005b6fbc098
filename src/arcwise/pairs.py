"""Pairs of images, the same or not: drawn evenly in folds that share no identity, and kept as a table for people."""

from __future__ import annotations

import csv
import io
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from arcwise.data.folder import counted, table_rows
from arcwise.errors import ArcwiseError, count_in, note
from arcwise.records import write
from arcwise.records.gallery import has_surrogates
from arcwise.schema import MOST

YES, NO = ("1", "true", "yes", "same", "genuine"), ("0", "false", "no", "different", "impostor")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTable:
    """Pairs by the keys of their images, whether each is of one identity, its fold, and whatever else is told of it.

    >>> PairTable(a=("1.png",), b=("2.png",), same=np.array([True])).folds
    1
    """

    a: tuple[str, ...]
    b: tuple[str, ...]
    same: Bool[np.ndarray, " p"]
    fold: Int[np.ndarray, " p"] | None = None
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.a)

    @property
    def folds(self) -> int:
        """How many folds there are."""
        return 1 if self.fold is None else len(np.unique(self.fold))

    @property
    def people(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Whom the images of each pair show: by name_a and name_b, or as far as pairs of one identity join images."""
        if {"name_a", "name_b"} <= set(self.columns):
            return self.columns["name_a"], self.columns["name_b"]
        first = joined_images(self.a, self.b, self.same)
        return tuple(first[key] for key in map(spelt, self.a)), tuple(first[key] for key in map(spelt, self.b))

    @property
    def identities(self) -> int:
        """How many identities there are, at most where nobody is named."""
        return len(set().union(*self.people))

    def save(self, path: str | Path) -> Path:
        """The path of the CSV that now holds them, one row a pair."""
        refuse_untellable((*self.a, *self.b, *(name for values in self.columns.values() for name in values)))
        out = io.StringIO(newline="")
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(["fold", "same", "a", "b", *self.columns])
        fold = np.zeros(len(self), np.int64) if self.fold is None else self.fold
        for at in range(len(self)):
            more = [values[at] for values in self.columns.values()]
            rows.writerow([int(fold[at]), int(self.same[at]), self.a[at], self.b[at], *more])
        return write(path, out.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> PairTable:
        """The pairs in a CSV with the columns a, b and same; fold and others may stand beside them."""
        path = Path(path)
        if not path.is_file():
            raise ArcwiseError(f"there is no table {path}. Make one with: arcwise pairs make SOURCE --out {path}")
        rows = table_rows(path)
        head = [cell.lower() for cell in rows[0]] if rows else []
        lacking = [name for name in ("a", "b", "same") if name not in head]
        if lacking or len(set(head)) < len(head):
            raise ArcwiseError(
                f"{path} must begin with a row that names its columns once each, a, b and same among them; got "
                f"{','.join(head)!r}."
            )
        if len(rows) < 2:
            raise ArcwiseError(f"{path} holds no pairs: one a row, as in 1,ada/1.jpg,ada/2.jpg under same,a,b.")
        for number, row in enumerate(rows[1:], start=2):
            if len(row) != len(head):
                raise ArcwiseError(f"{path}, row {number} has {len(row)} cells, and the first row names {len(head)}.")
        cells = {name: tuple(row[at] for row in rows[1:]) for at, name in enumerate(head)}
        refuse_contradictions(path, cells)
        own = ("a", "b", "same", "fold")
        made = cls(
            a=filled(path, "a", cells["a"]), b=filled(path, "b", cells["b"]), same=truths(path, cells["same"]),
            fold=wholes(path, cells["fold"]) if "fold" in cells else None,
            columns={name: values for name, values in cells.items() if name not in own},
        )  # fmt: skip
        refuse_other_people(path, made)
        tell_shared_folds(path, made)
        return made


def refuse_contradictions(path: Path, cells: Mapping[str, tuple[str, ...]]) -> None:
    """Raises where an image is paired with itself, or two images twice, however their paths are spelt."""
    said: dict[frozenset[str], tuple[int, bool]] = {}
    for number, (a, b, same) in enumerate(zip(cells["a"], cells["b"], cells["same"], strict=True), start=2):
        if a and spelt(a) == spelt(b):
            raise ArcwiseError(f"{path}, row {number} pairs {a} with itself: leave the row out.")
        before, told = said.setdefault(frozenset((spelt(a), spelt(b))), (number, same.lower() in YES))
        if told != (same.lower() in YES):
            raise ArcwiseError(f"{path}, rows {before} and {number} call {a} and {b} the same and different: keep one.")
        if before != number:
            raise ArcwiseError(f"{path}, rows {before} and {number} are one pair, {a} and {b}: keep one.")


def refuse_untellable(names: tuple[str, ...]) -> None:
    """Raises for the name of an image or a class that would be another when it is read from a table again."""
    for name in dict.fromkeys(names):
        if name != name.strip() or "\n" in name or "\r" in name or has_surrogates(name):
            raise ArcwiseError(
                f"a table cannot hold the name {name!r}: line breaks, white space at an end and bytes that are no "
                "UTF-8 get lost there. Rename the file or its folder."
            )


def spelt(key: str) -> str:
    """A path in its shortest spelling.

    >>> spelt("a//1.png") == spelt("./b/../a/1.png") == "a/1.png"
    True
    """
    return posixpath.normpath(key)


def joined_images(a: tuple[str, ...], b: tuple[str, ...], same: Bool[np.ndarray, " p"]) -> dict[str, str]:
    """For every image the one that stands for its identity: those that pairs of one identity join have one.

    >>> joined_images(("1", "2", "4"), ("2", "3", "1"), np.array([True, True, False]))
    {'1': '3', '2': '3', '3': '3', '4': '4'}
    """
    stands = {key: key for key in map(spelt, (*a, *b))}

    def last(key: str) -> str:
        while stands[key] != key:
            stands[key] = key = stands[stands[key]]
        return key

    for i, j, one in zip(a, b, same.tolist(), strict=True):
        if one:
            stands[last(spelt(i))] = last(spelt(j))
    return {key: last(key) for key in sorted(stands)}


def refuse_other_people(path: Path, table: PairTable) -> None:
    """Raises where two images are called different whom other rows, or their names, call one identity; and the like."""
    one, other = table.people
    named = "name_a" in table.columns
    for row, (first, second, same) in enumerate(zip(one, other, table.same.tolist(), strict=True)):
        if (first == second) != same:
            why = f"are of {first} and {second}" if named else "are of one identity by other rows"
            raise ArcwiseError(
                f"{path}, row {row + 2} calls {table.a[row]} and {table.b[row]} {'the same' if same else 'different'}, "
                f"and they {why}: mend one of them."
            )


def tell_shared_folds(path: Path, table: PairTable) -> None:
    """Tells where folds share identities: then the others' threshold has seen whom it judges."""
    if table.fold is None:
        return
    folds: dict[str, set[int]] = {}
    for people in table.people:
        for somebody, fold in zip(people, table.fold.tolist(), strict=True):
            folds.setdefault(somebody, set()).add(fold)
    shared = sum(len(some) > 1 for some in folds.values())
    if shared:
        note(
            f"{shared:,} of {len(folds):,} identities of {path} are in several folds, so that the accuracy over folds "
            "is that of people whom the threshold has seen: arcwise pairs make draws folds that share nobody."
        )


def filled(path: Path, name: str, cells: tuple[str, ...]) -> tuple[str, ...]:
    """The cells, none of them empty."""
    if "" in cells:
        raise ArcwiseError(f"{path}, row {cells.index('') + 2} names no image in column {name}.")
    return cells


def truths(path: Path, cells: tuple[str, ...]) -> Bool[np.ndarray, " p"]:
    """Cells as answers."""
    for at, cell in enumerate(cells):
        if cell.lower() not in (*YES, *NO):
            raise ArcwiseError(f"{path}, row {at + 2}: same is 1 or 0, got {cell!r}.")
    return np.array([cell.lower() in YES for cell in cells], bool)


def wholes(path: Path, cells: tuple[str, ...]) -> Int[np.ndarray, " p"]:
    """Cells as the numbers of folds."""
    for at, cell in enumerate(cells):
        if not (cell.isascii() and cell.isdigit() and len(cell) < 10):
            raise ArcwiseError(f"{path}, row {at + 2}: a fold is a whole number, got {cell!r}.")
    return np.array([int(cell) for cell in cells], np.int64)


def make_pairs(
    keys: tuple[str, ...], y: Int[np.ndarray, " n"], names: tuple[str, ...], *, n: int = 6000, folds: int = 10,
    seed: int = 0,
) -> PairTable:  # fmt: skip
    """n pairs, half of them of one identity, in folds that share none; the same for the same seed.

    Genuine pairs go round the identities, so that none with many images outweighs the others; impostors are of two
    identities drawn evenly. No pair comes twice.

    >>> made = make_pairs(tuple("abcdefgh"), np.repeat(np.arange(4), 2), tuple("wxyz"), n=4, folds=2)
    >>> made.same.tolist(), made.fold.tolist()
    ([True, False, True, False], [0, 0, 1, 1])
    """
    count_in("folds", folds, 1, 1000)
    count_in("n", n, 2, 10**7)
    count_in("seed", seed, 0, MOST)
    if n % (2 * folds):
        near = n // (2 * folds) * 2 * folds or 2 * folds
        raise ArcwiseError(f"n={n} cannot be split into {folds} folds of as many pairs of each kind: {near} can.")
    random, half = np.random.default_rng(seed), n // (2 * folds)
    people = [np.flatnonzero(y == label) for label in np.unique(y)]
    dealt = deal(people, folds, random)
    most = min(possible(mine) for mine in dealt)
    if most < half:
        raise ArcwiseError(
            f"{len(people)} identities in {folds} folds allow {2 * folds * most:,} pairs at most, and {n:,} were asked "
            f"for: pass -n {2 * folds * most}, fewer folds, or bring more images." if most else
            f"{counted(len(people), 'identity is', 'identities are')} too few for {counted(folds, 'fold')}: each needs "
            "two, one of them with two images."
        )  # fmt: skip
    rows = [(fold, same, i, j) for fold, mine in enumerate(dealt) for same, i, j in drawn_pairs(mine, half, random)]
    fold, same, a, b = (np.array(column) for column in zip(*rows, strict=True))
    told = {"name_a": tuple(names[c] for c in y[a]), "name_b": tuple(names[c] for c in y[b])}
    return PairTable(
        a=tuple(keys[i] for i in a), b=tuple(keys[i] for i in b), same=same.astype(bool), fold=fold, columns=told
    )


def possible_pairs(y: Int[np.ndarray, " n"], folds: int, seed: int) -> int:
    """How many pairs `make_pairs` can make of these labels in so many folds."""
    people = [np.flatnonzero(y == label) for label in np.unique(y)]
    dealt = deal(people, folds, np.random.default_rng(seed))
    return 2 * folds * min(possible(mine) for mine in dealt)


def deal(people: list[np.ndarray], folds: int, random: np.random.Generator) -> list[list[np.ndarray]]:
    """Identities dealt to folds at random, those with most images first, each to the fold that has fewest images."""
    order = random.permutation(len(people)).tolist()
    order.sort(key=lambda at: -min(len(people[at]), 20))
    out: list[list[np.ndarray]] = [[] for _ in range(folds)]
    for at in order:
        min(out, key=lambda mine: (sum(min(len(rows), 20) for rows in mine), len(mine))).append(people[at])
    return out


def possible(mine: list[np.ndarray]) -> int:
    """How many pairs of each kind a fold has at most."""
    sizes = np.array([len(rows) for rows in mine], np.int64)
    genuine = int((sizes * (sizes - 1) // 2).sum())
    return min(genuine, int((sizes.sum() ** 2 - (sizes**2).sum()) // 2))


def drawn_pairs(mine: list[np.ndarray], half: int, random: np.random.Generator) -> Iterator[tuple[bool, int, int]]:
    """A fold's pairs, of one identity and of two in turns."""
    genuine = list(genuine_pairs(mine, half, random))
    for (i, j), (k, m) in zip(genuine, impostor_pairs(mine, half, random), strict=True):
        yield True, i, j
        yield False, k, m


def genuine_pairs(mine: list[np.ndarray], half: int, random: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Pairs within identities, one of each in every round."""
    waiting = []
    for rows in (rows for rows in mine if len(rows) > 1):
        pairs = len(rows) * (len(rows) - 1) // 2
        waiting.append((rows, random.choice(pairs, min(pairs, half), replace=False).tolist()))
    while half:
        for rows, left in [waiting[at] for at in random.permutation(len(waiting))]:
            if left and half:
                j = int((1 + (1 + 8 * (at := left.pop())) ** 0.5) / 2)
                j -= j * (j - 1) // 2 > at
                yield int(rows[at - j * (j - 1) // 2]), int(rows[j])
                half -= 1


def impostor_pairs(mine: list[np.ndarray], half: int, random: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Pairs of two identities, each two as likely, none twice."""
    sizes = np.array([len(rows) for rows in mine], np.int64)
    every = int((sizes.sum() ** 2 - (sizes**2).sum()) // 2)
    if every <= 4 * half:  # few: all of them, shuffled
        found = [
            (int(a), int(b)) for at, rows in enumerate(mine) for other in mine[at + 1 :] for a in rows for b in other
        ]
        yield from (found[at] for at in random.choice(len(found), half, replace=False))
        return
    seen: set[tuple[int, int]] = set()
    while len(seen) < half:
        i, j = sorted(random.choice(len(mine), 2, replace=False).tolist())
        pair = int(random.choice(mine[i])), int(random.choice(mine[j]))
        if pair not in seen:
            seen.add(pair)
            yield pair
