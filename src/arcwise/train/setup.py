"""What a run is before its first step: the resolved configuration, the network, the head, and the circumstances."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from arcwise.advise import advise
from arcwise.config import Config, DataConfig, HeadConfig
from arcwise.data import Images, Splits, load
from arcwise.data.images import spread_rows
from arcwise.data.samplers import stream
from arcwise.data.sources import splits_from
from arcwise.embed import embed
from arcwise.errors import ArcwiseError
from arcwise.heads import Head, LinearHead, head_from
from arcwise.headspec import HeadSpec
from arcwise.model import Embedder, finished_model
from arcwise.networks import own_config
from arcwise.ops import why_not
from arcwise.recipes import RECIPE_CHANGES
from arcwise.records import Preprocessing, Run
from arcwise.sphere import normalise
from arcwise.train.device import device_name
from arcwise.train.journal import Listener
from arcwise.train.together import ALONE, Together
from arcwise.version import __version__

CLASS_MEANS_FROM = 50_000  # images at most that prototypes of a fine-tuned model are taken from


@dataclass(frozen=True)
class Given:
    """What a user hands over as objects, in the place of what the configuration names: all of it optional.

    `model` is a network (b, channels, side, side) -> (b, d), `head` a Head, a LinearHead or a margin, `data` images as
    `splits_from` takes them.
    """

    model: nn.Module | None = None
    head: nn.Module | None = None
    data: object = None

    def told(self) -> dict[str, str]:
        """What was handed over, in words, for the Run to tell."""
        named = {name: getattr(self, name) for name in ("model", "head", "data")}
        return {name: type(value).__name__ for name, value in named.items() if value is not None}

    @property
    def spec(self) -> HeadSpec | None:
        """Which head was handed over; of a margin all but the scale."""
        if self.head is None or isinstance(self.head, Head | LinearHead):
            return None if self.head is None else self.head.spec
        return replace(Head(1, margins_held(self.head), margin=self.head).spec, s=None)

    def refuse_others(self, run: Run) -> None:
        """Raises where a run was begun with objects that are not here now, with others, or the other way round."""
        before, now = run.given, self.told()
        for name in [name for name in now if before.get(name, now[name]) != now[name] and name != "data"]:
            raise ArcwiseError(f"{run.path} was begun with another {name}: {before[name]}, now {now[name]}.")
        was = run.about.get("network")
        if self.model is not None and was not in (None, network_text(self.model)):
            raise ArcwiseError(f"{run.path} was begun with another {before['model']}: its layers are not the same.")
        spec = self.spec
        if spec is not None and "head" in before and not same_head(run.head, spec):
            raise ArcwiseError(
                f"{run.path} was begun with another head: {run.head.label}, now {spec.label}. Hand over the same, or "
                "choose another folder."
            )
        gradient, told = getattr(self.head, "gradient", None), run.about.get("gradient")
        if gradient != told and told is not None:
            raise ArcwiseError(f'{run.path} was begun with gradient="{told}", now it is "{gradient}".')
        for name in before.keys() - now.keys():
            raise ArcwiseError(
                f"{run.path} was begun with a {name} of your own ({before[name]}): hand it over again, as in "
                f"arcwise.train(..., {name}=..., resume=True)."
            )
        for name in now.keys() - before.keys():
            raise ArcwiseError(
                f"{run.path} was begun without a {name} of your own: leave {name}= out, or choose another out."
            )


NOTHING_GIVEN = Given()


def same_head(before: HeadSpec, now: HeadSpec) -> bool:
    """Whether these are one head; older Runs do not tell margins inside of others, nor one m per class."""
    told = {key: value for key, value in now.parameters.items() if key in before.parameters}
    hidden = [key for key in now.parameters.keys() - before.parameters.keys() if key not in ("m", "margin")]
    return replace(now, s=None, parameters=told) == replace(before, s=None) and not hidden and now.s in (None, before.s)


def network_text(network: nn.Module) -> str:
    """A checksum of a network's layers as torch prints them."""
    return hashlib.sha256(repr(network).encode()).hexdigest()[:16]


def refuse_without_effect(given: Given, settings: list[str]) -> None:
    """Raises where a setting says what an object that was handed over says itself, or the object cannot be one."""
    if given.model is not None and not isinstance(given.model, nn.Module):
        raise ArcwiseError(f"model is a network, an nn.Module that is built already; got {given.model!r}.")
    if given.head is not None and not isinstance(given.head, nn.Module):
        raise ArcwiseError(f"head is a Head, a LinearHead, a margin or text; got {given.head!r}.")
    ready = isinstance(given.head, Head | LinearHead)
    if given.head is not None and not ready and not {"norm", "y"} <= parameters_of(given.head.forward):
        raise ArcwiseError(f"a margin has forward(cos_y, *, norm, y); {type(given.head).__name__} has not.")
    owned = ["model."] if given.model is not None else []
    owned += [] if given.head is None else ["head."] if ready else ["head.name", "head.m"]
    owned += ["data.source"] if given.data is not None else []
    for key in (setting.partition("=")[0].strip() for setting in settings):
        if key.startswith(tuple(owned)):
            raise ArcwiseError(f"{key} has no effect here: the {key.split('.')[0]} was handed over. Leave it out.")


def parameters_of(call: Callable[..., object]) -> set[str]:
    """The names of what a function takes."""
    return set(inspect.signature(call).parameters)


def margins_held(margin: nn.Module) -> int:
    """How many classes a margin is for: as many as it has m's of its own, any number where it has one."""
    m = getattr(margin, "m", None)
    return len(m) if isinstance(m, torch.Tensor) and m.ndim == 1 else 2


def run_folder(config: Config, given: Given) -> Path:
    """Where a run goes that nobody chose a folder for."""
    head = given.told().get("head", config.head.kind).lower()
    return Path("runs") / f"{config.recipe or 'own'}-{head}-{config.seed}"


def images_of(config: Config, given: Given, data_dir: str | Path | None, listener: Listener | None) -> Splits:
    """The images that were handed over, or those that the configuration names; what is on its way is told."""
    if given.data is not None:
        return splits_from(given.data, config.data)
    tell = None
    if listener is not None:
        tell = lambda what, done, total: listener({"kind": "data", "what": what, "done": done, "total": total})  # noqa: E731
    return load(config.data, data_dir=data_dir, tell=tell)


def resolve(config: Config, splits: Splits, given: Given = NOTHING_GIVEN) -> Config:
    """The configuration with everything decided: a network of the user's, the advisor's scale where none was given."""
    if given.model is not None:
        config = replace(config, model=own_config(given.model, preprocessing_of(splits)))
    head, train = config.head, config.train
    wants_scale = not head.linear if given.head is None else not isinstance(given.head, Head | LinearHead)
    spec = given.spec
    if spec is not None:  # the settings tell what is trained
        head = replace(head, name=spec.name, s=head.spec.s if spec.s is None else spec.s, m=spec.m, k=spec.k)
    if wants_scale and head.s is None and not head.names_s:
        head = replace(head, s=float(f"{advise(splits.train.classes, config.model.dim).s:.4g}"))
    if config.train.patience and splits.validation is None:
        raise ArcwiseError("train.patience watches validation images: set data.validation=0.1 as well.")
    at_once = min(train.batch, len(splits.train)) // train.accumulate
    if at_once < 2:
        raise ArcwiseError(
            f"batch norms need at least two images at a time, and {at_once} would go through: raise train.batch, "
            "lower train.accumulate, or add images."
        )
    if head.inside and (head.linear or train.clip or train.accumulate > 1):
        raise ArcwiseError(
            "head.inside lets prototypes step in the backward pass, where their gradient can be neither clipped nor "
            "accumulated, and a linear head has none: set train.clip=0 and train.accumulate=1, or head.inside=false."
        )
    if train.fsdp and train.frozen_epochs:
        raise ArcwiseError("train.fsdp cannot let the backbone rest: set train.frozen_epochs=0, or train.fsdp=false.")
    if head.sample < 1.0 and (head.linear or not head.inside):
        raise ArcwiseError("head.sample moves only the classes it draws: set head.inside=true, and no linear head.")
    if not config.init and (train.frozen_epochs or train.batch_norm == "frozen"):
        raise ArcwiseError("train.frozen_epochs and train.batch_norm=frozen are for fine-tuning: add --init MODEL.")
    return replace(config, head=head, data=resolved_data(config.data, splits))


def resolved_data(data: DataConfig, splits: Splits) -> DataConfig:
    """How images are changed and framed, as looking at them decided it."""
    if data.flip is None:
        data = replace(data, flip=splits.train.shape[2] == 3)
    if data.source.startswith("folder:") and splits.framing is not None:
        look = splits.framing
        data = replace(data, size=look.side, channels=look.channels, fit=look.fit, resample=look.resample)
    return data


UNSAID = {"data.flip": None, "data.size": 0, "data.channels": 0, "data.fit": "", "data.resample": "", "head.s": None}


def build(
    config: Config,
    splits: Splits,
    start: Embedder | None,
    given: Given = NOTHING_GIVEN,
    *,
    device: torch.device,
    together: Together = ALONE,
) -> tuple[Embedder, Head | LinearHead]:
    """The network and the head, from one seed each: every head meets the same network.

    With other processes beside this one the head's classes are spread over them, the same prototypes in all.
    """
    images = splits.train
    torch.manual_seed(stream("network", config.seed))
    model = start or Embedder(config.model, preprocessing=preprocessing_of(splits), network=given.model)
    model.names = images.names
    model.about = {"config": dataclasses.asdict(config), "images": splits.fingerprint}
    torch.manual_seed(stream("head", config.seed))
    head = build_head(config.head, model.dim, images.classes, given.head, shard=together.group)
    if isinstance(head, Head) and head is not given.head and head.key is not None:
        if head.shard is not None:
            head.scatter_prototypes(stream("head", config.seed))
        head.draw_by(stream("draws", config.seed))
    if isinstance(head, Head):
        one = torch.empty(1, model.dim, device=device)
        if (problem := why_not(head.engine, one, moving=config.head.inside)) is not None:
            raise ArcwiseError(f"head.engine: {problem}")
    if config.train.margin_warmup and isinstance(head, Head) and has_more_than_psi(head):
        raise ArcwiseError(
            f"train.margin_warmup raises psi from the cosine, and {head.spec.name} changes more: set it to 0."
        )
    if config.train.batch_norm == "synced" and not together.alone:
        model = with_synced_norms(model, device, together, own=given.model is not None)
    if config.train.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.to(device), head.to(device)


def with_synced_norms(model: Embedder, device: torch.device, together: Together, *, own: bool) -> Embedder:
    """The network with batch norms that look at the images of all processes: torch's, which it has for GPUs alone."""
    if device.type != "cuda" or own:
        what = "a network of your own brings its own" if own else f"torch has them for GPUs, and this is {device.type}"
        raise ArcwiseError(f"train.batch_norm=synced: {what}. Take train.batch_norm=train.")
    return nn.SyncBatchNorm.convert_sync_batchnorm(model, together.group)  # type: ignore[return-value]


def preprocessing_of(splits: Splits) -> Preprocessing:
    """What a network that is trained on these images will do to others: frame them alike, and normalise them."""
    mean, std = splits.train.mean_and_std()
    side, _, channels = splits.train.shape
    framed = {} if splits.framing is None else {"fit": splits.framing.fit, "resample": splits.framing.resample}
    return Preprocessing(side=side, channels=channels, mean=mean, std=std, **framed)


def build_head(
    config: HeadConfig, dim: int, classes: int, given: nn.Module | None = None, *, shard: Any = None
) -> Head | LinearHead:
    """The head that a configuration describes, or the one that was handed over, or one with the margin that was."""
    more: dict[str, Any] = {"sample": config.sample, "corrected": config.corrected, "shard": shard}
    more = {"engine": config.engine, "gradient": config.gradient, **({} if config.linear and given is None else more)}
    if given is None:
        return head_from(config.spec, dim, classes, **more)
    if not isinstance(given, Head | LinearHead):
        return Head(dim, classes, margin=given, s=config.s or 64.0, k=config.k or 1, **more)
    if shard is not None and isinstance(given, Head) and given.shard is None:
        raise ArcwiseError(
            "several processes train together, and the head holds all classes in each: build it with shard=True, or "
            "hand over its margin alone."
        )
    if (given.dim, given.classes) != (dim, classes):
        raise ArcwiseError(
            f"the head is for {given.classes} classes in {given.dim} dimensions, the images have {classes} and the "
            f"network {dim}: build it as arcwise.Head({dim}, {classes})."
        )
    return given


def refuse_impossible(config: HeadConfig, dim: int) -> None:
    """Raises where a head cannot be built, before anything is loaded; nobody's random numbers are touched."""
    with torch.random.fork_rng(devices=[]):
        build_head(config, dim, 2)


def has_more_than_psi(head: Head) -> bool:
    """Whether a margin also reshapes other classes or adds a penalty."""
    return any(hasattr(head.margin, name) for name in ("others", "penalty"))


@torch.no_grad()
def start_at_class_means(model: Embedder, head: Head | LinearHead, images: Images) -> None:
    """Puts prototypes at the class means of the model that training starts from; sub-centres close to them."""
    found = embed(model, images.take(spread_rows(len(images), CLASS_MEANS_FROM)))
    x, y = normalise(torch.from_numpy(found.x)), torch.from_numpy(found.labels)
    w, shard = head.weight, getattr(head, "shard", None)
    here = slice(0, images.classes) if shard is None else slice(shard.start, shard.stop)
    means = normalise(torch.zeros(images.classes, found.dim).index_add_(0, y, x))[here].to(w)
    known = (torch.bincount(y, minlength=images.classes) > 0)[here].to(w.device)
    if w.ndim == 3:
        means, known = means.unsqueeze(1) + 0.01 * w, known.unsqueeze(1)
    w.copy_(torch.where(known.unsqueeze(-1), means, w))


def fit_to_model(config: Config, start: Embedder | None) -> Config:
    """The configuration with the network and the framing of the model that training starts from, if any."""
    if start is None:
        return config
    look = start.preprocessing
    data = replace(config.data, size=look.side, channels=look.channels, fit=look.fit, resample=look.resample)
    return replace(config, data=data, model=start.config)


# What decides no number of a run, and may be another when it is gone on with.
FREE = ("keep", "save_beside", "checkpoint_every", "silence", "tensorboard", "fsdp")


def same_config(run: Run, config: Config, given: Given = NOTHING_GIVEN) -> Config:
    """The configuration that the run was started with, or an error when another is asked for.

    What objects stand for is not compared, nor what nobody said, for it was decided when the run began; runs begun by
    older versions do not tell how images were framed, and keep the settings that their recipe had then.
    """
    old = run.settings
    before, now = old.flat(), config.flat()
    theirs = {"model": ["model."], "head": ["head.name", "head.s", "head.m", "head.k"], "data": ["data.source"]}
    aside = [key for name in given.told() for key in theirs[name]]
    unlike = [
        key
        for key in now
        if now[key] != before[key]
        and not (key in UNSAID and now[key] == UNSAID[key])  # it was decided when the run began
        and not (key in ("data.fit", "data.resample") and not before[key] and config.init)
        and not key.startswith(tuple(aside))
        and key not in {f"train.{name}" for name in FREE}
        and (before[key], now[key]) not in RECIPE_CHANGES.get((config.recipe, key), ())
    ]
    if unlike:
        said = ", ".join(f"{key} was {before[key]!r}, now {now[key]!r}" for key in unlike[:6])
        raise ArcwiseError(
            f"{run.path} was started with other settings: {said}. Give the same, or choose another --out."
        )
    began = run.about.get("start")
    if began is not None and config.init and began != file_digest(config.init):
        raise ArcwiseError(
            f"{config.init} is not the model that {run.path} was started from: it was trained again or replaced since. "
            "Put it back, or choose another --out."
        )
    return replace(old, train=replace(old.train, **{name: getattr(config.train, name) for name in FREE}))


def circumstances(config: Config, device: torch.device, given: Given, command: str) -> Mapping[str, Any]:
    """What else a run's config.json tells: versions, device, commit, what was handed over, how to resume it."""
    told = {
        "versions": {"arcwise": __version__, "torch": torch.__version__, "numpy": np.__version__,
                     "python": platform.python_version()},
        "seed": config.seed, "device": device_name(device), "threads": torch.get_num_threads(), "commit": commit(),
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }  # fmt: skip
    told |= {"given": given.told()} if given.told() else {}
    told |= {"network": network_text(given.model)} if given.model is not None else {}
    told |= {"start": file_digest(config.init)} if config.init else {}
    told |= {"gradient": given.head.gradient} if isinstance(given.head, Head) else {}
    return {**told, "resume": command} if command else told


def file_digest(path: str) -> str:
    """The SHA-256 of a model's file, or of that in a Run's folder: which model training started from."""
    try:
        with (finished_model(Path(path)) if Path(path).is_dir() else Path(path)).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArcwiseError(f"{path} cannot be read: {error.strerror}.") from None


def commit() -> str | None:
    """The git commit of the working folder, with a mark when files were changed since; None outside of git."""
    try:
        said = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
                              capture_output=True, text=True, timeout=10)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() or None
