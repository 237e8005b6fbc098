"""A Run's journal, one JSON line at a time, and TensorBoard's files on request."""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from arcwise.errors import ArcwiseError
from arcwise.records import Run, cannot_write, write
from arcwise.train.checkpoint import TrainingState

Listener = Callable[[dict[str, Any]], None]


class Journal:
    """Appends entries to journal.jsonl and hands each to the listener; entries after the checkpoint are taken back."""

    def __init__(
        self, run: Run, progress: TrainingState, *, listener: Listener | None = None, tensorboard: bool = False
    ):
        self.path, self.listener = run.path / "journal.jsonl", listener or (lambda _: None)
        kept = [entry for entry in run.journal() if stays(entry, progress)]
        write(self.path, "".join(json.dumps(entry) + "\n" for entry in kept))
        self.events = EventFile(run.path / "tensorboard", first_step=progress.step) if tensorboard else None

    def write(self, kind: str, **values: Any) -> None:
        """One line of this kind; numbers that are not finite become null."""
        entry = {"kind": kind, **{key: rounded(value) for key, value in values.items()}}
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
            if self.events is not None:
                self.events.write(kind, entry)
        except OSError as error:
            raise ArcwiseError(cannot_write(self.path, error)) from error
        self.listener(entry)


class Silence:
    """The journal of a process that writes none: another writes for all."""

    def __init__(self) -> None:
        self.listener: Listener = lambda _: None

    def write(self, kind: str, **values: Any) -> None:
        """Nothing."""


def last_line_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """The line that ends a journal: what training ended with."""
    return {"kind": "finished", "step": result["steps"], **result["test"], "seconds": result["seconds"]}


def mend_journal(run: Run) -> None:
    """Writes the last line of a finished run where a crash has lost it."""
    if not run.journal("finished"):
        Journal(run, TrainingState(step=run.result["steps"])).write(**last_line_of(run.result))


def stays(entry: Mapping[str, Any], progress: TrainingState) -> bool:
    """Whether a line was written before the checkpoint; a group of steps that it holds the sums of was not."""
    step, unfinished = entry.get("step", 0), progress.within[4] > 0
    return step < progress.step or (step == progress.step and not (unfinished and entry["kind"] == "steps"))


def rounded(value: Any) -> Any:
    """A number rounded to six digits, so that lines stay short; not a number is null."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


# ---------------------------------------------------------------- TensorBoard's format, without TensorBoard
# A record is its length, a checksum, the data and a checksum; the data is an Event message of protocol buffers:
# wall_time = 1 (double), step = 2 (varint), file_version = 3 (string), summary = 5 {value = 1 {tag = 1, number = 2}}.


class EventFile:
    """An event file that TensorBoard reads."""

    def __init__(self, folder: Path, *, first_step: int):
        self.path = folder / f"events.out.tfevents.{int(time.time())}.{first_step:08d}"
        write(self.path, record(wall_time() + field(3, b"brain.Event:2")))

    def write(self, kind: str, entry: Mapping[str, Any]) -> None:
        """All numbers of a journal entry, under the entry's kind."""
        numbers = {k: v for k, v in entry.items() if isinstance(v, (int, float)) and k not in ("step", "kind")}
        values = b"".join(
            field(1, field(1, f"{kind}/{key}".encode()) + b"\x15" + struct.pack("<f", value))
            for key, value in numbers.items()
        )
        with self.path.open("ab") as file:
            file.write(record(wall_time() + b"\x10" + varint(int(entry.get("step", 0))) + field(5, values)))


def wall_time() -> bytes:
    """Now, as field 1."""
    return b"\x09" + struct.pack("<d", time.time())


def field(number: int, content: bytes) -> bytes:
    """A field of bytes."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """A whole number, seven bits to a byte.

    >>> varint(300)
    b'\\xac\\x02'
    """
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def record(data: bytes) -> bytes:
    """The data between its length and its checksums."""
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def masked(data: bytes) -> bytes:
    """CRC-32C (of "123456789": 0xE3069283), turned and shifted as the format wants it.

    >>> masked(b"123456789").hex()
    'e5b08ac7'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def crc_entry(byte: int) -> int:
    """One entry of the table for CRC-32C (Castagnoli)."""
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


CRC_TABLE = tuple(map(crc_entry, range(256)))
