"""`arcwise gallery`: people enrolled by their images; who is this, is it her, and nobody."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from cyclopts import App

from arcwise.cli.advise import Share, Whole
from arcwise.cli.progress import Counter, byte_text, image_text
from arcwise.data.folder import counted
from arcwise.errors import ArcwiseError, name_list, note
from arcwise.records.thresholds import rate_text

if TYPE_CHECKING:
    from arcwise.gallery import Gallery
    from arcwise.records.gallery import Match

gallery_app = App(
    name="gallery", help="Enroll people by their images, and ask who is on one.", result_action="return_value"
)
MANY = 20  # rows that are printed of a list
NOT_PROMISED = (
    "Milvus erases in its own time, and keeps logs and snapshots: that nothing is left cannot be promised here."
)
OF_MEANS = (
    "these rates are of pairs of images, and this gallery compares with means of templates, which are nearer to "
    "strangers too: expect more of them to be taken for somebody."
)


@gallery_app.command(name="create")
def create_gallery(
    place: str, /, *, model: Path, match: str = "best", keep_images: bool = False, device: str = "auto"
) -> None:
    """Make a gallery without anybody, for the embeddings of one model.

    Parameters
    ----------
    place
        A new folder; or milvus://HOST:19530/NAME for a gallery that one machine does not hold.
    model
        A run's folder, a model.safetensors, insightface's .pth, or an .onnx file that arcwise exported.
    match
        best: an identity is as near as its nearest template; mean: as the mean of them; weighted: of them by length.
    keep_images
        Keep the images too, so that everybody can be embedded anew with another model.
    device
        auto, cpu, cuda or cuda:1.
    """
    from arcwise.gallery import Gallery

    encoder = opened_model(model, device)
    gallery = Gallery.create(
        place,
        encoder,
        match=match,
        keep_images=keep_images,
        thresholds=thresholds_of(model, encoder),
        hint=str(model.resolve()),
    )
    card = gallery.card
    print(f"{place}: a gallery of {card.dim} dimensions for model {card.model[:12]}, matching by {card.match}")
    if card.thresholds:
        print(f"It bears the thresholds for {', '.join(rate_text(one.far) for one in card.thresholds)}.")
    else:
        words = f"arcwise calibrate {quote(str(model))} --on SOURCE"
        then = f"arcwise gallery calibrate {quote(place)} --model {quote(str(model))}"
        print(f"There is no threshold yet: {words}, then {then}")
    print(f"Next: arcwise gallery add {quote(place)} FOLDER")


@gallery_app.command(name="add")
def add_people(
    place: str,
    images: list[str],
    /,
    *,
    name: str | None = None,
    tags: list[str] | None = None,
    depth: Whole = 0,
    model: Path | None = None,
    device: str = "auto",
) -> None:
    """Enroll people: a folder with one folder for each, or images of one with --name.

    Images that an identity has already are passed over, so that the same command goes on where it was stopped.

    Parameters
    ----------
    place
        The gallery.
    images
        A folder of folders; with --name images or folders of images.
    name
        Whose images these are.
    tags
        Words that identify may be limited to.
    depth
        Somebody is a folder at this depth below the one that is named; 0: as the model was trained, else 1.
    model
        The gallery's model, where it is no longer where it was.
    device
        auto, cpu, cuda or cuda:1.
    """
    from arcwise.embed import depth_of

    gallery = opened_gallery(place, model, device)
    people = {name: image_files(images)} if name is not None else people_in(images, depth or depth_of(gallery.encoder))
    tell_merged(people, images)
    before = {one.name for one in gallery.list()}
    counter, broken, safe = Counter(image_text), {}, [0, 0]

    def confirm(counts: dict[str, int]) -> None:
        safe[0] += sum(1 for count in counts.values() if count)
        safe[1] += sum(counts.values())
        print(f"safe: {counted(safe[1], 'template')} of {counted(safe[0], 'identity', 'identities')}", flush=True)

    added = gallery.add_many(
        people,
        tags=tags or (),
        broken=broken,
        confirm=confirm,
        tell=lambda done, total: counter("enrolling", done, total),
    )
    for key, reason in broken.items():
        print(f"skipped {key}: {reason}", file=sys.stderr)
    more = tuple(name for name, count in added.items() if count and name in before)
    if more and name is None:
        note(f"enrolled before, and added to: {name_list(more, 4)}. If others were meant, rename their folders.")
    there = sum(map(len, people.values())) - len(broken) - sum(added.values())
    print(f"{place}: {counted(sum(added.values()), 'template')} added"
          + (f", {counted(there, 'image')} passed over that were there already" if there else ""))  # fmt: skip
    print(f"Next: arcwise gallery identify {quote(place)} IMAGE")


@gallery_app.command(name="identify")
def identify_people(
    place: str,
    images: list[str],
    /,
    *,
    tags: list[str] | None = None,
    far: Share | None = None,
    threshold: float | None = None,
    model: Path | None = None,
    device: str = "auto",
    json_: bool = False,
) -> None:
    """Say who is on images: the identity or unknown, the runner-up, and the lead over it.

    Parameters
    ----------
    place
        The gallery.
    images
        Images, or folders of them.
    tags
        Only those who bear one of these words may match.
    far
        Take the threshold that was calibrated for this false accept rate; the one calibrated last if not given.
    threshold
        Take this cosine as the threshold.
    model
        The gallery's model, where it is no longer where it was.
    device
        auto, cpu, cuda or cuda:1.
    json_
        Print for a machine.
    """
    gallery = opened_gallery(place, model, device)
    gallery.rule(far, threshold)
    files, broken = image_files(images), {}
    from arcwise.embed import embed

    found = embed(gallery.encoder, files, broken=broken)
    matches = gallery.identify_rows(found, tags=tags or (), far=far, threshold=threshold)
    for key, reason in broken.items():
        print(f"skipped {key}: {reason}", file=sys.stderr)
    keys = found.keys or ()
    if json_:
        print(json.dumps([{"image": key, **match_values(match)} for key, match in zip(keys, matches, strict=True)]))
        return
    for key, match in zip(keys, matches, strict=True):
        print(f"{key}  {match_text(match)}")
    if matches:
        print(decision_text(gallery, far, threshold, matches[0].false_positive))


@gallery_app.command(name="verify")
def verify_person(
    place: str,
    image: str,
    /,
    *,
    name: str,
    far: Share | None = None,
    threshold: float | None = None,
    model: Path | None = None,
    device: str = "auto",
    json_: bool = False,
) -> None:
    """Say whether an image shows somebody who is enrolled.

    Parameters
    ----------
    place
        The gallery.
    image
        The image.
    name
        Who it is said to show.
    far
        Take the threshold that was calibrated for this false accept rate; the one calibrated last if not given.
    threshold
        Take this cosine as the threshold.
    model
        The gallery's model, where it is no longer where it was.
    device
        auto, cpu, cuda or cuda:1.
    json_
        Print for a machine.
    """
    gallery = opened_gallery(place, model, device)
    match = gallery.verify(Path(image), name, far=far, threshold=threshold)
    if json_:
        print(json.dumps({"image": image, **match_values(match), "same": match.name is not None}))
        return
    said = "same" if match.name is not None else "different"
    print(f"{image}  {said}  {name}: cosine {match.cosine:.4f}, angle {math.degrees(match.angle):.1f}°")
    print(decision_text(gallery, far, threshold, None))


@gallery_app.command(name="remove")
def remove_person(place: str, name: str, /) -> None:
    """Erase somebody: name, templates and kept images are gone from the gallery's files.

    Parameters
    ----------
    place
        The gallery.
    name
        Who is forgotten.
    """
    from arcwise.gallery import Gallery

    gallery = Gallery.open(place, None)
    count = gallery.remove(name)
    served = place.startswith("milvus:")
    print(f"{place}: {counted(count, 'template')} of {name} {'deleted' if served else 'erased'}")
    print(NOT_PROMISED if served else "Copies that somebody made of the folder, and its backups, are not reached.")
    print(f"Next: arcwise gallery list {quote(place)}")


@gallery_app.command(name="list")
def list_people(place: str, /, *, json_: bool = False) -> None:
    """List who is enrolled.

    Parameters
    ----------
    place
        The gallery.
    json_
        Print everybody for a machine.
    """
    from arcwise.gallery import Gallery

    found = Gallery.open(place, None).list()
    if json_:
        print(json.dumps([one._asdict() for one in found]))
        return
    for one in found[:MANY]:
        print(f"{one.templates:6}  {one.name}" + (f"  [{', '.join(one.tags)}]" if one.tags else ""))
    if len(found) > MANY:
        print(f"and {len(found) - MANY:,} more: --json lists all")
    print(f"{counted(len(found), 'identity', 'identities')}\nNext: arcwise gallery stats {quote(place)}")


@gallery_app.command(name="stats")
def gallery_stats(place: str, /, *, far: Share | None = None, json_: bool = False) -> None:
    """Say how large a gallery is, and how often strangers would be taken for somebody, now and as it grows.

    Parameters
    ----------
    place
        The gallery.
    far
        At the threshold that was calibrated for this false accept rate; the one calibrated last if not given.
    json_
        Print for a machine.
    """
    from arcwise.gallery import Gallery

    gallery = Gallery.open(place, None)
    found = gallery.stats(far=far)
    if json_:
        print(json.dumps(found))
        return
    print(f"{counted(found['identities'], 'identity', 'identities')}, {counted(found['templates'], 'template')} of "
          f"{found['dim']} dimensions, matching by {found['match']}; search: {found['search']}")  # fmt: skip
    if "memory_bytes" in found:
        print(f"{byte_text(found['memory_bytes'])} in memory, {byte_text(found['disk_bytes'])} on the disk")
    if found.get("recall") is not None:
        print(f"recall against exact search, on templates moved a little: {found['recall']:.1%}")
    print(f"model {found['model'][:12]}" + (", images are kept" if found["keep_images"] else ""))
    for one in gallery.card.thresholds:
        print(one.told())
    if found["false_positive"] is None:
        print(unknown_rate(gallery))
        return
    rule = gallery.rule(far, None)
    assert rule is not None
    kind = "a guess, from so few identities" if rule.few_identities else "estimated"
    others = ": --far takes another" if far is None and len(gallery.card.thresholds) > 1 else ""
    print(f"\nAt the threshold for a false accept rate of {rate_text(found['false_positive_at'])}{others}\n"
          f" enrolled   strangers taken for somebody ({kind})")  # fmt: skip
    now = {found["compared"]: "  <- now"}
    if found["compared"] > found["identities"]:
        now = {
            found["identities"]: "  <- now at least, if the templates of an identity match together",
            found["compared"]: "  <- now at most, if each template matches by itself",
        }
    for size, rate in found["false_positive"].items():
        here = now.get(int(size), "")
        beyond = "  (beyond what was calibrated)" if int(size) > found["measured_up_to"] else ""
        print(f"{int(size):9,}   {rate_text(rate):>10}{here}{beyond}")


@gallery_app.command(name="export")
def export_gallery(place: str, out: Path, /) -> None:
    """Write all templates as a file of embeddings, labelled by identity.

    Parameters
    ----------
    place
        The gallery.
    out
        The file, which is not overwritten.
    """
    from arcwise.cli.embed import refuse_other_ending
    from arcwise.gallery import Gallery
    from arcwise.records.folders import refuse_new_file

    refuse_other_ending(out)
    refuse_new_file(out)
    found = Gallery.open(place, None).embeddings()
    found.save(out)
    print(f"{out}: {counted(len(found), 'template')} of {counted(len(found.names), 'identity', 'identities')}")
    print(f"Next: arcwise evaluate {quote(str(out))}")


@gallery_app.command(name="copy")
def copy_gallery(place: str, to: str, /) -> None:
    """Copy everybody to another place, from a folder to Milvus or back: the same answers there.

    What is there already is passed over, so that the same command goes on where it was stopped.

    Parameters
    ----------
    place
        The gallery.
    to
        A new folder, milvus://HOST:19530/NAME, or a gallery of the same model.
    """
    from arcwise.gallery import Gallery

    gallery, counter = Gallery.open(place, None), Counter(lambda n: counted(n, "template"))
    total = sum(one.templates for one in gallery.list())
    count = gallery.copy_to(to, tell=lambda done, total: counter("copying", done, total))
    print(f"{to}: {counted(count, 'template')} copied"
          + (f", {total - count:,} passed over that were there already" if total > count else ""))  # fmt: skip
    if gallery.card.keep_images and not Gallery.open(to, None).card.keep_images:
        print("Images were left out: that gallery keeps none.")
    print(f"Next: arcwise gallery stats {quote(to)}")


@gallery_app.command(name="reembed")
def reembed_gallery(
    place: str, folder: Path | None = None, /, *, model: Path, device: str = "auto"
) -> None:  # fmt: skip
    """Embed everybody anew with another model, from kept images or from a folder that has them.

    Parameters
    ----------
    place
        The gallery.
    folder
        The folder that people were enrolled from, where images were not kept.
    model
        The new model.
    device
        auto, cpu, cuda or cuda:1.
    """
    from arcwise.gallery import Gallery

    encoder = opened_model(model, device)
    gallery, counter = Gallery.open(place, None), Counter(image_text)
    count = gallery.reembed(
        encoder, folder=folder, thresholds=thresholds_of(model, encoder), hint=str(model.resolve()),
        tell=lambda done, total: counter("embedding", done, total),
    )  # fmt: skip
    served = place.startswith("milvus:")
    print(
        f"{place}: {counted(count, 'template')} of model {encoder.fingerprint[:12]}; those of the old one are "
        f"{'deleted' if served else 'erased'}"
    )
    if served:
        print(NOT_PROMISED)
    print(f"Next: arcwise gallery stats {quote(place)}")


@gallery_app.command(name="calibrate")
def take_thresholds(place: str, /, *, model: Path, device: str = "auto") -> None:
    """Copy the thresholds that were calibrated for the gallery's model into it.

    Parameters
    ----------
    place
        The gallery.
    model
        The model, with thresholds.json beside it.
    device
        auto, cpu, cuda or cuda:1.
    """
    gallery = opened_gallery(place, model, device)
    found = thresholds_of(model, gallery.encoder)
    if not found:
        raise ArcwiseError(
            f"no threshold was calibrated: arcwise calibrate {quote(str(model))} --on SOURCE --far 0.001"
        )
    gallery.take_thresholds(found)
    for one in gallery.card.thresholds:
        print(one.told())
    print(f"Next: arcwise gallery stats {quote(place)}")


# ------------------------------------------------------------------------------------ what they share


def opened_model(model: Path, device: str) -> Any:
    """The encoder at a path."""
    from arcwise.encoders import load_encoder

    return load_encoder(model, device=device)


def opened_gallery(place: str, model: Path | None, device: str) -> Gallery:
    """A gallery with its model: the one that is named, or the one it was made with, where that still is."""
    from arcwise.gallery import Gallery

    if model is None:
        hint = Gallery.open(place, None).card.hint
        if not hint or not Path(hint).exists():
            raise ArcwiseError(
                f"the model of {place} is not at {hint or 'any known place'} any more: pass it with --model."
            )
        model = Path(hint)
    return Gallery.open(place, opened_model(model, device))


def thresholds_of(model: Path, encoder: Any) -> list[Any]:
    """The thresholds that were calibrated for a model."""
    from arcwise.records.thresholds import read_thresholds, thresholds_file

    known = [*getattr(encoder, "thresholds", []), *read_thresholds(thresholds_file(model))]
    return [one for one in known if one.model == encoder.fingerprint]


def people_in(images: list[str], depth: int = 1) -> dict[str, list[Path]]:
    """The images of a folder of folders, by the name of each folder; what else is in it is told."""
    from arcwise.data.folder import label_tables, set_apart
    from arcwise.embed import told_listing

    people: dict[str, list[Path]] = {}
    for one in images:
        root = Path(one.removeprefix("folder:"))
        if not root.is_dir():
            raise ArcwiseError(f"{one} is no folder: say whose image it is with --name.")
        found = told_listing(root, depth=depth)
        parts = [part for part in set_apart(root) if part is not None]
        table, above = any(map(label_tables, parts)), len(parts) - 1
        if all(Path(file).parent == Path() for file in found.files) and not table:
            raise ArcwiseError(f"{one} holds images and no folders of people: say whose they are with --name.")
        places = dict[str, str]()
        for file, label in zip(found.files, found.labels, strict=True):
            place = label if table else "/".join(Path(file).parts[above : above + depth])
            if places.setdefault(label, place) != place:
                raise ArcwiseError(f"{place!r} and {places[label]!r} in {one} are one name, {label}: rename one.")
            people.setdefault(label, []).append(root / file)
    return people


def tell_merged(people: dict[str, list[Path]], images: list[str]) -> None:
    """Tells whose images come from several of the folders that were named."""
    roots = [Path(one.removeprefix("folder:")) for one in images]
    several = [
        name for name, files in people.items()
        if len({root for root in roots for file in files if root in file.parents}) > 1
    ]  # fmt: skip
    if len(people) > 1 and several:
        note(f"one name is one identity, and these are in several of the folders: {name_list(tuple(several), 4)}.")


def image_files(images: list[str]) -> list[Path]:
    """Images by their paths, those below folders too."""
    from arcwise.data.folder import images_under

    out: list[Path] = []
    for one in images:
        path = Path(one.removeprefix("folder:"))
        if path.is_dir():
            out += list(images_under(path))
        elif path.is_file():
            out.append(path)
        else:
            raise ArcwiseError(f"there is no image {one}.")
    if not out:
        raise ArcwiseError("there are no images in what was named.")
    return out


def unknown_rate(gallery: Gallery) -> str:
    """Why it is not known how often strangers are taken for somebody."""
    if not gallery.card.thresholds:
        why = "no threshold was calibrated."
    elif gallery.card.match != "best":
        why = OF_MEANS
    else:
        why = "none of those that were calibrated on was mistaken at that threshold."
    return f"How often strangers are taken for somebody is not known: {why}"


def match_values(match: Match) -> dict[str, Any]:
    """A match for a machine."""
    values = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in match._asdict().items()}
    return {**values, "angle_degrees": math.degrees(match.angle)}


def match_text(match: Match) -> str:
    """A match for a person."""
    if match.nearest is None:
        return "unknown  (nobody is enrolled)"
    near = f"cosine {match.cosine:.4f}, angle {math.degrees(match.angle):.1f}°"
    who = match.name if match.name is not None else f"unknown  (nearest {match.nearest})"
    after = f"; then {match.runner_up}, {match.lead:.4f} behind" if match.runner_up is not None else ""
    return f"{who}  {near}{after}"


def decision_text(gallery: Gallery, far: float | None, threshold: float | None, rate: float | None) -> str:
    """What decided, and how often a stranger is taken for somebody."""
    rule = gallery.rule(far, threshold)
    if rule is None:
        return f"threshold {threshold:.4f}: yours; no error rate is known of it."
    if gallery.card.match != "best":
        return f"{rule.told()} {OF_MEANS.capitalize()}"
    if rate is None:
        return rule.told()
    if rule.few_identities:
        return f"{rule.told()} How often strangers are taken for somebody, so few identities cannot tell."
    return (
        f"{rule.told()} Of strangers up to {rate_text(rate)} may be taken for somebody who is enrolled: an estimate, "
        "as if each template were of another identity (arcwise gallery stats)."
    )
