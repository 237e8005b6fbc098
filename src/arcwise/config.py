"""The configuration of a run: frozen, checked, with typed overrides, and JSON there and back."""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Union, get_args, get_origin, get_type_hints

from arcwise.errors import ArcwiseError, count_in, flag, number_in, one_of, unknown
from arcwise.headspec import HeadSpec, parse_named
from arcwise.schema import MOST, parse_json

OPTIMISERS = ("sgd", "adamw")
SCHEDULES = ("constant", "one-cycle", "cosine", "polynomial")
SAMPLINGS = ("shuffled", "balanced", "m-per-class")
BATCH_NORMS = ("train", "frozen", "synced")
FITS = ("crop", "pad", "stretch")
RESAMPLES = ("bicubic", "bilinear")


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """Which images, how they are split, and how a batch of them is changed at random.

    `source` may carry a class filter (`mnist[0-4]`); `unseen` names classes that are kept from training
    and serve as the classes nobody has seen. `validation` and `test` are shares of each class, or the part
    of the source that has no test set of its own. `seed` fixes the splits, whatever the run's seed is.
    """

    source: str = "digits"  # the images: a source, with a class filter as in mnist[0-4], or folder:PATH
    unseen: str = ""  # classes kept from training and judged at the end, by position, name or pattern
    validation: float = 0.0  # share of each class that is watched while training
    test: float = 0.2  # share of each class to test on, where the source has no test set of its own
    limit: int = 0  # train on this many images at most, spread over the classes; 0: all
    imbalance: float = 1.0  # train on this many times as many images of the first class as of the last; 1: as they are
    size: int = 0  # side of the square image; 0: as the source has it (folders: 112)
    channels: int = 0  # 1 grey, 3 colour; 0: as the images are
    fit: str = ""  # to a square: crop, pad or stretch; "": arrays stretch, folders crop colour and pad grey images
    resample: str = ""  # bicubic or bilinear; "": as the source does (folders bicubic, arrays bilinear)
    broken: str = "skip"  # files that cannot be read: skip or refuse
    depth: int = 1  # of folders: a class is a folder at this depth below the one that is named
    allow_overlap: bool = False  # train although some unseen images are trained on as well, pixel for pixel
    flip: bool | None = False  # mirror images; none: of colour images, not of grey ones, which may be characters
    shift: int = 0  # at random by up to so many pixels
    rotate: float = 0.0  # at random by up to so many degrees
    cutout: int = 0  # side in pixels of a square that is covered at random, at most half the image
    seed: int = 0  # of the splits, whatever the run's seed is

    def __post_init__(self) -> None:
        share = "It is a share of each class."
        number_in("data.validation", self.validation, 0.0, 0.9, why=share)
        number_in("data.test", self.test, 0.0, 0.9, why=share)
        for name in ("limit", "size", "channels", "shift", "cutout", "seed"):
            count_in(f"data.{name}", getattr(self, name), 0, MOST)
        number_in("data.imbalance", self.imbalance, 1.0, 1e6)
        count_in("data.size", self.size, 0, 4096)
        count_in("data.depth", self.depth, 1, 20)
        number_in("data.rotate", self.rotate, 0.0, 180.0)
        one_of("data.broken", self.broken, ("skip", "refuse"))
        one_of("data.fit", self.fit, ("", *FITS))
        one_of("data.resample", self.resample, ("", *RESAMPLES))
        if self.channels not in (0, 1, 3):
            raise ArcwiseError(f"data.channels must be 1 (grey), 3 (colour) or 0 (as they are), got {self.channels}.")

    def covered(self, side: int) -> int:
        """The side of the square that is covered in images of this side: half of theirs at most.

        >>> DataConfig(cutout=16).covered(64), DataConfig(cutout=16).covered(16)
        (16, 8)
        """
        return min(self.cutout, max(1, side // 2))


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The network: a backbone by name, the dimension of its embedding, and batch norm after the last layer."""

    backbone: str = "simple_cnn"  # simple_cnn, vgg8, resnet9, iresnet18 to 100, or timm:NAME
    dim: int = 2  # numbers in an embedding
    norm: bool = False  # batch norm after the last layer
    dropout: float = 0.0  # share of features before the last layer
    pretrained: bool = False  # timm models only

    def __post_init__(self) -> None:
        count_in("model.dim", self.dim, 2, 2**16)
        number_in("model.dropout", self.dropout, 0.0, 0.95)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadConfig:
    """The head: its name, or name with parameters ("adaface:h=0.3"); None is what the advisor or the margin says."""

    name: str = "arcface"  # as arcwise margins lists them, or softmax
    s: float | None = None  # scale of the cosines; none: as arcwise advise says
    m: float | None = None  # the margin; none: its own
    k: int | None = None  # centres of each class; none: one
    engine: str = "auto"  # auto, eager, chunked or triton
    gradient: str = "exact"  # or straight_through, as insightface has it
    inside: bool = False  # prototypes step in the backward pass, and no gradient of them is ever kept
    sample: float = 1.0  # the share of the classes beside the batch's own that a step counts and moves; 1: all
    corrected: bool = False  # a class that is drawn counts 1/sample times

    @property
    def spec(self) -> HeadSpec:
        """The head as one noun: what the name carries, and what stands beside it.

        >>> str(HeadConfig(name="adaface:h=0.3", s=12.0).spec)
        'adaface:h=0.3,s=12'
        """
        spec = HeadSpec.parse(self.name)
        beside = {key: value for key in ("s", "m", "k") if (value := getattr(self, key)) is not None}
        for key in beside:
            if getattr(spec, key) is not None:
                raise ArcwiseError(
                    f"head.name={self.name} and head.{key}={beside[key]:g} both set {key}: leave one out."
                )
        return replace(spec, **beside)

    @property
    def kind(self) -> str:
        """The name without parameters."""
        return parse_named(self.name)[0]

    @property
    def linear(self) -> bool:
        """Whether this is a plain softmax, which has neither scale nor margin."""
        return HeadSpec(name=self.kind).linear

    @property
    def names_s(self) -> bool:
        """Whether the name itself carries a scale, as "arcface:m=0.3,s=16" does."""
        return "s" in parse_named(self.name)[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainConfig:
    """How the network is trained. Times in `warmup` and `margin_warmup` are epochs, and may be fractions."""

    epochs: int = 10  # times that all images are seen
    batch: int = 128  # images a step
    remainder: bool = False  # an epoch ends with a smaller batch of the images that are left over
    accumulate: int = 1  # a batch is split into this many parts, one gradient
    optimiser: str = "sgd"  # sgd (Nesterov) or adamw
    lr: float = 0.1  # the largest learning rate
    momentum: float = 0.9  # of sgd
    weight_decay: float = 5e-4  # of weights, not of biases and norms
    schedule: str = "one-cycle"  # of the learning rate: constant, one-cycle, cosine or polynomial
    warmup: float = 0.0  # epochs in which the learning rate rises
    power: float = 1.0  # of the polynomial schedule
    final_lr: float = 0.0  # as a share of lr
    margin_warmup: float = 0.0  # epochs in which the margin rises
    clip: float = 0.0  # largest norm of the gradient; 0: no clipping
    ema: float = 0.0  # decay per step of the averaged weights; 0: none
    sampling: str = "shuffled"  # or balanced, or m-per-class
    per_class: int = 4  # samples of one class in a batch, for sampling="m-per-class"
    patience: int = 0  # stop after this many epochs without a better validation accuracy; 0: never
    evaluate_every: int = 1  # epochs between two evaluations
    mirror: bool = False  # evaluate on the image and its mirror image together
    snapshots: bool = False  # embeddings of train and test at every epoch
    amp: bool = True  # bf16 where a GPU has it in hardware
    amp_cpu: bool = False  # bf16 where a CPU has it in hardware; embeddings stay float32
    channels_last: bool = True  # how images lie in memory: faster on most machines
    compile: bool = False  # the network by torch.compile
    record: bool = True  # on a GPU, where nothing is compiled: a step's kernels are recorded once and replayed
    journal_every: int = 20  # steps between two lines of the journal
    checkpoint_every: float = 60.0  # seconds between two checkpoints
    keep: int = 2  # checkpoints that stay, the newest ones
    save_beside: bool = True  # checkpoints are copied to the host's memory and written while training goes on
    tensorboard: bool = False  # also write its files
    fsdp: bool = False  # of several processes each keeps a part of the network's weights too (FSDP2)
    silence: float = 60.0  # seconds after which a process that says nothing ends a training of several
    head_lr: float = 1.0  # of the head, as a share of lr
    backbone_lr: float = 1.0  # of the backbone, as a share of lr
    frozen_epochs: int = 0  # the backbone rests while the head and the neck learn
    batch_norm: str = "train"  # or frozen, as the model had them that training starts from; synced over several GPUs

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "accumulate", "per_class", "evaluate_every", "journal_every", "keep"):
            count_in(f"train.{name}", getattr(self, name), 1, 10**7)
        for name in ("patience", "frozen_epochs"):
            count_in(f"train.{name}", getattr(self, name), 0, 10**7)
        number_in("train.lr", self.lr, 0.0, 1e4)
        for name in ("momentum", "ema"):
            number_in(f"train.{name}", getattr(self, name), 0.0, 0.999999)
        for name in ("weight_decay", "warmup", "margin_warmup", "clip", "power", "checkpoint_every"):
            number_in(f"train.{name}", getattr(self, name), 0.0, 1e6)
        number_in("train.silence", self.silence, 1.0, 1e6)
        for name in ("head_lr", "backbone_lr", "final_lr"):
            number_in(f"train.{name}", getattr(self, name), 0.0, 1e3)
        one_of("train.optimiser", self.optimiser, OPTIMISERS)
        one_of("train.schedule", self.schedule, SCHEDULES)
        one_of("train.sampling", self.sampling, SAMPLINGS)
        one_of("train.batch_norm", self.batch_norm, BATCH_NORMS)
        for name in ("warmup", "margin_warmup"):
            if getattr(self, name) > self.epochs:
                raise ArcwiseError(f"train.{name}={getattr(self, name):g} is longer than train.epochs={self.epochs}.")
        if self.optimiser == "adamw" and self.momentum != 0.9:
            raise ArcwiseError("AdamW has no momentum to set: leave train.momentum out, or take train.optimiser=sgd.")
        if self.schedule == "constant" and self.final_lr:
            raise ArcwiseError("a constant schedule has no end to fall to: leave train.final_lr out.")
        if 0 < self.patience < self.evaluate_every:
            raise ArcwiseError(
                f"train.patience={self.patience} is shorter than train.evaluate_every={self.evaluate_every}: "
                "set train.evaluate_every=1 as well."
            )
        if self.remainder and self.sampling != "shuffled":
            raise ArcwiseError(f"train.sampling={self.sampling} leaves no images over: leave train.remainder out.")
        if self.batch % self.accumulate:
            raise ArcwiseError(
                f"train.batch={self.batch} cannot be split into train.accumulate={self.accumulate} equal parts."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """All that decides a run's result."""

    recipe: str = ""
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    head: HeadConfig = field(default_factory=HeadConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    init: str = ""  # a saved model to start from
    seed: int = 0

    def __post_init__(self) -> None:
        count_in("seed", self.seed, 0, MOST)

    def to_json(self) -> str:
        """The configuration as JSON.

        >>> Config.from_json(Config(seed=3).to_json()) == Config(seed=3)
        True
        """
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Config:
        """The configuration that `to_json` wrote; unknown keys and wrong types are errors."""
        try:
            values = parse_json(text)
        except ValueError as error:
            raise ArcwiseError(f"the configuration is no JSON: {error}.") from None
        return from_values(cls, values, where="")

    def flat(self) -> dict[str, Any]:
        """Every setting by its full name.

        >>> Config(seed=3).flat()["train.epochs"]
        10
        """
        return flat_values(dataclasses.asdict(self))


def flat_values(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by their full names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat_values(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found


def from_values(kind: type, values: Any, *, where: str) -> Any:
    """A dataclass from nested plain values, strictly."""
    if not isinstance(values, Mapping):
        raise ArcwiseError(f"{where or 'the configuration'} must be a table of values, got {type(values).__name__}.")
    hints = get_type_hints(kind)
    for key in values.keys() - hints.keys():
        raise unknown("setting", where + key, [where + name for name in hints])
    made = {}
    for key, value in values.items():
        if dataclasses.is_dataclass(hints[key]):
            made[key] = from_values(hints[key], value, where=f"{where}{key}.")  # type: ignore[arg-type]
        else:
            made[key] = typed_value(where + key, value, hints[key])
    return kind(**made)


def override(config: Config, settings: Iterable[str]) -> Config:
    """The configuration with "train.epochs=5" and the like put in place, each value of its field's own type.

    A new head.name brings its own margin: an m or k that was meant for another head is forgotten.

    >>> override(Config(), ["train.epochs=5", "head.m=0.3"]).train.epochs
    5
    """
    pairs = dict(split_setting(setting) for setting in settings)
    name = pairs.get("head.name")
    if name is not None and name != config.head.name:
        fresh = HeadConfig(name=name)
        s = None if fresh.linear or fresh.names_s else config.head.s
        old = config.head
        kept = {"engine": old.engine, "gradient": old.gradient, "inside": old.inside and not fresh.linear}
        kept |= {} if fresh.linear else {"sample": old.sample, "corrected": old.corrected}
        config = replace(config, head=replace(fresh, s=s, **kept))
    changes: dict[str, dict[str, Any]] = {}
    for key, text in pairs.items():
        owner, name, value = locate_setting(config, key, text)
        changes.setdefault(owner, {})[name] = value
    for owner, values in changes.items():  # all of a part's settings at once: they are checked together
        part = replace(getattr(config, owner), **values) if owner else None
        config = replace(config, **(values if part is None else {owner: part}))
    return config


def split_setting(setting: str) -> tuple[str, str]:
    """The two sides of "key=value"."""
    key, sign, text = setting.partition("=")
    if not sign or not key.strip():
        raise ArcwiseError(f"a setting is written key=value, as in train.epochs=5; got {setting!r}.")
    return key.strip(), text.strip()


def locate_setting(config: Config, key: str, text: str) -> tuple[str, str, Any]:
    """Whose setting a key is, its own name there, and the value in the setting's type."""
    owner, _, name = key.rpartition(".")
    part = getattr(config, owner, None) if owner else config
    hints = get_type_hints(type(part)) if dataclasses.is_dataclass(part) else {}
    if name not in hints or dataclasses.is_dataclass(hints[name]):
        raise unknown("setting", key, setting_names(Config))
    return owner, name, typed_value(key, text, hints[name])


def setting_names(kind: type, prefix: str = "") -> list[str]:
    """Every setting's full name.

    >>> setting_names(Config)[:2]
    ['recipe', 'data.source']
    """
    found = []
    for name, hint in get_type_hints(kind).items():
        found += setting_names(hint, f"{prefix}{name}.") if dataclasses.is_dataclass(hint) else [prefix + name]  # type: ignore[arg-type]
    return found


def typed_value(key: str, value: Any, hint: Any) -> Any:
    """`value`, which may be text from a command line, as the type its field declares.

    >>> typed_value("train.lr", "1e-2", float), typed_value("head.m", "none", float | None)
    (0.01, None)
    """
    if get_origin(hint) in (Union, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() in ("none", "null", "")):
            return None
        hint = next(option for option in get_args(hint) if option is not type(None))
    if hint is bool and isinstance(value, str):
        yes, no = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
        if value.lower() not in yes + no:
            raise ArcwiseError(f"{key} must be true or false, got {value!r}.")
        return value.lower() in yes
    if hint is bool:
        return flag(key, value)
    if hint in (int, float) and isinstance(value, str):
        value = parse_number(key, value, hint)
    if hint is int and isinstance(value, float) and value.is_integer():
        value = int(value)  # older runs wrote some whole numbers as 0.0
    if hint is int:
        return as_whole(key, value)
    if hint is float:
        return number_in(key, value, -1e300, 1e300)
    if not isinstance(value, str):
        raise ArcwiseError(f"{key} must be text, got {value!r}.")
    return value


def as_whole(key: str, value: object) -> int:
    """`value` as a whole number; how large it may be is its owner's business."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArcwiseError(f"{key} must be a whole number, got {value!r}.")
    return value


def parse_number(key: str, text: str, kind: type) -> int | float:
    """The number that a text holds, or an error that says what was expected."""
    try:
        return kind(text.replace("_", ""))
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ArcwiseError(f"{key} must be {what}, got {text!r}.") from None
