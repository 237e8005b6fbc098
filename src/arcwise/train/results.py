"""What a run leaves behind: its model, centres, embeddings and final numbers, and snapshots on the way."""

from __future__ import annotations

import contextlib
from typing import Any

from torch import Tensor, nn

from arcwise.heads import Head, LinearHead
from arcwise.model import Embedder
from arcwise.records import Embeddings, Run, errors_name, function_of, write_json
from arcwise.train.evaluate import Evaluation, judge, prototypes_of, snapshot_rows
from arcwise.train.together import Together
from arcwise.weights import load_tensors, put_state, refuse_not_finite, save_tensors


def model_and_head(both: nn.Module) -> tuple[Embedder, Head | LinearHead]:
    """The network and the head of a module that holds both."""
    return both["embedder"], both["head"]  # type: ignore[index, return-value]


def keep_snapshot(
    run: Run, both: nn.Module, evaluation: Evaluation, epoch: int, origin: dict[str, Any], known: dict[str, Any]
) -> None:
    """Embeddings of some images of every part after an epoch, for animations, in half precision, and the centres.

    `known` holds the rows of whole parts that are there already.
    """
    model, head = model_and_head(both)
    fingerprint, lead = model.fingerprint, evaluation.together.lead
    centres = prototypes_of(head, model.names, fingerprint)
    if lead:
        centres.save(run.prototypes_path(epoch))
    for part, whole in evaluation.splits.parts.items():
        if part != "unseen":
            images = evaluation.images(f"some of {part}")
            rows = snapshot_rows(part, len(whole))
            x = known[part][rows] if part in known else evaluation.rows(model, f"some of {part}")
            about = {"part": part, "epoch": epoch, **origin, **judge(head, x, images.y, evaluation.together)}
            found = Embeddings(x, images.y, images.names, images.keys, fingerprint, about)
            if lead:
                found.save(run.embeddings_path(f"{part}-epoch-{epoch:03d}"), half=True)


def keep_result(
    run: Run, both: nn.Module, evaluation: Evaluation, facts: dict[str, Any], origin: dict[str, Any], *, mirror: bool
) -> dict[str, Any]:
    """The final numbers, once the model, the centres, the embeddings and last of all result.json are in the folder."""
    model, head = model_and_head(both)
    together, fingerprint = evaluation.together, model.fingerprint
    centres = prototypes_of(head, model.names, fingerprint)
    if together.lead:
        model.save(run.model)
        centres.save(run.prototypes_path())
    result: dict[str, Any] = {}
    for part, images in evaluation.splits.parts.items():
        if part == "train":
            continue
        x = evaluation.rows(model, part, mirror=mirror)
        if part != "unseen":
            result[part] = judge(head, x, images.y, together)
        function = function_of(fingerprint, mirror=mirror)
        found = Embeddings(x, images.y, images.names, images.keys, function, {"part": part, **origin})
        if together.lead:
            found.save(run.embeddings_path(part))
    parameters = sum(p.numel() for p in model.parameters())
    result |= {**facts, "model": fingerprint, "parameters": parameters, "broken_images": len(evaluation.splits.broken)}
    if together.lead:
        (run.path / "figures").mkdir(exist_ok=True)
        write_json(run.path / "result.json", result)
    together.say(None)  # nobody leaves before it is written
    return result


def keep_best(run: Run, both: nn.Module, epoch: int, together: Together) -> None:
    """The weights with the best validation accuracy so far, beside the checkpoints; the ones before are let go."""
    _, head = model_and_head(both)
    weights = both.state_dict()
    if isinstance(head, Head):
        weights["head.weight"] = head.whole_weight()
    if not together.lead:
        return
    path = save_tensors(run.path / "checkpoints" / f"best-{epoch:04d}.safetensors", weights)
    for old in path.parent.glob("best-*.safetensors"):
        if old.name < path.name:
            with contextlib.suppress(OSError):
                old.unlink()


def put_best(run: Run, both: nn.Module, epoch: int) -> None:
    """Gives the network and the head the weights of that epoch."""
    path = run.path / "checkpoints" / f"best-{epoch:04d}.safetensors"
    if path.is_file():
        weights, _ = load_tensors(path)
        with errors_name(path):
            refuse_not_finite(weights)
            put_state(both, own_part(weights, both), "this run")


def own_part(weights: dict[str, Tensor], both: nn.Module) -> dict[str, Tensor]:
    """The weights, of the prototypes of all classes those that this process holds."""
    shard = getattr(model_and_head(both)[1], "shard", None)
    if shard is None:
        return weights
    return {**weights, "head.weight": weights["head.weight"][shard.start : shard.stop]}
