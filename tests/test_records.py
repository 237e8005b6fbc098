"""Records: Embeddings and Runs come back as they were written; half-written and foreign ones are refused."""

import json
import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest

from arcwise.config import Config
from arcwise.errors import ArcwiseError, Busy
from arcwise.headspec import HeadSpec
from arcwise.records import FORMAT, Embeddings, Prototypes, Run, read_tensors, write, write_tensors, writing
from arcwise.records.lock import locked
from arcwise.records.thresholds import CalibratedThreshold, keep_threshold, read_thresholds


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = write(tmp_path / "deep" / "a.txt", "first")
    assert write(path, b"second").read_text() == "second"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(ArcwiseError, match=r"cannot write .*Choose another folder"):
        write(tmp_path / "file" / "a.txt", "x")


def test_a_full_disk_is_named_and_the_old_file_stays(tmp_path, monkeypatch):
    path = write(tmp_path / "a.txt", "old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArcwiseError, match="the disk is full"):
        write(path, "new")
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def embeddings(**options):
    x = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    return Embeddings(x=x, y=np.arange(6) % 2, names=("a", "ß"), **options)


@pytest.mark.parametrize("half", [False, True])
def test_embeddings_come_back_as_they_were(tmp_path, half):
    one = embeddings(keys=tuple("abcdeß"), model="f" * 64, about={"epoch": 3})
    two = Embeddings.load(one.save(tmp_path / "e.safetensors", half=half))
    assert np.array_equal(one.x.astype(np.float16) if half else one.x, two.x)
    assert np.array_equal(one.y, two.y) and one.names == two.names and two.about == {"epoch": 3}
    assert (two.keys, two.model) == (one.keys, one.model)


def test_embeddings_need_neither_labels_nor_keys(tmp_path):
    two = Embeddings.load(Embeddings(np.eye(3, dtype=np.float32)).save(tmp_path / "e.safetensors"))
    assert two.y is None and two.keys is None and two.names == () and two.dim == 3
    with pytest.raises(ArcwiseError, match="have no labels"):
        _ = two.labels
    assert Embeddings(np.eye(2), np.array([0, 2])).names == ("0", "1", "2")
    with pytest.raises(ArcwiseError, match="as many keys"):
        Embeddings(np.eye(2), keys=("a",))


def test_keys_with_any_letters_and_none_come_back(tmp_path):
    keys = ("", "a b/ü.png", "\udcff.jpg", "#3")  # a file name that is no UTF-8 has surrogates
    path = Embeddings(np.zeros((4, 2), np.float32), keys=keys).save(tmp_path / "e.safetensors")
    assert Embeddings.load(path).keys == keys
    assert Embeddings.load(Embeddings(np.zeros((0, 2), np.float32), keys=()).save(path)).keys == ()


def test_some_rows_keep_their_labels_and_keys():
    some = embeddings(keys=tuple("abcdef")).take(np.array([4, 1]))
    assert some.keys == ("e", "b") and some.y.tolist() == [0, 1]


def test_equal_content_gives_equal_bytes_in_whatever_order_it_comes(tmp_path):
    arrays = {"b": np.arange(3), "a": np.eye(2, dtype=np.float32), "c": np.zeros((0, 3), np.uint8)}
    meta = {"z": "1", "y": "ü"}
    one = write_tensors(tmp_path / "1", arrays, meta).read_bytes()
    two = write_tensors(tmp_path / "2", dict(reversed(arrays.items())), dict(reversed(meta.items()))).read_bytes()
    assert one == two
    back, told = read_tensors(tmp_path / "1")
    assert all(np.array_equal(back[name], value) for name, value in arrays.items()) and told == meta
    assert all(back[name].dtype == value.dtype for name, value in arrays.items())


def test_a_large_file_is_written_piece_by_piece(tmp_path):
    """Eight tensors of 40 MB that are made when they are written: never more than a few of them are there at once."""
    import tracemalloc

    from arcwise.records.files import Entry, array_entry

    def entry(number):
        def pieces():
            yield from array_entry(np.full(10_000_000, number, np.float32)).pieces()

        return Entry("F32", (10_000_000,), 40_000_000, pieces)

    tracemalloc.start()
    write_tensors(tmp_path / "large", {str(i): entry(i) for i in range(8)}, {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6 and (tmp_path / "large").stat().st_size > 320e6


def test_a_block_that_raises_leaves_the_old_file(tmp_path):
    path = write(tmp_path / "a.txt", "old")
    with pytest.raises(ZeroDivisionError), writing(path) as file:
        file.write(b"half" * (1 // 0))
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_prototypes_come_back_with_their_head(tmp_path):
    spec = HeadSpec(name="arcface", title="ArcFace", s=16.0, m=0.5)
    one = Prototypes(np.ones((2, 3, 4), np.float32), np.zeros(2, np.float32), spec, ("a", "b"), "f" * 64)
    two = Prototypes.load(one.save(tmp_path / "p.safetensors"))
    assert two.head == spec and two.names == one.names and two.model == one.model
    assert np.array_equal(two.w, one.w) and np.array_equal(two.bias, one.bias) and two.dim == 4
    with pytest.raises(ArcwiseError, match="holds no prototypes"):
        Prototypes.load(Embeddings(np.eye(2)).save(tmp_path / "e.safetensors"))


def test_wrong_embeddings_are_refused(tmp_path):
    with pytest.raises(ArcwiseError, match=r"must lie in \[0, 2\)"):
        embeddings().__class__(x=np.zeros((1, 2), np.float32), y=np.array([2]), names=("a", "b"))
    with pytest.raises(ArcwiseError, match="there is no file"):
        Embeddings.load(tmp_path / "none.safetensors")
    (tmp_path / "e.safetensors").write_bytes(b"half")
    with pytest.raises(ArcwiseError, match="cannot be read as embeddings"):
        Embeddings.load(tmp_path / "e.safetensors")


def test_a_run_is_created_once_and_opened_often(tmp_path):
    run = Run.create(tmp_path / "run", {"seed": 3}, versions={"torch": "x"})
    assert Run.open(tmp_path / "run").settings == Config(seed=3) and not run.finished and run.metrics == {}
    with pytest.raises(ArcwiseError, match="--resume"):
        Run.create(tmp_path / "run", {})
    with pytest.raises(ArcwiseError, match="is not finished"):
        _ = run.result
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.docx").write_text("")
    with pytest.raises(ArcwiseError, match="holds other files"):
        Run.create(tmp_path / "other", {})


def test_a_run_of_another_format_is_refused(tmp_path):
    run = Run.create(tmp_path, {})
    write(run.path / "config.json", json.dumps({"format": FORMAT + 1, "config": {}}))
    with pytest.raises(ArcwiseError, match=f"format {FORMAT + 1}; this version of arcwise reads format {FORMAT}"):
        Run.open(tmp_path)
    write(run.path / "config.json", "{half")
    with pytest.raises(ArcwiseError, match="cannot be read"):
        Run.open(tmp_path)


def test_a_torn_line_of_the_journal_is_left_out(tmp_path):
    run = Run.create(tmp_path, {})
    (tmp_path / "journal.jsonl").write_text('{"kind": "steps", "step": 1}\n{"kind": "eval", "step": 1}\n{"kind": "st')
    assert [entry["step"] for entry in run.journal()] == [1, 1]
    assert len(run.journal("steps")) == 1


def hold(path, held):
    with Run(path).locked():
        held.set()
        time.sleep(60)


def test_a_lock_keeps_a_second_process_out_and_dies_with_its_process(tmp_path):
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    child = context.Process(target=hold, args=(tmp_path, held), daemon=True)
    child.start()
    assert held.wait(60)
    with pytest.raises(Busy, match="another process"), Run(tmp_path).locked():
        pass
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    with Run(tmp_path).locked():
        pass


def count_up(folder, times):
    for _ in range(times):
        with locked(folder, wait=True, name=".count.lock"):
            place = folder / "count"
            place.write_text(str(int(place.read_text()) + 1))


def test_a_lock_of_one_thing_holds_against_all_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "count").write_text("0")
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=count_up, args=(tmp_path, 60)) for _ in range(3)]
    for other in others:
        other.start()
    count_up(tmp_path, 60)
    for other in others:
        other.join()
    assert (tmp_path / "count").read_text() == "240"
    assert [path.name for path in tmp_path.iterdir()] == ["count"]


def test_arrays_of_the_other_byte_order_come_back_as_numbers(tmp_path):
    path = Embeddings(np.eye(3, dtype=">f4"), np.arange(3).astype(">i8")).save(tmp_path / "e.safetensors")
    assert np.array_equal(Embeddings.load(path).x, np.eye(3)) and Embeddings.load(path).y.tolist() == [0, 1, 2]


def test_prototypes_of_nobody_come_back(tmp_path):
    assert Prototypes.load(Prototypes(np.eye(2)).save(tmp_path / "p")).head.name == ""


def test_threads_that_write_one_file_do_not_meet(tmp_path):
    import threading

    failed = []

    def work(number):
        try:
            for _ in range(20):
                write(tmp_path / "a.txt", f"{number}" * 1000)
        except ArcwiseError as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and len(set((tmp_path / "a.txt").read_text())) == 1 and len(list(tmp_path.iterdir())) == 1


def test_thresholds_that_are_kept_at_once_are_all_kept(tmp_path, monkeypatch):
    from arcwise.records import thresholds
    from gallery.kit import threshold

    read = thresholds.read_thresholds

    def slow(path):
        found = read(path)
        time.sleep(0.05)
        return found

    monkeypatch.setattr(thresholds, "read_thresholds", slow)
    path = tmp_path / "thresholds.json"
    kept = [
        threading.Thread(target=thresholds.keep_threshold, args=(path, threshold(far=far))) for far in (0.1, 0.2, 0.3)
    ]
    [one.start() for one in kept]
    [one.join() for one in kept]
    assert sorted(one.far for one in read(path)) == [0.1, 0.2, 0.3]


def test_a_threshold_that_was_changed_by_hand_is_refused(tmp_path):
    found = CalibratedThreshold(
        far=0.01, cosine=0.5, far_found=0.01, far_low=0.001, far_high=0.1, tar=0.9, tar_low=0.8, tar_high=0.95,
        identities=50, images=100, impostor_pairs=1000, genuine_pairs=50, evenness=10.0, source="s",
        date="d", model="m",
    )  # fmt: skip
    path = keep_threshold(tmp_path / "thresholds.json", found)
    assert read_thresholds(path) == [found]
    path.write_text(path.read_text().replace('"cosine": 0.5', '"cosine": -0.95'))
    with pytest.raises(ArcwiseError, match=r"angle_degrees 60\.0, which is another: it was changed by hand"):
        read_thresholds(path)
