"""Checkpoints that several processes write together and any number reads: safetensors shards, by torch's own machinery.

A checkpoint is a folder: shards as `torch.distributed.checkpoint` plans them and its HuggingFaceStorageReader reads
them, each prototype and what the optimiser keeps of it once, and state.json, written last, with the progress and the
checksums. A shard is written piece by piece: no copy of what is in it is made.
"""

from __future__ import annotations

import functools
import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from arcwise.errors import AlreadyTold, ArcwiseError
from arcwise.ops.sharded import Shard
from arcwise.records import FORMAT, Entry, errors_name, meta_json, read_json, write_json, write_tensors
from arcwise.records.files import PIECE_BYTES, header_bytes, header_of, tensors_are_whole
from arcwise.schema import Check, many, table, text, whole
from arcwise.train.together import ALONE, Together
from arcwise.weights import BY_NAME, tensor_entry

STATE_FILE = "state.json"
LEAST_TORCH = "2.9"  # from which on torch.distributed.checkpoint writes safetensors shards


def torch_has_shards() -> None:
    """Raises where torch is too old to write safetensors shards."""
    import torch.distributed.checkpoint as dcp

    if not hasattr(dcp, "HuggingFaceStorageWriter"):
        raise ArcwiseError(
            f"checkpoints of several processes need torch {LEAST_TORCH} or newer, and this is {torch.__version__}."
        )


@functools.cache
def streaming_writer() -> Any:
    """torch's writer of safetensors shards, whose files bear a checksum and are written as streams."""
    torch_has_shards()
    from torch.distributed.checkpoint import HuggingFaceStorageWriter  # pyright: ignore[reportPrivateImportUsage]
    from torch.distributed.checkpoint._hf_utils import CUSTOM_METADATA_KEY, SAVED_OFFSETS_KEY
    from torch.distributed.checkpoint.storage import WriteResult
    from torch.futures import Future

    class StreamingWriter(HuggingFaceStorageWriter):
        """One shard of each process."""

        def write_data(self, plan: Any, planner: Any) -> Any:
            done: Any = Future()
            if not plan.items:
                done.set_result([])
                return done
            entries = {item.index.fqn: tensor_entry(planner.resolve_data(item)) for item in plan.items}
            places = {item.index.fqn: {SAVED_OFFSETS_KEY: list(item.tensor_data.chunk.offsets)} for item in plan.items}
            name = f"shard-{plan.storage_data['shard_index']:05d}.safetensors"
            write_tensors(Path(self.path) / name, entries, {CUSTOM_METADATA_KEY: json.dumps(places), "format": "pt"})
            done.set_result([WriteResult(i.index, entries[i.index.fqn].nbytes, name) for i in plan.items])
            return done

    return StreamingWriter


def save_spread(
    folder: Path,
    tensors: Mapping[str, Tensor],
    shards: Mapping[str, Shard],
    progress: Mapping[str, Any],
    us: Together,
    *,
    run: str = "",
) -> Path:
    """The folder, once all processes have put their part into it; until then it has another name.

    `shards` says which of the tensors are rows of larger ones; the others are alike at every process, and one writes
    them.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_saver import save

    beside = folder.with_name(f".writing-{folder.name}")

    def make_room() -> None:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)

    us.lead_first(make_room, lambda: None)
    state = {name: as_rows(value, shards.get(name)) for name, value in tensors.items()}
    with warnings.catch_warnings():  # torch's own, of its own ways
        warnings.simplefilter("ignore")
        try:
            save(state, storage_writer=streaming_writer()(str(beside), save_distributed=True), process_group=us.words)
        except CheckpointException as error:  # all processes are told
            rank, (first, _) = min(error.failures.items())
            words = str(first) if isinstance(first, ArcwiseError) else f"{type(first).__name__}: {first}"
            raise (ArcwiseError if us.rank == rank else AlreadyTold)(words) from None

    def finish() -> None:
        sums = {path.name: sum_of(path) for path in sorted(beside.glob("*.safetensors"))}
        told = {"arcwise": str(FORMAT), "processes": us.count, "run": run, "progress": dict(progress), "crc32": sums}
        write_json(beside / STATE_FILE, told)
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


def sum_of(shard: Path) -> str:
    """The checksum that a shard bears of itself."""
    return str(header_of(header_bytes(shard)).get("__metadata__", {}).get("crc32"))


def state_of(folder: Path, progress: Check) -> dict[str, Any]:
    """What state.json tells of a checkpoint."""
    must = {"arcwise": text, "processes": whole(1, 10**6), "progress": progress, "crc32": table(rest=text)}
    wanted = table(must, {"run": text})
    told = read_json(folder / STATE_FILE, wanted, cure="Where there is one, that of an earlier step will do.")
    if told["arcwise"] != str(FORMAT):
        raise ArcwiseError(f"{folder} was written in format {told['arcwise']}; this version reads {FORMAT}.")
    return told


def refuse_damaged(folder: Path, checksums: Mapping[str, str], us: Together = ALONE) -> None:
    """Raises where shards are not as they were written, or not the checkpoint's; every process looks at its share."""
    for name, checksum in sorted(checksums.items())[us.rank :: us.count]:
        if not is_as_written(folder / Path(name).name, checksum):
            raise ArcwiseError(f"{folder / name} is not as it was written.")
    for strange in {path.name for path in folder.glob("*.safetensors")} - checksums.keys():
        raise ArcwiseError(f"{folder / strange} is no part of the checkpoint that it lies in.")
    parts_of(folder)


def is_as_written(shard: Path, checksum: str) -> bool:
    """Whether a shard is the one that was written, to the bit."""
    return shard.is_file() and tensors_are_whole(shard) and sum_of(shard) == checksum


def load_spread(folder: Path, shards_of: Callable[[list[str]], Mapping[str, Shard]], us: Together) -> dict[str, Tensor]:
    """The tensors of a checkpoint, whoever wrote it; of those that are spread out this process's rows.

    `shards_of` says of names which of them are spread out.
    """
    torch_has_shards()
    from torch.distributed.checkpoint import HuggingFaceStorageReader  # pyright: ignore[reportPrivateImportUsage]
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = HuggingFaceStorageReader(path=str(folder)).read_metadata().state_dict_metadata
        state: dict[str, Tensor] = {}
        shards = shards_of(list(told))
        for name, about in told.items():
            assert isinstance(about, TensorStorageMetadata), name
            size, kind = about.size, about.properties.dtype
            shard = shards.get(name)
            rows = size if shard is None else torch.Size([shard.stop - shard.start, *size[1:]])
            state[name] = as_rows(torch.empty(rows, dtype=kind), shard)
        reader = HuggingFaceStorageReader(path=str(folder))
        try:
            load(state, storage_reader=reader, process_group=us.words, no_dist=us.alone)
        except CheckpointException as error:  # no Exception: it would pass by everybody
            first = next(iter(error.failures.values()))[0]
            raise ArcwiseError(f"{folder} cannot be read: {first}.") from None
    return {name: local(value) for name, value in state.items()}


def merged_entries(folder: Path) -> dict[str, Entry]:
    """The tensors of a checkpoint as one file may have them; their rows come from the shards piece by piece."""
    return {name: entry_of(parts) for name, parts in parts_of(folder).items()}


def parts_of(folder: Path) -> dict[str, list[Part]]:
    """Where the rows of every tensor of a checkpoint are, in their order: each there once, and none missing between."""
    torch_has_shards()
    from torch.distributed.checkpoint._hf_utils import CUSTOM_METADATA_KEY, SAVED_OFFSETS_KEY

    found: dict[str, list[Part]] = {}
    for shard in sorted(folder.glob("*.safetensors")):
        header = header_bytes(shard)
        told = header_of(header)
        with errors_name(shard):
            places = meta_json(told.pop("__metadata__", {}), CUSTOM_METADATA_KEY, PLACES, without="{}")
        for name, entry in told.items():
            where = places.get(name, {}).get(SAVED_OFFSETS_KEY)
            if where is None or any(where[1:]) or entry["dtype"] not in BY_NAME:
                raise ArcwiseError(f"{shard}: it does not say which rows of {name} it holds, or not of what type.")
            begin, end = entry["data_offsets"]
            found.setdefault(name, []).append(
                Part((*where, 0)[0], shard, 8 + len(header) + begin, end - begin, entry["dtype"], tuple(entry["shape"]))
            )
    for name, parts in found.items():
        parts.sort(key=lambda part: (part.first, part.stop))
        follow = [part.first for part in parts] == [0, *(part.stop for part in parts[:-1])]
        alike = len({(part.dtype, len(part.shape), part.shape[1:]) for part in parts}) == 1
        if not (follow and alike and (parts[0].shape or len(parts) == 1)):
            raise ArcwiseError(f"the parts of {name} in {folder} do not make a whole.")
    if not found:
        raise ArcwiseError(f"{folder} holds no weights.")
    return found


PLACES = table(rest=table(rest=many(whole(0))))


class Part(NamedTuple):
    """Some rows of a tensor: the first of them, and where their bytes are."""

    first: int
    shard: Path
    start: int
    nbytes: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The row after their last; what has no rows counts as one."""
        return self.first + (self.shape[0] if self.shape else 1)


def entry_of(parts: list[Part]) -> Entry:
    """A tensor whose rows follow each other in these parts."""

    def pieces() -> Iterator[bytes]:
        for part in parts:
            with part.shard.open("rb") as file:
                file.seek(part.start)
                for at in range(0, part.nbytes, PIECE_BYTES):
                    yield file.read(min(PIECE_BYTES, part.nbytes - at))

    shape = parts[0].shape
    whole_shape = (sum(part.shape[0] for part in parts), *shape[1:]) if len(parts) > 1 else shape
    return Entry(parts[0].dtype, whole_shape, sum(part.nbytes for part in parts), pieces)


def local(value: Any) -> Tensor:
    """This process's rows."""
    return value.to_local() if hasattr(value, "to_local") else value
