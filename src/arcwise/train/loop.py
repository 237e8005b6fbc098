"""Training: data, network and head brought together, stepped, watched, saved, and resumed exactly."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from arcwise.config import Config, TrainConfig, override
from arcwise.data import Batch, Loader, Splits
from arcwise.data.images import image_hashes
from arcwise.data.samplers import epoch_order, left_over, stream
from arcwise.data.sources import looks
from arcwise.errors import ArcwiseError, Interrupted, NotFinite, note
from arcwise.heads import Head, LinearHead
from arcwise.model import Embedder, has_bf16, single
from arcwise.overlap import flattering, refuse_trained_on, trained_on
from arcwise.recipes import recipe
from arcwise.records import Run, TrainedOn, claim_folder
from arcwise.train import finite, results
from arcwise.train.checkpoint import checkpoints_of, identity_of, restore_checkpoint, save_checkpoint
from arcwise.train.device import device_for, device_name, fast_products, made_current, plain_torch
from arcwise.train.evaluate import Evaluation, judge
from arcwise.train.journal import Journal, Listener, Silence, last_line_of, mend_journal
from arcwise.train.optim import Average, build_optimiser, prototypes_inside
from arcwise.train.pieces import Pieces, gradients_meet, shard_of
from arcwise.train.pulse import last_word
from arcwise.train.recording import Recording
from arcwise.train.saving import Saver
from arcwise.train.schedule import Pace
from arcwise.train.setup import (
    NOTHING_GIVEN,
    Given,
    build,
    circumstances,
    fit_to_model,
    images_of,
    refuse_impossible,
    refuse_without_effect,
    resolve,
    run_folder,
    same_config,
    start_at_class_means,
)
from arcwise.train.signals import Signals
from arcwise.train.tally import Tally
from arcwise.train.together import ALONE, Together, own_device, together

FEW_IMAGES = 50  # of a class
ONE_AT_A_TIME = threading.RLock()  # threads of one process share torch's random numbers


def train(
    config: Config | str,
    out: str | Path | None = None,
    *,
    settings: Iterable[str] = (),
    model: nn.Module | None = None,
    head: nn.Module | str | None = None,
    data: object = None,
    resume: bool = False,
    device: str = "auto",
    data_dir: str | Path | None = None,
    listener: Listener | None = None,
    command: str = "",
) -> Run:
    """The finished run in folder `out` (runs/RECIPE-HEAD-SEED if not given), from a configuration or a recipe's name.

    `settings` change it, as in "train.epochs=5". In the place of what the configuration names you may hand over your
    own `model`, (b, channels, side, side) -> (b, d), your own `head` (a Head, a LinearHead, a margin, or text) and your
    own `data`: a pair (pixels, labels) of uint8 images, or {"train": ..., "test": ...} of such. With `resume`, the run
    that is there is gone on with, to the same end; what was handed over is handed over again. `listener` is told what
    the journal is, `command` is what a person types to go on. In one process one training runs at a time; threads wait.

    >>> import tempfile
    >>> run = train("digits-2d", tempfile.mkdtemp() + "/run", settings=["train.epochs=2"], device="cpu")
    >>> run.result["epochs"]
    2
    """
    settings = list(settings)
    if not isinstance(config, Config | str):
        raise ArcwiseError(f"config is a Config or a recipe's name such as digits-2d, got {config!r}.")
    config = override(recipe(config) if isinstance(config, str) else config, settings)
    if isinstance(head, str):
        config, head = override(config, [f"head.name={head}"]), None
    given, place = Given(model, head, data), device_for(own_device(device))
    refuse_without_effect(given, settings)
    if head is None:
        refuse_impossible(config.head, config.model.dim)
    if data is not None:
        config = replace(config, data=replace(config.data, source="given"))
    run = Run(Path(out) if out is not None else run_folder(config, given))
    forked = [place] if place.type == "cuda" else []
    with (
        ONE_AT_A_TIME, together(place, config.train.silence) as us, contextlib.ExitStack() as held,
        made_current(place), plain_torch(), torch.random.fork_rng(devices=forked),
    ):  # fmt: skip

        def first() -> Prepared | None:
            if not resume and not us.restarted:
                run.refuse_existing()
            claim_folder(run.path, "run")
            held.enter_context(run.locked())
            run.sweep()
            return prepare_training(run, config, given, data_dir, listener)

        found = us.lead_first(first, lambda: prepare_training(run, config, given, data_dir, None))
        if found is None:
            return run
        listener = listener if us.lead else None
        more = {"listener": listener, "start": found.start, "given": given, "together": us}
        trainer = Trainer(run, found.config, found.splits, device=place, **more)
        trainer.epoch_batches(0, 0)  # what cannot be trained is refused before the folder is taken

        def begin() -> None:
            if not run.exists():
                told = circumstances(found.config, place, given, command)
                about = {"head": trainer.head.spec.as_values(), "images": trainer.model.about["images"], **told}
                Run.create(run.path, dataclasses.asdict(found.config), **about)
            run.keep_trained_on(found.seen)

        us.lead_first(begin, lambda: None)
        if listener is None and us.lead:
            for words in trainer.notes:
                note(words)
        with last_word(alone=us.alone):
            trainer.fit()
            return trainer.finish()


@dataclass(frozen=True)
class Prepared:
    """What a training begins with."""

    config: Config
    splits: Splits
    start: Embedder | None
    seen: TrainedOn


def prepare_training(
    run: Run, config: Config, given: Given, data_dir: str | Path | None, listener: Listener | None
) -> Prepared | None:
    """The images, the model to start from and the configuration with everything decided; None of a run that is over."""
    start = Embedder.load(config.init, network=given.model) if config.init else None
    config = fit_to_model(config, start)
    done = False
    if run.exists():
        given.refuse_others(Run.open(run.path))
        config = same_config(run, config, given)
        done = run.whole
        if done:
            mend_journal(run)
        if done and given.data is None:  # no images are at hand that could be others
            return None
    splits = images_of(config, given, data_dir, listener)
    if run.exists():
        splits.refuse_others(run)
    if done:
        return None
    config = resolve(config, splits, given)
    seen = TrainedOn(image_hashes(splits.train), splits.train.names)
    if not run.exists() and splits.unseen is not None:
        refuse_trained_on(splits.unseen, seen, allow=config.data.allow_overlap)
    if config.init:
        before = run.trained_on if run.exists() else None
        earlier = trained_on(config.init)
        before = earlier if before is None else before if earlier is None else before.with_more(earlier)
        splits = replace(splits, seen_before=flattering(splits.parts, before))
    return Prepared(config, splits, start, seen)


def left_to_train_on(b: int, config: TrainConfig) -> int:
    """How many of b images that are left over make a batch; none where a part of it would be a single image.

    >>> left_to_train_on(9, TrainConfig(remainder=True, accumulate=2)), left_to_train_on(9, TrainConfig())
    (8, 0)
    """
    b -= b % config.accumulate
    return b if config.remainder and b >= 2 * config.accumulate else 0


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
        given: Given = NOTHING_GIVEN,
        together: Together = ALONE,
    ):
        self.run, self.config, self.splits, self.device, self.listener = run, config, splits, device, listener
        self.together = together
        self.model, self.head = build(config, splits, start, given, device=device, together=together)
        if start is not None and not checkpoints_of(run):
            start_at_class_means(self.model, self.head, splits.train)
        self.both = nn.ModuleDict({"embedder": self.model, "head": self.head})
        averaged = copy.deepcopy(self.both) if config.train.ema else None
        self.pieces = Pieces(self.model, together) if config.train.fsdp and not together.alone else None
        if self.pieces is not None:
            for both in (self.both, *([] if averaged is None else [averaged])):
                self.pieces.spread(results.model_and_head(both)[0])
        self.average = None if averaged is None else Average(averaged, config.train.ema)
        self.inside = prototypes_inside(self.head, config.train) if config.head.inside else None
        rows_of = {} if self.pieces is None else {"rows_of": self.pieces.rows_of}
        self.optimiser = build_optimiser(self.model, self.head, config.train, **rows_of)
        self.parameters = [p for group in self.optimiser.param_groups for p in group["params"]]
        torch.manual_seed(stream("steps", config.seed))
        self.batch = min(config.train.batch, len(splits.train))
        self.rest = left_to_train_on(len(splits.train) % self.batch, config.train)  # in the last batch of an epoch
        self.steps = len(splits.train) // self.batch + (self.rest > 0)  # in an epoch
        self.total = self.steps * config.train.epochs
        for size in {self.batch, self.rest or self.batch}:  # what cannot be shared out is refused
            together.places(size, config.train.accumulate)
        found = restore_checkpoint(run, self.modules, self.optimisers, device, total=self.total, together=together)
        self.progress, self.found_notes = found.progress, found.notes
        self.guard = finite.Guard(self.optimiser, self.inside, device)
        self.forward = self.run_by()
        look = self.model.preprocessing
        self.loader = Loader(splits.train, mean=look.mean, std=look.std, config=config.data, device=device)
        self.evaluation = Evaluation(splits, device, together)
        heads = [results.model_and_head(both)[1] for both in self.modules.values()]
        self.pace = Pace(config.train, self.optimiser, self.inside, heads, self.steps)
        self.amp = (config.train.amp_cpu if device.type == "cpu" else config.train.amp) and has_bf16(device)
        self.recordings: dict[bool, Recording] = {}
        self.norm = torch.zeros(())
        self.tally = Tally(self.progress.within, device)
        self.saver = Saver(beside=config.train.save_beside)
        self.saved_at = self.clock_began = time.monotonic()

    @functools.cached_property
    def journal(self) -> Journal | Silence:
        """The run's journal, from the line after the checkpoint on; one process writes it for all."""
        if not self.together.lead:
            return Silence()
        return Journal(self.run, self.progress, listener=self.listener, tensorboard=self.config.train.tensorboard)

    @property
    def modules(self) -> dict[str, nn.Module]:
        """All that a checkpoint must hold."""
        return {"model": self.both} | ({} if self.average is None else {"average": self.average.module})

    @property
    def optimisers(self) -> dict[str, torch.optim.Optimizer]:
        """The optimisers by name: that of all weights, and that of prototypes where they have one of their own."""
        return {"optimiser": self.optimiser} | ({"prototypes": self.inside} if self.inside is not None else {})

    @property
    def quick_look(self) -> bool:
        """Whether accuracies between epochs come from bf16: on a GPU; a CPU saves nothing where snapshots are kept."""
        return self.amp and self.device.type != "cpu"

    @property
    def final(self) -> nn.Module:
        """The network and the head that count: the averaged ones where there is an average, the network whole."""
        both = self.both if self.average is None else self.average.module
        return both if self.pieces is None else self.pieces.whole(both)

    # ------------------------------------------------------------------------------------ a step

    def step(self, batch: Batch) -> None:
        """One step: forward, backward, the check, then the weights move."""
        config, step = self.config.train, self.progress.step + 1
        self.pace.set(step)
        self.key_draws(step)
        loss, self.norm = self.forward_and_backward(batch)
        if not self.guard.admit(loss, self.norm, step):
            self.stop_for_numbers()
        if config.clip:
            finite.clip_gradients(self.parameters, self.norm, config.clip)
        for optimiser in self.optimisers.values():
            optimiser.step()
        self.progress.step = step
        if self.average is not None:
            self.average.update(self.both, step)
        if step % config.journal_every == 0:
            self.close_group()

    @property
    def size(self) -> int:
        """How many images the step at hand has, those of all processes."""
        return self.rest if self.rest and (self.progress.step + 1) % self.steps == 0 else self.batch

    def run_by(self) -> Callable[..., Tensor]:
        """The network as it is called: compiled where asked for, and with gradients averaged over the processes."""
        model = self.model if self.pieces is not None else self.together.wrapped(self.model)
        return torch.compile(model) if self.config.train.compile else model

    def key_draws(self, step: int) -> None:
        """What a step draws at random is decided by the step, where processes must agree or never meet again."""
        if isinstance(self.head, Head) and self.head.key is not None:
            self.head.passes = (step - 1) * self.config.train.accumulate
        if not self.together.alone:
            torch.manual_seed(stream("steps", self.config.seed, step, self.together.rank))

    def forward_and_backward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Loss and length of the gradient; on a GPU replayed from a recording, once nothing in it changes any more."""
        options = self.config.train
        plain = options.compile or self.pace.strength != 1.0 or not self.together.alone or self.config.head.sample < 1.0
        plain = plain or self.size != self.batch
        if self.device.type != "cuda" or not options.record or plain:
            self.forget_gradients()
            return self.backward(batch.x, batch.y)
        rests = self.progress.step < options.frozen_epochs * self.steps
        if rests not in self.recordings:
            self.recordings = {rests: Recording(self.backward, self.forget_gradients)}
        return self.recordings[rests](batch.x, batch.y)  # type: ignore[return-value]

    def backward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss of a batch and the length of its gradient, which is left in the parameters.

        A batch in several parts has the same loss, and the same gradient but for the batch norms.
        """
        together, whole = self.together, self.size
        _, sizes = together.places(whole, self.config.train.accumulate)
        total, last = torch.zeros((), device=self.device), len(sizes) - 1
        for part, (some, labels) in enumerate(zip(x.split(sizes), y.split(sizes), strict=True)):
            with self.averaging(now=part == last):
                embedded = self.embedded(some)
                if not together.alone:
                    self.refuse_bad_embeddings(embedded)
                try:
                    with self.mixed():  # the head lets nothing but fused products be in bf16
                        outcome = self.head.losses(embedded, labels)
                except NotFinite:  # on the CPU the head itself refuses embeddings out of bounds
                    self.stop_for_numbers()
                loss = outcome[0].sum() / whole
                (loss * together.count if isinstance(self.head, LinearHead) else loss).backward()
            total += loss.detach()
            self.tally.add(self.head, outcome, embedded.detach(), labels)
        self.share_what_is_alike()
        if self.pieces is not None:
            self.pieces.hand_over()
        return together.summed(total), self.gradient_norm()

    def averaging(self, *, now: bool) -> contextlib.AbstractContextManager[object]:
        """Whether gradients are averaged over the processes in this backward pass, or wait for a later part."""
        if self.pieces is not None:
            return gradients_meet(self.model, now=now)
        return self.together.averaging(self.forward, now=now)

    def share_what_is_alike(self) -> None:
        """Takes the mean over the processes of what DDP leaves: a linear head's gradients, batch norms' statistics."""
        if self.together.alone:
            return
        if isinstance(self.head, LinearHead):
            self.together.average([p.grad for p in self.head.parameters() if p.grad is not None])
        self.together.average([b for b in self.model.buffers() if b.is_floating_point()])

    def gradient_norm(self) -> Tensor:
        """The length of the whole gradient, of which every process may hold a part."""
        spread = [] if self.together.alone else [p for p in self.parameters if self.is_spread(p)]
        if not spread:
            return finite.gradient_norm(self.parameters)
        alike, part = (
            finite.gradient_norm(some).square() if some else torch.zeros((), device=self.device)
            for some in (
                [p for p in self.parameters if not self.is_spread(p) and p.grad is not None],
                [p for p in spread if p.grad is not None],
            )
        )
        return (alike + self.together.summed(part)).sqrt()

    def is_spread(self, parameter: nn.Parameter) -> bool:
        """Whether every process keeps a part of this parameter."""
        ours = parameter is self.head.weight and getattr(self.head, "shard", None) is not None
        return ours or shard_of(parameter) is not None

    def refuse_bad_embeddings(self, embedded: Tensor) -> None:
        """Ends training at all processes where embeddings of one are not finite: on the CPU its head refuses them."""
        if self.device.type == "cpu" and self.together.any(not bool(embedded.square().sum(1).isfinite().all())):
            self.stop_for_numbers()

    def embedded(self, x: Tensor) -> Tensor:
        """The network's raw embeddings in float32 (or float64, if it gives that), through bf16 where that is faster."""
        if not self.config.train.channels_last:
            x = x.clone(memory_format=torch.contiguous_format)
        with self.mixed():
            return single(self.forward(x))

    def mixed(self) -> torch.autocast:
        """bf16 where that is faster; casts are not kept, for a recording would keep them for good."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.amp, cache_enabled=False)

    def forget_gradients(self) -> None:
        """No gradient is left from the step before."""
        self.optimiser.zero_grad(set_to_none=True)
        if self.pieces is not None:
            self.both.zero_grad(set_to_none=True)

    # ------------------------------------------------------------------------------------ all steps

    def fit(self) -> None:
        """Steps until the last epoch is over, or the validation accuracy has stopped rising."""
        self.journal.listener(self.outline())
        with Signals() as signals, fast_products(self.device), self.saver:
            if self.progress.step == 0:
                self.snapshot(0)
            with self.timed():
                while self.progress.step < self.total and not self.progress.stopped:
                    epoch, first = divmod(self.progress.step, self.steps)
                    self.enter_epoch(epoch)
                    for batch in self.epoch_batches(epoch, first):
                        self.step(batch)
                        if self.progress.step % self.steps == 0:
                            self.end_epoch(epoch + 1)
                        self.save_if_due(signals)
                self.close_group()
            self.save()

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Counts the seconds of training, those before an interruption included."""
        self.clock_began = time.monotonic() - self.progress.seconds
        yield
        self.read_clock()

    def read_clock(self) -> None:
        """Brings the seconds of training up to date; a clock that was set back adds none and takes none away."""
        self.progress.seconds = max(self.progress.seconds, time.monotonic() - self.clock_began)

    def epoch_batches(self, epoch: int, first: int) -> Iterator[Batch]:
        """The batches of an epoch that are still to come."""
        seed, options, y = self.config.seed, self.config.train, self.splits.train.y
        order = stream("order", seed, epoch)
        rows = list(epoch_order(y, options.sampling, batch=self.batch, per_class=options.per_class, seed=order))
        rows += [left_over(len(y), self.batch, order)[: self.rest]] if self.rest else []
        some = None if self.together.alone else self.places
        return self.loader.training(rows, seed=stream("augment", seed, epoch), first=first, some=some)

    def places(self, b: int) -> Int[np.ndarray, " n"]:
        """Which places of a batch of b images are this process's."""
        return self.together.places(b, self.config.train.accumulate)[0]

    def images_in(self, steps: int) -> int:
        """How many images so many steps have seen."""
        epochs, more = divmod(steps, self.steps)
        return epochs * (self.batch * (self.steps - bool(self.rest)) + self.rest) + more * self.batch

    def close_group(self) -> None:
        """One line of the journal for the steps since the last; here the loop waits for the device."""
        self.refuse_bad_numbers()
        means = self.tally.means(self.together.summed)
        if means:
            self.read_clock()
            step = self.progress.step
            self.journal.write(
                "steps", step=step, epoch=step / self.steps, **means, gradient=float(self.norm), lr=self.pace.lr,
                margin=self.pace.strength, seconds=self.progress.seconds,
            )  # fmt: skip
            self.tally.clear()

    # ------------------------------------------------------------------------------------ epochs

    def enter_epoch(self, epoch: int) -> None:
        """Training mode, with what has to rest at rest: the backbone in frozen epochs, batch norms where asked."""
        self.both.train()
        resting = epoch < self.config.train.frozen_epochs
        self.model.backbone.requires_grad_(not resting)
        if not self.together.alone and epoch in (0, self.config.train.frozen_epochs):
            self.forward = self.run_by()  # DDP asks once which weights learn
        still = [self.model.backbone] if resting else []
        still += [self.model] if self.config.train.batch_norm == "frozen" else []
        for module in (module for owner in still for module in owner.modules()):
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()

    def end_epoch(self, epoch: int) -> None:
        """Snapshots and evaluation; the best model so far is kept where training may stop early."""
        self.refuse_bad_numbers()
        paused, config = time.monotonic(), self.config.train
        due = epoch % config.evaluate_every == 0 or epoch == config.epochs
        known = self.evaluate(epoch) if due else {}
        self.snapshot(epoch, {} if self.quick_look or config.mirror else known)  # those are as exact as can be
        self.enter_epoch(epoch)
        self.tally.pause(time.monotonic() - paused)  # the journal's speed is that of training

    def evaluate(self, epoch: int) -> dict[str, Any]:
        """The embeddings of the validation images (of the test images where there are none), judged in the journal."""
        config, progress = self.config.train, self.progress
        part = "validation" if self.splits.validation is not None else "test"
        model, head = results.model_and_head(self.final)
        x = self.evaluation.rows(model, part, mirror=config.mirror, amp=self.quick_look)
        found = judge(head, x, self.splits.part(part).y, self.together)
        self.journal.write("evaluation", step=progress.step, epoch=epoch, part=part, **found)
        if found["accuracy"] > progress.best:
            progress.best, progress.best_epoch = found["accuracy"], epoch
            if config.patience:
                results.keep_best(self.run, self.final, epoch, self.together)
        elif config.patience and epoch - progress.best_epoch >= config.patience:
            progress.stopped = True
        return {part: x}

    def snapshot(self, epoch: int, known: dict[str, Any] | None = None) -> None:
        """Embeddings of some images after an epoch, where asked for."""
        if self.config.train.snapshots:
            results.keep_snapshot(self.run, self.final, self.evaluation, epoch, self.origin, known or {})

    # ------------------------------------------------------------------------------------ saving

    @functools.cached_property
    def identity(self) -> str:
        """What the checkpoints tell of the run that they are of."""
        return identity_of(self.run)

    def save(self) -> None:
        """Has a checkpoint of this very step written."""
        self.progress.within = self.together.summed(self.tally.sums.clone()).tolist()
        save_checkpoint(
            self.run, self.progress, self.modules, self.optimisers, self.device,
            saver=self.saver, identity=self.identity, keep=self.config.train.keep, together=self.together,
        )  # fmt: skip
        self.saved_at = time.monotonic()

    def save_if_due(self, signals: Signals) -> None:
        """A checkpoint when the last is old enough, or when somebody asks for an end."""
        due = time.monotonic() - self.saved_at >= self.config.train.checkpoint_every
        asked, due = self.together.agreed(signals.asked, due)
        if not due and asked is None:
            return
        self.refuse_bad_numbers()
        self.read_clock()
        self.save()
        if asked is not None:
            self.saver.wait()
            raise Interrupted(f"stopped and saved at step {self.progress.step}.", asked)

    def finish(self) -> Run:
        """The run with its model, embeddings and final numbers."""
        if self.config.train.patience:
            results.put_best(self.run, self.final, self.progress.best_epoch)
        facts = {
            "seconds": round(self.progress.seconds, 3), "steps": self.progress.step,
            "epochs": self.progress.step // self.steps, "images": self.images_in(self.progress.step),
            "device": device_name(self.device), "seed": self.config.seed,
        }  # fmt: skip
        mirror = self.config.train.mirror
        facts |= {} if self.together.alone else {"processes": self.together.count}
        facts |= {"seen_before": list(self.splits.seen_before)} if self.splits.seen_before else {}
        result = results.keep_result(self.run, self.final, self.evaluation, facts, self.origin, mirror=mirror)
        self.journal.write(**last_line_of(result))
        return self.run

    # ------------------------------------------------------------------------------------ when it goes wrong

    def refuse_bad_numbers(self) -> None:
        """Ends training when any step so far was not finite; waits for the device."""
        failed = self.guard.failed_at()
        if failed is not None:
            self.stop_for_numbers(failed)

    def stop_for_numbers(self, step: int | None = None) -> NoReturn:
        """Ends training: repeats the step that went wrong, without moving anything, to name what was not finite."""
        step = self.progress.step + 1 if step is None else step
        self.saver.join()
        epoch, row = divmod(step - 1, self.steps)
        batch = next(iter(self.epoch_batches(epoch, row)))
        self.forget_gradients()
        if isinstance(self.head, Head):
            self.head.mover = None
        self.forward = self.model
        x = self.embedded(batch.x)
        loss = x.sum() * torch.nan
        if not self.together.any(not bool(x.square().sum(1).isfinite().all())):
            with contextlib.suppress(ArcwiseError):  # on the CPU the head itself refuses what is not finite
                loss = self.head(x, batch.y)
                loss.backward()
        named = [(name.removeprefix("embedder."), p) for name, p in self.both.named_parameters()]
        kept = checkpoints_of(self.run)
        last = f"The last good checkpoint is {kept[-1]}." if kept else "There is no checkpoint yet."
        found = self.together.first_of(finite.diagnosis(x, loss, named), unless=finite.NOTHING_FOUND)
        raise finite.stop_message(step, found, self.pace.lr_at(step), last, inside=self.inside is not None)

    # ------------------------------------------------------------------------------------ for others

    @property
    def origin(self) -> dict[str, Any]:
        """Where embeddings of this run come from."""
        return {"source": self.config.data.source, "seed": self.config.seed}

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know before the first step."""
        notes = (*self.found_notes, *self.splits.notes, *self.splits.seen_before)
        began = self.run.about.get("threads") if self.run.exists() and self.device.type == "cpu" else None
        if began not in (None, torch.get_num_threads()):
            now = torch.get_num_threads()
            notes = (
                *notes,
                f"this run was begun with {began} threads and now has {now}: its last bits will be others.",
            )
        if len(self.splits.train) < self.config.train.batch:
            notes = (*notes, f"train.batch={self.config.train.batch} is more than all {len(self.splits.train):,} "
                             "training images: every epoch is a single step.")  # fmt: skip
        few = len(self.splits.train) < FEW_IMAGES * self.splits.train.classes
        if self.config.recipe != "folder" or not self.config.init or not few or self.grown:
            return notes
        return (*notes, f"a model to start from and fewer than {FEW_IMAGES} images a class: arcwise train finetune, "
                        "with the same --data and --init, is made for that.")  # fmt: skip

    @property
    def grown(self) -> bool:
        """Whether this began where another run was, with other classes."""
        return Path(self.config.init).resolve().parent == self.run.path.resolve()

    def outline(self) -> dict[str, Any]:
        """What a listener needs to know before the first step."""
        return {
            "kind": "start", "total": self.total, "step": self.progress.step, "epochs": self.config.train.epochs,
            "steps_per_epoch": self.steps, "images": {name: len(part) for name, part in self.splits.parts.items()},
            "classes": self.splits.train.classes, "device": device_name(self.device), "out": str(self.run.path),
            "head": str(self.head.spec), "broken": self.splits.broken, "notes": self.notes,
            "looks": looks(self.config.data, self.splits),
        }  # fmt: skip
