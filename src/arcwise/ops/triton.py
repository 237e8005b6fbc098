# pyright: reportGeneralTypeIssues=false
"""What the fused engine is made of: kernels over one block of classes at a time, each behind a function.

    prepare  x_i/|x_i| in the type of the products, and the cosine to the own class
    units    w_j/|w_j| of the block in that type, and 1/|w_j|
    lse      x . w by tensor cores; of each tile only its maximum, its sum of exponentials and its best cosine stay
    combine  the log-sum-exp of each sample, from those of the groups that passed over the classes side by side
    slopes   x . w again; each tile becomes g_ij = s f'(cos_ij) p_ij dlse_i at once, with sum_i g_ij cos_ij beside it
    own      the slope of the own class, which the margin decides, in its place
    to_x     dcos_i = sum_j g_ij w_j/|w_j|, in shares that are added in a fixed order
    to_w     dw_j = (sum_i g_ij x_i - (sum_i g_ij cos_ij) w_j/|w_j|) / |w_j|, or an optimiser's step with it at once
    finish   dx_i = (dcos_i - (dcos_i . x_i/|x_i|) x_i/|x_i|) / |x_i|

No sum depends on the order in which threads arrive: the same input gives the same bits. Exponentials are base 2.
"""

from __future__ import annotations

import math
import os
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from arcwise.ops.plan import TILE, parts
from arcwise.ops.update import Update
from arcwise.sphere import EMPTY, TINY

LOG2E = math.log2(math.e)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
MODES = {None: 0, "curricular": 1, "mv": 2, "mv-fixed": 3, "filter": 4}
NO_CLASS = tl.constexpr(EMPTY)
FIXED = tl.constexpr(32512.0)  # cosines up to 1.007 are kept as whole multiples of 1/FIXED, finer than fp16 near 1
WHOLE = tl.constexpr(1.5 * 2**23)  # a float32 of this size is a whole number, which its last bits hold
WHOLE_BITS = tl.constexpr(0x4B400000)


# ------------------------------------------------------------------------------------------ what launches share


class Settings(NamedTuple):
    """What every launch of one pass shares: sub-centres, dimension, padded dimension, mode, scale, and the products."""

    k: int
    d: int
    deep: int
    mode: int
    s: float
    products: torch.dtype
    skip: float = 0.0

    @property
    def step(self) -> int:
        """Columns that are multiplied at a time."""
        return 32 if self.products == torch.float32 else 64

    @property
    def rows(self) -> int:
        """Classes of a tile of cosines: with sub-centres two tiles and a choice must fit the registers."""
        return TILE if self.k == 1 else TILE // 2

    @property
    def columns(self) -> int:
        """Columns of a tile of gradients."""
        return TILE if self.deep % TILE == 0 else 64

    def launch(self) -> dict[str, object]:
        """How tiles are multiplied, and by how many threads; float32 as torch is told to multiply it."""
        exact = self.products == torch.float32 and torch.get_float32_matmul_precision() == "highest"
        precision = "ieee" if INTERPRETED else "tf32x3" if exact else "tf32"
        upcast = INTERPRETED and self.products == torch.bfloat16
        warps = 8 if exact else 4
        return {
            "BK": self.step, "PRECISION": precision, "UPCAST": upcast, "num_warps": warps, "num_stages": 3,
        }  # fmt: skip


class ClassBlock(NamedTuple):
    """Classes start to start + n: rows of w, inverse lengths and units, and cosines where these are kept."""

    start: int
    rows: Tensor
    inverse: Tensor
    unit: Tensor
    kept: Tensor | None

    @property
    def n(self) -> int:
        """Classes of the block."""
        return len(self.rows)

    @property
    def padded(self) -> int:
        """The same in whole tiles."""
        return len(self.unit) // self.rows.shape[1]


class Launcher:
    """Launches a kernel that was compiled before without looking up how, in about half the time of triton's own way.

    What a compiled kernel depends on is its constants, and of each tensor its type and whether it starts at a
    multiple of 16 bytes; whole numbers are not specialised.
    """

    def __init__(self, kernel: Any):
        self.kernel, self.compiled = kernel, {}

    def __call__(self, programs: int, *args: object, **constants: object) -> None:
        if INTERPRETED:
            self.kernel[(programs,)](*args, **constants)
            return
        known = (torch.cuda.current_device(), *constants.values(), *map(nature, args))
        ready = self.compiled.get(known)
        if ready is None:
            self.compiled[known] = self.kernel[(programs,)](*args, **constants)
        else:
            names = self.kernel.arg_names[len(args) :]
            ready[(programs, 1, 1)](*args, *(constants[name] for name in names))


def nature(arg: object) -> object:
    """What of an argument a compiled kernel depends on."""
    if isinstance(arg, Tensor):
        return arg.dtype, arg.data_ptr() % 16 == 0
    if isinstance(arg, TensorDescriptor):
        return arg.base.dtype, *arg.block_shape
    return type(arg)


def tiles(tensor: Tensor, *shape: int) -> TensorDescriptor:
    """The tensor as a kernel reads it: in tiles, with zeros beyond its edges."""
    return TensorDescriptor.from_tensor(tensor, list(shape))


@lru_cache(maxsize=32)
def resident(per_multiprocessor: int, device: torch.device) -> int:
    """Programs that run at once."""
    if device.type != "cuda":
        return 4
    return per_multiprocessor * torch.cuda.get_device_properties(device).multi_processor_count


# ------------------------------------------------------------------------------------------ in every kernel


@triton.jit
def product(a, b, acc, PRECISION: tl.constexpr, UPCAST: tl.constexpr):
    """acc + a b; the interpreter cannot multiply bf16, so it is given float32."""
    if UPCAST:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision=PRECISION)


@triton.jit
def tile_inverse_length(v, axis: tl.constexpr, tiny):
    """1/|v|; 0 where |v| < tiny, NaN where it overflowed."""
    norm = tl.sqrt(tl.sum(v * v, axis))
    inverse = tl.where(norm < tiny, 0.0, 1.0 / tl.where(norm < tiny, 1.0, norm))
    return tl.where(norm == float("inf"), float("nan"), inverse)


@triton.jit
def dots(
    a, row, b, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr, D: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """The dot products of a tile's rows of a with a tile's rows of b."""
    acc = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in range(0, D, BK):
        acc = product(a.load([row, k]), b.load([column, k]).T, acc, PRECISION, UPCAST)
    return acc


@triton.jit
def quarter(tile, WHICH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """A quarter of the columns of a tile: what is handled at once must fit the registers beside the tile itself."""
    left, right = tl.split(tl.permute(tl.reshape(tile, (BM, 2, BN // 2)), (0, 2, 1)))
    half = right if WHICH // 2 else left
    left, right = tl.split(tl.permute(tl.reshape(half, (BM, 2, BN // 4)), (0, 2, 1)))
    return right if WHICH % 2 else left


@triton.jit
def fixed(cos):
    """A cosine as a multiple of 1/FIXED, rounded: by a sum, for conversions are as slow as exponentials."""
    return (cos * FIXED + WHOLE).to(tl.int32, bitcast=True).to(tl.int16)


@triton.jit
def unfixed(multiple):
    """The cosine again."""
    return ((multiple.to(tl.int32) + WHOLE_BITS).to(tl.float32, bitcast=True) - WHOLE) * (1.0 / FIXED)


@triton.jit
def reshape_tile(cos, above, t, MODE: tl.constexpr):
    """f(cos): what a cosine to another class counts, by the margin's mode."""
    if MODE == 1:
        return tl.where(cos > above, cos * (t + tl.maximum(cos, -2.0)), cos)  # the square of "no class" overflows
    if MODE == 2:
        return tl.where(cos > above, t * cos + (t - 1.0), cos)
    if MODE == 3:
        return tl.where(cos > above, cos + (t - 1.0), cos)
    if MODE == 4:
        return tl.where(cos > above, NO_CLASS, cos)
    return cos


@triton.jit
def steepness(cos, above, t, MODE: tl.constexpr):
    """f'(cos)."""
    if MODE == 1:
        return tl.where(cos > above, t + 2.0 * cos, 1.0)
    if MODE == 2:
        return tl.where(cos > above, t, 1.0)
    if MODE == 4:
        return tl.where(cos > above, 0.0, 1.0)
    return tl.full(cos.shape, 1.0, tl.float32)


# ------------------------------------------------------------------------------------------ before the first pass


@triton.jit
def prepare_kernel(
    x, w, y, operand, cos_y, nearest, tiny, d: tl.constexpr, K: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr
):
    """operand[i] = x[i]/|x[i]|; cos_y[i] = that . w/|w| of the nearest own sub-centre, and which one that is."""
    i, column = tl.program_id(0), tl.arange(0, WIDE)
    v = tl.load(x + i * d + column, mask=column < d, other=0.0)
    v *= tile_inverse_length(v, 0, tiny)
    tl.store(operand + i * D + column, v.to(operand.dtype.element_ty), mask=column < D)
    best, which = -float("inf"), 0
    for kk in tl.static_range(K):
        own = tl.load(w + (tl.load(y + i) * K + kk) * d + column, mask=column < d, other=0.0).to(tl.float32)
        cos = tl.sum(v * own, 0) * tile_inverse_length(own, 0, tiny)
        nearer = (cos > best) | (cos != cos)
        best, which = tl.where(nearer, cos, best), tl.where(nearer, kk, which)
    tl.store(cos_y + i, best)
    tl.store(nearest + i, which)


launch_prepare = Launcher(prepare_kernel)


def prepare(x: Tensor, w: Tensor, y: Tensor, one: Settings) -> tuple[Tensor, Tensor, Tensor]:
    """x/|x| in the type of the products, zeros beyond its columns; the own cosine in float32; its sub-centre."""
    operand = x.new_empty(len(x), one.deep, dtype=one.products)
    cos_y, nearest = x.new_empty(len(x)), y.new_empty(len(x), dtype=torch.int32)
    launch_prepare(
        len(x), x, w, y, operand, cos_y, nearest, TINY,
        d=one.d, K=one.k, D=one.deep, WIDE=triton.next_power_of_2(one.deep),
    )  # fmt: skip
    return operand, cos_y, nearest


@triton.jit(do_not_specialize=["n", "padded"])
def unit_kernel(
    w, unit, inverse, n, padded, tiny,
    d: tl.constexpr, K: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """unit[kk * padded + j] = w[j, kk] / |w[j, kk]|, zero for j >= n; inverse[j, kk] = 1/|w[j, kk]|."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDE)
    j, kk = row % padded, row // padded
    source = j.to(tl.int64) * K + kk
    inside = (j < n) & (kk < K)
    v = tl.load(w + source[:, None] * d + column[None, :], mask=inside[:, None] & (column < d)[None, :], other=0.0).to(
        tl.float32
    )
    one = tile_inverse_length(v, 1, tiny)
    place = unit + row.to(tl.int64)[:, None] * D + column[None, :]
    tl.store(place, (v * one[:, None]).to(unit.dtype.element_ty), mask=(kk < K)[:, None] & (column < D)[None, :])
    tl.store(inverse + source, one, mask=inside)


launch_unit = Launcher(unit_kernel)


def write_units(rows: Tensor, unit: Tensor, inverse: Tensor, one: Settings) -> None:
    """Fills a block's units and inverse lengths."""
    launch_unit(
        parts(len(unit), 8),
        rows, unit, inverse, len(rows), len(unit) // one.k, TINY,
        d=one.d, K=one.k, D=one.deep, WIDE=triton.next_power_of_2(one.deep), ROWS=8,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------ the first pass


class Running(NamedTuple):
    """Maximum, sum and best cosine of every sample, one for each group of tiles that passes over the classes."""

    top: Tensor
    total: Tensor
    best: Tensor

    @classmethod
    def over(cls, x: Tensor) -> Running:
        """Room for the groups of a batch; the first block fills it."""
        return cls(*x.new_empty(3, max(1, resident(2, x.device) // parts(len(x), TILE)), len(x)))


class Reshaping(NamedTuple):
    """The number per sample and the one for all samples that a mode needs; any tensor where there is none."""

    above: Tensor
    t: Tensor


@triton.jit(do_not_specialize=["start", "b", "n", "padded"])
def lse_kernel(
    x, unit, y, above, t, top, total, best, kept, start, b, n, padded, scale,
    D: tl.constexpr, K: tl.constexpr, MODE: tl.constexpr, KEEP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Takes a block of classes into the running maximum, sum and best cosine of each sample, one per group of tiles."""
    tiles = tl.cdiv(b, BM)
    tile, group = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    i = tile * BM + tl.arange(0, BM)
    here, slot = i < b, group * b + i
    own = (tl.load(y + i, mask=here, other=-1) - start).to(tl.int32)
    limit = tl.load(above + i, mask=here, other=0.0)[:, None] if MODE else 0.0
    strength = tl.load(t) if MODE else 0.0
    before = here & (start > 0)  # the first block finds nothing there yet
    m = tl.load(top + slot, mask=before, other=-float("inf"))
    e = tl.load(total + slot, mask=before, other=0.0)
    largest = tl.load(best + slot, mask=before, other=NO_CLASS)
    j = tl.arange(0, BN)
    for block in tl.range(group, tl.cdiv(n, BN), tl.num_programs(0) // tiles):
        cos = dots(x, tile * BM, unit, block * BN, BM, BN, D, BK, PRECISION, UPCAST)
        for kk in tl.static_range(1, K):
            row = kk * padded + block * BN
            other = dots(x, tile * BM, unit, row, BM, BN, D, BK, PRECISION, UPCAST)
            cos = tl.maximum(cos, other, propagate_nan=tl.PropagateNan.ALL)
        if KEEP:
            for part in tl.static_range(4):  # classes become rows, as the second pass wants them
                kept.store([block * BN + part * (BN // 4), tile * BM], fixed(quarter(cos, part, BM, BN)).T)
        mine = own - block * BN
        if tl.max(tl.where((mine >= 0) & (mine < BN), 1, 0), 0) > 0:
            cos = tl.where(j[None, :] == mine[:, None], NO_CLASS, cos)
        if (block + 1) * BN > n:
            cos = tl.where((block * BN + j < n)[None, :], cos, NO_CLASS)
        z = reshape_tile(cos, limit, strength, MODE)
        higher = tl.maximum(m, tl.max(z, 1))
        e = e * tl.exp2((m - higher) * scale) + tl.sum(tl.exp2((z - higher[:, None]) * scale), 1)
        m = higher
        largest = tl.maximum(largest, tl.max(cos, 1)) if MODE else m
    tl.store(top + slot, m, mask=here)
    tl.store(total + slot, e, mask=here)
    tl.store(best + slot, largest, mask=here)


launch_lse = Launcher(lse_kernel)


def take_in(
    block: ClassBlock, operand: Tensor, y: Tensor, reshaping: Reshaping, running: Running, one: Settings
) -> None:
    """Takes a block of classes into the running numbers; writes its cosines where they are kept."""
    kept = running.top if block.kept is None else tiles(block.kept, TILE // 4, TILE)
    launch_lse(
        parts(len(y), TILE) * len(running.top),
        tiles(operand, TILE, one.step), tiles(block.unit, one.rows, one.step), y, *reshaping, *running,
        kept, block.start, len(y), block.n, block.padded, one.s * LOG2E,
        D=one.deep, K=one.k, MODE=one.mode, KEEP=block.kept is not None, BM=TILE, BN=one.rows,
        **one.launch(),
    )  # fmt: skip


@triton.jit(do_not_specialize=["b", "groups"])
def combine_kernel(top, total, best, lse, other, b, groups, s, scale, BM: tl.constexpr):
    """lse[i] and the largest other cosine, from those of the groups."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    here = i < b
    m, largest = tl.full((BM,), -float("inf"), tl.float32), tl.full((BM,), NO_CLASS, tl.float32)
    for group in range(groups):
        m = tl.maximum(m, tl.load(top + group * b + i, mask=here, other=0.0))
        largest = tl.maximum(largest, tl.load(best + group * b + i, mask=here, other=0.0))
    e = tl.zeros((BM,), tl.float32)
    for group in range(groups):
        share = tl.load(total + group * b + i, mask=here, other=1.0)
        e += share * tl.exp2((tl.load(top + group * b + i, mask=here, other=0.0) - m) * scale)
    whole = m * s + tl.log(e)
    tl.store(lse + i, whole, mask=here)
    tl.store(other + i, tl.where(whole == whole, largest, whole), mask=here)  # a maximum passes NaN over


launch_combine = Launcher(combine_kernel)


def combine(running: Running, one: Settings) -> tuple[Tensor, Tensor]:
    """lse and the largest other cosine."""
    groups, b = running.top.shape
    lse, other = running.top.new_empty(2, b)
    launch_combine(parts(b, TILE), *running, lse, other, b, groups, one.s, one.s * LOG2E, BM=TILE)
    return lse, other


# ------------------------------------------------------------------------------------------ the second pass


class Slopes(NamedTuple):
    """The slopes of a block, one row per centre, and the sums of slope times cosine, one row per tile of samples.

    `counted` says of each tile whether it counts, where some are skipped.
    """

    g: Tensor
    radial: Tensor
    counted: Tensor


@triton.jit(do_not_specialize=["start", "b", "n", "padded"])
def slopes_kernel(
    x, unit, kept, y, above, t, lse, d_lse, slopes, radial, counted, unscale, start, b, n, padded, s, scale, log2e,
    skip,
    D: tl.constexpr, K: tl.constexpr, MODE: tl.constexpr, KEEP: tl.constexpr, SKIP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """slopes[kk * padded + j, i] = g_ij, 0 for the own class; radial[tile of samples, same row] = sum of g_ij cos_ij.

    With SKIP a tile all of whose |g_ij| are below s skip / b, and that holds no own class, is not counted: its slopes
    are left unwritten, and nobody reads them.
    Classes are rows here: a sum over samples then stays within a thread, and to_w reads the slopes as they lie.
    """
    tiles = tl.cdiv(b, BM)
    tile, block = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    i, j = tile * BM + tl.arange(0, BM), block * BN + tl.arange(0, BN)
    here = i < b
    # What a sample needs is asked for before the products, whose time hides how long it takes to come.
    own = (tl.load(y + i, mask=here, other=-1) - start).to(tl.int32)
    meets_own = tl.max(tl.where((own >= block * BN) & (own < block * BN + BN), 1, 0), 0) > 0
    level = tl.load(lse + i, mask=here, other=0.0)
    level = tl.where(level < -1e20, 0.0, level) * log2e  # no other class counts: each is exp(EMPTY s), which is 0
    weight = tl.load(d_lse + i, mask=here, other=0.0) * s
    nearest = tl.zeros((BN, BM), tl.int8)
    if KEEP:
        cos = unfixed(kept.load([block * BN, tile * BM]))
    else:
        cos = dots(unit, block * BN, x, tile * BM, BN, BM, D, BK, PRECISION, UPCAST)
        for kk in tl.static_range(1, K):
            other = dots(unit, kk * padded + block * BN, x, tile * BM, BN, BM, D, BK, PRECISION, UPCAST)
            nearest = tl.where(other > cos, kk, nearest).to(tl.int8)
            cos = tl.maximum(cos, other, propagate_nan=tl.PropagateNan.ALL)
    if meets_own:
        cos = tl.where(j[:, None] == own[None, :], NO_CLASS, cos)
    if (block + 1) * BN > n:
        cos = tl.where((j < n)[:, None], cos, NO_CLASS)
    limit = tl.load(above + i, mask=here, other=0.0)[None, :] if MODE else 0.0
    strength = tl.load(t) if MODE else 0.0
    z = reshape_tile(cos, limit, strength, MODE) * scale
    g = tl.exp2(z - level[None, :]) * weight[None, :]
    if MODE:
        g *= steepness(cos, limit, strength, MODE)
    counts = True
    if SKIP:
        unknown = tl.max(tl.where((level == level) & (weight == weight), 0, 1), 0) > 0  # a maximum passes NaN over
        counts = meets_own | unknown | (tl.max(tl.max(tl.abs(g), 1), 0) * tl.load(unscale) * b >= skip * s)
        tl.store(counted + block * tiles + tile, counts.to(tl.int32))
    for kk in tl.static_range(K):
        part = (tl.where(nearest == kk, g, 0.0) if K > 1 else g).to(slopes.dtype)  # what to_w will sum, to the bit
        tl.store(radial + (tile * K + kk) * padded + j, tl.where(counts, tl.sum(part.to(tl.float32) * cos, 1), 0.0))
        if counts:
            slopes.store([kk * padded + block * BN, tile * BM], part)


launch_slopes = Launcher(slopes_kernel)


def write_slopes(
    block: ClassBlock, operand: Tensor, y: Tensor, reshaping: Reshaping, lse: Tensor, d_lse: Tensor, slopes: Slopes,
    unscale: Tensor, one: Settings,
) -> None:  # fmt: skip
    """Fills the slopes of a block but for the own classes, which stay 0."""
    rows = one.rows if block.kept is None else TILE // 4  # where only memory is waited for, many wait at once
    rows = TILE if one.skip else rows  # what is skipped is a whole tile of the products to come
    launch_slopes(
        parts(len(y), TILE) * (block.padded // rows),
        tiles(operand, TILE, one.step), tiles(block.unit, rows, one.step),
        lse if block.kept is None else tiles(block.kept, rows, TILE), y, *reshaping, lse, d_lse,
        tiles(slopes.g, rows, TILE), slopes.radial, slopes.counted, unscale, block.start, len(y), block.n,
        block.padded, one.s, one.s * LOG2E, LOG2E, one.skip,
        D=one.deep, K=one.k, MODE=one.mode, KEEP=block.kept is not None, SKIP=one.skip > 0.0, BM=TILE, BN=rows,
        **one.launch(),
    )  # fmt: skip


@triton.jit(do_not_specialize=["start", "b", "wide", "n", "padded"])
def own_kernel(y, nearest_own, cos_y, d_own, slopes, radial, start, b, wide, n, padded, B: tl.constexpr):
    """Puts the slope of each sample's own class in its place, and adds its part to the radial of the class."""
    i, every = tl.program_id(0), tl.arange(0, B)
    here = every < b
    mine, kk = tl.load(y + i), tl.load(nearest_own + i)
    row = kk * padded + (mine - start)
    if (mine >= start) & (mine < start + n):
        tl.store(slopes + row * wide + i, tl.load(d_own + i).to(slopes.dtype.element_ty))
        same = (tl.load(y + every, mask=here, other=-1) == mine) & (
            tl.load(nearest_own + every, mask=here, other=-1) == kk
        )
        if tl.min(tl.where(same, every, B), 0) == i:  # one sample speaks for its class: no two write the same place
            rounded = tl.load(d_own + every, mask=same, other=0.0).to(slopes.dtype.element_ty).to(tl.float32)
            part = rounded * tl.load(cos_y + every, mask=same, other=0.0)
            tl.store(radial + row, tl.load(radial + row) + tl.sum(part, 0))


launch_own = Launcher(own_kernel)


def add_own(block: ClassBlock, y: Tensor, nearest: Tensor, cos_y: Tensor, d_own: Tensor, slopes: Slopes) -> None:
    """Puts the slopes of the own classes in their places."""
    launch_own(
        len(y),
        y, nearest, cos_y, d_own, slopes.g, slopes.radial, block.start, len(y), slopes.g.shape[1], block.n,
        block.padded, B=triton.next_power_of_2(len(y)),
    )  # fmt: skip


@triton.jit(do_not_specialize=["start", "b", "rows", "splits", "padded"])
def to_x_kernel(
    slopes, unit, shares, counted, start, b, rows, splits, padded,
    D: tl.constexpr, SKIP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """shares[split, i] += sum over the split's rows of slopes[row, i] unit[row]; the first block starts them."""
    tiles: tl.constexpr = D // BN
    pid = tl.program_id(0)
    column, pid = pid % tiles, pid // tiles
    split, tile = pid % splits, pid // splits
    each = tl.cdiv(tl.cdiv(rows, splits), BK) * BK
    acc = tl.zeros((BM, BN), tl.float32)
    for row in range(split * each, tl.minimum(rows, split * each + each), BK):
        counts = tl.load(counted + row % padded // BM * tl.cdiv(b, BM) + tile) != 0 if SKIP else True
        if counts:
            acc = product(slopes.load([row, tile * BM]).T, unit.load([row, column * BN]), acc, PRECISION, UPCAST)
    for part in tl.static_range(4):
        place = [split, tile * BM, column * BN + part * (BN // 4)]
        share = quarter(acc, part, BM, BN)
        if start > 0:
            share += tl.reshape(shares.load(place), (BM, BN // 4))
        shares.store(place, tl.reshape(share, (1, BM, BN // 4)))


launch_to_x = Launcher(to_x_kernel)


def add_to_x(block: ClassBlock, slopes: Slopes, shares: Tensor, one: Settings) -> None:
    """Adds a block's part of the gradient of x/|x| to its shares, or starts them."""
    split, b, _ = shares.shape
    launch_to_x(
        parts(b, TILE) * split * (one.deep // one.columns),
        tiles(slopes.g, one.step, TILE), tiles(block.unit, one.step, one.columns),
        tiles(shares, 1, TILE, one.columns // 4), slopes.counted, block.start, b, len(slopes.g), split, block.padded,
        D=one.deep, SKIP=one.skip > 0.0, BM=TILE, BN=one.columns, **one.launch(),
    )  # fmt: skip


@triton.jit
def tile_by_chance(value, seed, place):
    """float32 in bf16, rounded up or down by chance, so that steps smaller than its last digit count on average.

    The chance is a hash of the place (Wellons 2018, "lowbias32") that takes the seed in twice: Triton's own generator
    multiplies ten times as often, which with ten million classes took as long as the products.
    """
    noise = place.to(tl.uint32) ^ seed
    noise = (noise ^ (noise >> 16)) * 0x7FEB352D
    noise = (noise ^ (noise >> 15) ^ (seed << 7)) * 0x846CA68B
    noise = (noise ^ (noise >> 16)) & 0xFFFF
    bits = value.to(tl.uint32, bitcast=True)
    finite = (bits & 0x7F800000) != 0x7F800000
    bits = tl.where(finite, bits + noise, bits) & 0xFFFF0000
    return bits.to(tl.float32, bitcast=True).to(tl.bfloat16)


@triton.jit(do_not_specialize=["b", "n", "padded", "start", "count"])
def to_w_kernel(
    slopes, x, w, inverse, radial, counted, d_w, unscale, first, second, hyper, gate, b, n, padded, start, count,
    D: tl.constexpr, K: tl.constexpr, SKIP: tl.constexpr, UPDATE: tl.constexpr, NARROW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr, PRECISION: tl.constexpr,
    UPCAST: tl.constexpr,
):  # fmt: skip
    """d_w[j, kk] = (sum_i g_ij x_i - radial_j w_j/|w_j|) / |w_j|; with UPDATE (1 SGD, 2 AdamW) w moves in its place."""
    tiles: tl.constexpr = D // BN
    if UPDATE:
        if tl.load(gate) == 0:
            return
        lr, decay, beta, beta2 = tl.load(hyper), tl.load(hyper + 1), tl.load(hyper + 2), tl.load(hyper + 3)
        eps, bias, bias2, ahead = tl.load(hyper + 4), tl.load(hyper + 5), tl.load(hyper + 6), tl.load(hyper + 7)
        seed = (tl.load(hyper + 8).to(tl.int32) * 65537 + start).to(tl.uint32)
    scaled_back = tl.load(unscale)
    for pid in tl.range(tl.program_id(0), count, tl.num_programs(0)):
        column, tile = pid % tiles, pid // tiles
        at, kk = (tile * BM) % padded, (tile * BM) // padded
        j, part = at + tl.arange(0, BM), tl.arange(0, PARTS)
        places = (part * K * padded)[:, None] + (tile * BM + tl.arange(0, BM))[None, :]
        inward = tl.sum(tl.load(radial + places, mask=(part < tl.cdiv(b, BM))[:, None], other=0.0), 0)
        one = tl.load(inverse + j * K + kk, mask=j < n, other=0.0)
        inward, factor = inward * one, one * scaled_back
        acc = tl.zeros((BM, BN), tl.float32)
        for i in range(0, b, BK):
            counts = tl.load(counted + at // BM * tl.cdiv(b, BM) + i // BM) != 0 if SKIP else True
            if counts:
                acc = product(slopes.load([tile * BM, i]), x.load([i, column * BN]), acc, PRECISION, UPCAST)
        for part in tl.static_range(4):
            place = [at, kk, column * BN + part * (BN // 4)]
            rows = tl.reshape(w.load(place), (BM, BN // 4)).to(tl.float32)
            g = (quarter(acc, part, BM, BN) - rows * inward[:, None]) * factor[:, None]
            if UPDATE == 0:
                d_w.store(place, tl.reshape(g, (BM, 1, BN // 4)).to(d_w.dtype))
            else:
                momentum = tl.reshape(first.load(place), (BM, BN // 4))
                if UPDATE == 1:  # SGD, as torch has it
                    g += decay * rows
                    momentum = beta * momentum + g
                    rows -= lr * tl.where(ahead != 0.0, g + beta * momentum, momentum)
                else:  # AdamW (Loshchilov & Hutter 2019)
                    square = tl.reshape(second.load(place), (BM, BN // 4))
                    momentum = beta * momentum + (1.0 - beta) * g
                    square = beta2 * square + (1.0 - beta2) * g * g
                    rows = rows * (1.0 - lr * decay) - lr / bias * momentum / (tl.sqrt(square / bias2) + eps)
                    second.store(place, tl.reshape(square, (BM, 1, BN // 4)))
                first.store(place, tl.reshape(momentum, (BM, 1, BN // 4)))
                if NARROW:
                    cell = (j * K + kk)[:, None] * D + (column * BN + part * (BN // 4) + tl.arange(0, BN // 4))[None, :]
                    w.store(place, tl.reshape(tile_by_chance(rows, seed, cell), (BM, 1, BN // 4)))
                else:
                    w.store(place, tl.reshape(rows, (BM, 1, BN // 4)))


launch_to_w = Launcher(to_w_kernel)


def write_to_w(
    block: ClassBlock, operand: Tensor, slopes: Slopes, d_rows: Tensor | None, unscale: Tensor, update: Update | None,
    one: Settings,
) -> None:  # fmt: skip
    """Writes the gradient of a block's rows, or moves the rows by the optimiser's step."""
    shape = (TILE, 1, one.columns // 4)
    count = len(slopes.g) // TILE * (one.deep // one.columns)
    programs = min(count, resident(2, operand.device))
    nothing = unscale
    first, second, hyper, gate = nothing, nothing, nothing, nothing
    if update is not None:
        some = slice(block.start, block.start + block.n)
        first, hyper, gate = tiles(update.first[some], *shape), update.hyper, update.gate
        second = nothing if update.second is None else tiles(update.second[some], *shape)
    launch_to_w(
        programs,
        tiles(slopes.g, TILE, one.step), tiles(operand, one.step, one.columns), tiles(block.rows, *shape),
        block.inverse, slopes.radial, slopes.counted, nothing if d_rows is None else tiles(d_rows, *shape), unscale,
        first, second, hyper, gate, len(operand), block.n, block.padded, block.start, count,
        D=one.deep, K=one.k, SKIP=one.skip > 0.0,
        UPDATE=0 if update is None else 1 if update.second is None else 2,
        NARROW=block.rows.dtype == torch.bfloat16, BM=TILE, BN=one.columns,
        PARTS=triton.next_power_of_2(parts(len(operand), TILE)),
        **one.launch(),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------ after the second pass


@triton.jit(do_not_specialize=["b", "splits"])
def finish_kernel(
    shares, x, d_x, unscale, b, splits, tiny, d: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    """d_x[i] = (g - (g . u) u) / |x_i| with g the sum of its shares and u = x_i/|x_i|."""
    i, column = tl.program_id(0), tl.arange(0, WIDE)
    inside = column < d
    g = tl.zeros((WIDE,), tl.float32)
    for split in range(splits):
        g += tl.load(shares + (split * b + i) * D + column, mask=inside, other=0.0)
    v = tl.load(x + i * d + column, mask=inside, other=0.0)
    inverse = tile_inverse_length(v, 0, tiny)
    unit = v * inverse
    tl.store(d_x + i * d + column, (g - tl.sum(g * unit, 0) * unit) * (inverse * tl.load(unscale)), mask=inside)


launch_finish = Launcher(finish_kernel)


def finish_gradient(shares: Tensor, x: Tensor, unscale: Tensor, one: Settings) -> Tensor:
    """The gradient of x, from the shares of that of x/|x|."""
    d_x, (splits, b, _) = torch.empty_like(x), shares.shape
    launch_finish(
        b, shares, x, d_x, unscale, b, splits, TINY, d=one.d, D=one.deep, WIDE=triton.next_power_of_2(one.deep)
    )
    return d_x
