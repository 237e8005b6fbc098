"""What is measured on must not have been trained on: images equal to the last pixel, rows equal to rounding."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, UInt8

from arcwise.data.folder import counted
from arcwise.data.images import Images, image_hashes, pixel_hash
from arcwise.errors import ArcwiseError, name_list, note
from arcwise.records import Embeddings, Run, TrainedOn

CLOSE = 1e-5  # of a row's length: what another batch size, thread or machine changes in an embedding is far below
ALLOW = "Leave them out, or pass --allow-overlap (allow_overlap=True) to measure all the same."


def trained_on(model: str | Path) -> TrainedOn | None:
    """What a model was trained on, where its Run tells: of a Run's folder, or of the model file in it.

    Where it was fine-tuned, what the model that it began with was trained on counts too.
    """
    run = run_of_model(model)
    found, seen = None if run is None else run.trained_on, set[Path]()
    while run is not None and found is not None and (init := run.settings.init) and run.path not in seen:
        seen.add(run.path)
        if Path(init).resolve().parent == run.path.resolve():  # begun with other classes: its hashes are of both
            break
        run = run_of_model(init)
        before = None if run is None else run.trained_on
        if before is None:
            note(
                f"{model} was fine-tuned from {init}, which does not tell what it was trained on: whether these images "
                "were among that cannot be looked up."
            )
            return found
        found = found.with_more(before)
    return found


def run_of_model(model: str | Path) -> Run | None:
    """The Run whose model this is: its folder, or the model file in it."""
    path = Path(model).resolve()
    run = Run(path if path.is_dir() else path.parent)
    return None if not run.exists() or (path.is_file() and path != run.model.resolve()) else run


def refuse_trained_on(unseen: Images, seen: TrainedOn, *, allow: bool = False) -> None:
    """Raises where images of classes that nobody is to see are also trained on, pixel for pixel."""
    rows = np.flatnonzero(seen.holds(image_hashes(unseen)))
    if not len(rows):
        return
    told = (
        f"{len(rows):,} of the unseen images are trained on as well, pixel for pixel, as {unseen.keys[int(rows[0])]} is"
    )
    if not allow:
        raise ArcwiseError(f"{told}. Leave them out, or pass data.allow_overlap=true (--set) to go on all the same.")
    note(f"{told}.")


def flattering(parts: Mapping[str, Images], before: TrainedOn | None) -> tuple[str, ...]:
    """What to know where images to test on were trained on before this training, by what it begins from.

    Images that this training has twice, once to train on, are told elsewhere.
    """
    if before is None:
        return ()
    own, told = image_hashes(parts["train"]), []
    for part in ("validation", "test"):
        hashes = image_hashes(parts[part]) if part in parts else np.zeros(0, np.uint64)
        if many := int((before.holds(hashes) & ~np.isin(hashes, own)).sum()):
            told.append(
                f"{many:,} of the {len(hashes):,} {part} images were trained on before, by the model that this run "
                "began from: accuracy there is better than it will be. A folder with train/ and test/ in it keeps them "
                "apart."
            )
    return tuple(told)


class OverlapWatch:
    """Looks at images as they pass, and remembers which of them a model was trained on, and which came before.

    `names` are the classes that the model itself names, for one whose Run is not at hand.
    """

    def __init__(self, known: TrainedOn | None, names: tuple[str, ...] = ()):
        self.known, self.shared, self.hashes = known, set[int](), dict[int, int]()
        self.names = set(names) if known is None else set(known.names)

    def __call__(self, rows: Int[np.ndarray, " b"], pixels: UInt8[np.ndarray, "b h w channels"]) -> None:
        hashes = np.array([pixel_hash(image) for image in pixels], np.uint64)
        self.hashes.update(zip(rows.tolist(), hashes.tolist(), strict=True))
        if self.known is not None and len(rows):
            self.shared |= set(rows[self.known.holds(hashes)].tolist())

    def refuse(self, found: Embeddings, *, what: str, allow: bool = False) -> None:
        """Raises where some of the images were trained on.

        `what` names the images. Classes that bear the name of one that was trained on are told, and images that are
        there more than once.
        """
        twins = len(self.hashes) - len(set(self.hashes.values()))
        if twins:
            note(f"{counted(twins, 'image')} of {what} came before, pixel for pixel: pairs of such twins test nothing.")
        same = tuple(name for name in found.names if name in self.names)
        if self.shared:
            told = f"{len(self.shared):,} images of {what} were trained on, pixel for pixel."
            if not allow:
                raise ArcwiseError(f"{told} {ALLOW}")
            note(told)
        elif same:
            note(
                f"{len(same):,} of the classes of {what} bear names of classes that the model was trained on "
                f"({name_list(same, 4)}): if they are the same classes, these numbers are not of classes nobody has "
                "seen."
            )


def refuse_named_twice(keys: tuple[str, ...]) -> None:
    """Raises where an image is named more than once, however its folder is spelt: it would be compared with itself.

    >>> refuse_named_twice(("a.png", "b.png", "a.png"))
    Traceback (most recent call last):
    arcwise.errors.ArcwiseError: a.png is named more than once, and would be compared with itself: name it once.
    """
    seen, folders = set[tuple[str, str]](), dict[str, str]()
    for key in keys:
        folder, name = os.path.split(key)
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        if (folders[folder], name) in seen:
            raise ArcwiseError(f"{key} is named more than once, and would be compared with itself: name it once.")
        seen.add((folders[folder], name))


def refuse_equal_rows(test: Embeddings, other: Embeddings, *, what: str, allow: bool = False) -> None:
    """Raises where rows of two sets are equal to rounding: the same images stand in both."""
    rows, twins = equal_rows(test.x, other.x)
    if not len(rows):
        return
    names = [
        "" if some.keys is None else some.keys[int(at[0])] for some, at in ((test, rows), (other, twins))
    ]  # fmt: skip
    example = f": {names[0]} is {names[1]}" if all(names) else ""
    told = f"{len(twins):,} of the {len(other):,} rows of {what} are also among those they are compared with{example}."
    if not allow:
        raise ArcwiseError(f"{told} {ALLOW}")
    note(told)


def equal_rows(
    a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "m d"]
) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " k"]]:
    """For rows of b that are rows of a to rounding: the row of a, and the row of b; each row of b once.

    Both are sorted along one direction, in which equal rows lie next to each other; the few neighbours are compared.

    >>> equal_rows(np.eye(3), np.array([[0.0, 1.0, 1e-9], [1.0, 1.0, 1.0]]))
    (array([1]), array([0]))
    """
    none = np.zeros(0, np.int64)
    if a.shape[1] != b.shape[1] or not len(a) or not len(b):
        return none, none
    along = np.random.default_rng(0).standard_normal(a.shape[1])
    along /= np.linalg.norm(along)
    order = np.argsort(at_a := a.astype(np.float64) @ along, kind="stable")
    at_a, at_b = at_a[order], b.astype(np.float64) @ along
    far = CLOSE * np.linalg.norm(b.astype(np.float64), axis=1)
    first, last = np.searchsorted(at_a, at_b - far, "left"), np.searchsorted(at_a, at_b + far, "right")
    found = []
    for j in np.flatnonzero(last > first).tolist():
        near = order[first[j] : last[j]]
        gap = np.linalg.norm(a[near].astype(np.float64) - b[j].astype(np.float64), axis=1)
        if (gap <= far[j]).any():
            found.append((int(near[int(gap.argmin())]), j))
    rows = np.array(found, np.int64).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]
