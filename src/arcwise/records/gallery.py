"""What a gallery says of itself, what is enrolled in it, and what it answers."""

from __future__ import annotations

import math
import unicodedata
import uuid
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from arcwise.errors import ArcwiseError
from arcwise.records.files import FORMAT
from arcwise.records.thresholds import RECORD, CalibratedThreshold, latest
from arcwise.schema import expect, many, table, text, truth, whole

MATCHES = ("best", "mean", "weighted")


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryCard:
    """A gallery's own words: whose embeddings it holds, how identities match, with which thresholds.

    `table` is where the templates are now: removing somebody writes a new one and lets go of the old.
    """

    model: str
    dim: int
    table: str
    match: str = "best"
    keep_images: bool = False
    thresholds: tuple[CalibratedThreshold, ...] = ()
    hint: str = ""  # where the model was when the gallery was made
    created: str = ""

    def as_values(self) -> dict[str, Any]:
        """The card as plain values."""
        return {
            "kind": "gallery", "format": FORMAT, "model": self.model, "dim": self.dim, "table": self.table,
            "match": self.match, "keep_images": self.keep_images, "hint": self.hint, "created": self.created,
            "thresholds": [one.as_values() for one in self.thresholds],
        }  # fmt: skip

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> GalleryCard:
        """The card that `as_values` wrote."""
        kept = {key: values[key] for key in ("model", "dim", "table", "match", "keep_images", "hint", "created")}
        return cls(**kept, thresholds=tuple(CalibratedThreshold.from_values(one) for one in values["thresholds"]))

    def with_threshold(self, found: CalibratedThreshold) -> GalleryCard:
        """The same with one more threshold; of two for the same rate the one that was calibrated last stays."""
        return replace(self, thresholds=tuple(latest((*self.thresholds, found))))


def new_table_name() -> str:
    """A name for a table that says nothing."""
    return f"templates-{uuid.uuid4().hex[:12]}"


def name_of_table(value: Any, where: str) -> None:
    """A table's name: letters, digits and hyphens, so that it can be no path."""
    fits = (
        isinstance(value, str)
        and 0 < len(value) <= 80
        and all(c.isascii() and (c.isalnum() or c in "-_") for c in value)
    )
    expect(fits, where, "the name of a table", value)


def a_match(value: Any, where: str) -> None:
    """How identities match."""
    expect(value in MATCHES, where, f"one of {', '.join(MATCHES)}", value)


CARD = table({
    "kind": text, "format": whole(FORMAT, FORMAT), "model": text, "dim": whole(1, 2**16), "table": name_of_table,
    "match": a_match, "keep_images": truth, "thresholds": many(RECORD), "hint": text, "created": text,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Templates:
    """Images of people as they are enrolled: directions, lengths, whose they are, where they came from.

    `at` counts enrolments; `identity` is an id that says nothing, `name` what a person calls it; `digest` is a hash of
    the pixels as the model sees them, `origin` one of its file's bytes, by which it is found again, or 0;
    `images` are the files themselves where they are kept.
    """

    at: np.ndarray
    identity: tuple[str, ...]
    name: tuple[str, ...]
    tags: tuple[tuple[str, ...], ...]
    key: tuple[str, ...]
    digest: np.ndarray
    length: np.ndarray
    x: Float32[np.ndarray, "n d"]
    origin: np.ndarray
    images: tuple[bytes | None, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.at)

    def take(self, rows: np.ndarray) -> Templates:
        """Some of them, in this order."""

        def some(values: tuple) -> tuple:
            return tuple(values[i] for i in rows)

        return Templates(
            self.at[rows], some(self.identity), some(self.name), some(self.tags), some(self.key), self.digest[rows],
            self.length[rows], self.x[rows], self.origin[rows], some(self.images) if self.images else (),
        )  # fmt: skip


class Match(NamedTuple):
    """Who an image is taken for: a name, or None for unknown; how near, and by how much before the next identity.

    `nearest` is the best identity whether or not it reaches the threshold. `false_positive` estimates from above how
    often a stranger would be taken for somebody, as if each template were of another identity; None: not known.
    """

    name: str | None
    nearest: str | None
    cosine: float
    threshold: float
    runner_up: str | None
    lead: float
    key: str = ""
    false_positive: float | None = None

    @property
    def angle(self) -> float:
        """The angle to the best identity, in radians."""
        return math.acos(max(-1.0, min(1.0, self.cosine)))


class NamedScore(NamedTuple):
    """An identity, its exact cosine to an image, and the key of the template that gave it."""

    name: str
    score: float
    key: str


class Enrolled(NamedTuple):
    """One identity of a gallery."""

    name: str
    templates: int
    tags: tuple[str, ...]


def as_unicode(text: str) -> str:
    """Text that is Unicode: what is no letter, as some bytes of files' names, is spelt out."""
    return text.encode(errors="backslashreplace").decode()


def refuse_name(name: str) -> str:
    """A name of a person, or why it is none: in composed letters, with single spaces, so that it is spelt one way."""
    plain = unicodedata.normalize("NFC", " ".join(name.split())) if isinstance(name, str) else ""
    if not plain or len(plain) > 500 or (not plain.replace("\u200d", "").isprintable() and not has_surrogates(plain)):
        raise ArcwiseError(f"a name is text of 1 to 500 letters that can be printed, got {name!r}.")
    if plain.casefold() == "unknown":
        raise ArcwiseError("nobody can be called 'unknown': that is the answer for who is not enrolled.")
    return as_unicode(plain)


def has_surrogates(text: str) -> bool:
    """Whether a text holds what is no letter, as some bytes of files' names."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def refuse_tags(tags: Any) -> tuple[str, ...]:
    """Tags as a tuple of Unicode, each a word."""
    found = (tags,) if isinstance(tags, str) else tuple(tags)
    if any(not isinstance(tag, str) or not tag.strip() or "," in tag for tag in found):
        raise ArcwiseError(f"tags are words without commas, got {list(found)!r}.")
    return tuple(dict.fromkeys(map(as_unicode, found)))
