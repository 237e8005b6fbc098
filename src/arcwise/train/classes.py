"""A Run with other classes: those that both have keep their prototypes to the bit, new ones begin at their images."""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from arcwise.config import Config
from arcwise.data import Images, load
from arcwise.data.images import image_hashes
from arcwise.data.samplers import stream
from arcwise.embed import embed
from arcwise.errors import ArcwiseError
from arcwise.model import Embedder
from arcwise.overlap import trained_on
from arcwise.records import FORMAT, Preprocessing, Run, TrainedOn, claim_folder, errors_name, write_json
from arcwise.sphere import normalise
from arcwise.train.checkpoint import TrainingState, below, checkpoints_of, first_random_state, read_whole
from arcwise.train.optim import build_optimiser, prototypes_inside
from arcwise.train.setup import NOTHING_GIVEN, build, circumstances, fit_to_model, preprocessing_of, resolve
from arcwise.weights import put_state, save_tensors

START = "start.safetensors"  # in the new Run: the network that it begins with
CPU = torch.device("cpu")
BY_CLASS = ("weight", "bias")  # of a head


@dataclass(frozen=True)
class Changed:
    """A Run with other classes: which came, which went, how many stayed, and what to type to train it."""

    run: Run
    came: tuple[str, ...]
    went: tuple[str, ...]
    stayed: int
    command: str


def change_classes(
    run: Run, source: str, out: Path, *, grow: bool, classes: int = 0, data_dir: Path | None = None
) -> Changed:
    """A new Run in `out` that begins where the newest checkpoint left off, with the classes of the source.

    What belongs to a class that stays keeps its bits: prototypes, their average, momentum. A new class begins at the
    mean embedding of its images, as long as the others are on average, and without momentum. `grow` says whether
    classes may come, or go. Steps are counted anew, for the images are others.
    """
    if Run(out).exists():
        raise ArcwiseError(f"{out} holds a run already: choose another --out.")
    claim_folder(out, "run")
    path, old = newest_of(run)
    tensors = read_whole(path).tensors
    start = starting_model(run, tensors, data_dir)
    before_it = trained_on(run.path)
    beside, there = out.with_name(f".{out.name}.part"), out.resolve() / START
    before = run.settings
    config = replace(before, data=replace(before.data, source=source), init=str(there))
    config = fit_to_model(config, start)
    splits = load(config.data, data_dir=data_dir)
    config, names = resolve(config, splits), splits.train.names
    came, went = (tuple(n for n in one if n not in other) for one, other in ((names, old), (old, names)))
    refuse_unasked(source, came, went, grow=grow, classes=classes, found=len(names))
    means = mean_directions(start, splits.train, [names.index(name) for name in came])
    rows = torch.tensor([old.index(name) if name in old else -1 for name in names])
    model, head = build(config, splits, None, device=CPU)
    changed = with_rows(tensors, class_tensors(tensors, model, head, config), rows, means, seed=config.seed)
    command = command_for(run, source, out)
    refuse_anothers(beside)
    shutil.rmtree(beside, ignore_errors=True)
    try:
        start.names = names
        start.save(beside / START)
        save_beginning(beside, changed, config)
        seen = TrainedOn(image_hashes(splits.train), names)
        (seen if before_it is None else seen.with_more(before_it)).save(Run(beside).trained_on_path)
        told = circumstances(replace(config, init=str(beside / START)), CPU, NOTHING_GIVEN, command)
        about = {"head": head.spec.as_values(), "images": splits.fingerprint, **told}
        write_json(beside / "config.json", {"format": FORMAT, "config": dataclasses.asdict(config), **about})
        beside.rename(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return Changed(Run(out), came, went, len(names) - len(came), command)


def refuse_anothers(beside: Path) -> None:
    """Raises where the place in which a new Run is put together holds more than a killed command may have left."""
    left = {START, "checkpoints", "trained_on.safetensors", "config.json"}
    found = [item.name for item in beside.iterdir()] if beside.is_dir() else []
    strange = [name for name in found if name not in left and not (name.startswith(".") and name.endswith(".part"))]
    if strange or beside.is_file():
        raise ArcwiseError(f"{beside} is in the way: move it, or choose another --out.")


def newest_of(run: Run) -> tuple[Path, tuple[str, ...]]:
    """The newest checkpoint of a Run, and the names of its classes."""
    if run.given:
        raise ArcwiseError(f"{run.path} was trained with objects of your own: change its classes in Python.")
    kept, seen = checkpoints_of(run), run.trained_on
    if not kept:
        raise ArcwiseError(f"{run.path} has no checkpoint yet. Go on with: {run.resume_command}")
    if seen is None:
        raise ArcwiseError(f"{run.path} does not tell the names of its classes: an older version began it.")
    began = run.path / START  # what a run with other classes was trained on has names of those that are gone, too
    return kept[-1], Embedder.load(began).names if began.is_file() else seen.names


def starting_model(run: Run, tensors: Mapping[str, Tensor], data_dir: Path | None) -> Embedder:
    """A checkpoint's network, averaged where there is an average, and the preprocessing that it was trained with."""
    settings = run.settings
    look: Preprocessing
    if run.model.is_file():
        look = Embedder.load(run.model).preprocessing
    elif settings.init:
        look = Embedder.load(settings.init).preprocessing
    else:
        look = preprocessing_of(load(settings.data, data_dir=data_dir))
    model = Embedder(replace(settings.model, pretrained=False), preprocessing=look)
    weights = below(tensors, "average.embedder") or below(tensors, "model.embedder")
    with errors_name(run.path):
        put_state(model, weights, "this run")
    return model.eval()


def refuse_unasked(
    source: str, came: tuple[str, ...], went: tuple[str, ...], *, grow: bool, classes: int, found: int
) -> None:
    """Raises where classes would change that nobody asked to change."""
    if grow and went:
        raise ArcwiseError(
            f"{source} lacks {len(went):,} of the run's classes, such as {went[0]!r}: name images of all classes, "
            "old and new (folders side by side in one), or let some go first with: arcwise checkpoint drop"
        )
    if not grow and came:
        raise ArcwiseError(
            f"{source} has {len(came):,} classes that the run lacks, such as {came[0]!r}: add them with: arcwise "
            "checkpoint grow"
        )
    if not (came or went):
        raise ArcwiseError(f"{source} has the run's own classes: there is nothing to change.")
    if classes and classes != found:
        raise ArcwiseError(f"{source} has {found:,} classes, and --classes asks for {classes:,}.")


def with_rows(
    tensors: Mapping[str, Tensor], by_class: list[str], rows: Tensor, means: Tensor, *, seed: int
) -> dict[str, Tensor]:
    """The tensors of a checkpoint, those that have a row for each class with the rows that classes have now."""
    changed = dict(tensors)
    for name in by_class:
        old, fresh = tensors[name], torch.zeros(())
        if name.endswith(".head.weight"):
            fresh = means * old.norm(dim=-1).mean()
            if old.ndim == 3:  # sub-centres begin close to each other
                draw = torch.Generator().manual_seed(stream("classes", seed))
                fresh = fresh.unsqueeze(1) * (1 + 0.01 * torch.randn(len(means), *old.shape[1:], generator=draw))
        elif name.endswith(".head.bias"):
            fresh = old.mean()
        changed[name] = placed(old, rows, fresh)
    return changed


def placed(old: Tensor, rows: Tensor, fresh: Tensor) -> Tensor:
    """The old rows where they belong now, to the bit, and fresh ones where -1 says that there was none.

    >>> placed(torch.tensor([5.0, 7.0]), torch.tensor([1, -1, 0]), torch.tensor([3.0])).tolist()
    [7.0, 3.0, 5.0]
    """
    made = old.new_empty(len(rows), *old.shape[1:])
    made[rows >= 0] = old[rows[rows >= 0]]
    made[rows < 0] = fresh.to(old)
    return made


def mean_directions(model: Embedder, images: Images, places: list[int]) -> Tensor:
    """The directions of the mean embeddings of some classes."""
    if not places:
        return torch.zeros(0, model.dim)
    found = embed(model, images.take(np.flatnonzero(np.isin(images.y, places))))
    x = normalise(torch.from_numpy(found.x))
    return normalise(torch.stack([x[torch.from_numpy(found.labels == place)].mean(0) for place in places]))


def class_tensors(tensors: Mapping[str, Tensor], model: Embedder, head: nn.Module, config: Config) -> list[str]:
    """Which tensors of a checkpoint have a row for each class: the head's, and what optimisers keep of them."""
    inside = {"prototypes": prototypes_inside(head, config.train)} if config.head.inside else {}
    optimisers: dict[str, torch.optim.Optimizer] = {"optimiser": build_optimiser(model, head, config.train), **inside}
    own = [p for name, p in head.named_parameters() if name in BY_CLASS]
    starts = [f"{owner}.head.{name}" for owner in ("model", "average") for name in BY_CLASS]
    found = [name for name in starts if name in tensors]
    for owner, optimiser in optimisers.items():
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        for at in [at for at, p in enumerate(parameters) if any(p is mine for mine in own)]:
            found += [name for name, value in tensors.items() if name.startswith(f"{owner}.{at}.") and value.ndim]
    return found


def save_beginning(folder: Path, tensors: Mapping[str, Tensor], config: Config) -> None:
    """A checkpoint before the first step."""
    kept = {name: value for name, value in tensors.items() if not name.startswith("random.")}
    progress = json.dumps(vars(TrainingState()))
    path = folder / "checkpoints" / "step-00000000.safetensors"
    save_tensors(path, {**kept, **first_random_state(config.seed)}, {"arcwise": str(FORMAT), "progress": progress})


def command_for(run: Run, source: str, out: Path) -> str:
    """What to type to train the new Run: what began the old one, with other images, from the new Run's beginning.

    Settings that say the same thing are left out.
    """
    words, kept = shlex.split(run.resume_command), []
    while words:
        word, *words = words
        name, sign, value = word.partition("=")
        if name in ("--data", "--out", "--init", "--set"):
            value, words = (value, words) if sign else (words[0], words[1:])
            if name == "--set" and not value.startswith(("data.source=", "model.", "data.size=", "data.channels=")):
                kept += ["--set", value]
        elif name != "--resume":
            kept.append(word)
    added = ["--data", source, "--init", str(out / START), "--out", str(out), "--resume"]
    return shlex.join([*kept, *added])
