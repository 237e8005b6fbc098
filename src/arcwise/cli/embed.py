"""`arcwise embed`: writes the embeddings of images under a model into one file."""

from __future__ import annotations

import contextlib
import fnmatch
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from arcwise.cli.advise import Whole
from arcwise.cli.progress import Counter, byte_text, image_text
from arcwise.config import DataConfig, from_values
from arcwise.data.folder import counted
from arcwise.errors import ArcwiseError, note, one_of
from arcwise.records import Embeddings, Run
from arcwise.records.folders import is_run, refuse_new_file

if TYPE_CHECKING:
    from arcwise.embed import ToEmbed

TRAININGS_OWN = ("test", "validation", "unseen", "*-epoch-*")  # embeddings in a Run that training writes
UNNAMED = Path("embeddings.safetensors")  # where embeddings go if nothing is said
PARTS = ("all", "train", "validation", "test", "unseen")


def embed_command(
    model: Path,
    what: Annotated[list[str], Parameter(allow_leading_hyphen=True)],
    /,
    *,
    out: Path = UNNAMED,
    part: str = "all",
    depth: Whole = 0,
    batch: Whole = 512,
    device: str = "auto",
    data_dir: Path | None = None,
) -> None:
    """Write the embeddings of images into one file.

    Stopped or killed, the same command goes on where it was. Images that cannot be read are named and left out.

    Parameters
    ----------
    model
        A run's folder, a model.safetensors, insightface's .pth, or an .onnx file that arcwise exported.
    what
        Images, folders of images, sources as in mnist[5-9] or folder:PATH, or - for a list of paths on standard input.
    out
        Where the embeddings go.
    part
        all of a source's images, or the part of them that the model was given as train, validation, test or unseen.
    depth
        A class is a folder at this depth below the one that is named; 0: as the model was trained, else 1.
    batch
        Images at a time.
    device
        auto, cpu, cuda or cuda:1.
    data_dir
        Where data sets are cached, in place of $ARCWISE_DATA.
    """
    one_of("part", part, PARTS)
    told = {"source": shlex.join(what), "part": part}
    refuse_places(out, model, part)
    refuse_others_rows(out, told)
    from arcwise.embed import embed_into, joined
    from arcwise.encoders import load_encoder

    encoder = load_encoder(model, device=device)
    broken: dict[str, str] = {}
    works = [work_for(encoder, one, part, depth, data_dir, broken) for one in words_of(what)]
    if not works:
        again = f"ls *.jpg | arcwise embed {shlex.quote(str(model))} -"
        raise ArcwiseError(f"standard input names no images: one path on each line is read, as in {again}")
    if len(works) > 1 and part != "all":
        raise ArcwiseError("--part is of one source: name it alone.")
    counter = Counter(image_text)
    mirror = is_trainings_own(out) and trained_with(encoder, "train").get("mirror", False)
    with holding(out):
        found = embed_into(
            out, encoder, joined(works), batch=batch, mirror=mirror,
            about=told, tell=lambda done, total: counter("embedding", done, total),
        )  # fmt: skip
    for name, reason in {**broken, **found.broken}.items():
        print(f"skipped {name}: {reason}", file=sys.stderr)
    classes = f", {counted(len(found.names), 'class', 'classes')}" if found.names else ", without labels"
    print(f"{out}: {counted(found.rows, 'embedding')} of {found.dim} dimensions{classes}")
    print(f"Next: {next_command(out, model, found.names, encoder)}")


def next_command(out: Path, model: Path, names: tuple[str, ...], encoder: Any) -> str:
    """What to do with the file: judge it by the head where all its classes were trained on, or by its classes alone."""
    quoted = shlex.quote(str(out))
    if len(names) < 2:
        return f"python -c \"import arcwise; print(arcwise.Embeddings.load('{out}').x.shape)\""
    known = Run(model).exists() and set(names) <= set(encoder.names)
    return f"arcwise evaluate {quoted}" + (f" --prototypes {shlex.quote(str(model))}" if known else "")


def words_of(what: list[str]) -> Iterator[str]:
    """What was named, one by one; a - stands for the lines on standard input."""
    for one in what:
        if one == "-":
            yield from (line.rstrip("\r\n") for line in sys.stdin if line.strip())
        else:
            yield one


def work_for(
    encoder: Any, what: str, part: str, depth: int, data_dir: Path | None, broken: dict[str, str]
) -> ToEmbed:  # fmt: skip
    """The images of one source, folder or file; `broken` takes the files of a source that cannot be read."""
    from arcwise.data.images import split_filter
    from arcwise.data.sources import SOURCES, load, load_whole
    from arcwise.embed import depth_of, folder_work, listed_work, work_of

    if not what.strip():
        raise ArcwiseError("images are named by a folder or a source, and an empty name is neither.")
    name = split_filter(what)[0].partition(":")[0]
    path = Path(what)
    if part != "all" and name not in SOURCES and (path.exists() or path.suffix):
        raise ArcwiseError(
            f"--part is of a source that the model was trained on, and {what} is a path: name it as folder:{what} if "
            "it is one, or leave --part out."
        )
    if name in SOURCES and path.is_dir():
        note(f"{what} is the source that comes with arcwise, not the folder here: that is ./{what} or folder:{what}.")
    if name not in SOURCES and path.is_dir():
        return folder_work(encoder, path, depth=depth or depth_of(encoder))
    if name not in SOURCES and (path.is_file() or path.suffix):
        return listed_work(encoder, [path], (what,))
    config = source_config(encoder, what, part, depth)
    counter = Counter(image_text if what.startswith("folder") else byte_text)
    if part == "all":
        images, bad = load_whole(config, data_dir=data_dir, tell=counter)
    else:
        splits = load(config, data_dir=data_dir, tell=counter)
        told = encoder.about.get("images")
        if told is not None and not splits.are(told):
            raise ArcwiseError(
                f"the images of {what} are not those that the model was trained on: some were added, removed, renamed "
                f"or changed, so its {part} images are no longer known. Put them back, or leave --part out."
            )
        images, bad = splits.part(part), splits.broken
    broken |= bad
    return work_of(encoder, images)


def works_of(
    encoder: Any, sources: list[str], depth: int, data_dir: Path | None, broken: dict[str, str]
) -> ToEmbed:  # fmt: skip
    """The images of several sources as one, each image once; those of two folders may have equal names in them."""
    from arcwise.data.images import split_filter
    from arcwise.embed import joined
    from arcwise.overlap import refuse_named_twice

    works = []
    for one in sources:
        work = work_for(encoder, one, "all", depth, data_dir, broken)
        kind, _, folder = split_filter(one)[0].partition(":")
        if len(sources) > 1 and kind == "folder":
            work = replace(work, keys=tuple(str(Path(folder, key)) for key in work.keys))
        works.append(work)
    every = joined(works)
    refuse_named_twice(every.keys)
    return every


def source_config(encoder: Any, source: str, part: str = "all", depth: int = 0) -> DataConfig:
    """A source as the model wants it; parts are cut as they were when it was trained."""
    from arcwise.embed import depth_of

    look, trained = encoder.preprocessing, trained_with(encoder, "data")
    framed = {"size": look.side, "channels": look.channels, "fit": look.fit, "resample": look.resample}
    if part == "all":
        return DataConfig(source=source, depth=depth or depth_of(encoder), **framed)
    if trained.get("source") != source:
        raise ArcwiseError(
            f"the model was not trained on {source}, so it has no {part} images there. Leave --part out for all images."
        )
    return replace(from_values(DataConfig, trained, where="data."), **framed)


def trained_with(encoder: Any, part: str) -> dict[str, Any]:
    """A part of the configuration that a model was trained with, where it tells."""
    return encoder.about.get("config", {}).get(part, {})


# ------------------------------------------------------------------------------------ where embeddings may go


def refuse_places(out: Path, model: Path, part: str) -> None:
    """Raises where embeddings do not belong: over any file but embeddings, in a run but beside its own."""
    whole = out.resolve()
    if not whole.parent.is_dir():
        raise ArcwiseError(f"there is no folder {out.parent}: make it first, or choose another --out.")
    if whole.is_dir():
        raise ArcwiseError(f"{out} is a folder: name a file, such as {out / 'embeddings.safetensors'}.")
    refuse_other_ending(out)
    if whole.exists() and not is_embeddings(whole):
        raise ArcwiseError(f"{out} is there and holds no embeddings: choose another --out.")
    for folder in whole.parents:
        if is_run(folder) and whole.parent != folder / "embeddings":
            raise ArcwiseError(f"{folder} is a run: embeddings in it go to {folder / 'embeddings' / whole.name}.")
    run = run_of(whole)
    if run is None and not whole.exists():
        refuse_new_file(out)
    if run is not None and is_trainings_own(out):
        mine = model.resolve() in (run.path, run.model.resolve())
        if not mine or part != whole.stem:
            raise ArcwiseError(
                f"{out} is what {run.path} is measured by: only its own model's --part {whole.stem} belongs there. "
                f"Choose another name, such as {whole.with_name('all.safetensors')}."
            )


def refuse_others_rows(out: Path, told: dict[str, str]) -> None:
    """Raises where the file that nobody named holds the embeddings of other images."""
    if out != UNNAMED or not out.is_file():
        return
    about = Embeddings.load(out).about or {}
    if any(about.get(key) != value for key, value in told.items()):
        raise ArcwiseError(
            f"{out} holds the embeddings of {about.get('source', 'other images')}: name another file with --out."
        )


def refuse_other_ending(out: Path) -> None:
    """Raises where a file would say that it is something else than embeddings in safetensors."""
    if out.suffix != ".safetensors":
        raise ArcwiseError(f"embeddings are written as safetensors: {out.stem or 'all'}.safetensors, for example.")


def is_trainings_own(out: Path) -> bool:
    """Whether a file of embeddings is one that training writes, with mirror images added where it was told so."""
    own = any(fnmatch.fnmatchcase(out.stem, name) for name in TRAININGS_OWN)
    return own and run_of(out.resolve()) is not None


def run_of(path: Path) -> Run | None:
    """The run in whose embeddings a file lies."""
    return Run(path.parent.parent) if path.parent.name == "embeddings" and is_run(path.parent.parent) else None


def holding(out: Path) -> contextlib.AbstractContextManager[None]:
    """Holds the run that a file lies in, against a process that trains it."""
    run = run_of(out.resolve())
    return contextlib.nullcontext() if run is None else run.locked()


def is_embeddings(path: Path) -> bool:
    """Whether a file holds embeddings, or once did."""
    try:
        Embeddings.load(path)
    except ArcwiseError:
        return run_of(path) is not None
    return True
