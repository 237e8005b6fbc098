"""Heads: prototypes, a margin and a scale make the loss, over any engine.

    loss_i = log(1 + exp(lse_i - s psi(cos_iy))),   lse_i = log sum_{j != y} exp(s cos_ij)

The pass over the classes knows no margin, and the margin knows no classes.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from arcwise.admit import admit, admit_embeddings, working_dtype
from arcwise.errors import ArcwiseError, count_at_least, count_in, flag, number_in, one_of, unknown
from arcwise.headspec import LINEAR_HEADS, HeadSpec
from arcwise.margins import MARGINS, margin_from
from arcwise.ops import ENGINES, Outbound, SplitLSE, own_cosine, split_lse, usable_skip
from arcwise.ops.sampled import Sample, lse_of_some, no_class
from arcwise.ops.sharded import (
    Gathered,
    Joined,
    agreed_number,
    columns_home,
    draw_prototypes,
    gather_batch,
    local_labels,
    shard_over,
    whole_rows,
)
from arcwise.ops.update import Mover
from arcwise.sphere import Others, clip, cosines, length, normalise
from arcwise.views import in_evaluation

REDUCTIONS = ("mean", "sum", "none")
GRADIENTS = ("exact", "straight_through")
STRAIGHT_FROM = 40.0  # log(1 + e^z) is z there, to the last digit of float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What a batch looks like to a head, without gradients: one entry per sample.

    `loss` is the training loss, margin included; the rest never sees the margin. A tie is not a correct
    answer. `cos_other` is the cosine to the nearest other class, -1 where there is none.
    """

    loss: Float[Tensor, " b"]
    cos_y: Float[Tensor, " b"]
    cos_other: Float[Tensor, " b"]
    correct: Bool[Tensor, " b"]


class Head(nn.Module):
    """The margin loss of raw embeddings x (b, d) and labels y (b,): a scalar with exact gradient.

    loss_i = -log( e^{s psi(cos_iy)} / (e^{s psi(cos_iy)} + sum_{j != y} e^{s cos_ij}) )  (Deng et al. 2019)

    `weight` is (classes, dim), or (classes, k, dim) with k sub-centres; it is normalised in a copy, so
    its own length drifts freely. `engine` is one of "auto", "eager", "chunked", "triton"; `memory` bounds the
    working memory of the last two in bytes. Under autocast, or with x in bf16 or fp16, "triton" multiplies in that
    type; all else is float32. `skip` lets "triton" leave tiles of 128 classes out of the gradients where none has
    more than this softmax for any of 128 samples (after some training most are such); 0 leaves out none.
    `gradient="straight_through"` lets the gradient pass the margin unchanged, as insightface does. Values (labels in
    range, x finite) are checked where that costs no synchronisation: always on the CPU, elsewhere only with
    `checks=True`.

    `shard=True` (or a process group, or a mesh) spreads the classes over processes: `weight` is then this process's
    part, x and y are its samples, every process gets the mean over all samples, and the gradient of x is scaled for
    DDP's averaging. `even_batches=True` promises that all bring equally many samples, which saves a question per step.
    `sample=0.1` counts the batch's classes and a random tenth of the others, drawn by (`key`, `passes`); only those
    move, so an optimiser of `arcwise.optim` must hold the prototypes; `corrected` counts a drawn class 1/sample times.

    >>> head = Head(2, 3, margin="arcface", s=16.0)
    >>> loss = head(torch.randn(5, 2), torch.tensor([0, 1, 2, 0, 1]))
    >>> loss.shape
    torch.Size([])
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        margin: nn.Module | type[nn.Module] | str = "arcface",
        s: float = 64.0,
        k: int = 1,
        engine: str = "auto",
        memory: int | Literal["auto"] | None = None,
        gradient: str = "exact",
        skip: float = 0.0,
        checks: bool = False,
        shard: Any = None,
        even_batches: bool = False,
        sample: float = 1.0,
        corrected: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.dim, self.classes = count_at_least("dim", dim, 1), count_at_least("classes", classes, 1)
        self.shard = shard_over(shard, self.classes, even=flag("even_batches", even_batches))
        self.sample = usable_sample(sample, engine)
        self.corrected = flag("corrected", corrected)
        self.k = count_in("k", k, 1, 1024)
        self.s = number_in("s", s, 1e-6, 1e6, why="It scales the cosines; advise() suggests one.")
        self.margin = margin_from(margin)
        self.engine, self.gradient = one_of("engine", engine, ENGINES), one_of("gradient", gradient, GRADIENTS)
        self.memory = None if memory in (None, "auto") else count_at_least("memory", memory, 1)
        self.skip = usable_skip(skip, self.engine)
        self.checks = flag("checks", checks)
        self.strength = 1.0
        self.mover: Mover | None = None  # an optimiser of `arcwise.optim` that steps in the backward pass
        check_per_class(self.margin, self.classes)
        held = self.classes if self.shard is None else self.shard.stop - self.shard.start
        shape = (held, self.dim) if self.k == 1 else (held, self.k, self.dim)
        self.weight = empty(*shape, device=device, dtype=dtype)
        self.margin.to(self.weight.device)
        self.key: int | None = None
        self.passes = 0
        if self.shard is not None or self.sample < 1.0:
            self.draw_by(int(torch.randint(2**62, ())) if self.shard is None else agreed_number(self.shard))
        self.scatter_prototypes()

    def draw_by(self, key: int, passes: int = 0) -> None:
        """From now on what is drawn (sampled classes, random margins) follows from the key and how many passes came.

        So it is the same for any number of processes; heads that are spread out or sampled choose a key themselves.
        """
        self.key, self.passes = key, passes

    def set_strength(self, strength: float) -> None:
        """How much of the margin holds from now on: psi = cos + strength (psi - cos), from 0 (NormFace) to 1.

        A warm-up of the margin sets it before every step; it is no part of the state that is saved.
        """
        self.strength = number_in("strength", strength, 0.0, 1.0)

    @property
    def spec(self) -> HeadSpec:
        """Which head this is: name, title, scale, margin, sub-centres, and parameters that are not the defaults.

        >>> Head(2, 3, margin="arcface:m=0.3", s=16.0).spec.label
        'ArcFace m=0.3 s=16'
        """
        kind = type(self.margin)
        given = {p.name: (told_value(getattr(self.margin, p.name, None)), p.default) for p in margin_parameters(kind)}
        m = given["m"][0] if "m" in given and isinstance(given["m"][0], int | float) else None
        others = {key: v for key, (v, usual) in given.items() if v is not None and v != usual}
        return HeadSpec(
            name=margin_name(kind), title=getattr(kind, "title", kind.__name__), s=self.s,
            k=self.k if self.k > 1 else None, m=None if m is None else float(m),
            parameters={key: v for key, v in others.items() if key != "m" or m is None},
        )  # fmt: skip

    def scatter_prototypes(self, seed: int | None = None) -> None:
        """Prototypes in random directions, of length 1; spread over processes, what each draws is its part of one.

        From torch's own random numbers, or from a seed.
        """
        with torch.no_grad():
            if self.shard is not None:
                draw_prototypes(self.weight, self.shard, agreed_number(self.shard) if seed is None else seed)
            else:
                draw = None if seed is None else torch.Generator(self.weight.device).manual_seed(seed)
                self.weight.normal_(generator=draw)
            self.weight.copy_(normalise(self.weight))

    def reset_parameters(self) -> None:
        """Everything as it was before training: prototypes scattered anew, running statistics at their start."""
        self.scatter_prototypes()
        for module in self.margin.modules():
            reset = getattr(module, "reset_parameters", None)
            if reset is not None:
                reset()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Head:
        """Moves and casts as any module does, but keeps the margin's buffers in float32 at least.

        In bf16 a running mean moves by less than its own rounding, and so stands still.
        """
        before = dict(self.margin.named_buffers(remove_duplicate=False))
        super()._apply(fn, recurse)
        for name, buffer in self.margin.named_buffers(remove_duplicate=False):
            if buffer.is_floating_point() and buffer.element_size() < 4:
                owner, _, last = name.rpartition(".")
                setattr(self.margin.get_submodule(owner), last, before[name].to(buffer.device, torch.float32))
        return self

    def forward(self, x: Float[Tensor, "b d"], y: Int[Tensor, " b"], *, reduction: str = "mean") -> Tensor:
        one_of("reduction", reduction, REDUCTIONS)  # before any statistics move
        loss, _, _, batch = self.one_pass(x, y)
        return reduced(loss if batch is None or reduction != "none" else batch.own(loss), reduction)

    def losses(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, own cosine and largest other cosine of each sample; NaN where a label is out of range."""
        loss, out, bad, batch = self.one_pass(x, y)
        cos_y, cos_other = out.cos_y.masked_fill(bad, torch.nan), out.cos_other.masked_fill(bad, torch.nan)
        if batch is None:
            return loss, cos_y, cos_other
        own = batch.shares.own
        return batch.own(loss), cos_y[own], cos_other[own]

    def one_pass(self, x: Tensor, y: Tensor) -> tuple[Tensor, SplitLSE, Tensor, Gathered | None]:
        """The loss of each sample, what the pass over the classes gave, and which labels are out of range.

        Where the classes are spread over processes these are of all samples, which come last: every process has them.
        """
        admit(x, y, self.weight, classes=self.classes, checks=self.checks)
        products = product_type(x)
        with torch.autocast(x.device.type, enabled=False):
            x, (y, bad) = x.to(working_dtype(x, self.weight)), usable_labels(y, self.classes)
            if self.shard is not None:
                return self.spread_pass(gather_batch(self.shard, x, y.masked_fill(bad, -1)), products)
            norm = length(x)
            others = self.reshaping(x, norm, y, bad)
            out = self.pass_over(x, y, others, products)
            return self.loss_of(out, norm, y, bad), out, bad, None

    def spread_pass(self, batch: Gathered, products: torch.dtype) -> tuple[Tensor, SplitLSE, Tensor, Gathered]:
        """The same over the classes of all processes, each of which has passed over its own."""
        assert self.shard is not None, "only classes that are spread out are joined"
        y, bad = usable_labels(batch.y, self.classes)
        here = local_labels(batch.y, self.shard)
        others = self.reshaping(batch.unit, batch.norm, y, bad, here=here)
        part = self.pass_over(batch.unit, here, others, products, outbound=batch.sender)
        out = SplitLSE(*Joined.apply(*part, self.shard))  # type: ignore[misc]
        return self.loss_of(out, batch.norm, y, bad), out, bad, batch

    @property
    def moving(self) -> bool:
        """Whether a backward pass of this moment would move or differentiate the prototypes."""
        return self.training and torch.is_grad_enabled() and self.weight.requires_grad

    def pass_over(
        self, x: Tensor, y: Tensor, others: Others | None, products: torch.dtype, outbound: Outbound | None = None
    ) -> SplitLSE:
        """The pass over the classes that are here: all, or in training some where the head samples."""
        mover = self.mover if self.moving else None
        given = {
            "others": others, "engine": self.engine, "memory": self.memory, "products": products, "mover": mover,
            "skip": self.skip,
        }  # fmt: skip
        if self.sample < 1.0 and self.training:
            if self.moving and mover is None:
                raise ArcwiseError(
                    "sample moves only the classes it draws, which torch's optimisers cannot: take "
                    "arcwise.optim.SGD(head, lr) or AdamW beside the network's optimiser."
                )
            first = 0 if self.shard is None else self.shard.start
            drawn = Sample(self.sample, self.key_now("classes"), first, self.corrected)
            unit = x if outbound is not None else normalise(x)
            out = lse_of_some(unit, self.weight, y, self.s, drawn, **given)
        elif len(self.weight):
            out = split_lse(x, self.weight, y, self.s, outbound=outbound, **given)
        else:
            out = no_class(x, self.s)
        self.passes += self.training
        return out

    def key_now(self, purpose: str) -> int:
        """The key of what is drawn in this pass for one purpose: the same for every process."""
        told = repr((self.key, self.passes, purpose)).encode()
        return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big") >> 1

    def loss_of(self, out: SplitLSE, norm: Tensor, y: Tensor, bad: Tensor) -> Tensor:
        """The loss of each sample: margin, penalty, and NaN where the label is none."""
        if self.key is not None:
            for module in self.margin.modules():
                if hasattr(module, "draw_seed"):
                    module.draw_seed = self.key_now("margins")  # type: ignore[assignment]
        psi = self.margin(out.cos_y, norm=norm, y=y)
        if self.strength != 1.0:
            psi = out.cos_y + self.strength * (psi - out.cos_y)
        if self.gradient == "straight_through":
            psi = out.cos_y + (psi - out.cos_y).detach()
        loss = F.softplus(torch.sub(out.lse, psi, alpha=self.s), threshold=STRAIGHT_FROM)
        penalty = getattr(self.margin, "penalty", None)
        if penalty is not None:
            loss = loss + penalty(norm)
        if self.mover is None or not self.moving:
            return loss.masked_fill_(bad, torch.nan)
        # nothing is to move: the gradient of such a loss must not be finite either
        return loss * torch.ones_like(loss).masked_fill_(bad, torch.nan)

    def reshaping(
        self, x: Tensor, norm: Tensor, y: Tensor, bad: Tensor, *, here: Tensor | None = None
    ) -> Others | None:
        """How the other classes count, for the margins that reshape them; carries no gradient.

        `here` are the labels among this process's classes, where the classes are spread out.
        """
        others = getattr(self.margin, "others", None)
        if others is None:
            return None
        with torch.no_grad():
            if self.shard is None or here is None:
                cos_y = own_cosine(x, self.weight, y)
            else:
                cos_y = x.new_zeros(len(x))
                if len(self.weight):
                    cos_y = own_cosine(x, self.weight, here.clamp(min=0)).masked_fill(here < 0, 0.0)
                self.shard.summed(cos_y)
            return others(cos_y.masked_fill(bad, torch.nan), norm=norm, y=y)

    @torch.no_grad()
    def score(self, x: Float[Tensor, "b d"], y: Int[Tensor, " b"]) -> Scores:
        """Loss, own and nearest other cosine and margin-free correctness of each sample, in a frozen record.

        No statistics move and no margins are drawn, whatever mode the head is in.

        >>> Head(2, 3).score(torch.randn(5, 2), torch.tensor([0, 1, 2, 0, 1])).correct.dtype
        torch.bool
        """
        loss, cos_y, cos_other = in_evaluation(self).losses(x, y)
        return held_scores(loss, cos_y, cos_other, cos_y > cos_other)

    def logits(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b c"]:
        """s cos_ij for every class: label-free, and the margin never enters.

        >>> Head(2, 3, s=16.0).logits(torch.randn(5, 2)).shape
        torch.Size([5, 3])
        """
        admit_embeddings(x, self.weight, checks=self.checks)
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(working_dtype(x, self.weight))
            if self.shard is None:
                return self.s * cosines(x, self.weight.to(x.dtype).reshape(self.classes, self.k, self.dim))
            with torch.no_grad():
                shares = self.shard.shares(x)
                w = self.weight.to(x.dtype).reshape(len(self.weight), self.k, self.dim)
                return columns_home(self.s * cosines(self.shard.gathered(x, shares), w), shares, self.shard)

    def whole_weight(self) -> Tensor:
        """The prototypes of all classes; where they are spread over processes, all of these ask for it together.

        >>> Head(2, 3).whole_weight().shape
        torch.Size([3, 2])
        """
        return self.weight.detach() if self.shard is None else whole_rows(self.weight, self.shard)

    @torch.no_grad()
    def put_whole_weight(self, weight: Tensor) -> None:
        """Takes over the prototypes of all classes, of which a process keeps its own."""
        shape = (self.classes, *self.weight.shape[1:])
        if tuple(weight.shape) != shape:
            raise ArcwiseError(f"the prototypes of all classes have shape {shape}, got {tuple(weight.shape)}.")
        rows = slice(None) if self.shard is None else slice(self.shard.start, self.shard.stop)
        self.weight.copy_(weight[rows])

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.key is not None:
            destination[prefix + "draws"] = torch.tensor([self.key, self.passes])

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *rest: Any, **more: Any) -> None:
        draws = state_dict.pop(prefix + "draws", None)
        if draws is not None:
            self.draw_by(*draws.tolist())
        super()._load_from_state_dict(state_dict, prefix, *rest, **more)

    def __getstate__(self) -> dict:
        """Copies and saved heads are without an optimiser in the backward pass: it belongs to this one's prototypes."""
        return {**self.__dict__, "mover": None}

    def extra_repr(self) -> str:
        return f"dim={self.dim}, classes={self.classes}, s={self.s:g}, k={self.k}, engine={self.engine!r}"


class LinearHead(nn.Module):
    """The plain softmax baseline: loss_i = -log softmax(x W^T + bias)_y, neither side normalised.

    The same methods as `Head`. Its cosines are those between x and the rows of W; `correct` follows
    the logits.

    >>> LinearHead(2, 3)(torch.randn(5, 2), torch.tensor([0, 1, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        bias: bool = False,
        checks: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.dim, self.classes = count_at_least("dim", dim, 1), count_at_least("classes", classes, 1)
        self.checks = flag("checks", checks)
        self.weight = empty(self.classes, self.dim, device=device, dtype=dtype)
        self.bias = empty(self.classes, device=device, dtype=dtype) if flag("bias", bias) else None
        self.reset_parameters()

    @property
    def spec(self) -> HeadSpec:
        """Which head this is."""
        name = "softmax" if self.bias is None else "softmax-bias"
        return HeadSpec(name=name, title=LINEAR_HEADS[name])

    def reset_parameters(self) -> None:
        """W uniform in +-1/sqrt(d), as torch's own linear layer has it; the bias 0."""
        bound = self.dim**-0.5
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Float[Tensor, "b d"], y: Int[Tensor, " b"], *, reduction: str = "mean") -> Tensor:
        one_of("reduction", reduction, REDUCTIONS)
        loss, _, _ = self.losses(x, y)
        return reduced(loss, reduction)

    def losses(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, own logit and largest other logit of each sample, all of one pass."""
        admit(x, y, self.weight, classes=self.classes, checks=self.checks)
        y, bad = usable_labels(y, self.classes)
        logits = self.logits(x)
        own, other = own_and_largest_other(logits, y)
        loss = F.cross_entropy(logits, y, reduction="none")
        loss, own, other = (v.masked_fill(bad, torch.nan) for v in (loss, own, other))
        return loss, own, other

    @torch.no_grad()
    def score(self, x: Float[Tensor, "b d"], y: Int[Tensor, " b"]) -> Scores:
        """As `Head.score`; a tie between logits is not a correct answer."""
        loss, own, other = self.losses(x, y)
        with torch.autocast(x.device.type, enabled=False):
            cos = cosines(x.to(loss.dtype), self.weight.to(loss.dtype).unsqueeze(1))
        y, bad = usable_labels(y, self.classes)
        cos_y, cos_other = own_and_largest_other(cos, y)
        return held_scores(loss, cos_y.masked_fill(bad, torch.nan), cos_other, own > other)

    def logits(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b c"]:
        """x W^T + bias.

        >>> LinearHead(2, 3).logits(torch.randn(5, 2)).shape
        torch.Size([5, 3])
        """
        admit_embeddings(x, self.weight, checks=self.checks)
        with torch.autocast(x.device.type, enabled=False):
            dtype = working_dtype(x, self.weight)
            bias = None if self.bias is None else self.bias.to(dtype)
            return F.linear(x.to(dtype), self.weight.to(dtype), bias)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, classes={self.classes}, bias={self.bias is not None}"


def head_from(
    head: str | HeadSpec, dim: int, classes: int, *, engine: str = "auto", gradient: str = "exact", **more: Any
) -> Head | LinearHead:
    """A head from its name and parameters: "softmax", "softmax-bias", "arcface:m=0.3,s=16", "cosface:k=3".

    What else a `Head` takes (shard, sample, ...) is handed on.

    >>> head_from("arcface:m=0.3,s=16", 2, 10).s
    16.0
    """
    spec = head if isinstance(head, HeadSpec) else HeadSpec.parse(head)
    one_of("head", spec.name, [*LINEAR_HEADS, *MARGINS])
    if spec.linear:
        if spec.numbers or spec.parameters or (engine, gradient) != ("auto", "exact"):
            raise ArcwiseError(
                f"{spec.name} has no scale, margin, engine or gradient to choose; write {spec.name} alone."
            )
        return LinearHead(dim, classes, bias=spec.name == "softmax-bias")
    own = {key: value for key, value in (("s", spec.s), ("k", spec.k)) if value is not None}
    options = {"engine": engine, "gradient": gradient, **own, **more}
    return Head(dim, classes, margin=margin_of(spec), **options)  # type: ignore[arg-type]


def margin_of(spec: HeadSpec) -> nn.Module:
    """The margin that a spec names, with its parameters."""
    given = {**spec.parameters, **({} if spec.m is None else {"m": spec.m})}
    for key in given.keys() - (choices := {*inspect.signature(MARGINS[spec.name]).parameters, "s", "k"}):
        raise unknown(f"parameter of {spec.name}", key, choices)
    return margin_from(spec.name, **given)


def margin_name(kind: type[nn.Module]) -> str:
    """What a margin is called in the catalogue; the class's own name where it is not there."""
    return next((name for name, known in MARGINS.items() if known is kind), kind.__name__)


def told_value(value: object) -> bool | int | float | str | None:
    """A margin's parameter as a spec tells it: numbers and words, a margin inside by its name, many m by a checksum.

    >>> told_value(torch.tensor([0.1, 0.5]))
    '2 values 0.1 to 0.5 (fbf40f60)'
    """
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor) and value.numel():
        numbers = value.detach().double().cpu().contiguous()
        digest = hashlib.blake2b(numbers.numpy().tobytes(), digest_size=4).hexdigest()
        return f"{value.numel()} values {numbers.min():g} to {numbers.max():g} ({digest})"
    if isinstance(value, nn.Module):
        inside = {p.name: (told_value(getattr(value, p.name, None)), p.default) for p in margin_parameters(type(value))}
        changed = {key: v for key, (v, usual) in inside.items() if v is not None and v != usual}
        return str(HeadSpec(name=margin_name(type(value)), parameters=changed))
    return None


def margin_parameters(kind: type[nn.Module]) -> list[inspect.Parameter]:
    """The parameters of a margin that can be written as text, with their defaults."""
    found = inspect.signature(kind).parameters.values()
    return [p for p in found if isinstance(p.default, int | float | str)]


def product_type(x: Tensor) -> torch.dtype:
    """The type in which an engine may multiply: autocast's, or that of x where it is narrow; else float32."""
    if torch.is_autocast_enabled(x.device.type):
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype if x.dtype in (torch.bfloat16, torch.float16) else torch.float32


def empty(*shape: int, device: torch.device | str | None, dtype: torch.dtype | None) -> nn.Parameter:
    """A parameter of floating-point numbers, not yet filled."""
    if dtype is not None and not dtype.is_floating_point:
        raise ArcwiseError(f"dtype must be a floating-point type such as torch.float32, got {dtype}.")
    return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))


def usable_sample(sample: float, engine: str) -> float:
    """The share of the other classes that counts in a step, checked."""
    sample = number_in("sample", sample, 1e-9, 1.0, why="It is the share of the other classes that are drawn.")
    if sample < 1.0 and engine == "eager":
        raise ArcwiseError('sample moves prototypes in the backward pass: take engine="auto", "chunked" or "triton".')
    return sample


def usable_labels(y: Int[Tensor, " b"], classes: int) -> tuple[Int[Tensor, " b"], Bool[Tensor, " b"]]:
    """Labels held inside the classes, and which were not: those that no check caught must not pass for a number."""
    held = y.long().clamp(0, classes - 1)
    return held, held != y


def own_and_largest_other(
    values: Float[Tensor, "b c"], y: Int[Tensor, " b"]
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
    """Each row's value at its own class, and the largest of the others (-inf where there is none)."""
    own = y.unsqueeze(1)
    return values.gather(1, own).squeeze(1), values.detach().scatter(1, own, -torch.inf).amax(1)


def held_scores(loss: Tensor, cos_y: Tensor, cos_other: Tensor, correct: Tensor) -> Scores:
    """The record, its cosines held inside [-1, 1]."""
    return Scores(loss=loss, cos_y=clip(cos_y, -1.0, 1.0), cos_other=clip(cos_other, -1.0, 1.0), correct=correct)


def check_per_class(margin: nn.Module, classes: int) -> None:
    """Refuses a margin with one m per class when the number of classes is another."""
    for module in margin.modules():
        m = getattr(module, "m", None)
        if isinstance(m, Tensor) and m.ndim == 1 and len(m) != classes:
            raise ArcwiseError(
                f"{type(module).__name__} holds {len(m)} margins, one per class, but the head has {classes} classes."
            )


def reduced(loss: Float[Tensor, " b"], reduction: str) -> Tensor:
    """The mean, the sum or the losses themselves.

    >>> reduced(torch.tensor([1.0, 3.0]), "mean")
    tensor(2.)
    """
    if reduction == "none":
        return loss
    if reduction == "mean" and len(loss) == 0:
        raise ArcwiseError('the mean of an empty batch is not defined: skip it, or pass reduction="sum".')
    return loss.mean() if reduction == "mean" else loss.sum()
