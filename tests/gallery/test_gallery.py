"""A gallery, whatever keeps it: who is enrolled, who is recognised, who is nobody, who is forgotten."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import arcwise
from arcwise import ArcwiseError, Gallery
from arcwise.cli import code_of
from arcwise.errors import Note
from arcwise.gallery import held
from arcwise.gallery.index import Index
from arcwise.records.gallery import GalleryCard
from gallery.kit import Tiles, photos, threshold


@pytest.fixture(params=["folder", "milvus"])
def place(request, tmp_path):
    """A place for a gallery in each store."""
    if request.param == "milvus":
        pytest.importorskip("milvus_lite")
        return f"milvus:{tmp_path / 'some.db'}/people"
    return tmp_path / "people"


@pytest.fixture
def people(place):
    """Three people, a threshold, tags for one of them."""
    made = Gallery.create(place, Tiles(), thresholds=[threshold()])
    made.add("ada", photos(1, 3), tags=("staff",))
    made.add_many({"bob": photos(2, 2), 'Žofie O\'Hara "x" \\': photos(3, 1)})
    return made


def exact_best(gallery, image):
    """The best cosine of every identity by float64 products, best first."""
    found = gallery.embeddings()
    x = found.x.astype(np.float64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    q = Tiles().encode(image[None])[0].astype(np.float64)
    cos = x @ (q / np.linalg.norm(q))
    best = {found.names[c]: cos[found.y == c].max() for c in range(len(found.names))}
    return sorted(best.items(), key=lambda at: -at[1])


def test_who_is_who(people, place):
    again = Gallery.open(place, Tiles())
    assert [tuple(one) for one in again.list()] == [
        ("ada", 3, ("staff",)), ("bob", 2, ()), ("Žofie O'Hara \"x\" \\", 1, ()),
    ]  # fmt: skip
    for person, name in ((1, "ada"), (2, "bob"), (3, 'Žofie O\'Hara "x" \\')):
        image = photos(person, 9)[-1]
        match, (best, second, *_) = again.identify(image), exact_best(again, image)
        assert match.name == match.nearest == name == best[0] and match.runner_up == second[0]
        assert match.cosine == pytest.approx(best[1], abs=1e-7) and match.threshold == 0.9
        assert match.lead == pytest.approx(best[1] - second[1], abs=1e-6) and 0 < match.false_positive < 1
        assert again.verify(image, name).name == name and match.angle == pytest.approx(np.arccos(match.cosine))
    stranger = again.identify(photos(77, 1)[0])
    assert stranger.name is None and stranger.nearest is not None and stranger.cosine < 0.9
    assert again.verify(photos(2, 1)[0], "ada").name is None
    several = again.identify(list(photos(1, 2)) + list(photos(77, 1)))
    assert [one.name for one in several] == ["ada", "ada", None]
    assert again.identify([]) == [] and len(again.identify(photos(1, 12))) == 12


def test_images_that_are_there_already_are_passed_over(people):
    assert people.add("ada", photos(1, 5)) == 2 and people.add("ada", photos(1, 5)) == 0
    with pytest.warns(Note, match="1 of these images are enrolled under another name as well.*ada and bob"):
        assert people.add("bob", photos(1, 1)) == 1  # the same image of somebody else is hers to claim
    assert [one.templates for one in people.list()] == [5, 3, 1]


def test_tags_limit_who_may_match(people):
    image = photos(2, 1)[0]
    assert people.identify(image).name == "bob"
    limited = people.identify(image, tags=["staff"])
    assert limited.name is None and limited.nearest == "ada" and limited.runner_up is None and limited.lead == np.inf
    people.add("bob", photos(2, 4), tags=("visitors",))
    assert people.identify(image, tags=["visitors", "staff"]).name == "bob"
    assert [one.tags for one in people.list()] == [("staff",), ("visitors",), ()]
    with pytest.raises(ArcwiseError, match="unknown tag 'stuff': did you mean 'staff'"):
        people.identify(image, tags=["stuff"])
    with pytest.raises(ArcwiseError, match="words without commas"):
        people.add("eve", photos(5, 1), tags=["a,b"])


def test_tags_are_of_identities_and_may_come_later(people):
    people.add("bob", photos(2, 1), tags="visitors")  # an image that she has already
    assert [one.tags for one in people.list()] == [("staff",), ("visitors",), ()]
    people.add("bob", photos(2, 5)[-1:], tags=["night"])
    assert people.identify(photos(2, 1)[0], tags=["night"]).cosine == pytest.approx(1, abs=1e-6)  # by another template
    assert people.identify(photos(2, 1)[0]).name == "bob" and [one.templates for one in people.list()] == [3, 3, 1]


def test_nobody_is_called_as_strangers_are(people):
    with pytest.raises(ArcwiseError, match="nobody can be called 'unknown'"):
        people.add(" Unknown ", photos(1, 1))


def test_a_name_is_spelt_one_way(people):
    composed, apart = "Jos\u00e9", "Jose\u0301"
    people.add(f"  {apart}\n", photos(5, 1))
    people.add(composed, photos(5, 2))
    assert [one.name for one in people.list()][-1] == composed and people.list()[-1].templates == 2
    assert people.remove(apart) == 2
    with pytest.raises(ArcwiseError, match="are one name"):
        people.add_many({composed: photos(5, 1), apart: photos(6, 1)})
    with pytest.raises(ArcwiseError, match="a name is text"):
        people.add("a\0b", photos(5, 1))


def test_an_answer_for_each_image_of_a_source(people):
    images = arcwise.Images(pixels=photos(1, 3), y=np.zeros(3, int), names=("a",))
    assert [one.name for one in people.identify(images)] == ["ada"] * 3
    assert all(one.cosine <= 1.0 for one in people.identify(photos(1, 3)))


def test_somebody_is_forgotten(people):
    assert people.remove("bob") == 2
    assert [one.name for one in people.list()] == ["ada", 'Žofie O\'Hara "x" \\']
    assert people.identify(photos(2, 1)[0]).name is None
    with pytest.raises(ArcwiseError, match="nobody called 'bob' is enrolled"):
        people.remove("bob")
    with pytest.raises(ArcwiseError, match="nobody called 'bob' is enrolled"):
        people.verify(photos(2, 1)[0], "bob")
    assert people.remove('Žofie O\'Hara "x" \\') == 1 and people.remove("ada") == 3
    assert people.list() == [] and people.identify(photos(1, 1)[0]).nearest is None
    assert people.add("bob", photos(2, 1)) == 1 and people.identify(photos(2, 1)[0]).name == "bob"


def test_what_cannot_be_done_is_said_and_changes_nothing(people, place):
    before = people.list()
    for wrong, says in (
        (lambda: Gallery.create(place, Tiles()), "is a gallery already"),
        (lambda: Gallery.open(place, Tiles("other")), "another model.*reembed"),
        (lambda: Gallery.open(place, None).identify(photos(1, 1)[0]), "need the gallery's model"),
        (lambda: people.add("", photos(1, 1)), "a name is text"),
        (lambda: people.add("x" * 501, photos(1, 1)), "a name is text"),
        (lambda: people.add("eve", []), "at least one image"),
        (lambda: people.add("eve", np.full((4, 4), np.nan)), "finite|bytes|0 to 1"),
        (lambda: people.add("eve", "nowhere.png"), "nowhere.png"),
        (lambda: people.identify(photos(1, 1)[0], far=0.5), "no threshold for FAR 0.5, only for 0.01"),
        (lambda: people.identify(photos(1, 1)[0], threshold=1.5), "threshold must be"),
        (lambda: people.identify(photos(1, 1)[0], threshold=0.5, far=0.01), "one of them"),
        (lambda: people.verify(photos(1, 2), "ada"), "one image is verified at a time"),
        (lambda: people.identify_rows(arcwise.embed(Tiles("other"), photos(1, 1))), "another model"),
    ):
        with pytest.raises(ArcwiseError, match=says):
            wrong()
    assert people.list() == before


def test_without_a_threshold_nobody_is_called_unknown(place):
    made = Gallery.create(place, Tiles(), thresholds=[threshold(model="other")])
    made.add("ada", photos(1, 2))
    assert made.card.thresholds == ()  # those of other models stay out
    with pytest.raises(ArcwiseError, match="arcwise gallery calibrate"):
        made.identify(photos(1, 1)[0])
    with pytest.raises(ArcwiseError, match="arcwise gallery calibrate"):
        made.verify(photos(1, 1)[0], "ada")
    assert made.identify(photos(1, 1)[0], threshold=0.8).name == "ada"
    assert made.identify(photos(1, 1)[0], threshold=0.8).false_positive is None
    assert made.stats()["false_positive"] is None
    made.take_thresholds([threshold(), threshold(0.95, far=0.001), threshold(model="other")])
    assert sorted(one.far for one in made.card.thresholds) == [0.001, 0.01]
    assert made.identify(photos(1, 1)[0], far=0.001).threshold == 0.95


def test_the_share_of_strangers_taken_for_somebody_grows_with_the_gallery(people):
    told = people.stats()
    assert (told["identities"], told["templates"], told["dim"], told["match"]) == (3, 6, 16, "best")
    rates = [told["false_positive"][str(n)] for n in (1, 10, 1000, 1_000_000)]
    assert rates == sorted(rates) and rates[0] == pytest.approx(0.01, rel=0.01) and rates[-1] <= 1
    assert "6" in told["false_positive"] and told["measured_up_to"] == 199
    json.dumps(told, allow_nan=False)


def test_all_templates_as_embeddings(people, tmp_path):
    found = people.embeddings()
    assert found.names == ("ada", "bob", 'Žofie O\'Hara "x" \\') and found.y.tolist() == [0, 0, 0, 1, 1, 2]
    wanted = Tiles().encode(np.concatenate([photos(1, 3), photos(2, 2), photos(3, 1)]))
    assert np.allclose(found.x, wanted, rtol=1e-6) and found.model == "tiles"
    found.save(tmp_path / "all.safetensors")


# ------------------------------------------------------------------------------------ of a folder alone


def test_a_copy_answers_the_same_and_goes_on_where_it_was_stopped(people, place, tmp_path, monkeypatch):
    monkeypatch.setattr("arcwise.gallery.people.IN_ONE_COMMIT", 2)
    people.add("ada", photos(1, 5)[-1:])  # enrolled after the others
    told: list[int] = []

    def stop(done, total):
        told.append(done)
        assert total == 7
        if len(told) == 2:
            raise KeyboardInterrupt

    elsewhere = tmp_path / "elsewhere"
    with pytest.raises(KeyboardInterrupt):
        people.copy_to(elsewhere, tell=stop)
    assert Gallery.open(place, Tiles()).copy_to(elsewhere) == 3 and told == [2, 4]
    other = Gallery.open(elsewhere, Tiles())
    assert other.list() == people.list() and other.card.thresholds == people.card.thresholds
    before, after = people.embeddings(), other.embeddings()
    assert np.array_equal(before.x, after.x) and before.keys == after.keys and before.y.tolist() == after.y.tolist()
    for image in (*photos(1, 2), *photos(2, 2), *photos(77, 2)):
        assert other.identify(image)[:-2] == people.identify(image)[:-2]
    assert people.copy_to(elsewhere) == 0
    with pytest.raises(ArcwiseError, match="is this gallery"):
        people.copy_to(place)


def test_a_copy_says_what_would_not_be_the_same(tmp_path):
    pytest.importorskip("milvus_lite")
    made = Gallery.create(tmp_path / "people", Tiles(), match="mean")
    made.add("ada", photos(1, 2))
    served = f"milvus:{tmp_path / 'some.db'}/people"
    with pytest.raises(ArcwiseError, match="matches by mean, one in Milvus by the best template"):
        made.copy_to(served)
    Gallery.create(served, Tiles())
    assert made.copy_to(served) == 2
    Gallery.create(tmp_path / "others", Tiles("turned"))
    with pytest.raises(ArcwiseError, match="of another model"):
        made.copy_to(tmp_path / "others")
    kept = Gallery.create(tmp_path / "kept", Tiles(), keep_images=True)
    kept.add("ada", photos(1, 2))
    assert kept.copy_to(tmp_path / "again") == 2
    again = Gallery.open(tmp_path / "again", None)
    assert again.card.keep_images and again.reembed(Tiles("turned")) == 2


@pytest.mark.parametrize("match", ["mean", "weighted"])
def test_an_identity_may_be_the_mean_of_its_templates(tmp_path, match):
    made = Gallery.create(tmp_path / "g", Tiles(), match=match, thresholds=[threshold()])
    images = photos(1, 4, noise=100)
    images[0] = 128 + (images[0].astype(int) - 128) // 16  # short, and so worth less
    made.add("ada", images)
    made.add("bob", photos(2, 2))
    x = Tiles().encode(images).astype(np.float64)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    mean = x.sum(0) if match == "weighted" else (x / length).sum(0)
    q = Tiles().encode(images[1:2])[0].astype(np.float64)
    wanted = mean @ q / np.linalg.norm(mean) / np.linalg.norm(q)
    found = made.identify(images[1], threshold=0.1)
    assert found.name == "ada" and found.cosine == pytest.approx(wanted, abs=1e-6)
    assert made.verify(images[1], "ada", threshold=0.1).cosine == found.cosine
    assert made.stats()["compared"] == 2
    with pytest.raises(ArcwiseError, match="unknown match 'best match'"):
        Gallery.create(tmp_path / "h", Tiles(), match="best match")


def test_templates_that_point_everywhere_still_have_a_place(tmp_path):
    made = Gallery.create(tmp_path / "g", Tiles(), match="mean")
    pixels = photos(1, 1)
    made.add("ada", np.concatenate([pixels, 255 - pixels]))  # opposite embeddings
    assert made.identify(pixels[0], threshold=0.5).name == "ada"


def forbidden(folder, words, rows):
    """Which words, and which rows of numbers, still stand in some file of a folder."""
    found = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        found += [(path.name, word) for word in words if word.encode() in content or word in str(path)]
        found += [(path.name, "numbers") for row in rows if row.tobytes()[:16] in content]
    return found


def test_what_is_removed_is_gone_from_every_byte(tmp_path):
    place = tmp_path / "people"
    made = Gallery.create(place, Tiles(), keep_images=True, thresholds=[threshold()])
    made.add("ada", photos(1, 3))
    for name in ("Berthold", "cleo"):
        made.add(name, photos(len(name), 4), tags=(f"of-{name}",))
    gone = made.embeddings()
    rows = made.held().templates.x[gone.y == gone.names.index("Berthold")]
    image = made.store.read(images=True)[1].images[3]
    words = ["Berthold", "of-Berthold"]
    assert len({what for _, what in forbidden(place, words, rows)}) == 3  # the search finds what is there
    assert any(image in path.read_bytes() for path in place.rglob("*") if path.is_file())
    made.remove("Berthold")
    assert forbidden(place, words, rows) == []
    assert not any(image in path.read_bytes() for path in place.rglob("*") if path.is_file())
    assert [one.name for one in Gallery.open(place, Tiles()).list()] == ["ada", "cleo"]
    made.add("Berthold", photos(8, 4))
    other = made.held().templates.x
    made.reembed(Tiles("turned"))
    assert forbidden(place, [], other[:1]) == []


def test_everybody_is_embedded_anew_from_kept_images_or_a_folder(tmp_path):
    from PIL import Image

    source = tmp_path / "photos"
    for person in (1, 2):
        (source / str(person)).mkdir(parents=True)
        for at, image in enumerate(photos(person, 3)):
            Image.fromarray(image[..., 0]).save(source / str(person) / f"{at}.png")
    for keep in (True, False):
        made = Gallery.create(tmp_path / f"kept-{keep}", Tiles(), keep_images=keep, thresholds=[threshold()])
        made.add_many({name: sorted((source / name).glob("*.png")) for name in ("1", "2")}, tags=("t",))
        if not keep:
            with pytest.raises(ArcwiseError, match="was not kept: name the folder"):
                made.reembed(Tiles("turned"))
            with pytest.raises(ArcwiseError, match="is not in"):
                made.reembed(Tiles("turned"), folder=tmp_path / "kept-True")
            source = source.rename(
                tmp_path / "elsewhere"
            )  # wherever the files are by now, and whatever they are called
            (source / "1").rename(source / "another name")
            assert Gallery.open(made.store.folder, Tiles()).identify(photos(1, 1)[0]).name == "1"
        count = made.reembed(Tiles("turned"), folder=source, thresholds=[threshold(0.8, "turned"), threshold()])
        assert count == 6 and [one.cosine for one in made.card.thresholds] == [0.8]
        with pytest.raises(ArcwiseError, match="another model"):
            Gallery.open(made.store.folder, Tiles())
        again = Gallery.open(made.store.folder, Tiles("turned"))
        assert again.identify(photos(2, 1)[0]).name == "2" and [one.tags for one in again.list()] == [("t",), ("t",)]
        assert np.allclose(again.embeddings().x[0], Tiles("turned").encode(photos(1, 1))[0])


def write_photos(folder, people, count):
    """Images of people as files, one folder for each; who is in which."""
    from PIL import Image

    for person in people:
        (folder / str(person)).mkdir(parents=True)
        for at, image in enumerate(photos(person, count)):
            Image.fromarray(image[..., 0]).save(folder / str(person) / f"{at}.png")
    return {str(person): sorted((folder / str(person)).glob("*.png")) for person in people}


def test_everybody_is_embedded_anew_wherever_templates_are_kept(place, tmp_path):
    files = write_photos(tmp_path / "photos", (1, 2, 3), 3)
    made, reader = Gallery.create(place, Tiles(), thresholds=[threshold()]), Gallery.open(place, Tiles())
    made.add_many(files, tags=("t",))
    assert reader.identify(photos(3, 1)[0]).name == "3"
    with pytest.raises(ArcwiseError, match="was not kept: name the folder"):
        made.reembed(Tiles("turned"))
    assert made.identify(photos(3, 1)[0]).name == "3" and len(made.embeddings()) == 9
    turned = [threshold(0.8, "turned"), threshold()]
    assert made.reembed(Tiles("turned"), folder=tmp_path / "photos", thresholds=turned) == 9
    for late in (lambda: Gallery.open(place, Tiles()), lambda: reader.identify(photos(3, 1)[0]),
                 lambda: reader.verify(photos(3, 1)[0], "3"), lambda: reader.add("4", photos(4, 1))):  # fmt: skip
        with pytest.raises(ArcwiseError, match="another model"):
            late()
    again = Gallery.open(place, Tiles("turned"))
    assert [one.cosine for one in again.card.thresholds] == [0.8]
    assert [tuple(one) for one in again.list()] == [(name, 3, ("t",)) for name in "123"]
    assert [again.identify(photos(person, 1)[0]).name for person in (1, 2, 3)] == ["1", "2", "3"]
    assert np.allclose(again.embeddings().x[0], Tiles("turned").encode(photos(1, 1))[0])
    assert again.add("1", files["1"]) == 0 and again.remove("2") == 3 and again.add("2", files["2"]) == 3


def test_embedding_anew_that_was_stopped_in_milvus_changes_nothing(tmp_path, monkeypatch):
    pytest.importorskip("milvus_lite")
    served = f"milvus:{tmp_path / 'some.db'}/people"
    made = Gallery.create(served, Tiles(), thresholds=[threshold()])
    made.add_many(write_photos(tmp_path / "photos", (1, 2), 2))

    def stop(*arguments):
        raise KeyboardInterrupt

    for at in ("change", "insert"):  # the card is not turned yet; the new collection is still empty
        with monkeypatch.context() as patched:
            patched.setattr(type(made.store), at, stop)
            with pytest.raises(KeyboardInterrupt):
                Gallery.open(served, None).reembed(Tiles("turned"), folder=tmp_path / "photos")
        again = Gallery.open(served, Tiles())
        assert again.identify(photos(2, 1)[0]).name == "2" and len(again.embeddings()) == 4
    assert again.reembed(Tiles("turned"), folder=tmp_path / "photos") == 4
    assert [one for one in made.store.client.list_collections() if one != "people_about"] == [again.store.collection]


def test_a_copy_in_milvus_and_back_can_be_embedded_anew(tmp_path):
    pytest.importorskip("milvus_lite")
    served = f"milvus:{tmp_path / 'some.db'}/people"
    made = Gallery.create(tmp_path / "people", Tiles())
    made.add_many(write_photos(tmp_path / "photos", (1, 2), 2))
    made.copy_to(served)
    Gallery.open(served, None).copy_to(tmp_path / "back")
    for place in (served, tmp_path / "back"):
        assert Gallery.open(place, None).reembed(Tiles("turned"), folder=tmp_path / "photos") == 4
    client = Gallery.open(served, None).store.client
    assert len([name for name in client.list_collections() if name.startswith("people_templates_")]) == 1


def test_nobody_is_taken_for_a_namesake_when_embedded_anew(tmp_path):
    from PIL import Image

    for at, name in enumerate(("X", "Y")):
        (tmp_path / name / "img").mkdir(parents=True)
        Image.fromarray(photos(at, 1)[0, ..., 0]).save(tmp_path / name / "img" / "1.png")
    made = Gallery.create(tmp_path / "g", Tiles(), thresholds=[threshold()])
    made.add_many({"ada": [tmp_path / "X/img/1.png"], "bob": [tmp_path / "Y/img/1.png"]})
    with pytest.raises(ArcwiseError, match=r"the image of bob .* is not in"):
        made.reembed(Tiles("turned"), folder=tmp_path / "X")
    assert made.identify(photos(1, 1)[0]).name == "bob"
    assert made.reembed(Tiles("turned"), folder=tmp_path) == 2
    assert made.identify(photos(1, 1)[0], threshold=0.9).name == "bob"


def test_the_image_that_is_kept_is_the_one_that_was_enrolled(tmp_path):
    from PIL import Image

    images = photos(1, 3)
    for i in (1, 2):
        Image.fromarray(images[i, ..., 0]).save(tmp_path / f"{i}.png")
    made = Gallery.create(tmp_path / "g", Tiles(), keep_images=True, thresholds=[threshold()])
    made.add("ada", [images[0], tmp_path / "1.png", (tmp_path / "2.png").read_bytes()])
    before = made.embeddings().x
    made.reembed(Tiles())
    assert np.array_equal(made.embeddings().x, before)
    kept = made.store.read(images=True)[1].images
    assert kept[2] == (tmp_path / "2.png").read_bytes()


def test_a_reader_sees_what_another_writer_has_committed(tmp_path):
    place = tmp_path / "people"
    writer = Gallery.create(place, Tiles(), thresholds=[threshold()])
    reader = Gallery.open(place, Tiles())
    assert reader.list() == []
    writer.add("ada", photos(1, 2))
    assert reader.identify(photos(1, 1)[0]).name == "ada"
    writer.add("ada", photos(1, 4))
    assert reader.list()[0].templates == 4
    writer.remove("ada")  # the table that the reader had open is gone
    assert reader.identify(photos(1, 1)[0]).nearest is None
    writer.add("bob", photos(2, 1))
    assert [one.name for one in reader.list()] == ["bob"]


def test_what_is_not_known_of_strangers_is_not_told(tmp_path):
    made = Gallery.create(tmp_path / "people", Tiles(), thresholds=[threshold(far_found=0.0)])
    made.add("ada", photos(1, 2))
    assert made.identify(photos(1, 1)[0]).false_positive is None and made.stats()["false_positive"] is None
    empty = Gallery.create(tmp_path / "empty", Tiles(), thresholds=[threshold()])
    assert empty.identify(photos(1, 1)[0]).false_positive == 0.0


def test_of_thresholds_for_one_rate_the_last_counts(tmp_path):
    late, early = threshold(0.8, date="2026-01-01T09:00:00-0500"), threshold(0.7, date="2026-01-01T20:00:00+0900")
    for some in ([late, early], [early, late]):
        made = Gallery.create(tmp_path / str(some[0].cosine), Tiles(), thresholds=some)
        assert [one.cosine for one in made.card.thresholds] == [0.8]
    other = threshold(0.6, far=0.001, date="2026-01-01T15:00:00+0000")
    made.take_thresholds([other])
    made.add("ada", photos(1, 1))
    assert made.identify(photos(1, 1)[0]).threshold == 0.6 and made.identify(photos(1, 1)[0], far=0.01).threshold == 0.8


def test_a_gallery_in_milvus_is_found_again_by_another_process(tmp_path):
    pytest.importorskip("milvus_lite")
    place = f"milvus:{tmp_path / 'some.db'}/people"
    code = (
        "import sys; sys.path.insert(0, sys.argv[2]); from arcwise import Gallery; from gallery.kit import *\n"
        "if sys.argv[3] == 'make': Gallery.create(sys.argv[1], Tiles(), thresholds=[threshold()])\n"
        "g = Gallery.open(sys.argv[1], Tiles()); g.add('ada', photos(1, 2))\n"
        "print(g.identify(photos(1, 1)[0]).name, [one.templates for one in g.list()])"
    )
    for what in ("make", "again"):
        command = [sys.executable, "-c", code, place, str(Path(__file__).parents[1]), what]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.stdout.strip() == "ada [2]", done.stderr


def test_threads_share_a_gallery(tmp_path):
    made = Gallery.create(tmp_path / "people", Tiles(), thresholds=[threshold()])
    names = [f"p{i}" for i in range(12)]
    threads = [threading.Thread(target=made.add, args=(name, photos(i, 2))) for i, name in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.name for one in made.list()) == sorted(names)
    found = made.embeddings()
    assert len(set(made.held().templates.at.tolist())) == 24 == len(found)
    assert [made.identify(photos(i, 3)[-1]).name for i in range(12)] == names


def test_a_large_gallery_is_searched_by_bytes_first_and_answers_the_same(tmp_path, monkeypatch):
    pytest.importorskip("numkong")
    made = Gallery.create(tmp_path / "people", Tiles(), thresholds=[threshold()])
    made.add_many({f"p{i}": photos(i, 3) for i in range(200)})
    images = np.concatenate([photos(i, 4)[-1:] for i in range(0, 200, 40)])
    wanted = [made.identify(image) for image in images]
    assert made.stats()["search"] == "exact"
    monkeypatch.setattr(held, "Index", lambda x, owner: Index(x, owner, small_from=10))
    again = Gallery.open(tmp_path / "people", Tiles())
    assert [again.identify(image) for image in images] == wanted and again.stats()["search"] == "exact, by bytes first"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("gone", "there is no gallery .*arcwise gallery create .+ --model MODEL"),
        ("cut", r"gallery\.json cannot be read: .*Put the file back"),
        (
            "other",
            r"people: its templates cannot be read .*another dimension than gallery\.json says.*Put the folder back",
        ),
        ("table", "people: its templates cannot be read .*Put the folder back"),
        ("versions", "people: its templates cannot be read .*Put the folder back"),
    ],
)
def test_a_damaged_gallery_is_a_message(tmp_path, damage, said):
    place = tmp_path / "people"
    made = Gallery.create(place, Tiles(), thresholds=[threshold()])
    made.add("ada", photos(1, 3))
    card, table = place / "gallery.json", place / f"{made.card.table}.lance"
    if damage == "gone":
        card.unlink()
    elif damage == "cut":
        card.write_text(card.read_text()[:-40])
    elif damage == "other":
        card.write_text(card.read_text().replace('"dim": 16', '"dim": 8'))
    elif damage == "table":
        for path in table.glob("data/*"):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        for path in (table / "_versions").iterdir():
            path.write_bytes(b"nothing")
    with pytest.raises(ArcwiseError, match=said):
        Gallery.open(place, Tiles()).identify(photos(1, 1)[0])


@pytest.mark.parametrize(("number", "said"), [(28, "the disk is full. Make room"), (30, "Choose another folder")])
def test_a_disk_that_takes_nothing_more_is_named_and_no_copy_asked_for(tmp_path, number, said):
    from arcwise.gallery.lance import lance_errors

    told = f"lance error: LanceError(IO): Unable to copy data to file (os error {number}), /root/.cargo/x.rs:258:9"
    with pytest.raises(ArcwiseError, match=said) as error, lance_errors(tmp_path):
        raise RuntimeError(told)
    assert "copy" not in str(error.value) and "cargo" not in str(error.value)


def test_a_creation_that_was_killed_is_begun_again_and_templates_without_a_card_are_left_alone(tmp_path):
    place = tmp_path / "people"
    Gallery.create(place, Tiles(), thresholds=[threshold()])
    (place / "gallery.json").unlink()  # which is written last
    made = Gallery.create(place, Tiles(), thresholds=[threshold()])
    assert made.list() == [] and len(list(place.glob("*.lance"))) == 1
    made.add("ada", photos(1, 3))
    (place / "gallery.json").rename(tmp_path / "card")
    with pytest.raises(ArcwiseError, match="holds other files, and a gallery needs a folder of its own"):
        Gallery.create(place, Tiles())
    (tmp_path / "card").rename(place / "gallery.json")
    assert [one.name for one in Gallery.open(place, Tiles()).list()] == ["ada"]


def test_a_torn_hint_of_the_table_loses_nothing(tmp_path):
    made = Gallery.create(tmp_path / "people", Tiles(), thresholds=[threshold()])
    made.add("ada", photos(1, 3))
    hints = list(tmp_path.rglob("*hint*"))
    for hint in hints:
        hint.write_text('{"ver')
    made = Gallery.open(tmp_path / "people", Tiles())
    assert made.add("bob", photos(2, 1)) == 1 and [one.name for one in made.list()] == ["ada", "bob"]


def test_a_card_says_what_it_was_made_of():
    card = GalleryCard(model="m", dim=3, table="t", thresholds=(threshold(model="m"),), hint="h", created="c")
    assert GalleryCard.from_values(json.loads(json.dumps(card.as_values()))) == card


@pytest.mark.parametrize("match", ["mean", "weighted"])
def test_no_rate_is_given_of_means_since_pairs_of_images_were_calibrated(tmp_path, match, capsys):
    made = Gallery.create(tmp_path / "people", Tiles(), match=match, thresholds=[threshold()])
    made.add("ada", photos(1, 3))
    image = photos(1, 4)[-1]
    assert made.identify(image).name == "ada" and made.identify(image).false_positive is None
    assert made.verify(image, "ada").false_positive is None and made.stats()["false_positive"] is None
    assert code_of(["gallery", "stats", str(tmp_path / "people")]) == 0
    told = capsys.readouterr().out
    assert "compares with means of templates" in told and "(estimated)" not in told


def test_a_copy_stops_where_its_target_is_embedded_anew_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setattr("arcwise.gallery.people.IN_ONE_COMMIT", 2)
    made = Gallery.create(tmp_path / "people", Tiles(), keep_images=True)
    made.add_many({"ada": photos(1, 2), "bob": photos(2, 2)})

    def meanwhile(done, total):
        if done == 2:
            Gallery.open(tmp_path / "other", None).reembed(Tiles("turned"))

    with pytest.raises(ArcwiseError, match="another model"):
        made.copy_to(tmp_path / "other", tell=meanwhile)
    assert [one.name for one in Gallery.open(tmp_path / "other", Tiles("turned")).list()] == ["ada"]


def test_a_copy_takes_no_newer_threshold_away(tmp_path):
    old, new = (threshold(cosine, date=f"{year}-01-01") for cosine, year in ((0.8, 2025), (0.9, 2026)))
    made = Gallery.create(tmp_path / "people", Tiles(), thresholds=[old])
    other = Gallery.create(tmp_path / "other", Tiles(), thresholds=[new])
    made.copy_to(tmp_path / "other")
    assert [one.cosine for one in other.card.thresholds] == [0.9]
    other.copy_to(tmp_path / "people")
    assert [one.cosine for one in made.card.thresholds] == [0.9]


def test_rows_that_point_nowhere_or_have_another_dimension_are_not_kept(tmp_path):
    class Dark(Tiles):
        def encode(self, pixels):
            return super().encode(pixels) * 0

    class Short(Tiles):
        def encode(self, pixels):
            return super().encode(pixels)[:, :1]

    made = Gallery.create(tmp_path / "people", Tiles(), keep_images=True)
    made.add("ada", photos(1, 2))
    with pytest.raises(ArcwiseError, match=r"ada .* length 0 with this model.*nothing was changed"):
        made.reembed(Dark("dark"))
    assert made.identify(photos(1, 1)[0], threshold=0.9).name == "ada"
    with pytest.raises(ArcwiseError, match=r"rows of shape \(2, 1\) .* its dim is 16"):
        Gallery.create(tmp_path / "short", Short("short")).add("ada", photos(1, 2))
