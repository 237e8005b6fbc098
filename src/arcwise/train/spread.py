"""Checkpoints that several processes write together and any number reads: safetensors shards, by torch's own machinery.

A checkpoint is a folder: shards as `torch.distributed.checkpoint` and its HuggingFaceStorageWriter write them, each
prototype and what the optimiser keeps of it once, and state.json, written last, with the progress and the checksums.
"""

from __future__ import annotations

import os
import shutil
import warnings
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from arcwise.errors import ArcwiseError
from arcwise.ops.sharded import Shard
from arcwise.records import FORMAT, read_json, write_json
from arcwise.schema import Check, table, text, whole
from arcwise.train.together import Together

STATE = "state.json"
LEAST_TORCH = "2.9"  # from which on torch.distributed.checkpoint writes safetensors shards
PIECE = 2**24


def hugging_face() -> tuple[Any, Any]:
    """torch's writer and reader of safetensors shards."""
    import torch.distributed.checkpoint as dcp

    if not hasattr(dcp, "HuggingFaceStorageWriter"):
        raise ArcwiseError(
            f"checkpoints of several processes need torch {LEAST_TORCH} or newer, and this is {torch.__version__}."
        )
    return dcp.HuggingFaceStorageWriter, dcp.HuggingFaceStorageReader  # pyright: ignore[reportPrivateImportUsage]


def save_spread(
    folder: Path, tensors: Mapping[str, Tensor], shards: Mapping[str, Shard], progress: Mapping[str, Any], us: Together
) -> Path:
    """The folder, once all processes have put their part into it; until then it has another name.

    `shards` says which of the tensors are rows of larger ones; the others are alike at every process, and one writes
    them.
    """
    from torch.distributed.checkpoint.state_dict_saver import save

    writer, _ = hugging_face()
    beside = folder.with_name(f".writing-{folder.name}")

    def make_room() -> None:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)

    us.lead_first(make_room, lambda: None)
    state = {name: as_rows(value, shards.get(name)) for name, value in tensors.items()}
    with warnings.catch_warnings():  # torch's own, of its own ways
        warnings.simplefilter("ignore")
        save(state, storage_writer=writer(path=str(beside), save_distributed=True), process_group=us.words)
    files = sorted(path for path in beside.iterdir() if path.is_file())
    sums = {path.name: checksum(path, lasting=True) for path in files[us.rank :: us.count]}
    every: list[Any] = [None] * us.count
    dist.all_gather_object(every, sums, group=us.words)

    def finish() -> None:
        together = {name: value for found in every for name, value in found.items()}
        told = {"arcwise": str(FORMAT), "processes": us.count, "progress": dict(progress), "crc32": together}
        write_json(beside / STATE, told)
        shutil.rmtree(folder, ignore_errors=True)
        beside.rename(folder)

    us.lead_first(finish, lambda: None)
    return folder


def as_rows(value: Tensor, shard: Shard | None) -> Tensor:
    """The tensor as the checkpoint is to know it: as rows of a larger one, or as it is."""
    if shard is None:
        return value.detach().contiguous()
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor import Shard as Rows

    mesh = DeviceMesh.from_group(shard.group, value.device.type)
    whole = torch.Size([shard.classes, *value.shape[1:]])
    stride = torch.empty(whole, device="meta").stride()
    return DTensor.from_local(value.detach().contiguous(), mesh, [Rows(0)], run_check=False, shape=whole, stride=stride)


def checksum(path: Path, *, lasting: bool = False) -> str:
    """The CRC-32 of a file, which is on the disk then where it is to last."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            found = zlib.crc32(piece, found)
        if lasting:
            os.fsync(file.fileno())
    return f"{found:08x}"


def state_of(folder: Path, progress: Check) -> dict[str, Any]:
    """What state.json tells of a checkpoint, when every file is there as it was written."""
    wanted = table({"arcwise": text, "processes": whole(1, 10**6), "progress": progress, "crc32": table(rest=text)})
    told = read_json(folder / STATE, wanted, cure="The checkpoint before it will do.")
    if told["arcwise"] != str(FORMAT):
        raise ArcwiseError(f"{folder} was written in format {told['arcwise']}; this version reads {FORMAT}.")
    for name, kept in told["crc32"].items():
        path = folder / Path(name).name
        if not path.is_file() or checksum(path) != kept:
            raise ArcwiseError(f"{path} is not as it was written.")
    return told


def load_spread(folder: Path, shards_of: Callable[[list[str]], Mapping[str, Shard]], us: Together) -> dict[str, Tensor]:
    """The tensors of a checkpoint, whoever wrote it; of those that are spread out this process's rows.

    `shards_of` says of names which of them are spread out.
    """
    from torch.distributed.checkpoint.state_dict_loader import load

    _, reader = hugging_face()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = reader(path=str(folder)).read_metadata().state_dict_metadata
        state: dict[str, Tensor] = {}
        shards = shards_of(list(told))
        for name, about in told.items():
            size, kind = about.size, about.properties.dtype
            shard = shards.get(name)
            rows = size if shard is None else torch.Size([shard.stop - shard.start, *size[1:]])
            state[name] = as_rows(torch.empty(rows, dtype=kind), shard)
        load(state, storage_reader=reader(path=str(folder)), process_group=us.words, no_dist=us.alone)
    return {name: local(value) for name, value in state.items()}


def local(value: Any) -> Tensor:
    """This process's rows."""
    return value.to_local() if hasattr(value, "to_local") else value
