"""An Embedder written as an ONNX file: pixels in, direction and length out, all that it needs inside."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import json
import logging
import math
import tempfile
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from arcwise.errors import ArcwiseError, one_of
from arcwise.export.encoder import EMBEDDING, INPUT, LENGTH, NO_SUM, PRECISIONS, SUM, OnnxEmbedder
from arcwise.model import Embedder
from arcwise.records import FORMAT, CalibratedThreshold, write
from arcwise.sphere import TINY
from arcwise.version import __version__
from arcwise.views import in_evaluation

OPSET = 20
MAY_DIFFER = {"float32": math.radians(0.1)}  # the largest angle to the original that an export may have
MAY_STRETCH = 0.01  # by which share the length of an embedding may differ, there
CALIBRATED_ON = 256  # images at most that the ranges of an int8 export are taken from
LARGEST_FILE = 2**31 - 2**20  # bytes of an ONNX file without files beside it


class Exported(NamedTuple):
    """What was written: the encoder as it is read back, the largest angle to the model's embeddings, of how many."""

    encoder: OnnxEmbedder
    largest_angle: float
    images: int


class Pipeline(nn.Module):
    """Bytes of images, channels last, to directions and lengths of embeddings."""

    def __init__(self, model: Embedder, *, half: bool = False):
        super().__init__()
        self.model, self.half_inside = model, half
        self.factor, self.shift = (
            nn.Buffer(torch.tensor(numbers).reshape(1, -1, 1, 1))
            for numbers in zip(*model.preprocessing.normalisation, strict=True)
        )

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        x = pixels.permute(0, 3, 1, 2).float() * self.factor - self.shift
        raw = self.model(x.half() if self.half_inside else x).float()
        length = torch.linalg.vector_norm(raw, dim=1, keepdim=True)
        return raw / length.clamp(min=TINY), length.squeeze(1)


def export_model(
    model: Embedder,
    out: str | Path,
    pixels: UInt8[np.ndarray, "n h w channels"],
    *,
    precision: str = "float32",
    thresholds: Sequence[CalibratedThreshold] = (),
    licence: str = "",
) -> Exported:
    """The model in an ONNX file, read back and compared on these images; nothing is written where it differs.

    The batch is free. float32 keeps the model's fingerprint; fp16 and int8 get their own, and lose its thresholds,
    which were calibrated on other numbers. `pixels` are also what int8 takes its ranges from.
    """
    one_of("precision", precision, PRECISIONS)
    if not len(pixels):
        raise ArcwiseError("an export is compared with its model on images, and there are none: name some with --on.")
    refuse_without_onnx()
    model = in_evaluation(copy.deepcopy(model).cpu())
    wanted = model.encode(pixels)
    proto = traced(model, precision, pixels)
    fingerprint = model.fingerprint if precision == "float32" else fingerprint_of(model, precision, pixels)
    kept = [one for one in thresholds if one.model == fingerprint]
    told = {
        "arcwise": str(FORMAT), "model": fingerprint, "precision": precision, "licence": licence,
        "preprocessing": json.dumps(dataclasses.asdict(model.preprocessing)), "names": json.dumps(model.names),
        "thresholds": json.dumps([one.as_values() for one in kept]), "about": json.dumps(model.about),
        "versions": json.dumps({"arcwise": __version__, "torch": torch.__version__, "opset": OPSET}),
    }  # fmt: skip
    content = with_meta(proto, told)
    with tempfile.TemporaryDirectory() as folder:
        encoder = OnnxEmbedder.load(write(Path(folder) / "model.onnx", content))
    got = encoder.encode(pixels)
    refuse_no_direction(wanted, "the model", "train it again, or leave such images out of --on")
    refuse_no_direction(got, f"the export in {precision}", "export it as float32, or train it again")
    largest = largest_angle(wanted, got)
    if precision in MAY_DIFFER and (stretch := largest_stretch(wanted, got)) > MAY_STRETCH:
        raise ArcwiseError(
            f"the export's embeddings are longer or shorter than its model's by up to {stretch:.2g}, and "
            f"{MAY_STRETCH:.0%} are allowed. Nothing was written; embeddings that short or long cannot be exported."
        )
    if largest > MAY_DIFFER.get(precision, math.pi):
        raise ArcwiseError(
            f"the export differs from its model: {math.degrees(largest):.3f} degrees on one of {len(pixels):,} images, "
            "and 0.1 are allowed. Nothing was written; the versions of torch and onnxruntime may not fit each other."
        )
    write(out, content)
    return Exported(encoder, largest, len(pixels))


def refuse_without_onnx() -> None:
    """Raises, with what to install, where exporting is not possible."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ArcwiseError(f'exporting needs {error.name}: pip install "arcwise[onnx]"') from None


def traced(model: Embedder, precision: str, pixels: UInt8[np.ndarray, "n h w channels"]) -> Any:
    """The model as ONNX's own record, in a precision."""
    if precision == "fp16":
        model.backbone.half()
    pipeline = Pipeline(model, half=precision == "fp16").eval()
    look = model.preprocessing
    example = torch.zeros(3, look.side, look.side, look.channels, dtype=torch.uint8)  # not 1, which would stay 1
    batch = torch.export.Dim("batch", min=1, max=2**20)
    try:
        with quietly(), torch.no_grad():
            program = torch.onnx.export(
                pipeline, (example,), dynamo=True, dynamic_shapes={"pixels": {0: batch}}, opset_version=OPSET,
                input_names=[INPUT], output_names=[EMBEDDING, LENGTH], verbose=False,
            )  # fmt: skip
            proto = program.model_proto  # type: ignore[union-attr]
    except Exception as error:  # whatever the network makes of it
        first = " ".join(str(error).split()[:40])
        raise ArcwiseError(f"torch cannot export {model.config.backbone}: {first}") from None
    return quantised(proto, pixels) if precision == "int8" else proto


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keeps the notes of the exporter to itself."""
    names = ("torch.onnx", "onnxscript", "onnx_ir", "root")
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            for name, level in before.items():
                logging.getLogger(name).setLevel(level)


def quantised(proto: Any, pixels: UInt8[np.ndarray, "n h w channels"]) -> Any:
    """The same with convolutions and matrices in int8, but for the last, whose rounding would be the embedding's."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        """Images one batch at a time, some of those that are there, spread evenly."""

        def __init__(self) -> None:
            some = pixels[np.unique(np.linspace(0, len(pixels) - 1, CALIBRATED_ON).round().astype(int))]
            self.batches = iter([{INPUT: part} for part in np.array_split(some, -(-len(some) // 32))])

        def get_next(self) -> Any:
            return next(self.batches, None)

    del proto.graph.value_info[:]
    with tempfile.TemporaryDirectory() as folder, quietly():
        plain, ready, small = (str(Path(folder) / f"{name}.onnx") for name in ("plain", "ready", "small"))
        onnx.save(proto, plain)
        quant_pre_process(plain, ready, skip_symbolic_shape=True)
        last = [node.name for node in onnx.load(ready).graph.node if node.op_type in ("Gemm", "MatMul")][-1:]
        quantize_static(
            ready, small, Reader(), quant_format=QuantFormat.QDQ, per_channel=True, nodes_to_exclude=last,
            op_types_to_quantize=["Conv", "Gemm", "MatMul"], weight_type=QuantType.QInt8,
            activation_type=QuantType.QUInt8,
        )  # fmt: skip
        return onnx.load(small)


def fingerprint_of(model: Embedder, precision: str, pixels: UInt8[np.ndarray, "n h w channels"]) -> str:
    """The fingerprint of the same model in other numbers; int8 depends on the images that its ranges are taken from."""
    sha = hashlib.sha256(f"{model.fingerprint} {precision}".encode())
    if precision == "int8":
        sha.update(repr(pixels.shape).encode() + np.ascontiguousarray(pixels).tobytes())
    return sha.hexdigest()


def with_meta(proto: Any, told: dict[str, str]) -> bytes:
    """The file's bytes with its metadata, which bears a CRC-32 of all, taken with its own digits as zeros."""
    import re

    import onnx

    onnx.helper.set_model_props(proto, {**dict(sorted(told.items())), "crc32": "00000000"})
    for node in proto.graph.node:  # where in the source an operation comes from is nobody's business
        del node.metadata_props[:]
        node.doc_string = ""
    if proto.ByteSize() > LARGEST_FILE:
        raise ArcwiseError("the model is larger than the 2 GiB that one ONNX file can hold.")
    content = proto.SerializeToString(deterministic=True)
    if len(re.findall(SUM, content)) != 1:
        raise ArcwiseError("the model's names hold the very bytes that mark a checksum: rename its classes.")
    return content.replace(NO_SUM, NO_SUM[:-8] + b"%08x" % zlib.crc32(content))


def refuse_no_direction(x: Float[np.ndarray, "n d"], whose: str, cure: str) -> None:
    """Raises where an embedding points nowhere, by which no two files can be compared."""
    length = np.linalg.norm(x.astype(np.float64), axis=1)
    bad = ~np.isfinite(length) | (length == 0)
    if bad.any():
        raise ArcwiseError(
            f"of {len(x):,} embeddings {whose} gives {int(bad.sum()):,} that are not finite or of length 0. Nothing "
            f"was written: {cure}."
        )


def largest_stretch(a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "n d"]) -> float:
    """By which share of their lengths rows differ at most."""
    mine, theirs = (np.linalg.norm(x.astype(np.float64), axis=1) for x in (a, b))
    return float(np.abs(theirs / mine - 1.0).max(initial=0.0))


def largest_angle(a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "n d"]) -> float:
    """The largest angle between rows, from the chord: exact for small ones."""
    unit = [x.astype(np.float64) / np.maximum(np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True), 1e-30)
            for x in (a, b)]  # fmt: skip
    chord = np.linalg.norm(unit[0] - unit[1], axis=1)
    return float(2.0 * np.arcsin(np.minimum(chord.max(initial=0.0) / 2.0, 1.0)))
