"""Gallery: people, or anything else, enrolled by their images; who is this, is it her, and nobody is an answer too."""

from __future__ import annotations

import shlex
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from arcwise.data.images import pixel_hash
from arcwise.embed import Counting, embed, watched, work_of
from arcwise.errors import ArcwiseError, name_list, note, number_in, one_of, unknown
from arcwise.gallery.enroll import IN_ONE_COMMIT, batches_of, images_again, is_one, runs_of_names, templates_of
from arcwise.gallery.held import Held, held_of, joined_templates, match_of, named, unit_of
from arcwise.gallery.lance import LanceStore
from arcwise.gallery.milvus import MilvusStore
from arcwise.metrics.calibration import false_positive_rate
from arcwise.records import CalibratedThreshold, Embeddings, Encoder, claim_folder, refuse_no_encoder
from arcwise.records.gallery import (
    MATCHES,
    Enrolled,
    GalleryCard,
    Match,
    Templates,
    new_table_name,
    refuse_name,
    refuse_tags,
)
from arcwise.records.thresholds import latest, pick_threshold

TAKEN_OVER = (
    "Make one with: arcwise calibrate MODEL --on SOURCE, and take it over with: arcwise gallery calibrate PLACE "
    "--model MODEL"
)
SCALES = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)


class Gallery:
    """People enrolled by their images, for one model: `add`, `identify`, `verify`, `remove`, and what there is.

    >>> Gallery.open("/gone", model=None)
    Traceback (most recent call last):
    arcwise.errors.ArcwiseError: there is no gallery /gone. Make one with: arcwise gallery create /gone --model MODEL
    """

    def __init__(self, store: LanceStore | MilvusStore, model: Encoder | None):
        self.store, self.model = store, model
        self.state: Held | None = None
        self.reading = threading.Lock()

    # -------------------------------------------------------------------------------- opening

    @classmethod
    def create(
        cls,
        place: str | Path,
        model: Encoder,
        *,
        match: str = "best",
        keep_images: bool = False,
        thresholds: Iterable[CalibratedThreshold] = (),
        hint: str = "",
    ) -> Gallery:
        """A new gallery without anybody, bound to the model's fingerprint.

        An identity's cosine to an image is its `best` template's, or that of the `mean` of its templates, or of their
        mean `weighted` by length, which many margins make a sign of quality.
        """
        refuse_no_encoder(model)
        one_of("match", match, MATCHES)
        mine = tuple(latest(one for one in thresholds if one.model == model.fingerprint))
        card = GalleryCard(
            model=model.fingerprint, dim=model.dim, table=new_table_name(), match=match, keep_images=keep_images,
            thresholds=mine, hint=hint, created=now(),
        )  # fmt: skip
        return cls(new_store(place, card), model)

    @classmethod
    def open(cls, place: str | Path, model: Encoder | None) -> Gallery:
        """The gallery in a folder, or at milvus://host:19530/name; refused where it is another model's.

        Without a model nobody can be added or asked for by an image.
        """
        if model is not None:
            refuse_no_encoder(model)
        store = store_at(place)
        if not store.exists():
            again = f"arcwise gallery create {shlex.quote(str(place))} --model MODEL"
            raise ArcwiseError(f"there is no gallery {place}. Make one with: {again}")
        gallery = cls(store, model)
        card = gallery.card
        if model is not None and model.fingerprint != card.model:
            raise ArcwiseError(
                f"{place} holds embeddings of another model ({card.model[:12]}, this is {model.fingerprint[:12]}): "
                "take that one, or embed everybody anew with: arcwise gallery reembed"
            )
        return gallery

    @property
    def card(self) -> GalleryCard:
        """What the gallery says of itself."""
        return self.store.card

    # -------------------------------------------------------------------------------- enrolling

    def add(self, name: str, images: Any, *, tags: Iterable[str] = ()) -> int:
        """How many templates were added to an identity: one for each image that it had not before; all or none."""
        work = work_of(self.encoder, images)
        return sum(self.add_many({refuse_name(name): work}, tags=tags).values())

    def add_many(
        self,
        people: dict[str, Any],
        *,
        tags: Iterable[str] = (),
        broken: dict[str, str] | None = None,
        tell: Counting | None = None,
        confirm: Any = None,
    ) -> dict[str, int]:
        """The same for many identities, by name: each is there whole or not at all.

        `confirm` is called with the names and counts that are safe on the disk by now. With a dictionary as `broken`
        images that cannot be read are left out.
        """
        tags, done, total = refuse_tags(tags), 0, 0
        works = {refuse_name(name): work_of(self.encoder, images) for name, images in people.items()}
        if len(works) < len(people):
            twice = next(name for name in works if sum(refuse_name(other) == name for other in people) > 1)
            alike = [other for other in people if refuse_name(other) == twice]
            raise ArcwiseError(
                f"{alike[0]!r} and {alike[1]!r} are one name, {twice}: rename one, or add them one by one."
            )
        total, added, twins = sum(map(len, works.values())), {}, []
        for names in batches_of(works):
            keep = self.card.keep_images
            parts = [
                templates_of(self.encoder, name, works[name], tags=tags, keep=keep, broken=broken) for name in names
            ]
            with self.store.holding():
                self.refuse_other_models(self.encoder.fingerprint, self.card.model)
                counts, shared = self.append([part for part in parts if part is not None])
            added |= counts
            twins += shared
            done += sum(len(works[name]) for name in names)
            if confirm is not None and counts:
                confirm(counts)
            if tell is not None:
                tell(done, total)
        if twins:
            note(
                f"{len(twins):,} of these images are enrolled under another name as well, pixel for pixel "
                f"({name_list(tuple(twins), 3)}): who is on them cannot be told. Enrol each under one name."
            )
        return added

    def append(self, parts: Sequence[Templates]) -> tuple[dict[str, int], list[str]]:
        """Commits the templates of some identities, but for images that these have already; the store is held.

        Returns how many were added to each, and which bear another name as well, of those that are known here.
        """
        there = self.known_templates(parts)
        first = int(there.at.max(initial=-1)) + 1
        asked = {part.name[0] for part in parts}
        rows = [row for row, name in enumerate(there.name) if name in asked]
        known = {(there.name[row], int(there.digest[row])) for row in rows}
        ids = {there.name[row]: there.identity[row] for row in rows}
        counts, kept, tagged = {}, [], {}
        for part in parts:
            name = part.name[0]
            fresh, seen = [], set()
            for row, digest in enumerate(part.digest.tolist()):
                if (name, digest) not in known and digest not in seen:
                    seen.add(digest)
                    fresh.append(row)
            counts[name] = counts.get(name, 0) + len(fresh)
            if not fresh and part.tags and name in ids:
                tagged[name] = part.tags[0]
            identity = ids.setdefault(name, uuid.uuid4().hex[:12])
            kept.append(replace(part.take(np.array(fresh, np.int64)), identity=(identity,) * len(fresh)))
        some = joined_templates(kept, self.card.dim)
        if len(some):
            self.store.append(replace(some, at=np.arange(first, first + len(some))))
        self.tag(tagged)
        return counts, named_otherwise(there, parts)

    def tag(self, more: dict[str, tuple[str, ...]]) -> None:
        """Gives tags to identities that no template was added to; the store is held."""
        there = {one.name: set(one.tags) for one in self.list()} if any(more.values()) else {}
        more = {name: tags for name, tags in more.items() if set(tags) - there.get(name, set())}
        if not more:
            return
        if isinstance(self.store, MilvusStore):
            self.store.tag(more)
            return
        card = self.store.card
        _, every = self.store.read(images=card.keep_images)
        tags = tuple(
            tuple(dict.fromkeys((*mine, *more.get(name, ()))))
            for name, mine in zip(every.name, every.tags, strict=True)
        )
        self.store.rewrite(replace(every, tags=tags), card)
        self.forget()

    def known_templates(self, parts: Sequence[Templates]) -> Templates:
        """The templates that are there, of the names and the images of these at least."""
        if isinstance(self.store, MilvusStore):
            digests = [digest for part in parts for digest in part.digest.tolist()]
            return self.store.of([part.name[0] for part in parts], digests)
        return self.held().templates

    # -------------------------------------------------------------------------------- asking

    def identify(
        self, images: Any, *, tags: Iterable[str] = (), far: float | None = None, threshold: float | None = None
    ) -> Any:  # fmt: skip
        """Who an image shows, or unknown: a Match; of several images a list of them.

        The threshold is the one calibrated for `far`, the one calibrated last, or the cosine `threshold`. With `tags`
        only identities that bear one of them may match.
        """
        work = work_of(self.encoder, images)
        found = embed(self.encoder, work)
        matches = self.identify_rows(found, tags=tags, far=far, threshold=threshold)
        return matches[0] if is_one(images) else matches

    def identify_rows(
        self, found: Embeddings, *, tags: Iterable[str] = (), far: float | None = None, threshold: float | None = None
    ) -> list[Match]:
        """The same for embeddings of this gallery's model."""
        card = self.card
        self.refuse_other_models(found.model, card.model)
        rule = self.rule(far, threshold)
        limit = threshold if rule is None else rule.cosine
        if limit is None:
            raise ArcwiseError(
                f"without a threshold nobody can be called unknown. {TAKEN_OVER}, or name a cosine with threshold= "
                "(--threshold)."
            )
        queries = unit_of(found.x)
        if not len(queries):
            return []
        if isinstance(self.store, MilvusStore):
            best, size = self.store.best(queries, refuse_tags(tags), card), self.store.count
            return [match_of(mine, limit, self.false_positive(rule, size)) for mine in best]
        held = self.held()
        self.refuse_other_models(found.model, held.version.model)  # it may have been embedded anew a moment ago
        allowed, size = self.allowed(held, refuse_tags(tags)), len(held.search)
        if allowed is not None:
            size = int(allowed.sum())
        best = held.search.best_of_many(queries, allowed=allowed)
        told = [[named(held, one) for one in mine] for mine in best]
        return [match_of(mine, limit, self.false_positive(rule, size)) for mine in told]

    def verify(self, image: Any, name: str, *, far: float | None = None, threshold: float | None = None) -> Match:
        """Whether an image shows somebody who is enrolled: a Match with her name, or None in its place."""
        name, rule = refuse_name(name), self.rule(far, threshold)
        limit = threshold if rule is None else rule.cosine
        if limit is None:
            raise ArcwiseError(
                f"without a threshold nothing is decided. {TAKEN_OVER}, or name a cosine with threshold= (--threshold)."
            )
        found = embed(self.encoder, work_of(self.encoder, image))
        if len(found) != 1:
            raise ArcwiseError(f"one image is verified at a time, got {len(found)}.")
        (query,) = unit_of(found.x)
        if isinstance(self.store, MilvusStore):
            card = self.card
            self.refuse_other_models(found.model, card.model)
            score, key = self.store.against(query, name, card)
        else:
            held = self.held()
            self.refuse_other_models(found.model, held.version.model)
            mine = held.owner == self.place_of(held, name)
            (best,) = held.search.best(query, allowed=mine, wanted=1)
            score, key = best.score, held.templates.key[held.rows[best.row]]
        rate = None if rule is None or self.card.match != "best" else rule.far_found
        return Match(name if score >= limit else None, name, score, limit, None, float("nan"), key, rate)

    def rule(self, far: float | None, threshold: float | None) -> CalibratedThreshold | None:
        """The calibrated threshold that decides; none where a cosine was named, or nothing was calibrated."""
        if threshold is not None:
            if far is not None:
                raise ArcwiseError("far picks a calibrated threshold, and threshold names one: give one of them.")
            number_in("threshold", threshold, -1.0, 1.0, why="It is a cosine.")
            return None
        try:
            found = pick_threshold(self.card.thresholds, self.card.model, far=far)
        except ArcwiseError as error:
            raise ArcwiseError(f"in the gallery {str(error).partition('. ')[0]}. {TAKEN_OVER}") from None
        if found is None and far is not None:
            raise ArcwiseError(f"no threshold was calibrated for this gallery's model. {TAKEN_OVER}")
        return found

    def false_positive(self, rule: CalibratedThreshold | None, enrolled: int) -> float | None:
        """How often a stranger is taken for one of so many, as far as calibration tells: where it saw no such mistake
        nothing is known, nor of means, which are nearer to strangers than the images that it compared."""
        if rule is None or rule.far_found <= 0.0 or self.card.match != "best":
            return None
        return false_positive_rate(rule.far_found, rule.evenness, enrolled)

    # -------------------------------------------------------------------------------- forgetting, moving

    def remove(self, name: str) -> int:
        """How many templates of an identity were erased: from then on nothing of them is in the gallery's files."""
        name = refuse_name(name)
        if isinstance(self.store, MilvusStore):
            return self.store.remove(name)
        with self.store.holding():
            card = self.store.card
            _, every = self.store.read(images=card.keep_images)
            gone = np.array([one == name for one in every.name], bool)
            if not gone.any():
                raise self.nobody(name, tuple(dict.fromkeys(every.name)))
            self.store.rewrite(every.take(np.flatnonzero(~gone)), card)
        self.forget()
        return int(gone.sum())

    def reembed(
        self, model: Encoder, *, folder: str | Path | None = None, thresholds: Iterable[CalibratedThreshold] = (),
        hint: str = "", tell: Counting | None = None,
    ) -> int:  # fmt: skip
        """How many templates were embedded anew with another model, from kept images or from files below a folder.

        The old templates are erased; who is enrolled, tags and order stay. All or nothing.
        """
        with self.store.holding():
            card = self.card
            every = self.every(images=card.keep_images)
            images = images_again(every, folder)
            digests: dict[int, int] = {}

            def see(rows: np.ndarray, pixels: np.ndarray) -> None:
                digests.update((row, pixel_hash(image)) for row, image in zip(rows.tolist(), pixels, strict=True))

            found = embed(model, watched(work_of(model, images), see), tell=tell)
            length = np.linalg.norm(found.x.astype(np.float64), axis=1)
            if not (length > 0).all():
                row = int((length > 0).argmin())
                raise ArcwiseError(
                    f"an image of {every.name[row]} ({every.key[row]}) has an embedding of length 0 with this model, "
                    "which points nowhere: nothing was changed. Take another model, or remove whom it shows."
                )
            unit = (found.x / length[:, None]).astype(np.float32)
            fresh = replace(
                every, x=unit.reshape(len(every), model.dim), length=length.astype(np.float32),
                digest=np.array([digests[row] for row in range(len(every))], np.uint64),
            )  # fmt: skip
            mine = tuple(latest(one for one in thresholds if one.model == model.fingerprint))
            told = replace(card, model=model.fingerprint, dim=model.dim, thresholds=mine, hint=hint)
            self.store.rewrite(fresh, told)
        self.model = model
        self.forget()
        return len(fresh)

    def copy_to(self, place: str | Path, *, tell: Counting | None = None) -> int:
        """How many templates another gallery was given, which is made where there is none: the same answers elsewhere.

        Names, tags, thresholds and the order of enrolment go along, images as far as they are kept there. What it has
        already is passed over, so that a copy that was stopped goes on.
        """
        card, other = self.card, Gallery(store_at(place), None)
        if other.store.place == self.store.place:
            raise ArcwiseError(f"{place} is this gallery: name another place.")
        if not other.store.exists():
            served = isinstance(other.store, MilvusStore)
            if served and card.match != "best":
                raise ArcwiseError(
                    f"this gallery matches by {card.match}, one in Milvus by the best template, and would answer "
                    f"otherwise: if that is fine, make it with arcwise gallery create {place} --model MODEL, then copy."
                )
            kept = card.keep_images and not served
            other.store = new_store(place, replace(card, table=new_table_name(), keep_images=kept, created=now()))
        self.refuse_other_models(card.model, other.card.model)
        every, done = self.every(images=other.card.keep_images), 0
        self.refuse_other_models(card.model, self.card.model)  # either may be embedded anew meanwhile
        for first in range(0, len(every), IN_ONE_COMMIT):
            some = every.take(np.arange(first, min(first + IN_ONE_COMMIT, len(every))))
            with other.store.holding():
                self.refuse_other_models(card.model, other.card.model)
                done += sum(other.append(runs_of_names(some))[0].values())
            if tell is not None:
                tell(first + len(some), len(every))
        other.take_thresholds(card.thresholds)
        return done

    def every(self, *, images: bool = False) -> Templates:
        """All templates, in the order of enrolment; with the images that are kept."""
        if isinstance(self.store, MilvusStore):
            return self.store.read()
        return self.store.read(images=True)[1] if images and self.card.keep_images else self.held().templates

    def take_thresholds(self, some: Iterable[CalibratedThreshold]) -> int:
        """How many thresholds of its model the gallery now bears."""
        with self.store.holding():
            card = self.store.card
            for one in some:
                card = card.with_threshold(one) if one.model == card.model else card
            self.store.change(card)
        return len(card.thresholds)

    # -------------------------------------------------------------------------------- what there is

    def list(self) -> list[Enrolled]:
        """Everybody who is enrolled, with the number of templates and the tags."""
        if isinstance(self.store, MilvusStore):
            return self.store.list()
        held = self.held()
        owners = [held.ids[identity] for identity in held.templates.identity]
        counts = np.bincount(owners, minlength=len(held.names))
        return [Enrolled(name, int(counts[at]), tuple(sorted(held.tags[at]))) for at, name in enumerate(held.names)]

    def embeddings(self) -> Embeddings:
        """All templates as embeddings: directions times lengths, labelled by identity."""
        every = self.every()
        names = tuple(dict.fromkeys(every.name))
        place = {name: at for at, name in enumerate(names)}
        y = np.array([place[name] for name in every.name], np.int64)
        x = every.x * every.length[:, None]
        return Embeddings(x.astype(np.float32), y, names, every.key, self.card.model, {"source": "gallery"})

    def stats(self, *, far: float | None = None) -> dict[str, Any]:
        """How large it is, what it takes, and how often strangers would be taken for somebody, now and as it grows.

        At the threshold calibrated for `far`, or the one calibrated last.
        """
        rule = self.rule(far, None)
        card = self.card
        if isinstance(self.store, MilvusStore):
            told = self.store.stats()
            enrolled = told["templates"]
        else:
            held = self.held()
            enrolled = len(held.search)
            told = {
                "identities": len(held.names), "templates": len(held.templates), "compared": enrolled,
                "memory_bytes": held.search.nbytes, "disk_bytes": self.store.size,
                "search": "exact, by bytes first" if held.search.small is not None else "exact",
            }  # fmt: skip
        told |= {"match": card.match, "model": card.model, "dim": card.dim, "keep_images": card.keep_images}
        told["thresholds"] = [one.as_values() for one in card.thresholds]
        told["false_positive"] = (
            None
            if self.false_positive(rule, 1) is None
            else {
                str(n): self.false_positive(rule, n)
                for n in sorted({*SCALES, max(1, enrolled), max(1, told["identities"])})
            }
        )
        told["false_positive_at"] = None if rule is None else rule.far
        told["measured_up_to"] = None if rule is None else rule.identities - 1
        return told

    # -------------------------------------------------------------------------------- in memory

    @property
    def encoder(self) -> Encoder:
        """The model, or what to do where there is none."""
        if self.model is None:
            raise ArcwiseError("images need the gallery's model: pass it, as in Gallery.open(place, model) or --model.")
        return self.model

    def held(self) -> Held:
        """The latest committed state, in memory; only what is new is read where nobody was removed."""
        assert isinstance(self.store, LanceStore)
        with self.reading:
            before = self.state
            if before is None or self.store.version != before.version:
                first = 0 if before is None else int(before.templates.at.max(initial=-1)) + 1
                version, fresh = self.store.read(since=None if before is None else before.version, first=first)
                grown = before is not None and version.table == before.version.table
                every = (
                    joined_templates([before.templates, fresh], fresh.x.shape[1])
                    if before is not None and grown
                    else fresh
                )
                self.state = held_of(version, every, self.card.match)
            assert self.state is not None
            return self.state

    @staticmethod
    def refuse_other_models(mine: str, held: str) -> None:
        """Raises where embeddings are of another model than the gallery's."""
        if mine != held:
            raise ArcwiseError(
                f"these embeddings are of another model ({mine[:12]}) than the gallery's ({held[:12]}): open it with "
                "that one."
            )

    def forget(self) -> None:
        """Lets go of what is in memory."""
        with self.reading:
            self.state = None

    @staticmethod
    def allowed(held: Held, tags: tuple[str, ...]) -> Bool[np.ndarray, " n"] | None:
        """Which rows of the index may match; all of them without tags."""
        if not tags:
            return None
        there = frozenset[str]().union(*held.tags)
        for tag in tags:
            if tag not in there:
                raise unknown("tag", tag, there or ("none",))
        fine = np.array([bool(mine & frozenset(tags)) for mine in held.tags], bool)
        return fine[held.owner]

    def place_of(self, held: Held, name: str) -> int:
        """Which identity bears a name."""
        if name not in held.names:
            raise self.nobody(name, held.names)
        return held.names.index(name)

    @staticmethod
    def nobody(name: str, there: Sequence[str]) -> ArcwiseError:
        """The error for a name that nobody bears."""
        few = f" There are {name_list(tuple(there), 8)}." if there else " Nobody is enrolled."
        return ArcwiseError(f"nobody called {name!r} is enrolled.{few}")


def new_store(place: str | Path, card: GalleryCard) -> LanceStore | MilvusStore:
    """What keeps the templates of a new gallery at a place."""
    store = store_at(place)
    if isinstance(store, LanceStore):
        store.forget_unfinished()
        claim_folder(store.folder, "gallery")
    if store.exists():
        raise ArcwiseError(f"{place} is a gallery already: arcwise gallery add {place} FOLDER")
    store.create(card)
    return store


def now() -> str:
    """The time, as it is written down."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def store_at(place: str | Path) -> LanceStore | MilvusStore:
    """What keeps the templates at a place: a folder, or a collection of Milvus."""
    return MilvusStore(str(place)) if str(place).startswith("milvus:") else LanceStore(Path(place))


def named_otherwise(there: Templates, parts: Sequence[Templates]) -> list[str]:
    """Images that are to have one name and have another: "a.png: Ann and Bob"."""
    owners = defaultdict[int, dict[str, None]](dict)
    asked = np.concatenate([np.empty(0, there.digest.dtype), *(part.digest for part in parts)])
    for row in np.flatnonzero(np.isin(there.digest, asked)):
        owners[int(there.digest[row])][there.name[row]] = None
    for part in parts:
        for digest in part.digest.tolist():
            owners[digest][part.name[0]] = None
    return [
        f"{key}: {' and '.join(owners[digest])}"
        for part in parts
        for key, digest in zip(part.key, part.digest.tolist(), strict=True)
        if len(owners[digest]) > 1
    ]
