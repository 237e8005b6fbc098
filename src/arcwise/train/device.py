"""The device to train on, its name, and the settings that make its products fast."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from arcwise.errors import ArcwiseError


def device_for(name: str) -> torch.device:
    """The device of this name; "auto" is the best there is."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).tolist()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        first = str(error).splitlines()[0]
        raise ArcwiseError(f"device {name!r} cannot be used here ({first}). Choose auto, cpu or cuda.") from None
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def made_current(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Makes a GPU the one that streams, recordings and random numbers belong to, while it is entered."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


@contextlib.contextmanager
def plain_torch() -> Iterator[None]:
    """torch as it comes, whatever the caller has switched: float32, gradients, no autocast of anybody else's."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    kinds = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            for kind in kinds:
                stack.enter_context(torch.autocast(kind, enabled=False))
            yield
    finally:
        torch.set_default_dtype(before)


def device_name(device: torch.device) -> str:
    """The device in words."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


@contextlib.contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """On a GPU: float32 products in TF32 and convolutions searched for the fastest, while training lasts."""
    if device.type != "cuda":
        yield
        return
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark
