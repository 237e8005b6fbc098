"""Arrays from the files in which public data sets travel: idx, CIFAR's binary form, and rows of PNG."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import numpy as np

from arcwise.errors import ArcwiseError
from arcwise.schema import parse_json

Arrays = dict[str, np.ndarray]  # train_x, train_y, test_x, test_y
LARGEST = 600 * 2**20  # bytes of one member; CIFAR's largest is 160 MB


def gather_files(folder: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The contents of the wanted files under a folder by their bare name, also of those inside tar archives.

    Archives are read, never unpacked: no path of theirs reaches the disk. `.gz` is taken off.
    """
    found: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        if path.name.endswith((".tgz", ".tar.gz", ".tar")):
            found |= tar_members(path, wanted)
        elif wanted(path.name.removesuffix(".gz")):
            found[path.name.removesuffix(".gz")] = unzipped(path.name, path.read_bytes())
    return found


def tar_members(archive: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The wanted regular files of a tar archive, read into memory."""
    found = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                if member.isfile() and wanted(name.removesuffix(".gz")):
                    if member.size > LARGEST:
                        raise ArcwiseError(
                            f"{archive.name} holds {name} of {member.size:,} bytes: too large to be right."
                        )
                    file = tar.extractfile(member)
                    assert file is not None
                    found[name.removesuffix(".gz")] = unzipped(name, file.read())
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ArcwiseError(f"{archive.name} is no readable archive ({error}).") from None
    return found


def unzipped(name: str, content: bytes) -> bytes:
    """The content of a .gz file, of bounded size; any other as it is."""
    if not name.endswith(".gz"):
        return content
    try:
        with gzip.open(io.BytesIO(content)) as file:
            plain = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ArcwiseError(f"{name} is no readable gzip file ({error}).") from None
    if len(plain) > LARGEST:
        raise ArcwiseError(f"{name} unpacks to more than {LARGEST:,} bytes: too large to be right.")
    return plain


def idx(name: str, content: bytes) -> np.ndarray:
    """The array in an idx file: two zero bytes, the type (8: uint8), the rank, the sizes, the numbers.

    >>> idx("a", bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    array([7, 9], dtype=uint8)
    """
    rank = content[3] if len(content) > 4 and content[:3] == b"\0\0\x08" else 0
    shape = tuple(np.frombuffer(content, ">u4", count=rank, offset=4)) if len(content) >= 4 + 4 * rank else ()
    if not rank or len(content) != 4 + 4 * rank + int(np.prod(shape, dtype=np.int64)):
        raise ArcwiseError(f"{name} is no whole idx file of bytes.")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


IDX_FILES = {
    "train_x": "train-images-idx3-ubyte",
    "train_y": "train-labels-idx1-ubyte",
    "test_x": "t10k-images-idx3-ubyte",
    "test_y": "t10k-labels-idx1-ubyte",
}


def mnist_arrays(folder: Path) -> Arrays | None:
    """MNIST, or a set shaped like it, from its four idx files; None where one of them is missing."""
    files = gather_files(folder, set(IDX_FILES.values()).__contains__)
    if not files.keys() >= set(IDX_FILES.values()):
        return None
    arrays = {key: idx(name, files[name]) for key, name in IDX_FILES.items()}
    return {key: value[..., None] if value.ndim == 3 else value for key, value in arrays.items()}


def cifar10_arrays(folder: Path) -> Arrays | None:
    """CIFAR-10 from its binary batches, or from PNG files that hold one image per row beside JSON labels."""
    batches = [f"data_batch_{i}" for i in range(1, 6)]
    files = gather_files(folder, lambda name: name.startswith(("data_batch", "test_")) or name == "train_lables.json")
    if files.keys() >= {f"{name}.bin" for name in [*batches, "test_batch"]}:
        train = [records(files[f"{name}.bin"], skip=0) for name in batches]
        x, y = (np.concatenate(parts) for parts in zip(*train, strict=True))
        test_x, test_y = records(files["test_batch.bin"], skip=0)
        return {"train_x": x, "train_y": y, "test_x": test_x, "test_y": test_y}
    if files.keys() >= {
        *(f"{name}.png" for name in batches),
        "test_batch.png",
        "train_lables.json",
        "test_lables.json",
    }:
        return {
            "train_x": np.concatenate([rows_of_png(files[f"{name}.png"]) for name in batches]),
            "train_y": labels(files["train_lables.json"]),
            "test_x": rows_of_png(files["test_batch.png"]),
            "test_y": labels(files["test_lables.json"]),
        }
    return None


def labels(content: bytes) -> np.ndarray:
    """The labels in a JSON list."""
    try:
        return np.array(parse_json(content), dtype=np.uint8)
    except (ValueError, TypeError, OverflowError) as error:
        raise ArcwiseError(f"the labels are no JSON list of small whole numbers ({error}).") from None


def cifar100_arrays(folder: Path) -> Arrays | None:
    """CIFAR-100 with its fine labels from the two binary files."""
    files = gather_files(folder, {"train.bin", "test.bin"}.__contains__)
    if len(files) < 2:
        return None
    (train_x, train_y), (test_x, test_y) = (records(files[name], skip=1) for name in ("train.bin", "test.bin"))
    return {"train_x": train_x, "train_y": train_y, "test_x": test_x, "test_y": test_y}


def records(content: bytes, *, skip: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of CIFAR's binary form: `skip` bytes, a label, then three planes of 32 x 32."""
    width = skip + 1 + 3072
    if not content or len(content) % width:
        raise ArcwiseError(f"a CIFAR batch of {len(content):,} bytes is not whole records of {width} bytes.")
    rows = np.frombuffer(content, np.uint8).reshape(-1, width)
    planes = rows[:, skip + 1 :].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), rows[:, skip].copy()


def rows_of_png(content: bytes) -> np.ndarray:
    """Images of 32 x 32 x 3 from a PNG of 1024 columns, one image per row."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            if image.width != 1024 or image.height > 100_000:
                raise ArcwiseError(f"a CIFAR PNG must be 1024 wide, one image per row; got {image.size}.")
            return np.asarray(image.convert("RGB")).reshape(-1, 32, 32, 3)
    except (OSError, SyntaxError) as error:
        raise ArcwiseError(f"a CIFAR PNG cannot be read ({error}).") from None
