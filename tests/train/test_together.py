"""Training by several processes: the numbers of one, whoever begins, goes on and ends it."""

import json
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist

import arcwise
from arcwise.cli import code_of
from arcwise.config import override
from arcwise.errors import AlreadyTold, ArcwiseError
from arcwise.launcher import process_count
from arcwise.recipes import recipe
from arcwise.records import Run
from arcwise.train import pulse, train
from arcwise.train.checkpoint import checkpoints_of, read_whole
from arcwise.train.spread import sum_of
from arcwise.train.together import together
from arcwise.weights import load_tensors, save_tensors
from launch import launch
from train import shared

EPOCHS, STEPS = 4, 40


def close(one, other, tolerance=1e-9):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert np.allclose(value, other[name], rtol=tolerance, atol=tolerance), name


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As many threads as each of the others has: a run that goes on with more of them says so."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same training in one process, by margin."""
    known = {}

    def weights(margin):
        if margin not in known:
            known[margin] = shared.train_wide(tmp_path_factory.mktemp("alone") / "run", margin)
        return known[margin]

    return weights


@pytest.mark.parametrize(("count", "margin"), [(2, "arcface"), (3, "adaface"), (4, "elastic-arcface")])
def test_several_processes_train_to_the_weights_of_one(count, margin, alone, tmp_path):
    wanted = alone(margin)
    for found in launch(shared.train_wide, count, tmp_path / "run", margin):
        close(found, wanted)
    run = Run.open(tmp_path / "run")
    assert run.result["steps"] == STEPS and run.result["processes"] == count
    assert len(run.embeddings("test")) == 80 and len(run.prototypes().w) == 10
    assert run.journal("finished") and len(run.journal("evaluation")) == EPOCHS


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_a_network_whose_weights_are_spread_out_trains_to_the_same_weights(count, alone, tmp_path):
    wanted = alone("arcface")
    for found in launch(shared.train_wide, count, tmp_path / "run", "arcface", None, ("train.fsdp=true",)):
        close(found, wanted)


def test_spread_by_three_whole_at_two_and_ended_by_one(alone, tmp_path):
    out, spread = tmp_path / "run", ("train.fsdp=true",)
    assert launch(shared.train_wide, 3, out, "arcface", 13, spread) == ["interrupted"] * 3
    assert launch(shared.train_wide, 2, out, "arcface", 20) == ["interrupted"] * 2
    assert launch(shared.train_wide, 2, out, "arcface", 29, spread) == ["interrupted"] * 2
    close(shared.train_wide(out), alone("arcface"))


@pytest.mark.parametrize("optimiser", [pytest.param("adamw", marks=pytest.mark.slow), "sgd"])
def test_convolutions_and_batch_norms_are_spread_out_too(optimiser, tmp_path):
    settings = ("train.epochs=1", f"train.optimiser={optimiser}", "train.lr=0.005", "train.ema=0.9", "train.clip=1",
                "model.backbone=vgg8", "data.limit=600")  # fmt: skip
    said = launch(shared.train_plain, 2, tmp_path / "run", (*settings, "train.fsdp=true"))
    plain = launch(shared.train_plain, 2, tmp_path / "plain", settings)
    assert said[0]["model"] == said[1]["model"] and said[0]["steps"] > 3
    assert said[0]["test"]["loss"] == pytest.approx(plain[0]["test"]["loss"], rel=2e-3)


def test_a_smaller_last_batch_is_shared_out_like_the_others(tmp_path):
    settings = ("train.remainder=true", "train.batch=48")
    wanted = shared.train_wide(tmp_path / "alone", "arcface", None, settings)
    for found in launch(shared.train_wide, 3, tmp_path / "run", "arcface", None, settings):
        close(found, wanted)
    assert Run.open(tmp_path / "run").result["images"] == Run.open(tmp_path / "alone").result["images"] > 4 * 320


def test_joined_shards_are_what_they_were_apart(tmp_path, capsys):
    out = tmp_path / "run"
    launch(shared.train_wide, 3, out, "arcface", 13, ("train.fsdp=true",))
    folder = checkpoints_of(Run.open(out))[-1]
    apart = read_whole(folder).tensors
    assert code_of(["checkpoint", "merge", str(out)]) == 0
    assert not folder.exists()
    joined = read_whole(checkpoints_of(Run.open(out))[-1]).tensors
    assert joined.keys() - apart.keys() == {"random.cpu"}
    assert all(torch.equal(value, joined[name]) for name, value in apart.items())
    assert code_of(["checkpoint", "inspect", str(out)]) == 0
    assert "10 classes of 5 numbers" in capsys.readouterr().out


def test_begun_by_three_gone_on_with_by_two_and_ended_by_one(alone, tmp_path):
    out = tmp_path / "run"
    assert launch(shared.train_wide, 3, out, "arcface", 13) == ["interrupted"] * 3
    assert launch(shared.train_wide, 2, out, "arcface", 27) == ["interrupted"] * 2
    close(shared.train_wide(out), alone("arcface"))
    steps = [entry["step"] for entry in Run.open(out).journal("steps")]
    assert steps == sorted(set(steps))


@pytest.mark.slow
def test_in_float32_with_batch_norms_it_ends_within_the_spread_over_seeds(tmp_path):
    # Forty images of a batch at each of three processes: with a dozen their batch norms alone cost more than seeds do.
    settings = ("train.epochs=30", "train.checkpoint_every=0", "data.limit=900", "train.batch=120")
    seeds = [arcwise.train("digits-2d", tmp_path / f"{seed}", settings=settings, device="cpu", resume=True)
             if seed == 0 else arcwise.train(replace(override(recipe("digits-2d"), settings), seed=seed),
                                             tmp_path / f"{seed}", device="cpu") for seed in range(5)]  # fmt: skip
    out = tmp_path / "changing"
    for count, stop in ((3, 70), (2, 140)):
        assert launch(shared.train_until, count, out, settings, stop) == ["interrupted"] * count
    changing = shared.train_until(out, settings, None)
    for name in ("accuracy", "loss", "angle_own", "angle_other"):
        found = np.array([run.result["test"][name] for run in seeds])
        print(f"{name}: {changing['test'][name]:.4f}, over seeds {found.mean():.4f} +- {found.std(ddof=1):.4f}")
        assert abs(changing["test"][name] - found.mean()) < 3 * found.std(ddof=1)


def test_the_same_number_of_processes_goes_on_to_the_same_bits(tmp_path):
    settings = ("train.epochs=2", "model.dropout=0.2", "data.shift=1", "head.name=elastic-arcface", "train.ema=0.9")
    whole = launch(shared.train_plain, 2, tmp_path / "whole", settings)[0]
    stopped = launch(shared.train_wide, 2, tmp_path / "other", "arcface", 3)  # another run beside it changes nothing
    assert stopped == ["interrupted"] * 2
    again = launch(shared.train_plain, 2, tmp_path / "again", settings)[0]
    assert whole["model"] == again["model"] and whole["test"] == again["test"]


def test_no_thread_is_left_that_holds_the_processes_groups_once_a_training_is_over(tmp_path, monkeypatch):
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    monkeypatch.setattr(pulse, "EVERY", 0.01)
    monkeypatch.setattr(pulse.Pulse, "look", lambda *asked: time.sleep(0.5) or [])
    try:
        with together(torch.device("cpu"), 60.0):
            time.sleep(0.1)  # now it looks
        assert "pulse" not in [thread.name for thread in threading.enumerate()]
    finally:
        dist.destroy_process_group()


def two_stores():
    """The meeting place, as its keeper and another process have it."""
    kept = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return kept, dist.TCPStore("127.0.0.1", kept.port, is_master=False)


def test_who_does_not_come_is_named_and_those_who_came_do_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(pulse, "LATE", 1.0)
    stores = two_stores()
    with ThreadPoolExecutor(2) as at_once:
        asked = [at_once.submit(pulse.meet, store, rank, 4, 0.1) for rank, store in zip((0, 2), stores, strict=True)]
    said = [one.exception() for one in asked]
    assert str(said[0]).startswith("process 1 and process 3 of 4 did not come within 1 s, and this training ends.")
    assert [type(error) for error in said] == [ArcwiseError, AlreadyTold]


def test_those_who_have_all_come_know_each_other():
    stores = two_stores()
    with ThreadPoolExecutor(2) as at_once:
        asked = [at_once.submit(pulse.meet, store, rank, 2, 1.0) for rank, store in enumerate(stores)]
    assert [one.result() for one in asked] == [[pulse.itself()] * 2] * 2


def launched_as(monkeypatch, **more):
    """The environment that a launcher sets for one of two processes."""
    said = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", **more}
    monkeypatch.setattr(pulse, "LATE", 1.0)
    for name, value in said.items():
        monkeypatch.setenv(name, value)


def refusal_of(out):
    """The words in which training is refused; nothing is begun."""
    with pytest.raises(ArcwiseError) as refused:
        train("digits-2d", out, settings=["train.silence=1"], device="cpu")
    assert not out.exists() and not dist.is_initialized()
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("RANK", "", "RANK not: start them with torchrun"), ("MASTER_PORT", "", "MASTER_PORT not: start them with"),
        ("RANK", "abc", "RANK is a whole number from 0 to 1, and here it is 'abc'"),
        ("RANK", "9", "RANK is a whole number from 0 to 1"), ("RANK", "-1", "RANK is a whole number from 0 to 1"),
        ("WORLD_SIZE", "abc", "WORLD_SIZE is a whole number from 1"),
        ("MASTER_PORT", "99999", "MASTER_PORT is a whole number from 1 to 65,535"),
        ("MASTER_PORT", "x", "MASTER_PORT is a whole number"),
    ],
)  # fmt: skip
def test_a_launcher_that_says_what_cannot_be_is_told_so(name, value, words, monkeypatch, tmp_path):
    launched_as(monkeypatch, **{name: value})
    assert words in refusal_of(tmp_path / "run")


def test_no_count_of_processes_is_one_process(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "")
    assert process_count() == 1


def test_a_meeting_place_where_nobody_is_or_nobody_answers_is_named(monkeypatch, tmp_path):
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        for port in (1, deaf.getsockname()[1]):
            launched_as(monkeypatch, MASTER_PORT=str(port))
            began = time.monotonic()
            assert f"process 1 did not find the other processes at 127.0.0.1, port {port} " in refusal_of(
                tmp_path / "run"
            )
            assert time.monotonic() - began < 15  # three times the silence, and what a busy machine adds
        launched_as(monkeypatch, RANK="0", MASTER_PORT=str(port))
        assert f"cannot open port {port} (MASTER_PORT): another program has it" in refusal_of(tmp_path / "run")


def test_a_linear_head_and_batch_norms_train_together(tmp_path):
    said = launch(
        shared.train_plain, 2, tmp_path / "run", ("train.epochs=6", "head.name=softmax-bias", "train.lr=0.05")
    )
    assert said[0]["test"] == said[1]["test"] and said[0]["test"]["accuracy"] > 0.5


def test_prototypes_that_step_inside_and_are_sampled_train_together(tmp_path):
    settings = ("train.epochs=2", "head.inside=true", "head.sample=0.5", "head.engine=chunked")
    said = launch(shared.train_plain, 2, tmp_path / "run", settings)
    assert said[0]["test"] == said[1]["test"]


def test_a_damaged_shard_gives_way_to_the_checkpoint_before(alone, tmp_path):
    out = tmp_path / "run"
    launch(shared.train_wide, 2, out, "arcface", 13)
    newest = sorted((out / "checkpoints").glob("step-*"))[-1]
    shard = next(newest.glob("*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-9] ^= 64
    shard.write_bytes(content)
    with pytest.warns(arcwise.errors.Note, match="not as it was written"):
        close(shared.train_wide(out), alone("arcface"))
    assert newest.with_suffix(".damaged").is_dir()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that two processes began, with a step of its own in each of its two checkpoints."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    launch(shared.train_wide, 2, out, "arcface", 13)
    return out


def rewrite(shard, change):
    """Lets a shard hold something else; all checksums are right."""
    tensors, meta = load_tensors(shard)
    tensors, places = {name: value.clone() for name, value in tensors.items()}, json.loads(meta["DCP_SHARDING_INFO"])
    change(tensors, places)
    save_tensors(shard, tensors, {**meta, "DCP_SHARDING_INFO": json.dumps(places)})
    tell(shard.parent, **{shard.name: sum_of(shard)})


def tell(folder, **sums):
    """Lets state.json name these checksums."""
    told = json.loads((folder / "state.json").read_text())
    told["crc32"].update(sums)
    told["crc32"] = {name: value for name, value in told["crc32"].items() if value}
    (folder / "state.json").write_text(json.dumps(told))


def moved(tensors, places):
    places["model.head.weight"]["saved_offsets"] = [7, 0]


def unplaced(tensors, places):
    del places["model.head.weight"]


def unheard(tensors, places):
    tensors["optimiser.999.exp_avg"], places["optimiser.999.exp_avg"] = torch.zeros(2), {"saved_offsets": [0]}


def eight_bits(tensors, places):
    tensors["model.head.weight"] = tensors["model.head.weight"].to(torch.int8)


@pytest.mark.parametrize("joined", [False, True])
def test_a_checkpoint_that_tells_of_another_step_than_its_name_gives_way(joined, stopped, alone, tmp_path):
    out = shutil.copytree(stopped, tmp_path / "run")
    if joined:
        assert code_of(["checkpoint", "merge", str(out)]) == 0
    newest = checkpoints_of(Run(out))[-1]
    newest.rename(newest.with_name("step-00000031" + newest.suffix))
    assert code_of(["checkpoint", "inspect", str(out)]) == 1
    with pytest.warns(arcwise.errors.Note, match="is called by another"):
        close(shared.train_wide(out), alone("arcface"))


def test_where_no_checkpoint_can_be_read_nothing_is_promised(stopped, tmp_path, capsys):
    out = shutil.copytree(stopped, tmp_path / "run")
    for place in checkpoints_of(Run(out)):
        (place / "state.json").write_text("{}")
    assert code_of(["checkpoint", "inspect", str(out)]) == 1
    said = capsys.readouterr()
    assert "the first step" in said.err and "goes on from" not in said.err and "before it" not in said.out


@pytest.mark.parametrize("change", [moved, unplaced, unheard, eight_bits, "gone"])
def test_shards_that_make_no_whole_give_way_to_the_checkpoint_before(change, stopped, alone, tmp_path):
    out = shutil.copytree(stopped, tmp_path / "run")
    newest = sorted((out / "checkpoints").glob("step-*"))[-1]
    (newest.with_suffix(".damaged") / "from before").mkdir(parents=True)
    shard = sorted(newest.glob("*.safetensors"))[-1]
    if change == "gone":  # and nobody misses it
        shard.unlink()
        tell(newest, **{shard.name: ""})
    else:
        rewrite(shard, change)
    with pytest.warns(arcwise.errors.Note, match="the checkpoint before it is taken"):
        close(shared.train_wide(out), alone("arcface"))
    assert (newest.with_suffix(".damaged") / "state.json").is_file()


def test_what_is_refused_is_refused_by_all_and_said_once(tmp_path):
    said = launch(shared.train_plain, 2, tmp_path / "run", ("train.batch=3",))
    assert [kind for kind, _ in said] == ["ArcwiseError", "ArcwiseError"]
    assert all("fewer processes" in words for _, words in said)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "comparison.json").write_text(json.dumps({"format": 1}))
    said = launch(shared.train_plain, 2, tmp_path / "taken", ())
    assert said[1][0] == "AlreadyTold" and said[0][1] == said[1][1]


def test_synchronised_batch_norms_are_for_gpus(tmp_path):
    said = launch(shared.train_plain, 2, tmp_path / "run", ("train.batch_norm=synced",))
    assert all("torch has them for GPUs" in words for _, words in said)


def test_several_processes_end_where_numbers_are_not_finite(tmp_path):
    said = launch(
        shared.train_plain,
        2,
        tmp_path / "run",
        ("train.lr=10000", "train.epochs=9", "train.weight_decay=1", "train.optimiser=sgd", "train.schedule=constant"),
    )
    assert all("not finite" in words for _, words in said)
