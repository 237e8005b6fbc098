"""Some of the classes in place of all (Partial FC): those of the batch, and a random part of the rest.

    sum_{j != y} e^{s cos_j}  ~  sum_{j in the batch} e^{s cos_j} + u sum_{j drawn} e^{s cos_j}

with u = 1, or 1/p where corrected. Whether a class is drawn is a function of a key and the class alone, so that it does
not matter who holds it  (An et al. 2022, who draw a fixed number per process and count them as they are).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arcwise.ops import SplitLSE, split_lse
from arcwise.ops.update import Mover, Update
from arcwise.sphere import EMPTY

AT_ONCE = 2**24  # classes whose lots are drawn at a time
LOW = 0xFFFFFFFF


class Sample(NamedTuple):
    """How classes are drawn in one step: the share p, the key, the number of the first class here, and the weight."""

    p: float
    key: int
    first: int
    corrected: bool


def mixed(number: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Whole numbers below 2^32 stirred into others of that range, one to one  (Wellons 2018, "lowbias32").

    >>> len(set(mixed(torch.arange(1000)).tolist()))
    1000
    """
    number = ((number ^ (number >> 16)) * 0x7FEB352D) & LOW
    number = ((number ^ (number >> 15)) * 0x846CA68B) & LOW
    return number ^ (number >> 16)


def drawn_rows(c: int, sample: Sample, device: torch.device) -> Int[Tensor, " n"]:
    """Which of c rows are drawn, each with probability p: row i is class first + i, and its lot its own.

    >>> sample = Sample(0.25, key=7, first=0, corrected=False)
    >>> later = drawn_rows(60, sample._replace(first=40), torch.device("cpu")) + 40
    >>> [int(i) for i in drawn_rows(100, sample, torch.device("cpu")) if i >= 40] == later.tolist()
    True
    """
    most, found = round(sample.p * 2**32), []
    low, high = sample.key & LOW, (sample.key >> 32) & LOW
    for start in range(0, c, AT_ONCE):
        number = torch.arange(start + sample.first, min(start + AT_ONCE, c) + sample.first, device=device)
        lot = mixed(mixed(mixed((number & LOW) ^ low) + (number >> 32) & LOW) ^ high)
        found.append((lot < most).nonzero().squeeze(1) + start)
    return torch.cat(found) if found else torch.zeros(0, dtype=torch.int64, device=device)


def lse_of_some(
    unit: Float[Tensor, "b d"], w: Float[Tensor, "c *k d"], y: Int[Tensor, " b"], s: float, sample: Sample, **given: Any
) -> SplitLSE:
    """`split_lse` over the batch's classes and those drawn, which alone move; -1 is a label that is not here."""
    mover: Mover | None = given.pop("mover", None)
    positive = y[y >= 0].unique()
    drawn = drawn_rows(len(w), sample, w.device)
    drawn = drawn[~torch.isin(drawn, positive)]
    place = torch.searchsorted(positive, y).where(y >= 0, -1)
    step = None if mover is None else SharedStep(mover)
    ours = lse_of_rows(unit, w, positive, place, s, step, given)
    rest = lse_of_rows(unit, w, drawn, torch.full_like(y, -1), s, step, given)
    weight = math.log(1.0 / sample.p) if sample.corrected else 0.0
    lse = torch.logaddexp(ours.lse, rest.lse + weight)
    return SplitLSE(lse, ours.cos_y, torch.maximum(ours.cos_other, rest.cos_other))


def lse_of_rows(
    unit: Tensor, w: Tensor, rows: Tensor, y: Tensor, s: float, step: SharedStep | None, given: dict[str, Any]
) -> SplitLSE:
    """`split_lse` over some rows of w, taken out of it."""
    if not len(rows):
        return no_class(unit, s)
    some = w.detach()[rows].requires_grad_(step is not None)
    mover = None if step is None else RowMover(step, w, rows)
    return split_lse(unit, some, y, s, mover=mover, outbound=ignore, **given)


def ignore(_: Tensor) -> None:
    """The gradient of x has two parts here: neither is the whole that somebody could wait for."""


def no_class(unit: Float[Tensor, "b d"], s: float) -> SplitLSE:
    """What a pass over no class finds: nothing, and it has no part in the gradient."""
    nothing = unit.sum(1) * 0.0
    return SplitLSE(nothing + EMPTY * s, nothing, nothing.detach() + EMPTY)


class SharedStep:
    """One step of an optimiser for several passes over parts of its prototypes."""

    def __init__(self, mover: Mover):
        self.mover = mover
        self.update: Update | None = None

    def begin(self, finite: Bool[Tensor, ""]) -> Update:
        """The step, begun by the pass that comes first; a later one may only shut the gate."""
        if self.update is None:
            self.update = self.mover.step_of(finite)
            return self.update
        return self.update._replace(gate=self.update.gate & finite)

    def ready(self) -> None:
        """Refuses a step where the last is not over."""
        if self.update is None:
            self.mover.ready()


class RowMover:
    """Moves some rows of the prototypes, with their state, and leaves all others as they are to the last bit."""

    def __init__(self, step: SharedStep, w: Tensor, rows: Int[Tensor, " n"]):
        self.step, self.w, self.rows = step, w, rows
        self.whole: Update | None = None
        self.part: Update | None = None

    def ready(self) -> None:
        self.step.ready()

    def step_of(self, finite: Bool[Tensor, ""]) -> Update:
        self.whole = whole = self.step.begin(finite)
        second = None if whole.second is None else whole.second[self.rows]
        self.part = Update(whole.first[self.rows], second, whole.hyper, whole.gate)
        return self.part

    @torch.no_grad()
    def moved(self, w: Float[Tensor, "n k d"]) -> None:
        """Puts the rows, and what the optimiser keeps of them, back into their places."""
        assert self.whole is not None, "a step comes before what it has moved"
        assert self.part is not None, "a step comes before what it has moved"
        self.w.detach()[self.rows] = w.detach().reshape(len(self.rows), *self.w.shape[1:])
        self.whole.first[self.rows] = self.part.first
        if self.whole.second is not None and self.part.second is not None:
            self.whole.second[self.rows] = self.part.second
