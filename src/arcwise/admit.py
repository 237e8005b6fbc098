"""The checks of a batch: shapes, types and devices always, values where looking at them waits for nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from arcwise.errors import ArcwiseError, NotFinite
from arcwise.sphere import length

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def admit(x: Tensor, y: Tensor, w: Tensor, *, classes: int, checks: bool) -> None:
    """Refuses a batch whose shapes, types, devices or (see `values_checked`) values cannot be right."""
    admit_embeddings(x, w, checks=checks)
    admit_labels(x, y)
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


def admit_labels(x: Tensor, y: Tensor) -> None:
    """Refuses labels that are not whole numbers, one per row of x."""
    if not isinstance(y, Tensor) or y.dtype not in INTEGERS:
        got = y.dtype if isinstance(y, Tensor) else type(y).__name__
        columns = y.shape[1] if isinstance(y, Tensor) and y.ndim == 2 else 0
        how = {0: "y.long()", 1: "y.flatten().long()"}.get(columns, "y.argmax(1), if it is one-hot")
        raise ArcwiseError(f"y must be a tensor of whole-number class labels, got {got}. Pass {how}.")
    if y.shape != x.shape[:1]:
        hint = " One-hot labels become whole numbers by y.argmax(1)." if y.ndim == 2 else ""
        hint = " Pass y.flatten()." if y.ndim == 2 and y.shape[1] == 1 else hint  # argmax would call all of them 0
        raise ArcwiseError(f"y must hold one label per row of x: shape ({len(x)},), got {tuple(y.shape)}.{hint}")


def admit_embeddings(x: Tensor, w: Tensor, *, checks: bool) -> None:
    """Refuses embeddings that no head of this width can take."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        how = "x.float()" if isinstance(x, Tensor) else "torch.as_tensor(x)"
        raise ArcwiseError(f"x must be a tensor of floating-point embeddings, got {got}. Pass {how}.")
    if x.layout != torch.strided or x.dtype not in FLOATS:
        kind = x.dtype if x.layout == torch.strided else "a sparse tensor"
        how = "x.float()" if x.layout == torch.strided else "x.to_dense()"
        raise ArcwiseError(f"x must be dense, in float16, bfloat16, float32 or float64, got {kind}. Pass {how}.")
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
            raise NotFinite(
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


def working_dtype(x: Tensor, w: Tensor) -> torch.dtype:
    """float32, or float64 where either side is: at s = 64 a cosine in bf16 moves in steps of 0.25."""
    return torch.promote_types(torch.promote_types(x.dtype, w.dtype), torch.float32)
