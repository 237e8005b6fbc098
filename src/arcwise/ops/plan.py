"""How the fused engine passes over the classes within a given memory, and what a step then moves and costs."""

from __future__ import annotations

from typing import NamedTuple

TILE = 128  # samples and classes of a tile; two of them fit a multiprocessor, so that one computes while one sums
BLOCK_CELLS = 2**27  # slopes of one block: 256 MiB in bf16; in few large blocks a step is few launches
PIECE = 8  # rows of w are read in pieces of 16 bytes: eight numbers where they are bf16
SHARE = 12  # of the device's memory, one part in so many is what `auto` allows
LEAST = 256 * 2**20
KEPT_UP_TO = 256.0  # at this s the rounding of a kept cosine moves a softmax by as much as bf16 rounds it


class Plan(NamedTuple):
    """How the classes are passed over: classes of a block, and what is kept from the first pass for the second.

    `room` says where cosines are kept: "gradient" for the place that the gradient of w will take, which is empty until
    then, "own" for memory of their own, which the first `kept` blocks have.
    """

    block: int
    keep_units: bool
    room: str
    kept: int
    shares: int


def planned(
    b: int, c: int, k: int, d: int, *, size: int, memory: int, gradient: int = 0, programs: int = 264, s: float = 64.0
) -> Plan:  # fmt: skip
    """The plan whose working memory stays within `memory` bytes; a block has TILE classes at least.

    `size` is that of a number in the products, `gradient` that of a number of w's gradient, 0 where none is wanted.
    The units of w in the type of the products save a second reading of all of w, the cosines one product of four.

    >>> planned(1024, 1_000_000, 1, 512, size=2, memory=2**31, gradient=4)
    Plan(block=131072, keep_units=True, room='gradient', kept=8, shares=8)
    """
    classes, each = up(c, TILE), PerClass.of(b, k, d, size)
    shares = max(1, programs // (parts(b, TILE) * parts(up(d, 64), TILE)))
    left = memory - shares_bytes(shares, b, d)
    most = min(BLOCK_CELLS // (k * up(b, 16)), left // (each.slopes + each.unit))
    block = min(classes, max(TILE, most // TILE * TILE))
    left -= block * each.slopes
    keep_units = classes * each.unit <= left
    left -= (classes if keep_units else block) * each.unit
    # float32 would lose digits, at a large s so would bf16, and sub-centres would have to be kept as well.
    keepable = k == 1 and size == 2 and s <= KEPT_UP_TO
    if keepable and each.cosines <= d * gradient:
        return Plan(block, keep_units, "gradient", parts(c, block), shares)
    kept = min(parts(c, block), max(0, left) // (block * each.cosines)) if keepable else 0
    return Plan(block, keep_units, "own", kept, shares)


class PerClass(NamedTuple):
    """Bytes of one class: its slopes with the sums beside them, its units, and its cosines where they are kept."""

    slopes: int
    unit: int
    cosines: int

    @classmethod
    def of(cls, b: int, k: int, d: int, size: int) -> PerClass:
        """For a batch, sub-centres, a dimension and the size of a number in the products."""
        return cls(k * (up(b, 16) * size + 4 * parts(b, TILE)), k * up(d, 64) * size, 2 * up(b, 16))


def shares_bytes(shares: int, b: int, d: int) -> int:
    """Bytes of the shares in which the gradient of x is summed up."""
    return shares * b * up(d, 64) * 4


def allowance(total: int, *, moving: bool = False) -> int:
    """The working memory that `auto` allows on a device with so much memory.

    Who has the optimiser step inside wants to save memory: a quarter then.
    """
    return max(LEAST, total // (4 * SHARE if moving else SHARE))


def up(n: int, step: int) -> int:
    """n rounded up to a multiple of step."""
    return parts(n, step) * step


def parts(n: int, size: int) -> int:
    """How many pieces of a size hold n."""
    return -(-n // size)


class Cost(NamedTuple):
    """What one forward + backward does: operations, bytes through the memory, and bytes of working memory.

    Where sub-centres compete in small tiles the operations take longer by `drag`.
    """

    operations: float
    traffic: float
    working: int
    drag: float = 1.0

    def seconds(self, rate: float, bandwidth: float) -> float:
        """The time at a device's peak rates; under its power limit the products reach 73 % (measured, H200)."""
        return self.drag * self.operations / (0.73 * rate) + self.traffic / bandwidth


def cost(b: int, c: int, k: int, d: int, plan: Plan, *, size: int = 2, w: int = 4, state: int = 0) -> Cost:
    """The cost of a step under a plan; `w` bytes a number of the prototypes, `state` tensors of an optimiser inside.

    >>> plan = planned(1024, 1_000_000, 1, 512, size=2, memory=2**33, gradient=4)
    >>> f"{1e3 * cost(1024, 1_000_000, 1, 512, plan).seconds(989e12, 4.8e12):.1f} ms"
    '8.4 ms'
    """
    rows, kept = c * k, plan.kept / parts(c, plan.block)
    weights, units, slopes, cosines = rows * d * w, rows * up(d, 64) * size, rows * b * size, 2 * kept * rows * b
    first = weights + 2 * units + cosines  # w is read, its units written and read, some cosines written
    again = 0 if plan.keep_units else weights + units
    second = again + cosines + (1 - kept) * units + slopes  # cosines read or units, slopes written
    to_x, to_w = slopes + units, slopes + 2 * weights + 2 * state * rows * d * 4
    each = PerClass.of(b, k, d, size)
    working = shares_bytes(plan.shares, b, d) + plan.block * each.slopes
    working += (up(c, TILE) if plan.keep_units else plan.block) * each.unit
    working += plan.kept * plan.block * each.cosines if plan.room == "own" else 0
    drag = 1.0 if k == 1 else 1.32  # measured, H200
    return Cost((4 - kept) * 2.0 * b * rows * d, first + second + to_x + to_w, working, drag)
