"""OnnxEmbedder: the twin of an Embedder in an ONNX file, run by onnxruntime; no torch."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from arcwise.errors import ArcwiseError
from arcwise.records import CalibratedThreshold, Preprocessing, errors_name, meta_json, rows_of
from arcwise.records.files import FORMAT
from arcwise.records.thresholds import RECORD
from arcwise.schema import Check, many, table, text

IMAGES_A_RUN = 256
PRECISIONS = ("float32", "fp16", "int8")
SUM = rb"\n\x05crc32\x12\x08([0-9a-f]{8})"  # the metadata's entry of the checksum, as protocol buffers have it
NO_SUM = b"\n\x05crc32\x12\x0800000000"
INPUT, EMBEDDING, LENGTH = "pixels", "embedding", "length"
NEEDED = ("arcwise", "model", "preprocessing", "names", "thresholds", "precision")


class OnnxEmbedder:
    """An encoder in an ONNX file that `arcwise export` wrote; it has what an Embedder has for embedding images.

    `thresholds` are those that were calibrated when it was exported, `precision` is float32, fp16 or int8, `licence`
    what its maker said.
    """

    def __init__(self, session: Any, meta: Mapping[str, str]):
        self.session = session
        values = {key: meta_json(meta, key, check, without="null") for key, check in CHECKS.items()}
        self.preprocessing = Preprocessing.from_values(values["preprocessing"])
        self.names: tuple[str, ...] = tuple(values["names"])
        self.about: dict[str, Any] = values["about"]
        self.thresholds = [CalibratedThreshold.from_values(one) for one in values["thresholds"]]
        self.fingerprint, self.precision, self.licence = meta["model"], meta["precision"], meta.get("licence", "")
        self.dim = checked_dim(session, self.preprocessing)

    @classmethod
    def load(cls, path: str | Path) -> OnnxEmbedder:
        """The encoder in a file; its checksum is verified before anything else looks at it."""
        path = Path(path)
        if not path.is_file():
            raise ArcwiseError(f"there is no model {path}. Make one with: arcwise export MODEL {path}")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ArcwiseError(f"{path} cannot be read: {error.strerror}.") from None
        with errors_name(path):
            refuse_changed(content)
            session = open_session(content)
            meta = session.get_modelmeta().custom_metadata_map
            lacking = [key for key in NEEDED if key not in meta]
            if lacking or meta["arcwise"] != str(FORMAT):
                raise ArcwiseError("it is no model that this version of arcwise exported.")
            return cls(session, meta)

    def encode(self, pixels: UInt8[np.ndarray, "n h w channels"]) -> Float[np.ndarray, "n d"]:
        """The raw float32 embeddings of images of the model's own side and channels: directions times lengths."""
        self.preprocessing.admit_pixels(pixels)
        out = np.empty((len(pixels), self.dim), np.float32)
        for start in range(0, len(pixels), IMAGES_A_RUN):
            some = slice(start, start + IMAGES_A_RUN)
            unit, length = self.session.run([EMBEDDING, LENGTH], {INPUT: np.ascontiguousarray(pixels[some])})
            out[some] = unit * length[:, None]
        return out

    def embed(self, images: Any) -> Float[np.ndarray, "n d"]:
        """The raw float32 embeddings of images as they come: paths, bytes, Pillow's, bytes in arrays; one or many."""
        return rows_of(self, images)


CHECKS: dict[str, Check] = {
    "preprocessing": table(), "names": many(text), "about": table(), "thresholds": many(RECORD),
}  # fmt: skip


def refuse_changed(content: bytes) -> None:
    """Raises where a file is not as arcwise wrote it."""
    found = re.findall(SUM, content)
    if len(found) != 1:
        raise ArcwiseError("it is no model that arcwise exported, or it is damaged.")
    if b"%08x" % zlib.crc32(re.sub(SUM, NO_SUM, content)) != found[0]:
        raise ArcwiseError("its checksum is another: the file has changed since it was written. Export it again.")


def open_session(content: bytes) -> Any:
    """What runs the model; from memory, so that it cannot name other files."""
    try:
        import onnxruntime
    except ImportError:
        raise ArcwiseError('an .onnx file is run by onnxruntime: pip install "arcwise[onnx]"') from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors share no class
        raise ArcwiseError(f"onnxruntime cannot take it ({str(error).splitlines()[0][:200]}).") from None


def checked_dim(session: Any, look: Preprocessing) -> int:
    """The dimension of the embedding, once inputs and outputs are as arcwise names them."""
    shapes = {place.name: (place.type, place.shape) for place in (*session.get_inputs(), *session.get_outputs())}
    told, wanted = shapes.get(INPUT, ("", []))[1], [look.side, look.side, look.channels]
    dim = shapes.get(EMBEDDING, ("", [0, 0]))[1][-1]
    if list(shapes) != [INPUT, EMBEDDING, LENGTH] or list(told[1:]) != wanted or not isinstance(dim, int) or dim < 1:
        raise ArcwiseError("its input and outputs are not those of a model that arcwise exported.")
    return dim
