"""Splits: training, validation, test and unseen images of a named source, disjoint and the same every time."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from arcwise.config import DataConfig
from arcwise.data import folder as folders
from arcwise.data.fetch import ORIGINS, cache_folder, expand_home, fetch_arrays
from arcwise.data.images import (
    Images,
    Tell,
    image_hashes,
    imbalance_classes,
    limit_images,
    select_classes,
    split_by_class,
    split_filter,
)
from arcwise.errors import ArcwiseError, count_in, name_list, note, number_in, unknown
from arcwise.records import Framing, Run
from arcwise.records.preprocessing import with_channels

PIXELS_TOO = "2-"  # begins a fingerprint that counts pixels
SYNTHETIC_BYTES = 2**28  # of pixels at most; making them takes some ten times as much


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """What a run trains on, watches, and is judged by. `unseen` holds classes that no other part has.

    `broken` are the files of a folder that were skipped, with the reason; `notes` say what else a person should know
    before they train; `seen_before` says which parts hold images that a model to start from was trained on; `framing`
    is how images were made square.
    """

    train: Images
    test: Images
    validation: Images | None = None
    unseen: Images | None = None
    broken: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seen_before: tuple[str, ...] = ()
    framing: Framing | None = None
    handed_over: bool = False  # by a user, as arrays: nothing but their pixels says which images they are

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

    @property
    def fingerprint(self) -> str:
        """A checksum of which images are in which part: names, labels and pixels."""
        sha = hashlib.sha256()
        for name, part in self.parts.items():
            sha.update(json.dumps([name, part.names, part.shape, part.y.tolist(), part.files]).encode())
            sha.update(image_hashes(part).tobytes())
        return PIXELS_TOO + sha.hexdigest()[:24]

    @property
    def earlier_fingerprint(self) -> str:
        """The same as Runs have it from before pixels of files were counted."""
        sha = hashlib.sha256()
        for name, part in self.parts.items():
            sha.update(json.dumps([name, part.names, part.shape, part.y.tolist(), part.files]).encode())
            if self.handed_over and isinstance(part.pixels, np.ndarray):
                sha.update(np.ascontiguousarray(part.pixels).data)
        return sha.hexdigest()[:24]

    def refuse_others(self, run: Run) -> None:
        """Raises when the images that a run was started with were others."""
        before = run.about.get("images")
        if before is not None and not self.are(before):
            raise ArcwiseError(
                f"the images are not those that {run.path} was started with: some were added, removed, renamed or "
                "changed. Put them back, or choose another --out."
            )

    def are(self, fingerprint: str) -> bool:
        """Whether a fingerprint is of these images."""
        return fingerprint == (self.fingerprint if fingerprint.startswith(PIXELS_TOO) else self.earlier_fingerprint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A source as it comes: with a test set of its own, or without."""

    train: Images
    test: Images | None = None
    broken: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    framing: Framing | None = None  # where the source looked at its images to decide it


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a source needs to know: the text after the colon, the configuration, where the cache is, whom to tell."""

    argument: str
    config: DataConfig
    data_dir: str | Path | None
    tell: Tell | None


@dataclass(frozen=True, slots=True)
class Source:
    """A source of images: what it is in a line, the function that reads it, and what may stand after its colon.

    `from_arrays` says that all images come at one size, which then are stretched where another is asked for; files are
    cropped. `kept` says where they are: "always here", "yours", or "fetched" where they are downloaded once.
    """

    about: str
    read: Callable[[Asked], Raw]
    argument: str = ""
    kept: str = "always here"
    from_arrays: bool = True


def read_digits(asked: Asked) -> Raw:
    """The digits that are in the package."""
    from importlib.resources import files

    with np.load(io.BytesIO((files("arcwise.data") / "digits.npz").read_bytes())) as kept:
        pixels, y = (kept["pixels"] * 15)[..., None], kept["y"].astype(np.int64)
    return Raw(train=Images(pixels=pixels, y=y, names=tuple("0123456789")))


def public(name: str) -> Callable[[Asked], Raw]:
    """The source function of a data set that has to be fetched."""

    def source(asked: Asked) -> Raw:
        arrays = fetch_arrays(name, data_dir=asked.data_dir, tell=asked.tell)
        train, test = (
            Images(pixels=arrays[f"{part}_x"], y=arrays[f"{part}_y"].astype(np.int64), names=ORIGINS[name].names)
            for part in ("train", "test")
        )
        return Raw(train=train, test=test)

    return source


def read_folder(asked: Asked) -> Raw:
    """One folder per class, or a CSV of names and labels."""
    if not asked.argument:
        raise ArcwiseError("say which folder: folder:PATH, with one folder of images per class inside.")
    train, test, names = folders.list_parts(expand_home(asked.argument), depth=asked.config.depth)
    grey = not asked.config.channels and folders.is_grey(train)
    framing = framing_of(asked.config, side=112, channels=1 if grey else 3)
    if grey and not asked.config.fit:
        framing = replace(framing, fit="pad")  # characters and drawings reach to their edges
    options = {
        "framing": framing,
        "broken": asked.config.broken,
        "cache": cache_folder(asked.data_dir),
        "tell": asked.tell,
    }
    images, bad = folders.load_folder(train, names, **options)
    notes = (*train.notes, *folders.repeated_notes(images))
    if test is None:
        return Raw(train=images, broken=bad, notes=notes, framing=framing)
    apart, more = folders.load_folder(test, names, **options)
    images, apart = (
        replace(part, source=f"{listing.root.name}/") for part, listing in ((images, train), (apart, test))
    )
    return Raw(train=images, test=apart, broken=bad | more, notes=(*notes, *test.notes), framing=framing)


def read_glyphs(asked: Asked) -> Raw:
    """Characters, drawn and distorted."""
    from arcwise.data.glyphs import glyph_images

    train, test = glyph_images(asked.config.seed)
    return Raw(train=train, test=test)


def read_synthetic(asked: Asked) -> Raw:
    """Clusters on a sphere written as images."""
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
    count_in("synthetic's bytes", classes * per_class * side * side, 1, SYNTHETIC_BYTES)
    noise = number_in("noise", values["noise"], 0.0, 100.0)
    random = np.random.default_rng(asked.config.seed)
    y = np.repeat(np.arange(classes), per_class)
    centres, pixels = random.standard_normal((classes, side * side)), np.empty((len(y), side * side), np.uint8)
    for some in np.array_split(np.arange(len(y)), -(-pixels.size // 2**22)):
        x = centres[y[some]] + noise * random.standard_normal((len(some), side * side))
        pixels[some] = np.clip(128 + 40 * x, 0, 255)
    pixels = pixels.reshape(-1, side, side, 1)
    return Raw(train=Images(pixels=pixels, y=y, names=tuple(map(str, range(classes)))))


SOURCES: dict[str, Source] = {
    "digits": Source("1,797 handwritten digits of 8 x 8 (Alpaydin & Kaynak 1998)", read_digits),
    "mnist": Source("70,000 handwritten digits of 28 x 28 (LeCun 1998)", public("mnist"), kept="fetched"),
    "fashion-mnist": Source("70,000 pieces of clothing, 28 x 28 (Xiao 2017)", public("fashion-mnist"), kept="fetched"),
    "cifar10": Source("60,000 photographs of ten kinds, 32 x 32 (Krizhevsky 2009)", public("cifar10"), kept="fetched"),
    "cifar100": Source("60,000 photographs of a hundred kinds, 32 x 32", public("cifar100"), kept="fetched"),
    "glyphs": Source("400 characters in eight fonts, distorted: for classes nobody has seen", read_glyphs),
    "synthetic": Source("clusters on a sphere, made on the spot", read_synthetic, argument="classes=100,per_class=50"),
    "folder": Source("your own images: a folder per class, or a CSV", read_folder, "PATH", "yours", False),
}


def load(
    source: str | DataConfig, *, data_dir: str | Path | None = None, tell: Tell | None = None, **settings: Any
) -> Splits:
    """The images of a source, split as the settings of DataConfig ask for.

    >>> load("digits[0-4]", unseen="5-9").unseen.names
    ('5', '6', '7', '8', '9')
    """
    config = source if isinstance(source, DataConfig) else DataConfig(source=source)
    known = [field.name for field in dataclasses.fields(DataConfig)]
    for key in settings.keys() - set(known):
        raise unknown("setting of data", key, known)
    config = replace(config, **settings)
    raw, kept = read_source(config, data_dir=data_dir, tell=tell)
    return divide(raw, kept, config)


def load_whole(
    config: DataConfig, *, data_dir: str | Path | None = None, tell: Tell | None = None
) -> tuple[Images, dict[str, str]]:
    """Every image of a source, or of the classes it names, and the broken files with the reason; nothing is split.

    >>> len(load_whole(DataConfig(source="digits"))[0])
    1797
    """
    raw, kept = read_source(config, data_dir=data_dir, tell=tell)
    for words in raw.notes:
        note(f"{config.source}: {words}")
    classes = select_classes(kept, raw.train.names) if kept else list(range(raw.train.classes))
    parts = [part.only(classes) for part in (raw.train, raw.test) if part is not None]
    if len(parts) == 1:
        return reframe(parts[0], config), raw.broken
    ids = tuple(key for part in parts for key in part.keys)
    y, pixels = (np.concatenate([np.asarray(getattr(part, key)) for part in parts]) for key in ("y", "pixels"))
    return reframe(replace(parts[0], pixels=pixels, y=y, files=None, rows=None, ids=ids), config), raw.broken


def read_source(config: DataConfig, *, data_dir: str | Path | None, tell: Tell | None) -> tuple[Raw, str]:
    """The source as it comes, and the class filter that its name carried."""
    text, kept = split_filter(config.source)
    name, _, argument = text.partition(":")
    if name == "folder" and kept and Path(config.source.strip().partition(":")[2]).is_dir():
        argument, kept = config.source.strip().partition(":")[2], ""  # the brackets are the folder's own
    if name not in SOURCES:
        raise no_source(text)
    source = SOURCES[name]
    if argument and not source.argument:
        raise ArcwiseError(f"{name} takes no {argument!r} after a colon; classes are chosen as in {name}[0-4].")
    raw = source.read(Asked(argument=argument, config=config, data_dir=data_dir, tell=tell))
    return (with_places(raw, name) if source.from_arrays else raw), kept


def with_places(raw: Raw, name: str) -> Raw:
    """The source with each image told where it is in it."""
    test = None if raw.test is None else replace(raw.test, source=f"{name}:test", rows=np.arange(len(raw.test)))
    train = replace(raw.train, source=f"{name}:train" if test else name, rows=np.arange(len(raw.train)))
    return replace(raw, train=train, test=test)


def no_source(text: str) -> ArcwiseError:
    """The error for a source that is not there; a path gets the right spelling."""
    if "/" in text or "." in text or Path(text).exists():
        if not Path(text).exists():
            return ArcwiseError(f"{text!r} is no source, and there is no such folder; one of yours is folder:PATH.")
        return ArcwiseError(f"{text!r} is no source. A folder of your own is written {shlex.quote('folder:' + text)}")
    return ArcwiseError(f"{unknown('source', text, SOURCES)} There is no folder called so here either.")


def divide(raw: Raw, kept: str, config: DataConfig) -> Splits:
    """The raw source cut into parts: classes first, then test, then validation, then the limit."""
    names = raw.train.names
    classes = select_classes(kept, names) if kept else list(range(len(names)))
    held_out = select_classes(config.unseen, names) if config.unseen else []
    if not kept:
        classes = [c for c in classes if c not in set(held_out)]
    elif set(held_out) & set(classes):
        both = ", ".join(names[c] for c in sorted(set(held_out) & set(classes)))
        raise ArcwiseError(f"data.unseen names classes that are trained on: {both}.")
    if len(classes) < 2:
        raise ArcwiseError(f"training needs at least two classes, {config.source} has {len(classes)}.")
    train, test = train_and_test(raw, classes, config)
    validation = None
    if config.validation > 0:
        rest, taken = split_by_class(train.y, config.validation, seed=config.seed + 1)
        train, validation = train.take(rest), train.take(taken)
    unseen = (raw.test or raw.train).only(held_out) if held_out else None
    shaped = {
        name: reframe(part, config)
        for name, part in {"test": test, "validation": validation, "unseen": unseen}.items()
        if part is not None
    }
    train = limit_images(train, config.limit, seed=config.seed + 2)
    train = reframe(imbalance_classes(train, config.imbalance, seed=config.seed + 3), config)
    for name, part in {"train": train, **shaped}.items():
        if not len(part):
            raise ArcwiseError(f"no {name} images are left: too few images for the shares and classes asked for.")
    side, _, channels = train.shape
    framing = raw.framing or framing_of(config, side=side, channels=channels)
    notes = (*raw.notes, *class_notes(train, shaped["test"]))
    made = Splits(train=train, test=shaped.pop("test"), broken=raw.broken, notes=notes, framing=framing)
    return replace(made, **shaped)


def class_notes(train: Images, test: Images) -> Iterator[str]:
    """Classes that nothing can be learned of, and classes that are not judged."""
    empty = [train.names[c] for c in np.flatnonzero(train.counts == 0)]
    if empty:
        some = name_list(tuple(empty), 4)
        yield f"{folders.counted(len(empty), 'class', 'classes')} without a training image: {some}."
    untested = [train.names[c] for c in np.flatnonzero((test.counts == 0) & (train.counts > 0))]
    if untested:
        some = name_list(tuple(untested), 4)
        yield f"{folders.counted(len(untested), 'class', 'classes')} without a test image, so never judged: {some}."
    elif train.files is not None and len(test) and test.counts.max() == 1:
        yield "one test image a class: no more is known of a class than whether it was found; data.test takes more."
    if train.files is not None and test.files is not None:
        hashes, known = image_hashes(test), image_hashes(train)
        rows = np.flatnonzero(np.isin(hashes, known))
        if len(rows):
            twin = int(np.flatnonzero(known == hashes[rows[0]])[0])
            yield (
                f"{folders.counted(len(rows), 'test image')} identical to one that is trained on, as "
                f"{test.files[rows[0]]} and {train.files[twin]} are: accuracy counts them all the same."
            )


def train_and_test(raw: Raw, classes: list[int], config: DataConfig) -> tuple[Images, Images]:
    """Training and test images of these classes."""
    train = raw.train.only(classes)
    if raw.test is not None:
        return train, raw.test.only(classes)
    if config.test == 0.0:
        raise ArcwiseError(f"{config.source} has no test set of its own: data.test must be a share such as 0.2.")
    rest, taken = split_by_class(train.y, config.test, seed=config.seed)
    if not len(taken):
        raise ArcwiseError("no class has a second image to test on: add images, at least two to a class.")
    return train.take(rest), train.take(taken)


def looks(config: DataConfig, splits: Splits) -> dict[str, str]:
    """How images are framed and changed, in words, each with the setting that changes it.

    >>> looks(DataConfig(shift=2), load("digits"))["shifted by up to 2 pixels"]
    'data.shift=0'
    """
    height, width, channels = splits.train.shape
    colour = channels == 3
    found = {
        f"{height} x {width}": f"data.size={2 * height}",
        "colour" if colour else "grey": f"data.channels={1 if colour else 3}",
    }
    if splits.framing is not None and config.source.startswith("folder:"):
        words = {"crop": "cut to the middle square", "pad": "padded to a square", "stretch": "stretched to a square"}
        found[words[splits.framing.fit]] = f"data.fit={'pad' if splits.framing.fit == 'crop' else 'crop'}"
    mirrored = colour if config.flip is None else config.flip
    found["mirrored at random" if mirrored else "not mirrored"] = f"data.flip={str(not mirrored).lower()}"
    for name, words in (("shift", "shifted by up to {} pixels"), ("rotate", "turned by up to {}°"),
                        ("cutout", "with a square of {} pixels covered")):  # fmt: skip
        if much := config.covered(width) if name == "cutout" else getattr(config, name):
            found[words.format(f"{much:g}")] = f"data.{name}=0"
    return found


def framing_of(config: DataConfig, *, side: int, channels: int) -> Framing:
    """How the images of a source are made square: as the configuration says, else as its kind of source does."""
    name = split_filter(config.source)[0].partition(":")[0]
    arrays = name not in SOURCES or SOURCES[name].from_arrays
    fit, resample = ("stretch", "bilinear") if arrays else ("crop", "bicubic")
    return Framing(
        side=config.size or side, channels=config.channels or channels, fit=config.fit or fit,
        resample=config.resample or resample,
    )  # fmt: skip


def reframe(images: Images, config: DataConfig) -> Images:
    """The images at the side and channels asked for."""
    height, width, channels = images.shape
    side, wanted = config.size or height, config.channels or channels
    if (side, side, wanted) == (height, width, channels) or (not config.size and wanted == channels):
        return images
    framing = framing_of(config, side=side, channels=wanted)
    if not config.size and height != width:  # only the channels change
        return replace(images, pixels=with_channels(np.asarray(images.pixels), wanted))
    return replace(images, pixels=framing.framed_all(np.asarray(images.pixels)))


def splits_from(data: object, config: DataConfig) -> Splits:
    """The splits in what a user handed over: Splits, Images, a pair (pixels, labels), or a table of parts of these.

    Where no test part is there, a share of every class is taken for it, as with any source.

    >>> pixels, y = np.zeros((20, 8, 8), np.uint8), np.arange(20) % 2
    >>> [len(part) for part in splits_from((pixels, y), DataConfig(test=0.2)).parts.values()]
    [16, 4]
    """
    if isinstance(data, Splits):
        return replace(data, handed_over=True)
    given = data if isinstance(data, Mapping) else {"train": data}
    for name in given.keys() - {"train", "validation", "test", "unseen"}:
        raise unknown("part of data", name, ("train", "validation", "test", "unseen"))
    if "train" not in given:
        raise ArcwiseError('data needs a part "train": pass (pixels, labels), or {"train": ..., "test": ...}.')
    made = {name: images_from(part, name) for name, part in given.items()}
    raw = Raw(train=made.pop("train"), test=made.pop("test", None))
    return replace(divide(raw, "", config), handed_over=True, **made)


def images_from(part: object, name: str) -> Images:
    """Images as they are, or from a pair of pixels and labels."""
    if isinstance(part, Images):
        return part if part.source or part.files else replace(part, source=f"data:{name}")
    if not (isinstance(part, tuple | list) and len(part) == 2):
        raise ArcwiseError(f"data is given as (pixels, labels) or as arcwise.data.Images, got {type(part).__name__}.")
    pixels, y = (np.asarray(side) for side in part)
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1] != pixels.shape[2]:
        raise ArcwiseError(
            f"pixels are square images of bytes, (n, side, side) or (n, side, side, channels) in uint8, got "
            f"{pixels.dtype} of shape {pixels.shape}. If they were divided by 255, pass them as they were before."
        )
    if y.dtype.kind not in "iu" or y.shape != pixels.shape[:1] or (len(y) and y.min() < 0):
        raise ArcwiseError(f"labels are {len(pixels)} whole numbers from 0 on, got {y.dtype} of shape {y.shape}.")
    names = tuple(map(str, range(int(y.max(initial=-1)) + 1)))
    return Images(pixels=pixels, y=y.astype(np.int64), names=names, source=f"data:{name}")
