"""`arcwise evaluate`: measures runs, files of embeddings, or a model on images and pairs of images."""

from __future__ import annotations

import difflib
import fnmatch
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from arcwise.cli.advise import Whole
from arcwise.errors import ArcwiseError, name_list, note

if TYPE_CHECKING:
    from arcwise.embed import ToEmbed
    from arcwise.pairs import PairTable
    from arcwise.trial import Trial

ARRAY_ENDINGS = (".npz", ".npy", ".csv", ".pt", ".pkl", ".h5", ".parquet")  # in which people keep rows of their own
# The numbers that are shown first, of those that there are.
SHORT = (
    "accuracy", "fold-accuracy", "angle-own", "dunn-nearest-diameter-unit-95", "neighbour-accuracy", "pairs-auc",
    "pairs-eer", "pairs-tar-0.1", "pairs-tar-0.01", "pairs-tar-0.001", "cmc-1", "cmc-5", "dir-0.01", "unseen-auc",
    "unseen-eer", "unseen-tar-0.01", "unseen-recall-1", "open-auroc", "open-dir-0.01",
)  # fmt: skip


def evaluate_command(
    what: list[Path],
    /,
    *,
    on: list[str] | None = None,
    pairs: Path | None = None,
    by: list[str] | None = None,
    depth: Whole = 0,
    unseen: Path | None = None,
    prototypes: Path | None = None,
    all_: Annotated[bool, Parameter(name="--all")] = False,
    only: str = "",
    again: bool = False,
    allow_overlap: bool = False,
    out: Path | None = None,
    seed: Whole = 0,
    device: str = "auto",
    data_dir: Path | None = None,
    json_: bool = False,
) -> None:
    """Measure runs, files of embeddings, or a model on images: verification, ranks, strangers, clusters.

    Parameters
    ----------
    what
        Runs, whose metrics.json takes the numbers, comparisons (all their finished runs), or files of embeddings. With
        --on or --pairs one model: a run's folder, a model.safetensors, insightface's .pth or an exported .onnx.
    on
        Images to try the model on: folders with one folder per identity, or sources as in glyphs[300-399].
    pairs
        A table of pairs to try the model on, as arcwise pairs make writes it; its images lie beside it or are in --on.
    by
        Columns of the table of pairs, or of a folder's CSV, whose groups are judged each by itself.
    depth
        With --on: an identity is a folder at this depth below the one that is named; 0: as the model was trained.
    unseen
        A second file with embeddings of classes that were not in training.
    prototypes
        The run (or file of prototypes) whose head judges a file of embeddings: accuracy and the open set need it.
    all_
        Print every number, not the main ones alone.
    only
        Print the numbers whose names match, as in "dunn-*" or "unseen-*".
    again
        Measure again what was measured before.
    allow_overlap
        Go on although some of the images were trained on, or stand in both files.
    out
        With --on or --pairs: a folder for pictures, the hardest pairs among them, and for the numbers.
    seed
        Of what is drawn: pairs in folds, and who is enrolled.
    device
        auto, cpu, cuda or cuda:1.
    data_dir
        Where data sets are cached, in place of $ARCWISE_DATA.
    json_
        Print for a machine.
    """
    if on or pairs is not None:
        refuse_beside_trial(what, unseen, prototypes, again)
        if out is not None:
            refuse_pictures(out)
        found = tried(what[0], on or [], pairs, by or [], seed, allow_overlap, device, data_dir, depth)
        show_trial(found, every=all_, only=only, as_json=json_)
        if out is not None:
            draw_trial(found, what[0], out)
        if not json_:
            print(f"Next: {after_trial(what[0], on or [], pairs, out, depth, rate_for(found))}", file=sys.stderr)
        return
    if by or out is not None or depth:
        raise ArcwiseError("--by, --depth and --out go with --on or --pairs.")
    from arcwise.metrics.summary import METRICS

    every = {
        str(path): numbers_of(path, unseen, prototypes, again=again, allow=allow_overlap)
        for one in what
        for path in unfolded(one)
    }
    measured = {path: values for path, (values, _) in every.items()}
    found = {path: chosen(values, every=all_ or json_, only=only) for path, values in measured.items()}
    if not any(found.values()):
        there = {name for values in measured.values() for name in values}
        raise ArcwiseError(nothing_matches(only, there, runs=all(Path(path).is_dir() for path in measured)))
    if json_:
        print(json.dumps(found))
        return
    for path, values in found.items():
        if len(found) > 1:
            print(path)
        if not values:
            print(f"{'-':>11}  {nothing_matches(only, set(measured[path]), runs=Path(path).is_dir())}")
        show_numbers(values, {name: METRICS[name].label for name in values}, every[path][1])
        show_seen_before(Path(path))
    show_notes({name: METRICS[name].note for values in found.values() for name in values})
    left = max(len(values) for values in measured.values()) - max(len(values) for values in found.values())
    if left and not only:
        print(f"{left} more: --all prints them, --only 'dunn-*' some of them.")
    print(f"Next: arcwise {after_numbers(what[0])}", file=sys.stderr)


def after_numbers(first: Path) -> str:
    """What to type next."""
    return f"figures {quote(str(first))}" if first.is_dir() else f"evaluate {quote(str(first))} --all"


def chosen(values: Mapping[str, float | None], *, every: bool, only: str) -> dict[str, float | None]:
    """The numbers that are asked for: those that match, all, or the main ones."""
    if only:
        return {name: values[name] for name in fnmatch.filter(values, only)}
    return dict(values) if every else {name: values[name] for name in SHORT if name in values}


def show_numbers(values: Mapping[str, float | None], labels: Mapping[str, str], marks: Mapping[str, str]) -> None:
    """One number a line: its value, its name, what it says; a dagger where it rests on too little."""
    from arcwise.metrics.summary import METRICS, number_text

    for name, value in values.items():
        share = name not in METRICS
        shown = "∞" if value is None else f"{100 * value:.2f} %" if share else number_text(name, value)
        print(f"{shown:>11}{'†' if name in marks else ' '} {name:44} {labels[name]}")
    for name in values:
        if name in marks:
            print(f"† {name} {marks[name]}.")


def show_seen_before(path: Path) -> None:
    """Which images of a Run's parts had been trained on before it began."""
    from arcwise.records import Run

    for words in Run.open(path).result.get("seen_before", []) if path.is_dir() else []:
        print(f"note: {words}")


def show_notes(notes: Mapping[str, str]) -> None:
    """How numbers are defined, where a reader would have to guess; numbers of one note together."""
    together: dict[str, list[str]] = {}
    for name, words in notes.items():
        if words:
            together.setdefault(words, []).append(name)
    for words, names in together.items():
        print(f"{name_list(tuple(dict.fromkeys(names)), 2)}: {words}.")


def nothing_matches(only: str, there: set[str], *, runs: bool) -> str:
    """Why no number is printed: there is none of that name, or what was given (Runs, or files) does not allow it."""
    from arcwise.metrics.summary import METRICS

    if not only:
        few = "no class has two images, which the main numbers need: add images"
        return f"{few}, or pass --all for the {len(there)} others." if there else f"nothing can be measured: {few}."
    wanted = fnmatch.filter(METRICS, only)
    listed = f"The names there are: {', '.join(name for name in METRICS if name in there)}."
    if not wanted:
        near = [
            name for name in METRICS if name in there and only.strip("*").lower() in name
        ] or difflib.get_close_matches(only, sorted(there), n=3)
        hint = f" Did you mean {' or '.join(near[:3])}?" if near and only.strip("*") else ""
        return f"no number is called {only!r}.{hint} {listed}"
    why = "it needs embeddings of classes that were not in training: --unseen FILE"
    if runs and all(name.startswith(("open-", "unseen-")) for name in wanted):
        why = (
            "it needs classes that were kept from training: train with --unseen, or name images of others, --on SOURCE"
        )
    elif runs:
        why = "this run lacks what it takes; a loss of one's own keeps no prototypes to judge by"
    elif any(name.startswith("open-") or name in ("accuracy",) or name.startswith("margin-") for name in wanted):
        why = "it needs the prototypes of a run: --prototypes RUN, and for the open set also --unseen FILE"
    return f"{only!r} cannot be measured here: {why}. {listed}"


def unfolded(path: Path) -> list[Path]:
    """The finished runs of a comparison; anything else as it is."""
    from arcwise.records import Comparison

    if path.suffix.lower() in ARRAY_ENDINGS:
        raise ArcwiseError(
            f"{path} is no file of embeddings. Of arrays x (n, d) and y (n,) one is made in Python: "
            f"arcwise.Embeddings(x, y).save({str(path.with_suffix('.safetensors'))!r})"
        )
    if not Comparison(path).exists():
        return [path]
    return [run.path for many in Comparison.open(path).finished_runs().values() for run in many]


def numbers_of(
    path: Path, unseen: Path | None, prototypes: Path | None, *, again: bool, allow: bool
) -> tuple[dict[str, float | None], dict[str, str]]:
    """The numbers of a run, or of a file of embeddings; and on what those rest that rest on too little."""
    from arcwise.measure import evidence_of, measure
    from arcwise.metrics.resting import weak_rates
    from arcwise.metrics.summary import all_metrics, finite_or_null
    from arcwise.overlap import refuse_equal_rows
    from arcwise.records import Embeddings, Prototypes, Run

    if path.is_dir():
        if unseen is not None or prototypes is not None:
            raise ArcwiseError("--unseen and --prototypes go with a file of embeddings; a run brings its own.")
        run = Run.open(path)
        return measure(run, again=again)["measured"], weak_rates(*evidence_of(run)[:2])
    if path.suffix == ".onnx" or path.name == "model.safetensors":
        raise ArcwiseError(
            f"{path} is a model: name images to try it on, as in --on folder:PATH, or --pairs pairs.csv."
        )
    centres = None
    if prototypes is not None:
        centres = Run.open(prototypes).prototypes() if prototypes.is_dir() else Prototypes.load(prototypes)
    found, others = Embeddings.load(path), None if unseen is None else Embeddings.load(unseen)
    if others is not None:
        refuse_equal_rows(found, others, what=str(unseen), allow=allow)
        known = centres.names if centres is not None else found.names
        same = tuple(name for name in others.names if name in set(known))
        if same:
            note(f"{unseen} is called unseen, but classes of these names were trained on: {name_list(same, 4)}.")
    return finite_or_null(all_metrics(found, others, centres)), weak_rates(found, others)


# ------------------------------------------------------------------------------------ a model on images


def refuse_beside_trial(what: list[Path], unseen: Path | None, prototypes: Path | None, again: bool) -> None:
    """Raises where options of files meet those of a model."""
    if len(what) != 1:
        raise ArcwiseError("--on and --pairs try one model: name one.")
    if unseen is not None or prototypes is not None or again:
        raise ArcwiseError("--unseen, --prototypes and --again go with files and runs, not with --on or --pairs.")


def tried(
    model: Path, on: list[str], pairs: Path | None, by: list[str], seed: int, allow: bool, device: str,
    data_dir: Path | None, depth: int = 0,
) -> Trial:  # fmt: skip
    """The model on images or on pairs of them."""
    from arcwise.cli.embed import work_for, works_of
    from arcwise.cli.progress import Counter, image_text
    from arcwise.embed import watched
    from arcwise.encoders import load_encoder
    from arcwise.overlap import OverlapWatch, trained_on
    from arcwise.pairs import PairTable
    from arcwise.trial import pair_images, try_on, try_on_pairs

    table = None if pairs is None else PairTable.load(pairs)
    encoder = load_encoder(model, device=device)
    broken: dict[str, str] = {}

    def source(one: str) -> ToEmbed:
        return work_for(encoder, one, "all", depth, data_dir, broken)

    work = works_of(encoder, on, depth, data_dir, broken) if on else None
    known = trained_on(model)
    if known is None:
        note(f"{model} does not tell what it was trained on: whether these images were among it cannot be looked up.")
    watch, counter = OverlapWatch(known, encoder.names), Counter(image_text)

    def tell(done: int, total: int) -> None:
        counter("embedding", done, total)

    if table is not None:
        assert pairs is not None
        table = with_columns(table, on, by)
        work = pair_images(encoder, table, pairs, work, source)
        found = try_on_pairs(encoder, table, watched(work, watch), by=by, tell=tell)
    else:
        assert work is not None
        centres = known_centres(model, work.names)
        groups = {column: column_of(on, column) for column in by}
        found = try_on(
            encoder, watched(work, watch), centres=centres, groups=groups, seed=seed, tell=tell, broken=broken
        )
    watch.refuse(found.embeddings, what=str(pairs) if on == [] else join(on), allow=allow)
    for name, reason in broken.items():
        print(f"skipped {name}: {reason}", file=sys.stderr)
    if found.left_out:
        print(f"left out {found.left_out:,} pairs whose images cannot be read", file=sys.stderr)
    return found


def known_centres(model: Path, names: tuple[str, ...]) -> Any:
    """The centres of the head that a run was trained with, where all these classes are among its own."""
    from arcwise.records import Run

    run = Run(model if model.is_dir() else model.parent)
    if not run.exists() or (model.is_file() and model.resolve() != run.model.resolve()):
        return None
    centres = run.prototypes()
    return centres if set(names) <= set(centres.names) else None


def column_of(on: list[str], column: str) -> dict[str, str]:
    """A column of the table of a folder, by the keys of its images."""
    from arcwise.data.fetch import expand_home
    from arcwise.data.folder import set_apart, table_column

    if len(on) != 1:
        raise ArcwiseError("--by reads the table of one folder: name one with --on.")
    plain = not on[0].startswith("folder:")
    root = expand_home(on[0].removeprefix("folder:"))
    parts = [part for part in set_apart(root) if part is not None]
    found = {part / file: value for part in parts for file, value in table_column(part, column).items()}
    return {str(file if plain else file.relative_to(root)): value for file, value in found.items()}


def with_columns(table: PairTable, on: list[str], by: list[str]) -> PairTable:
    """The pairs with columns that the table of their folder has: a pair is of a group when both images are."""
    columns = dict(table.columns)
    for column in (column.lower() for column in by):
        if on and column not in columns:
            told = column_of(on, column)
            both = ((told.get(a, ""), told.get(b, "")) for a, b in zip(table.a, table.b, strict=True))
            columns[column] = tuple(one if one == other else "" for one, other in both)
    return replace(table, columns=columns)


def show_trial(found: Trial, *, every: bool, only: str, as_json: bool) -> None:
    """The numbers, the threshold of equal error, groups and what rejecting gains."""
    values = chosen(found.numbers, every=every or as_json, only=only)
    if not values:
        raise ArcwiseError(f"no number is called {only!r}. The names there are: {', '.join(found.numbers)}.")
    if as_json:
        print(json.dumps(trial_values(found, values)))
        return
    show_numbers(values, found.labels, found.marks)
    if "pairs-eer" in values:
        angle = math.degrees(math.acos(max(-1.0, min(1.0, found.threshold))))
        print(f"threshold of equal error: cosine {found.threshold:.4f}, angle {angle:.1f}°")
    if found.folds is not None and "fold-accuracy" in values:
        print(f"over {len(found.folds.folds)} folds: {100 * found.folds.mean:.2f} ± {100 * found.folds.spread:.2f} %")
    if found.watch is not None and "cmc-1" in values:
        one = found.watch.cmc[1]
        print(
            f"ranks and strangers: means over {one.n} draws of who is enrolled (rank 1: {100 * one.mean:.2f} ± "
            f"{100 * one.deviation:.2f} %), {found.watch.identities:,} identities, {found.watch.probes:,} probes"
        )
    show_notes({name: found.notes.get(name, "") for name in values})
    show_groups(found)
    if found.rejection is not None and not only:
        rows = zip(found.rejection.shares, found.rejection.error, found.rejection.missed, strict=True)
        if found.drawn:
            print(f"\nOf the {found.drawn:,} pairs that were drawn for the folds:", end="")
        print("\npairs rejected, shortest x first   equal error   missed at FAR 0.01 of all")
        for share, error, missed in rows:
            print(f"{share:34.0%}   {100 * error:9.2f} %   {100 * missed:22.2f} %")
    if len(found.numbers) > len(values) and not only:
        print(f"\n{len(found.numbers) - len(values)} more: --all prints them.")


def show_groups(found: Trial) -> None:
    """One table for each column."""
    for column, rows in found.groups.items():
        wide = max([len(column), *(len(row.value) for row in rows)])
        print(f"\n{column:{wide}}  genuine  impostor        EER  FAR and TAR at the threshold of all")
        for row in rows:
            judged = not math.isnan(row.eer)
            numbers = (
                f"{100 * row.eer:8.2f} %  {100 * row.far:6.2f} %  {100 * row.tar:6.2f} %" if judged else "         -"
            )
            print(f"{row.value:{wide}}  {row.genuine:7,}  {row.impostor:8,}  {numbers}")


def trial_values(found: Trial, values: Mapping[str, float | None]) -> dict[str, Any]:
    """What was found, for a machine."""
    groups = {
        column: [{k: None if v != v else v for k, v in row._asdict().items()} for row in rows]
        for column, rows in found.groups.items()
    }
    folds = None if found.folds is None else {**found.folds._asdict()}
    numbers = {name: v if v is not None and math.isfinite(v) else None for name, v in values.items()}
    return {
        "numbers": numbers, "threshold": found.threshold, "marks": found.marks, "folds": folds,
        "rejection": None if found.rejection is None else found.rejection._asdict(), "groups": groups,
        "images": len(found.embeddings), "pairs_left_out": found.left_out, "hardest": hardest_pairs(found),
    }  # fmt: skip


def hardest_pairs(found: Trial) -> list[dict[str, Any]]:
    """The pairs of the picture, by the keys of their images."""
    keys = found.embeddings.keys or ()
    return [{"a": keys[pair.a], "b": keys[pair.b], "same": pair.same, "cosine": pair.cosine} for pair, _ in found.shown]


def refuse_pictures(out: Path) -> None:
    """Raises where no pictures can be drawn, or not into this folder, before anything is embedded for them."""
    from arcwise.cli.report import needs
    from arcwise.records import claim_folder

    needs("matplotlib")
    claim_folder(out, "report")


def draw_trial(found: Trial, model: Path, out: Path) -> None:
    """Pictures and numbers in a folder of their own."""
    from arcwise.figures.trial import trial_pictures
    from arcwise.records import mark_report, write, write_json

    refuse_pictures(out)
    write_json(out / "evaluation.json", {"model": str(model), **trial_values(found, found.numbers)})
    mark_report(out)
    for name, content in trial_pictures(found):
        print(write(out / f"{name}.png", content))


def after_trial(model: Path, on: list[str], pairs: Path | None, out: Path | None, depth: int, rate: list[str]) -> str:
    """What to type next: the hardest pairs, or a threshold."""
    words = ["arcwise", "evaluate", str(model), *(["--on", *on] if on else [])]
    words += ["--pairs", str(pairs)] if pairs is not None else []
    deep = ["--depth", str(depth)] if depth else []
    if out is None:
        return join([*words, *deep, "--out", "evaluation"])
    return join(["arcwise", "calibrate", str(model), "--on", *(on or ["SOURCE"]), *deep, *rate])


def rate_for(found: Trial) -> list[str]:
    """The smallest usual false accept rate that these identities are enough for, as words of a command."""
    import numpy as np

    from arcwise.metrics.calibration import too_few

    if found.embeddings.y is None:
        return ["--far", "0.001"]
    sizes = np.bincount(found.embeddings.y)
    fits = [far for far in (0.001, 0.01, 0.1) if not too_few(sizes, far)]
    return ["--far", f"{fits[0]:g}"] if fits else ["--far", "0.1", "--few-identities"]
