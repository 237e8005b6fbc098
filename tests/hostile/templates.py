"""What is damaged: a tiny Run and all that stands around it, made once and never changed.

pictures/      images of six classes, 8 x 8         table/        the same kind of images, and a CSV
run/           trained on them, finished            comparison/   two heads, one seed
unfinished/    the run as it was before its end     images/       one image in each format
cache/         decoded pictures, a fetched set      insight/      checkpoints in torch's own form
report/        a folder that says it is one         exported/      the run's model as ONNX, its thresholds
people/        a gallery of two of the classes      pairs/         a table of pairs, and what was calibrated
stopped/       embedding that was stopped               spread/        unfinished, its checkpoint as several write it
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
from PIL import Image

CLASSES = "abcdef"
SIDE = 8
SETTINGS = (
    "data.source=folder:pictures", "data.unseen=e-f", "data.size=8", "data.validation=0.2", "data.test=0.3",
    "train.epochs=2", "train.batch=10", "train.snapshots=true", "train.patience=2", "train.checkpoint_every=0",
    "train.journal_every=1", "train.ema=0.9",
)  # fmt: skip
HEADS = "softmax-bias,arcface:m=0.3,s=8"


def make_templates(root: Path) -> Path:
    """The folder, once all templates are in it; $ARCWISE_DATA is its folder `cache`."""
    from arcwise.compare import compare
    from arcwise.measure import measure, measure_epochs
    from arcwise.records.folders import mark_report
    from arcwise.train import train

    make_pictures(root / "pictures")
    make_table(root / "table")
    make_images(root / "images")
    with contextlib.chdir(root), no_waiting():
        run = train("digits-2d", "run", settings=SETTINGS, device="cpu", listener=lambda event: None)
        measure(run)
        for part in ("test", "validation", "train"):
            measure_epochs(run, part)
        few = [one for one in SETTINGS if one.startswith("data.")]
        compare("digits-2d", HEADS, "comparison", seeds=1, workers=1, device="cpu", settings=[*few, "train.epochs=1"],
                command="arcwise compare digits-2d --out comparison")  # fmt: skip
        shutil.copytree("run", "unfinished")
        for name in ("result.json", "metrics.json", "model.safetensors"):
            Path("unfinished", name).unlink()
        make_spread(Path("spread"))
        make_fetched(Path("cache"))
        make_insight(Path("insight"))
        mark_report(Path("report"))
        shutil.copyfile("comparison/metrics.json", "report/metrics.json")
        Path("report/report.html").write_text("<p>a report</p>")
        make_used()
        make_stopped(Path("stopped"))
    return root


@contextlib.contextmanager
def no_waiting() -> Iterator[None]:
    """Does not wait for the disk while it is entered: whether it is asked to is proved elsewhere."""
    before, os.fsync = os.fsync, lambda _: None
    try:
        yield
    finally:
        os.fsync = before


def make_spread(folder: Path) -> None:
    """The unfinished Run, its newest checkpoint written by a group of processes, of which there is one."""
    import torch
    import torch.distributed as dist

    from arcwise.records import Run
    from arcwise.train.checkpoint import checkpoints_of, save_checkpoint
    from arcwise.train.loop import Trainer
    from arcwise.train.saving import Saver
    from arcwise.train.together import Together
    from hostile.read_runs import splits_of_templates

    shutil.copytree("unfinished", folder)
    run = Run.open(folder)
    kit = Trainer(run, run.settings, splits_of_templates(Path()), device=torch.device("cpu"))
    checkpoints_of(run)[-1].unlink()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # pyright: ignore[reportPrivateImportUsage]
    try:
        us = Together(0, 1, dist.group.WORLD, dist.group.WORLD, dist.group.WORLD)
        with Saver(beside=False) as saver:
            told = {"saver": saver, "identity": kit.identity, "together": us}
            save_checkpoint(run, kit.progress, kit.modules, kit.optimisers, kit.device, **told)
    finally:
        dist.destroy_process_group()


def make_used() -> None:
    """What comes after training: a threshold, an exported model, pairs, a gallery."""
    from arcwise.cli import code_of

    for folder in ("exported", "pairs"):
        Path(folder).mkdir()
    for line in (
        "calibrate run --on folder:pictures[e-f] --far 0.2 --few-identities",
        "export run exported/model.onnx --on folder:pictures[a-c]",
        "pairs make folder:pictures[a-d] -n 20 --folds 2 --out pairs/pairs.csv",
        "gallery create people --model run --keep-images", "gallery add people pictures/a --name a --tags first",
        "gallery add people pictures/b --name b",
    ):  # fmt: skip
        assert code_of(line.split()) == 0, line
    shutil.copyfile("run/thresholds.json", "exported/thresholds.json")


def make_stopped(folder: Path) -> None:
    """What is kept of embedding that was stopped after half of the images."""
    from hostile.read_files import stopped

    def stop(done: int, total: int) -> None:
        if done == total // 2:
            raise KeyboardInterrupt

    folder.mkdir()
    module = importlib.import_module("arcwise.embed")  # the name itself is a function's
    with mock.patch.object(module, "SAVED_EVERY", 0.0), contextlib.suppress(KeyboardInterrupt):
        stopped(Path(), stop)


def make_pictures(folder: Path) -> None:
    """Eight images of each class, told apart by where they are bright."""
    random = np.random.default_rng(0)
    for at, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for i in range(8):
            pixels = random.integers(0, 60, (SIDE, SIDE), dtype=np.uint8)
            pixels[at : at + 3, at : at + 3] += 180
            Image.fromarray(pixels).save(folder / name / f"{i}.png")


def make_table(folder: Path) -> None:
    """Six images, and the CSV that names them."""
    folder.mkdir()
    rows = ["file,label"]
    for i in range(6):
        Image.fromarray(np.full((SIDE, SIDE), 40 * i, np.uint8)).save(folder / f"{i}.png")
        rows.append(f"{i}.png,{'ab'[i % 2]}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")


def make_images(folder: Path) -> None:
    """One picture in each format and mode that a person may have."""
    folder.mkdir()
    random = np.random.default_rng(1)
    colour = Image.fromarray(random.integers(0, 256, (12, 10, 3), dtype=np.uint8))
    clear = Image.fromarray(random.integers(0, 256, (12, 10, 4), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    colour.save(folder / "colour.jpg", exif=exif)
    colour.convert("CMYK").save(folder / "cmyk.jpg")
    colour.save(folder / "progressive.jpg", progressive=True)
    clear.save(folder / "clear.png")
    colour.convert("P").save(folder / "palette.png", transparency=3)
    Image.fromarray(random.integers(0, 65536, (12, 10), dtype=np.uint16)).save(folder / "deep.png")
    colour.save(folder / "film.gif", save_all=True, append_images=[colour.rotate(90)], loop=0)
    colour.save(folder / "colour.bmp")
    colour.convert("1").save(folder / "bits.bmp")
    colour.save(folder / "colour.tiff", compression="tiff_lzw")
    Image.fromarray(random.random((12, 10), np.float32)).save(folder / "float.tiff")
    colour.save(folder / "colour.webp")
    clear.save(folder / "clear.webp", lossless=True)
    colour.save(folder / "colour.ppm")
    colour.save(folder / "colour.ico", sizes=[(10, 10)])


def make_fetched(cache: Path) -> None:
    """The cached file of a public set, two of each part."""
    from arcwise.data.fetch import store

    random = np.random.default_rng(2)
    pixels = random.integers(0, 256, (8, 4, 4, 1), dtype=np.uint8)
    y = np.arange(8, dtype=np.uint8)
    store(
        {"train_x": pixels[:6], "train_y": y[:6], "test_x": pixels[6:], "test_y": y[6:]}, cache / "cifar100.safetensors"
    )


def make_insight(folder: Path) -> None:
    """Two checkpoints with insightface's names: of a network that there is, far too small, and of none."""
    import torch

    folder.mkdir()
    for name, blocks in (("named", 2), ("short", 1)):
        weights = {
            "conv1.weight": torch.zeros(4, 3, 3, 3),
            "fc.weight": torch.zeros(2, 512),
            "features.weight": torch.ones(2),
        }
        weights |= {f"layer{i}.{j}.bn1.weight": torch.ones(4) for i in range(1, 5) for j in range(blocks)}
        out = io.BytesIO()
        torch.save(weights, out)
        (folder / f"{name}.pth").write_bytes(out.getvalue())
