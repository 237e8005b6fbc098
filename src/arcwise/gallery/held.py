"""A state of a gallery in memory: who is enrolled, what is compared, and answers out of what the search finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from arcwise.errors import ArcwiseError
from arcwise.gallery.index import Found, Index
from arcwise.records.gallery import Match, NamedScore, Templates


class Held(NamedTuple):
    """A state of a gallery in memory: its templates, the identities among them, and the index of what is compared.

    `rows` says for each row of the index the first template that it stands for.
    """

    version: Any
    templates: Templates
    ids: dict[str, int]
    names: tuple[str, ...]
    tags: tuple[frozenset[str], ...]
    owner: np.ndarray
    search: Index
    rows: np.ndarray


def held_of(version: Any, every: Templates, match: str) -> Held:
    """A state in memory: for `best` every template is compared, else one row of each identity."""
    ids: dict[str, int] = {}
    owner = np.array([ids.setdefault(identity, len(ids)) for identity in every.identity], np.int64)
    first = np.unique(owner, return_index=True)[1] if len(owner) else np.zeros(0, np.int64)
    names = tuple(every.name[row] for row in first)
    tags: list[set[str]] = [set() for _ in ids]
    for at, some in zip(owner.tolist(), every.tags, strict=True):
        tags[at] |= set(some)
    if match == "best":
        index, rows = Index(every.x, owner), np.arange(len(owner))
    else:
        index, rows = Index(mean_rows(every, owner, len(ids), weighted=match == "weighted"), np.arange(len(ids))), first
    mine = owner if match == "best" else np.arange(len(ids))
    return Held(version, every, ids, names, tuple(map(frozenset, tags)), mine, index, rows)


def mean_rows(every: Templates, owner: np.ndarray, count: int, *, weighted: bool) -> Float32[np.ndarray, "c d"]:
    """One direction for each identity: the mean of its templates' directions, or of their embeddings."""
    sums = np.zeros((count, every.x.shape[1]))
    weight = every.length.astype(np.float64) if weighted else np.ones(len(every))
    np.add.at(sums, owner, every.x.astype(np.float64) * weight[:, None])
    length = np.linalg.norm(sums, axis=1, keepdims=True)
    first = np.unique(owner, return_index=True)[1] if count else np.zeros(0, np.int64)
    flat = length[:, 0] < 1e-9  # templates that point everywhere have no mean: the first stands for them
    sums[flat], length[flat] = every.x[first[flat]], 1.0
    return (sums / length).astype(np.float32)


def joined_templates(parts: Sequence[Templates], dim: int) -> Templates:
    """Several as one."""
    parts = [part for part in parts if len(part)]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        none = np.zeros(0)
        return Templates(
            none.astype(np.int64), (), (), (), (), none.astype(np.uint64), none.astype(np.float32),
            np.zeros((0, dim), np.float32), none.astype(np.uint64),
        )  # fmt: skip

    def words(name: str) -> tuple[Any, ...]:
        return tuple(one for part in parts for one in getattr(part, name))

    def numbers(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    return Templates(
        numbers("at"), words("identity"), words("name"), words("tags"), words("key"), numbers("digest"),
        numbers("length"), numbers("x"), numbers("origin"), words("images"),
    )  # fmt: skip


def named(held: Held, found: Found) -> NamedScore:
    """A row of the index as the identity that it stands for."""
    row = int(held.rows[found.row])
    return NamedScore(held.templates.name[row], found.score, held.templates.key[row])


def match_of(best: Sequence[NamedScore], limit: float, rate: float | None) -> Match:
    """The answer to one image, from the best and the second-best identity."""
    if not best:
        return Match(None, None, -1.0, limit, None, float("inf"), "", rate)
    first, second = best[0], best[1] if len(best) > 1 else None
    lead = first.score - second.score if second is not None else float("inf")
    first = first._replace(score=max(-1.0, min(1.0, first.score)))  # rows in float32 are of length 1 to a rounding
    name = first.name if first.score >= limit else None
    return Match(name, first.name, first.score, limit, None if second is None else second.name, lead, first.key, rate)


def unit_of(x: np.ndarray) -> Float32[np.ndarray, "n d"]:
    """Directions in float32, as they are compared."""
    length = np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    if not (length > 0).all():
        raise ArcwiseError("an embedding of length 0 points nowhere: nobody can be told by it.")
    return (x / length).astype(np.float32)
