"""Files that are whole or not there: written as streams beside their place, pushed to the disk, then renamed.

This is the one door through which files are read, too: JSON against a schema, tensors against their types and shapes,
so that a damaged or a crafted file ends in a message. Tensor files are safetensors, written here piece by piece:
whatever is in them, no copy of all of it is ever in memory, and equal content gives equal bytes. Their metadata bears a
CRC-32 of the whole file, taken with its own eight digits as zeros.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from arcwise.errors import ArcwiseError, note
from arcwise.schema import Check, Unfit, expect, many, parse_json, table, text, whole

FORMAT = 1  # of a Run folder and of the files in it
PIECE_BYTES = 64 * 2**20  # of a tensor that is being written
LONGEST_HEADER = 100_000_000  # bytes of a tensor file's header, as the safetensors library has it
UNSUMMED = b'"crc32":"00000000"'  # in a header whose checksum is still to come
SUMMED = b"\t"  # ends a header that has a checksum, so that one whose key was damaged is not taken for an older file

# numpy's types by the names that safetensors has for them.
DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
NUMPY_TYPES = {name: np.dtype(mine).newbyteorder("<") for mine, name in DTYPES.items()}
# The sizes of all types of whole bytes that safetensors has.
ITEM_BYTES = {name: kind.itemsize for name, kind in NUMPY_TYPES.items()} | {
    "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "C64": 8,
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
        file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)
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
    header: dict[str, Any] = {"__metadata__": dict(sorted({**meta, "crc32": "0" * 8}.items()))}
    end = 0
    for name in order:
        entry = entries[name]
        begin, end = end, end + entry.nbytes
        header[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [begin, end]}
    head = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")
    head += SUMMED * (8 - len(head) % 8)
    with writing(path) as file:
        file.write(len(head).to_bytes(8, "little") + head)
        checksum = zlib.crc32(head)
        for name in order:
            for piece in entries[name].pieces():
                file.write(piece)
                checksum = zlib.crc32(piece, checksum)
        file.seek(8 + head.index(UNSUMMED) + UNSUMMED.index(b"0"))
        file.write(b"%08x" % checksum)
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


class Stored(NamedTuple):
    """One tensor as it lies in a file: its type's name in safetensors, its shape, its bytes."""

    dtype: str
    shape: tuple[int, ...]
    content: np.ndarray


class Kind(NamedTuple):
    """What an array of a tensor file must be: the letters of numpy's kinds, and a size or a name for each axis.

    Axes of one name are of one size, in all arrays of the file. `needed` says whether the file must have it.
    """

    kinds: str
    shape: tuple[str | int, ...]
    needed: bool = True


def is_there(path: Path) -> bool:
    """Whether a path is a file; one that the system will not even look at is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def read_stored(
    path: str | Path, *, what: str = "safetensors", missing: str = ""
) -> tuple[dict[str, Stored], dict[str, str]]:
    """The tensors of a file as they lie in it, its checksum verified, and its metadata, or what is wrong with the file.

    `what` and `missing` are the words for a file that is no such thing, or not there.
    """
    path = Path(path)
    if not path.is_file():
        raise ArcwiseError(missing or f"there is no file {path}.")
    try:
        content = np.fromfile(path, np.uint8)
        header, data = split_header(content)
        found = header_of(header)
        meta = found.pop("__metadata__", {})
        checksum = meta.pop("crc32", None)
        refuse_wrong_sum(header, data, checksum)
        tensors = {name: stored(name, entry, data) for name, entry in found.items()}
        refuse_gaps([entry["data_offsets"] for entry in found.values()], len(data))
    except (ValueError, OSError, MemoryError) as error:
        raise ArcwiseError(f"{path} cannot be read as {what} ({error}).") from None
    if "arcwise" in meta and checksum is None:
        note(f"{path.parent} holds files from before arcwise wrote checksums: damage in them would not be noticed.")
    return tensors, meta


def split_header(content: np.ndarray) -> tuple[bytes, np.ndarray]:
    """The header of a tensor file and what follows it."""
    length = int.from_bytes(content[:8].tobytes(), "little")
    if len(content) < 8 or length > min(len(content) - 8, LONGEST_HEADER):
        raise Unfit("it is cut off, or no safetensors file at all")
    return content[8 : 8 + length].tobytes(), content[8 + length :]


def header_bytes(path: str | Path) -> bytes:
    """The header of a tensor file, as it stands; as much as there is of one that is cut off."""
    with Path(path).open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return file.read(min(length, LONGEST_HEADER))


HEADER = table(
    may={"__metadata__": table(rest=text)},
    rest=table({"dtype": text, "shape": many(whole(0)), "data_offsets": many(whole(0), least=2)}),
)


def header_of(content: bytes) -> dict[str, Any]:
    """The header's values, their types checked."""
    values = parse_json(content)
    HEADER(values, "the header")
    return values


def refuse_wrong_sum(header: bytes, data: np.ndarray, told: str | None) -> None:
    """Raises where a file is not as it was written; one that never bore a checksum is taken as it is."""
    if told is None and header.endswith(SUMMED):
        raise Unfit("its checksum is gone: the file has changed since it was written")
    if told is not None:
        plain = header.replace(b'"crc32":"' + told.encode() + b'"', UNSUMMED, 1)
        if b"%08x" % zlib.crc32(data.data, zlib.crc32(plain)) != told.encode():
            raise Unfit("its checksum is another: the file has changed since it was written")


def stored(name: str, entry: Mapping[str, Any], data: np.ndarray) -> Stored:
    """One tensor of a file, where it lies and as large as it says."""
    dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"][:2]
    expect(dtype in ITEM_BYTES, f"the type of {name}", f"one of {', '.join(ITEM_BYTES)}", dtype)
    expect(end - begin == math.prod(shape) * ITEM_BYTES[dtype], f"the size of {name}", f"that of {shape}", end - begin)
    return Stored(dtype, tuple(shape), data[begin:end])


def refuse_gaps(offsets: list[list[int]], length: int) -> None:
    """Raises where tensors overlap, leave something out or reach beyond the end."""
    ends = [0, *(end for span in sorted(offsets) for end in span), length]
    if any(a != b for a, b in list(pairwise(ends))[::2]):
        raise Unfit("its tensors do not fill it: it is cut off or damaged")


def read_tensors(
    path: str | Path, wanted: Mapping[str, Kind] | None = None, *, what: str = "safetensors"
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a tensor file and its metadata, each array as `wanted` has it, or what is wrong with the file."""
    tensors, meta = read_stored(path, what=what)
    with errors_name(path):
        try:
            arrays = {name: as_array(name, tensor) for name, tensor in tensors.items()}
        except Unfit as error:
            raise ArcwiseError(f"{error}. Write the file again, or take another.") from None
        refuse_arrays(arrays, wanted or {})
    return arrays, meta


def as_array(name: str, tensor: Stored) -> np.ndarray:
    """A tensor of a type that numpy has, in this machine's order of bytes."""
    expect(tensor.dtype in NUMPY_TYPES, name, f"of a type that numpy has ({', '.join(NUMPY_TYPES)})", tensor.dtype)
    kind = NUMPY_TYPES[tensor.dtype]
    content = tensor.content if tensor.content.ctypes.data % kind.itemsize == 0 else tensor.content.copy()
    return content.view(kind).astype(kind.newbyteorder("="), copy=False).reshape(tensor.shape)


def refuse_arrays(arrays: Mapping[str, np.ndarray], wanted: Mapping[str, Kind]) -> None:
    """Raises where an array is missing, of another kind or of another shape."""
    try:
        check_arrays(arrays, wanted)
    except Unfit as error:
        raise ArcwiseError(f"{error}. Write the file again, or take another.") from None


def check_arrays(arrays: Mapping[str, np.ndarray], wanted: Mapping[str, Kind]) -> None:
    """The same, with the bare words of what is wrong."""
    sizes: dict[str, int] = {}
    for name, kind in wanted.items():
        if name not in arrays:
            if kind.needed:
                raise Unfit(f"it holds no {name}")
            continue
        array = arrays[name]
        expect(array.dtype.kind in kind.kinds, name, f"an array of kind {' or '.join(kind.kinds)}", array.dtype.name)
        axes = [
            sizes.setdefault(axis, n) if isinstance(axis, str) else axis
            for axis, n in zip(kind.shape, array.shape, strict=False)
        ]
        fits = array.ndim == len(kind.shape) and tuple(axes) == array.shape
        expect(fits, name, f"of shape ({', '.join(map(str, kind.shape))})", array.shape)


def tensors_are_whole(path: Path) -> bool:
    """Whether a tensor file is there and as it was written."""
    try:
        read_stored(path)
    except ArcwiseError:
        return False
    return True


def read_json(path: str | Path, check: Check | None = None, *, cure: str = "") -> dict[str, Any]:
    """The table in a JSON file, as the check wants it; `cure` is what to do about one that is not."""
    path, cure = Path(path), cure or "Put the file back, or begin again elsewhere."
    try:
        values = parse_json(path.read_bytes())
        (check or table())(values, "")
    except (OSError, ValueError) as error:
        raise ArcwiseError(f"{path} cannot be read: {error}. {cure}") from None
    return values


def cannot_write(path: str | Path, error: OSError) -> str:
    """What to tell a person whose disk refuses."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"cannot write {path}: the disk is full. Make room, then go on."
    return f"cannot write {path}: {error.strerror}. Choose another folder."


@contextlib.contextmanager
def errors_name(path: str | Path) -> Iterator[None]:
    """Puts the path of a file before what is said to be wrong with it."""
    try:
        yield
    except ArcwiseError as error:
        raise ArcwiseError(f"{path}: {error}") from None


def meta_json(meta: Mapping[str, str], key: str, check: Check, *, without: str) -> Any:
    """A value that a tensor file's metadata holds as JSON, as the check wants it; `without` is its JSON if missing."""
    try:
        value = parse_json(meta.get(key, without))
        check(value, key)
    except ValueError as error:
        raise ArcwiseError(f"its metadata {key!r} is not as arcwise writes it: {error}.") from None
    return value
