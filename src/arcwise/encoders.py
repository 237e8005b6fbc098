"""An Encoder from a path: of a Run, a model file, insightface's checkpoint, or an exported ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from arcwise.errors import ArcwiseError

if TYPE_CHECKING:
    from arcwise.export.encoder import OnnxEmbedder
    from arcwise.model import Embedder


def load_encoder(path: str | Path, *, device: str = "auto") -> Embedder | OnnxEmbedder:
    """The model in a Run's folder, a model.safetensors, insightface's .pth or an .onnx file that arcwise exported.

    The last needs onnxruntime and no torch.

    >>> load_encoder("nowhere.onnx")
    Traceback (most recent call last):
    arcwise.errors.ArcwiseError: there is no model nowhere.onnx. Make one with: arcwise export MODEL nowhere.onnx
    """
    path = Path(path)
    if path.suffix == ".onnx":
        from arcwise.export.encoder import OnnxEmbedder

        if device not in ("auto", "cpu"):
            raise ArcwiseError(f"an ONNX file runs on the CPU here, not on {device!r}: leave --device out.")
        return OnnxEmbedder.load(path)
    try:
        from arcwise.model import Embedder
        from arcwise.train.device import device_for
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ArcwiseError(
            f"{path} needs torch, which is not installed. Where it is, say: arcwise export MODEL model.onnx"
        ) from None
    return Embedder.load(path, device=device_for(device))
