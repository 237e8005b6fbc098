"""Files that are whole or not there: written as streams beside their place, pushed to the disk, then renamed.

Tensor files are safetensors, written here piece by piece: whatever is in them, no copy of all of it is ever in memory,
and equal content gives equal bytes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from arcwise.errors import ArcwiseError

FORMAT = 1  # of a Run folder and of the files in it
PIECE_BYTES = 64 * 2**20  # of a tensor that is being written

# numpy's types by the names that safetensors has for them.
DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


class Entry(NamedTuple):
    """One tensor to be written: its type's name in safetensors, its shape, its bytes in all and piece by piece."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    pieces: Callable[[], Iterable[bytes | memoryview]]


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write into; what was written is under `path` once the block ends, and nothing if it raises.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with writing(path) as file:
    ...     _ = file.write(b"whole or not at all")
    >>> path.read_text()
    'whole or not at all'
    """
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise ArcwiseError(cannot_write(path, error)) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def write(path: str | Path, content: str | bytes) -> Path:
    """The path, once the whole content is under it."""
    with writing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path)


def write_json(path: str | Path, values: Mapping[str, Any]) -> Path:
    """The path, once the values are under it as JSON that a person can read and edit."""
    return write(path, json.dumps(values, indent=1))


def write_tensors(path: str | Path, tensors: Mapping[str, np.ndarray | Entry], meta: Mapping[str, str]) -> Path:
    """The path, once arrays (or entries that hand out their bytes) and metadata are under it as safetensors.

    >>> import tempfile
    >>> path = write_tensors(Path(tempfile.mkdtemp()) / "a.safetensors", {"x": np.arange(3)}, {"by": "hand"})
    >>> read_tensors(path)[0]["x"].tolist()
    [0, 1, 2]
    """
    entries = {name: value if isinstance(value, Entry) else array_entry(value) for name, value in tensors.items()}
    # Wide types first, so that every tensor begins where its type may; then by name: equal content, equal bytes.
    order = sorted(entries, key=lambda name: (-item_bytes(entries[name]), name))
    header: dict[str, Any] = {"__metadata__": dict(sorted(meta.items()))}
    end = 0
    for name in order:
        entry = entries[name]
        begin, end = end, end + entry.nbytes
        header[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [begin, end]}
    head = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    head += b" " * (-len(head) % 8)
    with writing(path) as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name in order:
            for piece in entries[name].pieces():
                file.write(piece)
    return Path(path)


def item_bytes(entry: Entry) -> int:
    """The size of one number."""
    count = int(np.prod(entry.shape, dtype=np.int64))
    return entry.nbytes // count if count else 1


def array_entry(array: np.ndarray) -> Entry:
    """An array as an entry; one that is not contiguous is copied when it is written."""
    name = DTYPES.get(array.dtype.name)
    assert name is not None, f"safetensors has no {array.dtype}"

    def pieces() -> Iterator[memoryview]:
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)  # as safetensors wants it
        flat = np.ascontiguousarray(little).reshape(-1).view(np.uint8)
        for start in range(0, len(flat), PIECE_BYTES):
            yield flat[start : start + PIECE_BYTES].data

    return Entry(name, array.shape, array.nbytes, pieces)


def read_tensors(
    path: str | Path, *, framework: str = "numpy", what: str = "safetensors", missing: str = ""
) -> tuple[dict[str, Any], dict[str, str]]:
    """The arrays of a safetensors file and its metadata, or an error that says what is wrong with the file.

    `framework="pt"` gives torch's tensors; `what` and `missing` are the words for a file that is no such thing, or
    not there.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise ArcwiseError(missing or f"there is no file {path}.")
    try:
        with safe_open(path, framework=framework) as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ArcwiseError(f"{path} cannot be read as {what} ({error}).") from None


def read_json(path: str | Path) -> dict[str, Any]:
    """The table in a JSON file."""
    path = Path(path)
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ArcwiseError(f"{path} cannot be read: {error}. Put the file back, or begin again elsewhere.") from None
    if not isinstance(values, dict):
        raise ArcwiseError(f"{path} does not hold a table of values.")
    return values


def cannot_write(path: str | Path, error: OSError) -> str:
    """What to tell a person whose disk refuses."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"cannot write {path}: the disk is full. Make room, then go on."
    return f"cannot write {path}: {error.strerror}. Choose another folder."


def meta_json(meta: Mapping[str, str], key: str, path: str | Path, kind: type) -> Any:
    """A value that a tensor file's metadata holds as JSON; `kind()` where the key is missing."""
    try:
        value = json.loads(meta.get(key, json.dumps(kind())))
    except ValueError as error:
        raise ArcwiseError(f"the metadata {key!r} of {path} is no JSON ({error}). Write the file again.") from None
    if not isinstance(value, kind):
        raise ArcwiseError(f"the metadata {key!r} of {path} is a {type(value).__name__}, not a {kind.__name__}.")
    return value
