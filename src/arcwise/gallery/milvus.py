"""Templates in Milvus, for galleries that one machine does not hold: approximate search, answers scored again exactly.

Milvus deletes in its own time, and keeps logs and snapshots of its own: what `remove` promises of a folder cannot be
promised here. Two writers at once are not kept apart.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float32

from arcwise.errors import ArcwiseError, unknown
from arcwise.records.gallery import CARD, Enrolled, GalleryCard, NamedScore, Templates, new_table_name
from arcwise.schema import parse_json

PLACE = re.compile(r"milvus:(?://(?:([^@/]+)@)?([^/@]+)|(.+\.db))/([A-Za-z_][A-Za-z0-9_]{0,200})")
SEARCHED = 32  # identities that are asked for, to be scored again
ROWS_A_REQUEST = 1000  # rows of one request
SAMPLED = 100  # searches that recall is measured by
COLUMNS_READ = ["at", "identity", "name", "tags", "key", "digest", "length", "origin", "x"]


class MilvusStore:
    """The templates in a collection of a server, milvus://host:19530/people, or of a local file, milvus:a.db/people.

    people_about holds the card, whose table names the collection that counts: people_templates_0123456789ab.
    """

    exact = False

    def __init__(self, place: str):
        found = PLACE.fullmatch(place)
        if found is None:
            raise ArcwiseError(
                f"{place!r} is no place in Milvus: write milvus://HOST:19530/NAME, letters and digits in NAME."
            )
        token, host, file, self.name = found.groups()
        self.place, self.about = place, f"{self.name}_about"
        self.client = client_of(f"http://{host}" if host else file, token or "")

    # -------------------------------------------------------------------------------- what it is

    def exists(self) -> bool:
        """Whether a gallery was made here."""
        with milvus_errors(self.place):
            if not self.client.has_collection(self.about):
                return False
            if "card" not in {field["name"] for field in self.client.describe_collection(self.about)["fields"]}:
                return False  # somebody else's
            self.client.load_collection(self.about)  # a server may have let go of it
        collection = self.collection
        with milvus_errors(self.place):
            self.client.load_collection(collection)
        return True

    @property
    def card(self) -> GalleryCard:
        """What the gallery says of itself, from the collection beside it."""
        with milvus_errors(self.place):
            rows = self.client.query(self.about, filter="at == 0", output_fields=["card"], limit=1)
        try:
            values = parse_json(rows[0]["card"])
            CARD(values, "")
        except (ValueError, IndexError, KeyError) as error:
            raise ArcwiseError(f"{self.place} does not say whose embeddings it holds ({error}).") from None
        return GalleryCard.from_values(values)

    def collection_of(self, card: GalleryCard) -> str:
        """The collection of the templates under a card."""
        return f"{self.name}_{card.table.replace('-', '_')}"

    @property
    def collection(self) -> str:
        """The collection of the templates as they are now."""
        return self.collection_of(self.card)

    def create(self, card: GalleryCard) -> None:
        """Two empty collections: of templates, and of what is told of them."""
        if card.match != "best" or card.keep_images:
            raise ArcwiseError("a gallery in Milvus matches by the best template and keeps no images: leave both out.")
        with milvus_errors(self.place):
            taken = self.client.has_collection(self.about)
        if taken:
            raise ArcwiseError(
                f"Milvus has a collection {self.about} already, and it is no gallery: choose another name."
            )
        self.new_templates(card)
        self.new_collection(self.about, 2, {"card": 65535})
        self.change(card)

    def new_templates(self, card: GalleryCard) -> None:
        """An empty collection of templates for a card."""
        self.new_collection(
            self.collection_of(card), card.dim, {"identity": 32, "name": 2000, "key": 4000, "digest": 20, "origin": 20},
            templates=True,
        )  # fmt: skip

    def new_collection(self, name: str, dim: int, words: dict[str, int], *, templates: bool = False) -> None:
        """An empty collection of vectors, with columns of words of at most so many bytes beside them."""
        from pymilvus import DataType

        with milvus_errors(self.place):
            schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field("at", DataType.INT64, is_primary=True)
            for field, letters in words.items():
                schema.add_field(field, DataType.VARCHAR, max_length=letters)
            schema.add_field("x", DataType.FLOAT_VECTOR, dim=dim)
            if templates:
                schema.add_field("length", DataType.FLOAT)
                schema.add_field("tags", DataType.ARRAY, element_type=DataType.VARCHAR, max_capacity=64, max_length=500)
            index = self.client.prepare_index_params()
            index.add_index("x", index_type="AUTOINDEX", metric_type="IP")
            self.client.create_collection(name, schema=schema, index_params=index)

    def change(self, card: GalleryCard) -> None:
        """The same templates under another card."""
        with milvus_errors(self.place):
            self.client.upsert(self.about, [{"at": 0, "card": json.dumps(card.as_values()), "x": [1.0, 0.0]}])
            self.client.flush(self.about)

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Nothing is held: Milvus has no locks."""
        yield

    # -------------------------------------------------------------------------------- writing

    def append(self, some: Templates) -> None:
        """All of these templates, in one request for each thousand."""
        first = time.time_ns()  # in the order of enrolment, whoever enrols
        self.insert(self.collection, replace(some, at=np.arange(first, first + len(some))))

    def insert(self, collection: str, some: Templates) -> None:
        """The same into a collection, under the numbers that they have."""
        rows = [
            {"at": int(some.at[i]), "identity": some.identity[i], "name": some.name[i], "tags": list(some.tags[i]),
             "key": some.key[i], "digest": str(some.digest[i]), "origin": str(some.origin[i]),
             "length": float(some.length[i]), "x": some.x[i].tolist()}
            for i in range(len(some))
        ]  # fmt: skip
        with milvus_errors(self.place):
            for start in range(0, len(rows), ROWS_A_REQUEST):
                self.client.insert(collection, rows[start : start + ROWS_A_REQUEST])
            self.client.flush(collection)

    def rewrite(self, some: Templates, card: GalleryCard) -> GalleryCard:
        """These templates and no others: a collection beside the old one, then the card, then the old one goes."""
        fresh = replace(card, table=new_table_name())
        self.new_templates(fresh)
        self.insert(self.collection_of(fresh), some)
        self.change(fresh)
        ours = re.compile(rf"{self.name}_templates_[0-9a-f]{{12}}")
        with milvus_errors(self.place):
            for name in self.client.list_collections():  # and what one that was killed has left
                if ours.fullmatch(name) and name != self.collection_of(fresh):
                    self.client.drop_collection(name)
        return fresh

    def tag(self, more: dict[str, tuple[str, ...]]) -> None:
        """Gives tags to the templates of some names."""
        for name, tags in more.items():
            rows = [{**row, "tags": list(dict.fromkeys((*row["tags"], *tags)))} for row in self.of_name(name)]
            collection = self.collection
            with milvus_errors(self.place):
                self.client.upsert(collection, [{key: row[key] for key in COLUMNS_READ} for row in rows])
                self.client.flush(collection)

    def remove(self, name: str) -> int:
        """How many templates of a name were deleted; Milvus erases them in its own time."""
        mine, collection = self.of_name(name), self.collection
        with milvus_errors(self.place):
            self.client.delete(collection, ids=[row["at"] for row in mine])
            self.client.flush(collection)
            with contextlib.suppress(Exception):
                self.client.compact(collection)
        return len(mine)

    # -------------------------------------------------------------------------------- reading

    @property
    def count(self) -> int:
        """How many templates there are."""
        collection = self.collection
        with milvus_errors(self.place):
            return int(self.client.query(collection, filter="", output_fields=["count(*)"])[0]["count(*)"])

    def rows(self, fields: list[str], condition: str = "", collection: str = "") -> Iterator[dict[str, Any]]:
        """Every template, some fields of it; of the collection that counts, or of one that did a moment ago."""
        collection = collection or self.collection
        with milvus_errors(self.place):
            found = self.client.query_iterator(
                collection, batch_size=ROWS_A_REQUEST, filter=condition, output_fields=fields
            )
            while True:
                some = found.next()
                if not some:
                    break
                yield from some
            found.close()

    def read(self, condition: str = "") -> Templates:
        """All templates, or those of a condition, in the order of enrolment."""
        rows = sorted(self.rows(COLUMNS_READ, condition), key=lambda row: row["at"])

        def words(name: str) -> tuple[str, ...]:
            return tuple(row[name] for row in rows)

        def numbers(name: str, kind: type) -> np.ndarray:
            return np.array([row[name] for row in rows], kind)

        return Templates(
            numbers("at", np.int64), words("identity"), words("name"), tuple(tuple(row["tags"]) for row in rows),
            words("key"), np.array([int(row["digest"]) for row in rows], np.uint64), numbers("length", np.float32),
            numbers("x", np.float32).reshape(len(rows), self.card.dim),
            np.array([int(row["origin"]) for row in rows], np.uint64),
        )  # fmt: skip

    def of(self, names: list[str], digests: list[int]) -> Templates:
        """The templates of some names, and those of some images."""
        return self.read(
            f"name in {json.dumps(names, ensure_ascii=False)} or digest in {json.dumps([str(d) for d in digests])}"
        )

    def of_name(self, name: str, collection: str = "") -> list[dict[str, Any]]:
        """The templates of one name, or the error that nobody bears it."""
        found = list(self.rows(COLUMNS_READ, f"name == {json.dumps(name, ensure_ascii=False)}", collection))
        if not found:
            raise ArcwiseError(f"nobody called {name!r} is enrolled.")
        return found

    def best(
        self, queries: Float32[np.ndarray, "b d"], tags: tuple[str, ...], card: GalleryCard
    ) -> list[list[NamedScore]]:  # fmt: skip
        """The two best identities of each query, of those that the server finds, by their exact cosines.

        `card` is the one that the queries' model was compared with: templates of another are not met.
        """
        condition = ""
        if tags:
            self.refuse_unknown(tags)
            some = f"array_contains_any(tags, {json.dumps(list(tags), ensure_ascii=False)})"
            condition = f"identity in {json.dumps(sorted({row['identity'] for row in self.rows(['identity'], some)}))}"
        with milvus_errors(self.place):
            found = self.client.search(
                self.collection_of(card), data=queries.tolist(), limit=SEARCHED, filter=condition,
                group_by_field="identity", output_fields=["name", "key", "x", "at"],
            )  # fmt: skip
        out = []
        for q, hits in zip(queries, found, strict=True):
            told = [hit["entity"] for hit in hits]
            scores = [
                float(np.vecdot(np.asarray(one["x"], np.float32).astype(np.float64), q.astype(np.float64)))
                for one in told
            ]
            order = sorted(range(len(told)), key=lambda i: (-scores[i], told[i]["at"]))
            out.append([NamedScore(told[i]["name"], scores[i], told[i]["key"]) for i in order[:2]])
        return out

    def refuse_unknown(self, tags: tuple[str, ...]) -> None:
        """Raises where nobody bears a tag."""
        collection = self.collection
        for tag in tags:
            condition = f"array_contains(tags, {json.dumps(tag, ensure_ascii=False)})"
            with milvus_errors(self.place):
                if not self.client.query(collection, filter=condition, output_fields=["at"], limit=1):
                    raise unknown("tag", tag, {tag for row in self.rows(["tags"]) for tag in row["tags"]} or {"none"})

    def against(self, query: Float32[np.ndarray, " d"], name: str, card: GalleryCard) -> tuple[float, str]:
        """The best cosine to somebody's templates under a card, and which one gives it."""
        mine = self.of_name(name, self.collection_of(card))
        x = np.array([row["x"] for row in mine], np.float32).astype(np.float64)
        scores = np.vecdot(x, query.astype(np.float64))
        best = int(scores.argmax())
        return float(scores[best]), mine[best]["key"]

    def list(self) -> list[Enrolled]:
        """Everybody, in the order of enrolment."""
        counts: dict[str, int] = {}
        tags: dict[str, set[str]] = {}
        for row in sorted(self.rows(["at", "name", "tags"]), key=lambda row: row["at"]):
            counts[row["name"]] = counts.get(row["name"], 0) + 1
            tags.setdefault(row["name"], set()).update(row["tags"])
        return [Enrolled(name, count, tuple(sorted(tags[name]))) for name, count in counts.items()]

    def stats(self) -> dict[str, Any]:
        """Sizes, and the recall of the server's search against an exact one."""
        return {
            "identities": len(self.list()), "templates": self.count, "compared": self.count,
            "search": "approximate, by the server; the best are scored again exactly", "recall": self.recall(),
        }  # fmt: skip

    def recall(self, seed: int = 0) -> float | None:
        """How often the server's best identity is the exact one, for templates that were moved a little."""
        every = self.read()
        if len(every) < 2:
            return None
        random = np.random.default_rng(seed)
        rows = random.choice(len(every), min(SAMPLED, len(every)), replace=False)
        d = every.x.shape[1]
        q = every.x[rows] + random.standard_normal((len(rows), d)).astype(np.float32) / np.float32(d**0.5)
        q = (q / np.linalg.norm(q, axis=1, keepdims=True)).astype(np.float32)
        exact = [every.name[int((every.x.astype(np.float64) @ one.astype(np.float64)).argmax())] for one in q]
        found = self.best(q, (), self.card)
        return sum(mine[0].name == name for mine, name in zip(found, exact, strict=True)) / len(rows)


def client_of(where: str, token: str) -> Any:
    """A client of a server, or of a local file."""
    try:
        from pymilvus import MilvusClient
    except ImportError:
        raise ArcwiseError('Milvus is reached by pymilvus: pip install "arcwise[milvus]"') from None
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # what goes wrong is told once, by `milvus_errors`
    with milvus_errors(where):
        return MilvusClient(where, token=token) if token else MilvusClient(where)


@contextlib.contextmanager
def milvus_errors(place: str) -> Iterator[None]:
    """Tells in words what Milvus, or the way to it, has against it."""
    try:
        yield
    except ArcwiseError:
        raise
    except Exception as error:  # its errors share no class with those of the network
        first = " ".join(str(error).split()[:30])
        raise ArcwiseError(f"Milvus at {place.split('@')[-1]} did not do it ({first}).") from None
