"""`arcwise embed`: writes the embeddings of a source's images under a saved model."""

from __future__ import annotations

import sys
from pathlib import Path

from arcwise.cli.progress import Counter, images, size
from arcwise.config import DataConfig
from arcwise.errors import one_of


def run(
    model: Path,
    data: str,
    /,
    *,
    out: Path = Path("embeddings.safetensors"),
    part: str = "test",
    unseen: str = "",
    device: str = "auto",
    data_dir: Path | None = None,
) -> None:
    """Write the embeddings of images into one file.

    Parameters
    ----------
    model
        A run's folder, a model.safetensors, or insightface's .pth.
    data
        The images, as in mnist[5-9] or folder:PATH.
    out
        Where the embeddings go.
    part
        train, test, unseen, or all: every image of the source.
    unseen
        Classes to keep apart, as in 5-9.
    device
        auto, cpu, cuda or cuda:1.
    data_dir
        Where data sets are cached, in place of $ARCWISE_DATA.
    """
    one_of("part", part, ("train", "test", "unseen", "all"))
    from arcwise.data import load
    from arcwise.embed import embed
    from arcwise.model import Embedder
    from arcwise.train.device import chosen_device

    embedder = Embedder.load(model, device=chosen_device(device))
    look = embedder.preprocessing
    config = DataConfig(source=data, unseen=unseen, size=look.side, channels=look.channels)
    counter = Counter(images if data.startswith("folder") else size)
    splits = load(config, data_dir=data_dir, tell=counter)
    chosen = splits.whole if part == "all" else splits.part(part)
    counter = Counter(images)
    told = {"model": str(model), "source": data, "part": part}
    found = embed(embedder, chosen, about=told, tell=lambda done, total: counter("embedding", done, total))
    found.save(out)
    for name, reason in splits.broken.items():
        print(f"skipped {name}: {reason}", file=sys.stderr)
    print(f"{out}: {len(found.x):,} embeddings of {found.dim} dimensions, {len(found.names)} classes")
    print(f"Next: python -c \"from arcwise.records import Embeddings; print(Embeddings.load('{out}').x.shape)\"")
