"""Returns Splits: training, validation, test and unseen images of a named source, disjoint and the same every time."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from arcwise.config import DataConfig
from arcwise.data import folder as folders
from arcwise.data.fetch import ORIGINS, cache_folder, expanded, fetched
from arcwise.data.images import Images, Tell, chosen, imbalanced, limited, stratified, with_filter
from arcwise.errors import ArcwiseError, count_in, number_in, unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """What a run trains on, watches, and is judged by. `unseen` holds classes that no other part has.

    `broken` are the files of a folder that were skipped, with the reason.
    """

    train: Images
    test: Images
    validation: Images | None = None
    unseen: Images | None = None
    broken: dict[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> dict[str, Images]:
        """The parts that are there, by name."""
        found = {name: getattr(self, name) for name in ("train", "validation", "test", "unseen")}
        return {name: part for name, part in found.items() if part is not None}

    def part(self, name: str) -> Images:
        """One part by its name."""
        if name not in self.parts:
            raise ArcwiseError(f"there is no part {name!r} here, only {', '.join(self.parts)}.")
        return self.parts[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A source as it comes: with a test set of its own, or without."""

    train: Images
    test: Images | None = None
    broken: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a source needs to know: the text after the colon, the configuration, where the cache is, whom to tell."""

    argument: str
    config: DataConfig
    data_dir: str | Path | None
    tell: Tell | None


def digits(asked: Asked) -> Raw:
    """Handwritten digits of 8 x 8 (Alpaydin & Kaynak 1998, the part that scikit-learn ships): always there."""
    from importlib.resources import files

    with np.load(io.BytesIO((files("arcwise.data") / "digits.npz").read_bytes())) as kept:
        pixels, y = (kept["pixels"] * 15)[..., None], kept["y"].astype(np.int64)
    return Raw(train=Images(pixels=pixels, y=y, names=tuple("0123456789")))


def public(name: str) -> Callable[[Asked], Raw]:
    """The source function of a data set that has to be fetched."""

    def source(asked: Asked) -> Raw:
        arrays = fetched(name, data_dir=asked.data_dir, tell=asked.tell)
        train, test = (
            Images(pixels=arrays[f"{part}_x"], y=arrays[f"{part}_y"].astype(np.int64), names=ORIGINS[name].names)
            for part in ("train", "test")
        )
        return Raw(train=train, test=test)

    return source


def folder(asked: Asked) -> Raw:
    """Your own images: one folder per class, or a CSV of names and labels."""
    if not asked.argument:
        raise ArcwiseError("say which folder: folder:PATH, with one folder of images per class inside.")
    shape = (asked.config.size or 112, asked.config.channels or 3)
    options = {"shape": shape, "broken": asked.config.broken, "cache": cache_folder(asked.data_dir), "tell": asked.tell}
    train, test, names = folders.splits(expanded(asked.argument))
    images, bad = folders.loaded(train, names, **options)
    if test is None:
        return Raw(train=images, broken=bad)
    apart, more = folders.loaded(test, names, **options)
    return Raw(train=images, test=apart, broken=bad | more)


def glyphs(asked: Asked) -> Raw:
    """400 characters in eight fonts, distorted: offline, for classes nobody has seen."""
    from arcwise.data.glyphs import glyphs

    train, test = glyphs(asked.config.seed)
    return Raw(train=train, test=test)


def synthetic(asked: Asked) -> Raw:
    """Clusters on a sphere written as images, made on the spot: synthetic:classes=100,per_class=50,side=8,noise=0.5."""
    values = {"classes": 100, "per_class": 50, "side": 8, "noise": 0.5}
    for part in filter(None, (part.strip() for part in asked.argument.split(","))):
        key, _, text = part.partition("=")
        if key not in values:
            raise unknown("parameter of synthetic", key, values)
        try:
            values[key] = type(values[key])(text)
        except ValueError:
            raise ArcwiseError(f"synthetic's {key} must be a number, got {text!r}.") from None
    classes, per_class, side = (count_in(name, values[name], 1, 10**7) for name in ("classes", "per_class", "side"))
    count_in("synthetic's bytes", classes * per_class * side * side, 1, 2**31)
    noise = number_in("noise", values["noise"], 0.0, 100.0)
    random = np.random.default_rng(asked.config.seed)
    y = np.repeat(np.arange(classes), per_class)
    x = random.standard_normal((classes, side * side))[y] + noise * random.standard_normal((len(y), side * side))
    pixels = np.clip(128 + 40 * x, 0, 255).astype(np.uint8).reshape(-1, side, side, 1)
    return Raw(train=Images(pixels=pixels, y=y, names=tuple(map(str, range(classes)))))


SOURCES: dict[str, Callable[[Asked], Raw]] = {
    "digits": digits,
    "mnist": public("mnist"),
    "fashion-mnist": public("fashion-mnist"),
    "cifar10": public("cifar10"),
    "cifar100": public("cifar100"),
    "glyphs": glyphs,
    "synthetic": synthetic,
    "folder": folder,
}


def load(config: DataConfig, *, data_dir: str | Path | None = None, tell: Tell | None = None) -> Splits:
    """The splits that a configuration asks for.

    >>> load(DataConfig(source="digits[0-4]", unseen="5-9")).unseen.names
    ('5', '6', '7', '8', '9')
    """
    raw, kept = read(config, data_dir=data_dir, tell=tell)
    return divided(raw, kept, config)


def load_whole(
    config: DataConfig, *, data_dir: str | Path | None = None, tell: Tell | None = None
) -> tuple[Images, dict[str, str]]:
    """Every image of a source, or of the classes it names, and the broken files with the reason; nothing is split.

    >>> len(load_whole(DataConfig(source="digits"))[0])
    1797
    """
    raw, kept = read(config, data_dir=data_dir, tell=tell)
    classes = chosen(kept, raw.train.names) if kept else list(range(raw.train.classes))
    parts = [part.only(classes) for part in (raw.train, raw.test) if part is not None]
    if len(parts) == 1:
        return reshaped(parts[0], config), raw.broken
    files = None if parts[0].files is None else tuple(name for part in parts for name in part.files or ())
    y, pixels = (np.concatenate([np.asarray(getattr(part, key)) for part in parts]) for key in ("y", "pixels"))
    return reshaped(replace(parts[0], pixels=pixels, y=y, files=files), config), raw.broken


def read(config: DataConfig, *, data_dir: str | Path | None, tell: Tell | None) -> tuple[Raw, str]:
    """The source as it comes, and the class filter that its name carried."""
    text, kept = with_filter(config.source)
    name, _, argument = text.partition(":")
    if name == "folder" and kept and Path(config.source.strip().partition(":")[2]).is_dir():
        argument, kept = config.source.strip().partition(":")[2], ""  # the brackets are the folder's own
    if name not in SOURCES:
        raise no_source(text)
    if argument and name not in ("folder", "synthetic"):
        raise ArcwiseError(f"{name} takes no {argument!r} after a colon; classes are chosen as in {name}[0-4].")
    return SOURCES[name](Asked(argument=argument, config=config, data_dir=data_dir, tell=tell)), kept


def no_source(text: str) -> ArcwiseError:
    """The error for a source that is not there; a path gets the right spelling."""
    if "/" in text or "." in text or Path(text).exists():
        return ArcwiseError(f"{text!r} is no source. A folder of your own is written folder:{text}")
    return unknown("source", text, SOURCES)


def divided(raw: Raw, kept: str, config: DataConfig) -> Splits:
    """The raw source cut into parts: classes first, then test, then validation, then the limit."""
    names = raw.train.names
    classes = chosen(kept, names) if kept else list(range(len(names)))
    held_out = chosen(config.unseen, names) if config.unseen else []
    if not kept:
        classes = [c for c in classes if c not in set(held_out)]
    elif set(held_out) & set(classes):
        both = ", ".join(names[c] for c in sorted(set(held_out) & set(classes)))
        raise ArcwiseError(f"data.unseen names classes that are trained on: {both}.")
    if len(classes) < 2:
        raise ArcwiseError(f"training needs at least two classes, {config.source} has {len(classes)}.")
    train, test = parts(raw, classes, config)
    validation = None
    if config.validation > 0:
        rest, taken = stratified(train.y, config.validation, seed=config.seed + 1)
        train, validation = train.take(rest), train.take(taken)
    unseen = (raw.test or raw.train).only(held_out) if held_out else None
    shaped = {
        name: reshaped(part, config)
        for name, part in {"test": test, "validation": validation, "unseen": unseen}.items()
        if part is not None
    }
    train = imbalanced(limited(train, config.limit, seed=config.seed + 2), config.imbalance, seed=config.seed + 3)
    train = reshaped(train, config)
    for name, part in {"train": train, **shaped}.items():
        if not len(part):
            raise ArcwiseError(f"no {name} images are left: too few images for the shares and classes asked for.")
    return Splits(train=train, broken=raw.broken, **shaped)


def parts(raw: Raw, classes: list[int], config: DataConfig) -> tuple[Images, Images]:
    """Training and test images of these classes."""
    train = raw.train.only(classes)
    if raw.test is not None:
        return train, raw.test.only(classes)
    if config.test == 0.0:
        raise ArcwiseError(f"{config.source} has no test set of its own: data.test must be a share such as 0.2.")
    rest, taken = stratified(train.y, config.test, seed=config.seed)
    if not len(taken):
        raise ArcwiseError("no class has a second image to test on: add images, at least two to a class.")
    return train.take(rest), train.take(taken)


def reshaped(images: Images, config: DataConfig) -> Images:
    """The images at the side and channels asked for."""
    height, width, channels = images.shape
    side, wanted = config.size or height, config.channels or channels
    if (side, side, wanted) == (height, width, channels) or (not config.size and wanted == channels):
        return images
    pixels = np.asarray(images.pixels)
    if config.size and (side, side) != (height, width):
        pixels = resized(pixels, side)
    if wanted == 3 and channels == 1:
        pixels = np.repeat(pixels, 3, axis=3)
    elif wanted == 1 and channels == 3:
        grey = pixels.astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)
        pixels = np.round(grey).astype(np.uint8)[..., None]
    return replace(images, pixels=pixels)


def resized(pixels: np.ndarray, side: int) -> np.ndarray:
    """The pixels at side x side, smoothed where they shrink."""
    import torch
    import torch.nn.functional as F

    blocks = []
    for start in range(0, len(pixels), 4096):
        block = torch.from_numpy(np.ascontiguousarray(pixels[start : start + 4096])).permute(0, 3, 1, 2).float()
        block = F.interpolate(block, size=(side, side), mode="bilinear", antialias=True)
        blocks.append(block.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy())
    return np.concatenate(blocks)
