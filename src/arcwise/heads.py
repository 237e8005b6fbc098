"""Returns the loss: prototypes, a margin and a scale, over any engine.

    loss_i = log(1 + exp(lse_i - s psi(cos_iy))),   lse_i = log sum_{j != y} exp(s cos_ij)

The pass over the classes knows no margin, and the margin knows no classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from arcwise.errors import ArcwiseError, count_at_least, number_in, unknown
from arcwise.margins import MARGINS, margin_from
from arcwise.ops import ENGINES, own_cosine, split_lse
from arcwise.sphere import Others, clip, cosines, length, normalise

REDUCTIONS = ("mean", "sum", "none")
GRADIENTS = ("exact", "straight_through")


@dataclass(frozen=True, slots=True)
class Scores:
    """What a batch looks like to a head, without gradients: one entry per sample.

    `correct` never sees the margin, and a tie is not a correct answer. `cos_other` is the cosine to
    the nearest other class, -1 where there is none.
    """

    loss: Float[Tensor, " b"]
    cos_y: Float[Tensor, " b"]
    cos_other: Float[Tensor, " b"]
    correct: Bool[Tensor, " b"]


class Head(nn.Module):
    """The margin loss of raw embeddings x (b, d) and labels y (b,): a scalar with exact gradient.

    loss_i = -log( e^{s psi(cos_iy)} / (e^{s psi(cos_iy)} + sum_{j != y} e^{s cos_ij}) )  (Deng et al. 2019)

    `weight` is (classes, dim), or (classes, k, dim) with k sub-centres; it is normalised in a copy, so
    its own length drifts freely. `engine` is one of "auto", "eager", "chunked"; `memory` bounds the
    chunked engine's working memory in bytes. `gradient="straight_through"` lets the gradient pass the
    margin unchanged, as insightface does. Values (labels in range, x finite) are checked where that
    costs no synchronisation: always on the CPU, elsewhere only with `checks=True`.

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
        memory: int | None = None,
        gradient: str = "exact",
        checks: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.dim, self.classes = count_at_least("dim", dim, 1), count_at_least("classes", classes, 1)
        self.k = count_at_least("k", k, 1)
        self.s = number_in("s", s, 1e-6, 1e6, why="It scales the cosines; advise() suggests one.")
        self.margin = named_margin(margin)
        self.memory = None if memory is None else count_at_least("memory", memory, 1)
        for name, value, choices in (("engine", engine, ENGINES), ("gradient", gradient, GRADIENTS)):
            if value not in choices:
                raise unknown(name, value, choices)
        self.engine, self.gradient, self.checks = engine, gradient, checks
        check_per_class(self.margin, classes)
        shape = (classes, dim) if k == 1 else (classes, k, dim)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.margin.to(self.weight.device)
        self.reset_parameters()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Head:
        """Moves and casts as any module does, but keeps running statistics in float32: in bf16 they stand still."""
        super()._apply(fn, recurse)
        for module in self.margin.modules():
            for name, buffer in module.named_buffers(recurse=False):
                if buffer.is_floating_point() and buffer.element_size() < 4:
                    module.register_buffer(name, buffer.float())
        return self

    def reset_parameters(self) -> None:
        """Prototypes in random directions, of length 1."""
        with torch.no_grad():
            self.weight.normal_()
            self.weight.copy_(normalise(self.weight))

    def forward(self, x: Float[Tensor, "b d"], y: Int[Tensor, " b"], *, reduction: str = "mean") -> Tensor:
        loss, _, _ = self.losses(x, y)
        return reduced(loss, reduction)

    def losses(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, own cosine and largest other cosine of each sample, all of one pass."""
        admit(x, y, self.weight, self.classes, checks=self.checks)
        with torch.autocast(x.device.type, enabled=False):
            x, labels = x.to(working_dtype(x, self.weight)), y.long()
            y = labels.clamp(0, self.classes - 1)
            norm = length(x)
            out = split_lse(
                x,
                self.weight,
                y,
                self.s,
                others=self.others(x, norm, y),
                engine=self.engine,
                memory=self.memory,
            )
            psi = self.margin(out.cos_y, norm=norm, y=y)
            if self.gradient == "straight_through":
                psi = out.cos_y + (psi - out.cos_y).detach()
            loss = torch.logaddexp(torch.zeros_like(psi), out.lse - self.s * psi)
            penalty = getattr(self.margin, "penalty", None)
            if penalty is not None:
                loss = loss + penalty(norm)
            # A bad label that no check caught must not pass for a number.
            return loss.masked_fill(labels != y, torch.nan), out.cos_y, out.cos_other

    def others(self, x: Tensor, norm: Tensor, y: Tensor) -> Others | None:
        """How the other classes count, for the margins that reshape them; carries no gradient."""
        others = getattr(self.margin, "others", None)
        if others is None:
            return None
        with torch.no_grad():
            return others(own_cosine(x, self.weight, y), norm=norm, y=y)

    @torch.no_grad()
    def score(self, x: Float[Tensor, "b d"], y: Int[Tensor, " b"]) -> Scores:
        """Loss, own and nearest other cosine and margin-free correctness of each sample, in a frozen record.

        No statistics move and no margins are drawn, whatever mode the head is in.

        >>> Head(2, 3).score(torch.randn(5, 2), torch.tensor([0, 1, 2, 0, 1])).correct.dtype
        torch.bool
        """
        training = self.margin.training
        self.margin.eval()
        try:
            loss, cos_y, cos_other = self.losses(x, y)
        finally:
            self.margin.train(training)
        return Scores(loss, clip(cos_y, -1.0, 1.0), clip(cos_other, -1.0, 1.0), cos_y > cos_other)

    def logits(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "b c"]:
        """s cos_ij for every class: label-free, and the margin never enters.

        >>> Head(2, 3, s=16.0).logits(torch.randn(5, 2)).shape
        torch.Size([5, 3])
        """
        admit_embeddings(x, self.weight, checks=self.checks)
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(working_dtype(x, self.weight))
            return self.s * cosines(x, self.weight.to(x.dtype).reshape(self.classes, self.k, self.dim))

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
        self.checks = checks
        self.weight = nn.Parameter(torch.empty(classes, dim, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(classes, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """W uniform in +-1/sqrt(d), as torch's own linear layer has it; the bias 0."""
        bound = self.dim**-0.5
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Float[Tensor, "b d"], y: Int[Tensor, " b"], *, reduction: str = "mean") -> Tensor:
        admit(x, y, self.weight, self.classes, checks=self.checks)
        safe = y.long().clamp(0, self.classes - 1)
        with torch.autocast(x.device.type, enabled=False):
            loss = F.cross_entropy(self.logits(x), safe, reduction="none")
        return reduced(loss.masked_fill(safe != y, torch.nan), reduction)

    @torch.no_grad()
    def score(self, x: Float[Tensor, "b d"], y: Int[Tensor, " b"]) -> Scores:
        """As `Head.score`; a tie between logits is not a correct answer."""
        loss, logits = self(x, y, reduction="none"), self.logits(x)
        cos = cosines(x.to(logits.dtype), self.weight.to(logits.dtype).unsqueeze(1))
        (cos_y, cos_other), (own, other) = own_and_best_other(cos, y), own_and_best_other(logits, y)
        return Scores(loss, clip(cos_y, -1.0, 1.0), clip(cos_other, -1.0, 1.0), own > other)

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


def own_and_best_other(
    values: Float[Tensor, "b c"], y: Int[Tensor, " b"]
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
    """Each row's value at its own class, and the largest of the others (-inf where there is none)."""
    own = y.long().clamp(0, values.shape[1] - 1).unsqueeze(1)
    return values.gather(1, own).squeeze(1), values.scatter(1, own, -torch.inf).amax(1)


# ------------------------------------------------------------------------------ heads from a line of text


def head_from(text: str, dim: int, classes: int) -> Head | LinearHead:
    """A head from its name and parameters: "softmax", "softmax-bias", "arcface:m=0.3,s=16", "cosface:k=3".

    >>> head_from("arcface:m=0.3,s=16", 2, 10).s
    16.0
    """
    name, parameters = parsed(text)
    if name in ("softmax", "softmax-bias"):
        if parameters:
            raise ArcwiseError(f"{name} takes no parameters, got {', '.join(parameters)}.")
        return LinearHead(dim, classes, bias=name == "softmax-bias")
    if name not in MARGINS:
        raise unknown("head", name, ["softmax", "softmax-bias", *MARGINS])
    own = {key: parameters.pop(key) for key in ("s", "k") if key in parameters}
    return Head(dim, classes, margin=margin_from(name, **parameters), **own)  # type: ignore[arg-type]


def named_margin(margin: nn.Module | type[nn.Module] | str) -> nn.Module:
    """A margin from an object, a class, a name, or a name with parameters: "arcface:m=0.3"."""
    if not isinstance(margin, str):
        return margin_from(margin)
    name, parameters = parsed(margin)
    if "s" in parameters:
        raise ArcwiseError(f"s belongs to the head, not to the margin: pass Head(..., s={parameters['s']}).")
    return margin_from(name, **parameters)


def parsed(text: str) -> tuple[str, dict[str, object]]:
    """The name and the parameters of "name:key=value,key=value".

    >>> parsed("arcface:m=0.3,continuation=paper")
    ('arcface', {'m': 0.3, 'continuation': 'paper'})
    """
    name, _, rest = text.strip().partition(":")
    parameters: dict[str, object] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value) or key in parameters:
            raise ArcwiseError(f"cannot read {part!r} in {text!r}: write name:key=value,key=value, each key once.")
        parameters[key] = value_of(value)
    return name.strip().lower(), parameters


def value_of(text: str) -> object:
    """A bool, a whole number, a number, or the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# --------------------------------------------------------------------------------- what a head admits


def admit(x: Tensor, y: Tensor, w: Tensor, classes: int, *, checks: bool) -> None:
    """Refuses a batch whose shapes, types, devices or (see `values_checked`) values cannot be right."""
    admit_embeddings(x, w, checks=checks)
    integers = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
    if not isinstance(y, Tensor) or y.dtype not in integers:
        got = y.dtype if isinstance(y, Tensor) else type(y).__name__
        raise ArcwiseError(f"y must be a tensor of whole-number class labels, got {got}. Pass y.long().")
    if y.ndim != 1 or len(y) != len(x):
        raise ArcwiseError(f"y must hold one label per row of x: shape ({len(x)},), got {tuple(y.shape)}.")
    if y.device != w.device:
        raise ArcwiseError(f"y is on {y.device}, the head on {w.device}. Pass y.to({str(w.device)!r}).")
    if values_checked(w, checks) and len(y) > 0 and (int(y.min()) < 0 or int(y.max()) >= classes):
        row = int(((y < 0) | (y >= classes)).nonzero()[0, 0])
        needed = max(int(y.max()) + 1, classes)
        hint = f" pass classes={needed}." if needed > classes else " labels count from 0."
        raise ArcwiseError(
            f"labels must lie in [0, {classes}); row {row} holds {int(y[row])}. "
            f"The head was built for {classes} classes:{hint}"
        )


def admit_embeddings(x: Tensor, w: Tensor, *, checks: bool) -> None:
    """Refuses embeddings that no head of this width can take."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise ArcwiseError(f"x must be a tensor of floating-point embeddings, got {got}. Pass x.float().")
    if x.ndim != 2 or x.shape[1] != w.shape[-1]:
        raise ArcwiseError(
            f"x must have shape (batch, {w.shape[-1]}), got {tuple(x.shape)}. The head was built for dim={w.shape[-1]}."
        )
    if x.device != w.device:
        raise ArcwiseError(f"x is on {x.device}, the head on {w.device}. Pass head.to({str(x.device)!r}).")
    if values_checked(w, checks):
        norm = length(x.detach().to(working_dtype(x, w)))
        if not bool(torch.isfinite(norm).all()):
            row = int((~torch.isfinite(norm)).nonzero()[0, 0])
            raise ArcwiseError(
                f"x must be finite; row {row} holds {fault(x[row])}. Look one layer up: a learning rate too high, "
                "a loss in fp16 without scaling, or a broken input are the usual causes."
            )


def fault(row: Tensor) -> str:
    """What is wrong with a row whose length is not finite."""
    if bool(row.isnan().any()):
        return "NaN"
    return "infinity" if bool(row.isinf().any()) else "numbers so large that its length overflows"


def values_checked(w: Tensor, checks: bool) -> bool:
    """Whether to look at values: always on the CPU, where that waits for nothing; elsewhere on request."""
    return checks or (w.device.type == "cpu" and not torch.compiler.is_compiling())


def check_per_class(margin: nn.Module, classes: int) -> None:
    """Refuses a margin with one m per class when the number of classes is another."""
    for module in margin.modules():
        m = getattr(module, "m", None)
        if isinstance(m, Tensor) and m.ndim == 1 and len(m) != classes:
            raise ArcwiseError(
                f"{type(module).__name__} holds {len(m)} margins, one per class, but the head has {classes} classes."
            )


def working_dtype(x: Tensor, w: Tensor) -> torch.dtype:
    """float32, or float64 where either side is: at s = 64 a cosine in bf16 moves in steps of 0.25."""
    return torch.promote_types(torch.promote_types(x.dtype, w.dtype), torch.float32)


def reduced(loss: Float[Tensor, " b"], reduction: str) -> Tensor:
    """The mean, the sum or the losses themselves."""
    if reduction not in REDUCTIONS:
        raise unknown("reduction", reduction, REDUCTIONS)
    if reduction == "mean" and len(loss) == 0:
        raise ArcwiseError('the mean of an empty batch is not defined: skip it, or pass reduction="sum".')
    return {"mean": loss.mean, "sum": loss.sum, "none": loss.clone}[reduction]()
