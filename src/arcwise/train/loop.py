"""Returns a finished Run: data, network and head brought together, stepped, watched, saved, and resumed exactly."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from arcwise.config import Config
from arcwise.data import Batch, Loader, Splits, load
from arcwise.data.samplers import order, stream
from arcwise.embed import embed, has_bf16
from arcwise.errors import ArcwiseError
from arcwise.heads import Head, LinearHead
from arcwise.model import Embedder, Preprocessing, read_weights
from arcwise.records import Run, write
from arcwise.sphere import angle, clip, normalise
from arcwise.train import checkpoint, finite
from arcwise.train.checkpoint import Progress
from arcwise.train.device import chosen_device, device_name, fast_products
from arcwise.train.evaluate import evaluate, judged, with_prototypes
from arcwise.train.journal import Journal, Listener
from arcwise.train.optim import Average, optimiser
from arcwise.train.recording import Recording
from arcwise.train.schedule import margin_strength, rate
from arcwise.train.setup import built_head, circumstances, fitted_to, head_text, resolved, same_config
from arcwise.train.signals import Interrupted, Signals

SNAPSHOT = 5_000  # points of a split that are kept of each epoch
CLASS_MEANS_FROM = 50_000  # images at most that prototypes of a fine-tuned model are taken from


def train(
    config: Config,
    out: str | Path,
    *,
    resume: bool = False,
    device: str = "auto",
    splits: Splits | None = None,
    data_dir: str | Path | None = None,
    listener: Listener | None = None,
) -> Run:
    """The finished run in folder `out`; with `resume`, the one that is there is gone on with, to the same end.

    `splits` takes the place of the data that the configuration names. `listener` is told what the journal is.

    >>> import tempfile
    >>> from arcwise.recipes import recipe
    >>> from arcwise.config import overridden
    >>> run = train(overridden(recipe("digits-2d"), ["train.epochs=2"]), tempfile.mkdtemp() + "/run", device="cpu")
    >>> run.metrics["epochs"]
    2
    """
    run, place = Run(Path(out)), chosen_device(device)
    with run.locked(), torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        start = Embedder.load(config.init) if config.init else None
        if start is not None:
            config = fitted_to(config, start)
        if run.exists() and resume:
            config = same_config(Run.open(out), config)
            if run.finished:
                return run
        elif run.exists():
            raise ArcwiseError(f"{out} holds a run already. Add --resume to go on with it, or choose another --out.")
        splits = splits or load(config.data, data_dir=data_dir, tell=telling(listener))
        config = resolved(config, splits)
        if not run.exists():
            Run.create(out, dataclasses.asdict(config), **circumstances(config, place, run))
        trainer = Trainer(run, config, splits, device=place, listener=listener, start=start)
        trainer.fit()
        return trainer.finish()


class Trainer:
    """All that moves in a training run, and the steps that move it."""

    def __init__(
        self,
        run: Run,
        config: Config,
        splits: Splits,
        *,
        device: torch.device,
        listener: Listener | None = None,
        start: Embedder | None = None,
    ):
        self.run, self.config, self.splits, self.device = run, config, splits, device
        self.model, self.head = self.built(start)
        both = nn.ModuleDict({"embedder": self.model, "head": self.head})
        self.average = Average(both, config.train.ema) if config.train.ema else None
        self.both: nn.Module = both
        self.modules: dict[str, nn.Module] = {"model": both}
        if self.average is not None:
            self.modules["average"] = self.average.module
        self.optimiser = optimiser(self.model, self.head, config.train)
        self.parameters = [p for group in self.optimiser.param_groups for p in group["params"]]
        self.guard = finite.Guard(self.optimiser, device)
        if start is not None and not checkpoint.existing(run):
            self.start_at_class_means()
        torch.manual_seed(stream("steps", config.seed))
        self.progress = checkpoint.restore(run, self.modules, self.optimiser) or Progress()
        self.forward = torch.compile(self.model) if config.train.compile else self.model
        look = self.model.preprocessing
        self.loader = Loader(splits.train, mean=look.mean, std=look.std, config=config.data, device=device)
        self.batch = min(config.train.batch, len(splits.train))
        self.steps = len(splits.train) // self.batch  # in an epoch
        self.total = self.steps * config.train.epochs
        self.amp = config.train.amp and has_bf16(device)
        self.journal = Journal(run, step=self.progress.step, listener=listener, tensorboard=config.train.tensorboard)
        self.recordings: dict[bool, Recording] = {}
        self.recorded_strength, self.lr, self.norm = 1.0, 0.0, torch.zeros(())
        self.tally = torch.zeros(5, device=device)
        if self.progress.within:
            self.tally += torch.tensor(self.progress.within, device=device)
        self.saved_at = self.group_began = time.monotonic()

    def built(self, start: Embedder | None) -> tuple[Embedder, Head | LinearHead]:
        """The network and the head, from one seed each: every head meets the same network."""
        config, images = self.config, self.splits.train
        torch.manual_seed(stream("network", config.seed))
        model = start
        if model is None:
            mean, std = images.mean_and_std()
            look = Preprocessing(side=images.shape[0], channels=images.shape[2], mean=mean, std=std)
            model = Embedder(config.model, preprocessing=look)
        model.names, model.about = images.names, {"config": dataclasses.asdict(config)}
        torch.manual_seed(stream("head", config.seed))
        head = built_head(config.head, model.dim, images.classes)
        if config.train.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model.to(self.device), head.to(self.device)

    # ------------------------------------------------------------------------------------ the loop

    def fit(self) -> None:
        """Steps until the last epoch is over, or the validation accuracy has stopped rising."""
        self.journal.listener(self.outline())
        with Signals() as signals, fast_products(self.device):
            if self.progress.step == 0:
                self.snapshot(0)
            began, before = time.monotonic(), self.progress.seconds
            while self.progress.step < self.total and not self.out_of_patience():
                epoch, first = divmod(self.progress.step, self.steps)
                self.enter_epoch(epoch)
                for batch in self.epoch_batches(epoch, first):
                    self.step(batch)
                    self.progress.seconds = before + time.monotonic() - began
                    if self.progress.step % self.steps == 0:
                        self.end_epoch(epoch + 1)
                    self.save_if_due(signals)
            self.close_group()
            self.save()

    def epoch_batches(self, epoch: int, first: int):
        """The batches of an epoch that are still to come."""
        config = self.config
        rows = order(
            self.splits.train.y,
            config.train.sampling,
            batch=self.batch,
            per_class=config.train.per_class,
            seed=stream("order", config.seed, epoch),
        )
        return self.loader.training(rows, seed=stream("augment", config.seed, epoch), first=first)

    def step(self, batch: Batch) -> None:
        """One step of the optimiser: forward, backward, the check, then the weights move."""
        self.set_pace()
        loss, norm = self.recorded(batch)
        if not self.guard.admit(loss, norm, self.progress.step + 1):
            self.stop_for_numbers()
        if self.config.train.clip:
            finite.clip(self.parameters, norm, self.config.train.clip)
        self.optimiser.step()
        self.progress.step += 1
        if self.average is not None:
            self.average.update(self.both, self.progress.step)
        self.norm = norm
        if self.progress.step % self.config.train.journal_every == 0:
            self.close_group()

    def set_pace(self) -> None:
        """Learning rates and the margin's strength for the coming step."""
        done = (self.progress.step + 1) / self.steps
        self.lr = self.config.train.lr * rate(done, self.config.train)
        for group in self.optimiser.param_groups:
            group["lr"] = self.lr * group["share"]
        if isinstance(self.head, Head):
            self.head.strength = margin_strength(done, self.config.train)

    @property
    def strength(self) -> float:
        """How much of the margin holds; a linear head has none."""
        return self.head.strength if isinstance(self.head, Head) else 0.0

    def recorded(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Loss and length of the gradient; on a GPU replayed from a recording, one per way of training."""
        if not (self.config.train.record and self.device.type == "cuda"):
            self.forget_gradients()
            return self.backward(batch.x, batch.y)
        rests = not next(self.model.backbone.parameters()).requires_grad
        if rests not in self.recordings or self.strength != self.recorded_strength:
            self.recordings = {rests: Recording(self.backward, self.forget_gradients)}
            self.recorded_strength = self.strength
        return self.recordings[rests](batch.x, batch.y)  # type: ignore[return-value]

    def forget_gradients(self) -> None:
        """No gradient is left from the step before."""
        self.optimiser.zero_grad(set_to_none=True)

    def backward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss of a batch and the length of its gradient, which is left in the parameters.

        A batch in several parts has the same loss, and the same gradient but for the batch norms.
        """
        total, b = torch.zeros((), device=self.device), len(y)
        parts = self.config.train.accumulate
        for some, labels in zip(x.tensor_split(parts), y.tensor_split(parts), strict=True):
            if not self.config.train.channels_last:
                some = some.clone(memory_format=torch.contiguous_format)
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.amp, cache_enabled=False):
                embedded = self.forward(some)
            losses, own, other = self.judged_by_head(embedded.float(), labels)
            loss = losses.sum() / b
            loss.backward()
            total += loss.detach()
            self.count(losses.detach(), own.detach(), other, embedded.detach().float(), labels)
        return total, finite.gradient_norm(self.parameters)

    def judged_by_head(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The head's losses and its two cosines or logits; on the CPU it refuses embeddings out of bounds by itself."""
        try:
            return self.head.losses(x, y)
        except ArcwiseError:
            self.stop_for_numbers()
            raise

    @torch.no_grad()
    def count(self, losses: Tensor, own: Tensor, other: Tensor, x: Tensor, y: Tensor) -> None:
        """Adds a batch to the sums of the journal's next line: loss, both angles, correct answers."""
        correct = own > other
        if isinstance(self.head, LinearHead):  # its own numbers are logits
            scores = self.head.score(x, y)
            own, other = scores.cos_y, scores.cos_other
        angles = (angle(clip(cos, -1.0, 1.0)).sum() for cos in (own, other))
        self.tally[:4] += torch.stack([losses.sum(), *angles, correct.sum()])
        self.tally[4] += len(y)

    def close_group(self) -> None:
        """One line of the journal for the steps since the last; here the loop waits for the device, and only here."""
        failed = self.guard.failed_at()
        if failed is not None:
            self.stop_for_numbers(failed)
        loss, own, other, correct, images = self.tally.tolist()
        if not images:
            return
        now = time.monotonic()
        self.journal.write(
            "steps", step=self.progress.step, epoch=self.progress.step / self.steps, loss=loss / images,
            accuracy=correct / images, angle_own=own / images, angle_other=other / images,
            gradient=float(self.norm), lr=self.lr, margin=self.strength,
            images_per_second=images / max(now - self.group_began, 1e-9), seconds=self.progress.seconds,
        )  # fmt: skip
        self.tally.zero_()
        self.group_began = now

    def enter_epoch(self, epoch: int) -> None:
        """Training mode, with what has to rest at rest."""
        self.both.train()
        resting = epoch < self.config.train.frozen_epochs
        self.model.backbone.requires_grad_(not resting)
        for module in self.model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and (resting or self.frozen_norms):
                module.eval()

    @property
    def frozen_norms(self) -> bool:
        """Whether batch norms keep their statistics throughout."""
        return self.config.train.batch_norm == "frozen"

    def end_epoch(self, epoch: int) -> None:
        """Evaluation, snapshots, and the best model so far where training may stop early."""
        config = self.config.train
        if epoch % config.evaluate_every and epoch != config.epochs:
            return
        paused = time.monotonic()
        part = "validation" if self.splits.validation is not None else "test"
        model, head = self.final
        found = evaluate(model, head, self.splits.parts[part], mirror=config.mirror, amp=self.amp)
        self.journal.write("evaluation", step=self.progress.step, epoch=epoch, part=part, **found)
        self.snapshot(epoch)
        if found["accuracy"] > self.progress.best:
            self.progress.best, self.progress.best_epoch = found["accuracy"], epoch
            if config.patience:
                self.keep_best()
        self.enter_epoch(epoch)
        self.group_began += time.monotonic() - paused  # the journal's speed is that of training

    @property
    def final(self) -> tuple[Embedder, Head | LinearHead]:
        """The network and the head that count: the averaged ones where there is an average."""
        both = self.both if self.average is None else self.average.module
        return both["embedder"], both["head"]  # type: ignore[return-value, index]

    def out_of_patience(self) -> bool:
        """Whether the validation accuracy has not risen for `patience` epochs."""
        epoch = self.progress.step // self.steps
        patience = self.config.train.patience
        return patience > 0 and epoch - self.progress.best_epoch >= patience

    # ------------------------------------------------------------------------------------ saving

    def save(self) -> Path:
        """A checkpoint of this very step."""
        self.progress.within = self.tally.tolist()
        path = checkpoint.save(self.run, self.progress, self.modules, self.optimiser)
        self.saved_at = time.monotonic()
        return path

    def save_if_due(self, signals: Signals) -> None:
        """A checkpoint when the last is old enough, or when somebody asks for an end."""
        if signals.asked is not None:
            if (failed := self.guard.failed_at()) is not None:
                self.stop_for_numbers(failed)
            self.save()
            raise Interrupted(f"stopped and saved at step {self.progress.step}.", signals.asked)
        if time.monotonic() - self.saved_at >= self.config.train.checkpoint_every and self.guard.failed_at() is None:
            self.save()

    def keep_best(self) -> None:
        """The weights with the best validation accuracy so far, beside the checkpoints."""
        from safetensors.torch import save

        both = self.both if self.average is None else self.average.module
        tensors = {name: value.detach().cpu().contiguous() for name, value in both.state_dict().items()}
        write(self.run.path / "checkpoints" / "best.safetensors", save(tensors))

    def snapshot(self, epoch: int) -> None:
        """Embeddings of some training and test images after an epoch, for animations, in half precision."""
        if not self.config.train.snapshots:
            return
        model, head = self.final
        for part in ("train", "validation", "test"):
            images = self.splits.parts.get(part)
            if images is not None:
                rows = some_rows(len(images), SNAPSHOT)
                found = replace(embed(model, images.take(rows)), index=rows)
                told = {"part": part, "epoch": epoch, **self.origin, **judged(head, found)}
                found = with_prototypes(found, head, told)
                found.save(self.run.path / "embeddings" / f"{part}-epoch-{epoch:03d}.safetensors", half=True)

    @property
    def origin(self) -> dict[str, Any]:
        """Where embeddings of this run come from."""
        return {"source": self.config.data.source, "head": head_text(self.config.head), "seed": self.config.seed}

    def finish(self) -> Run:
        """The run with its model, embeddings and final numbers; metrics.json comes last and says that all is there."""
        model, head = self.final
        best = self.run.path / "checkpoints" / "best.safetensors"
        if self.config.train.patience and best.is_file():
            both = nn.ModuleDict({"embedder": model, "head": head})
            both.load_state_dict(read_weights(best)[0])
        model.save(self.run.model)
        metrics: dict[str, Any] = {}
        for part, images in self.splits.parts.items():
            if part == "train":
                continue
            found = embed(model, images, mirror=self.config.train.mirror)
            if part != "unseen":
                metrics[part] = judged(head, found)
            found = with_prototypes(found, head, {"part": part, **self.origin})
            found.save(self.run.path / "embeddings" / f"{part}.safetensors")
        metrics |= {
            "seconds": round(self.progress.seconds, 3), "steps": self.progress.step,
            "epochs": self.progress.step // self.steps, "images": self.progress.step * self.batch,
            "parameters": sum(p.numel() for p in model.parameters()), "device": device_name(self.device),
            "seed": self.config.seed, "broken_images": len(self.splits.broken),
        }  # fmt: skip
        (self.run.path / "figures").mkdir(exist_ok=True)
        write(self.run.path / "metrics.json", json.dumps(metrics, indent=1))
        self.journal.write("finished", **{"step": self.progress.step, **metrics["test"], "seconds": metrics["seconds"]})
        return self.run

    # ------------------------------------------------------------------------------------ when it goes wrong

    def stop_for_numbers(self, step: int | None = None) -> None:
        """Ends training: repeats the step that went wrong, without moving anything, to name what was not finite."""
        step = self.progress.step + 1 if step is None else step
        epoch, row = divmod(step - 1, self.steps)
        batch = next(iter(self.epoch_batches(epoch, row)))
        self.optimiser.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.amp):
            x = self.model(batch.x).float()
        loss = x.sum() * torch.nan
        with contextlib.suppress(ArcwiseError):  # on the CPU the head itself refuses what is not finite
            loss = self.head(x, batch.y)
            loss.backward()
        named = [(name.removeprefix("embedder."), p) for name, p in self.both.named_parameters()]
        kept = checkpoint.existing(self.run)
        last = f"The last good checkpoint is {kept[-1]}." if kept else "There is no checkpoint yet."
        raise finite.stopped(step, finite.diagnosis(x, loss, named), self.lr, last)

    def start_at_class_means(self) -> None:
        """Prototypes at the class means of the model that training starts from."""
        images = self.splits.train
        rows = some_rows(len(images), CLASS_MEANS_FROM)
        found = embed(self.model, images.take(rows))
        x, y = normalise(torch.from_numpy(found.x)), torch.from_numpy(found.y)
        means = torch.zeros(images.classes, found.dim).index_add_(0, y, x)
        known = (torch.bincount(y, minlength=images.classes) > 0).view(-1, *[1] * (self.head.weight.ndim - 1))
        means = normalise(means) if self.head.weight.ndim == 2 else normalise(means).unsqueeze(1)
        with torch.no_grad():
            w = self.head.weight
            near = means.to(w) + (0.01 * w if w.ndim == 3 else 0.0)  # sub-centres apart from one another
            w.copy_(torch.where(known.to(w.device), near.expand_as(w), w))

    def outline(self) -> dict[str, Any]:
        """What a listener needs to know before the first step."""
        return {
            "kind": "start", "total": self.total, "step": self.progress.step, "epochs": self.config.train.epochs,
            "steps_per_epoch": self.steps, "images": {name: len(part) for name, part in self.splits.parts.items()},
            "classes": self.splits.train.classes, "device": device_name(self.device), "out": str(self.run.path),
            "head": head_text(self.config.head), "broken": self.splits.broken,
        }  # fmt: skip


def some_rows(n: int, most: int) -> np.ndarray:
    """At most so many rows of n, spread evenly, always the same."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))


def telling(listener: Listener | None):
    """A data source's progress, passed on to the listener."""
    if listener is None:
        return None
    return lambda what, done, total: listener({"kind": "data", "what": what, "done": done, "total": total})
