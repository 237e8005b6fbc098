"""Weights in files: torch's tensors to safetensors and back, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from arcwise.records import Entry, read_tensors, write_tensors
from arcwise.records.files import PIECE_BYTES

# torch's types by the names that safetensors has for them.
TORCH_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def tensor_entry(tensor: Tensor) -> Entry:
    """A tensor, wherever it is, as an entry of a file: its bytes come to the host piece by piece."""
    step = max(1, PIECE_BYTES // max(1, tensor.element_size()))

    def pieces() -> Iterator[memoryview]:
        flat = tensor.detach().reshape(-1)
        for piece in flat.split(step) if len(flat) else ():
            yield piece.cpu().contiguous().view(torch.uint8).numpy().data

    return Entry(TORCH_DTYPES[tensor.dtype], tuple(tensor.shape), tensor.numel() * tensor.element_size(), pieces)


def save_tensors(path: str | Path, tensors: Mapping[str, Tensor], meta: Mapping[str, str] | None = None) -> Path:
    """The path, once the tensors are under it; none of them is copied as a whole but those that are not contiguous."""
    return write_tensors(path, {name: tensor_entry(value) for name, value in tensors.items()}, meta or {})


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file."""
    missing = f"there is no model {path}. Train one with: arcwise train digits-2d"
    return read_tensors(path, framework="pt", what="a model", missing=missing)
