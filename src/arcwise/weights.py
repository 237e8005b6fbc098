"""Weights in files: torch's tensors to safetensors and back, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from arcwise.errors import ArcwiseError
from arcwise.records import Entry, write_tensors
from arcwise.records.files import PIECE_BYTES, Stored, read_stored

# torch's types by the names that safetensors has for them.
TORCH_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
BY_NAME = {name: kind for kind, name in TORCH_DTYPES.items()}


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
    found, meta = read_stored(path, what="a model", missing=missing)
    return {name: as_torch(name, tensor, path) for name, tensor in found.items()}, meta


def as_torch(name: str, tensor: Stored, path: Path) -> Tensor:
    """A tensor of a file, in the memory that the file was read into."""
    if tensor.dtype not in BY_NAME:
        raise ArcwiseError(f"{path}: {name} is of type {tensor.dtype}; weights are of {', '.join(BY_NAME)}.")
    kind = BY_NAME[tensor.dtype]
    aligned = tensor.content.ctypes.data % kind.itemsize == 0
    flat = torch.from_numpy(tensor.content if aligned else tensor.content.copy())
    return (flat.view(kind) if len(flat) else torch.empty(0, dtype=kind)).reshape(tensor.shape)


def put_state(module: nn.Module, weights: Mapping[str, Tensor], owner: str) -> None:
    """Gives a module these weights, every one of them used, or says in few words which do not fit their owner."""
    try:
        module.load_state_dict(dict(weights))
    except RuntimeError as error:
        first = " ".join(str(error).split()[:40])
        raise ArcwiseError(f"its weights do not fit {owner}: {first} ...") from None


def refuse_not_finite(weights: Mapping[str, Tensor]) -> None:
    """Raises where a weight is not a finite number: nothing that it gives would be one either."""
    for name, value in weights.items():
        if value.untyped_storage().nbytes() < value.numel() * value.element_size():  # one number, said to be many
            raise ArcwiseError(f"the weight {name} says that it is larger than what is stored of it.")
        if value.is_floating_point() and not value.isfinite().all():
            raise ArcwiseError(f"the weight {name} holds numbers that are not finite. Train the model again.")
