"""Damaged and crafted files: noticed, named, and never half used."""

import json
import shutil

import numpy as np
import pytest
import torch

import arcwise
from arcwise.cli import code_of
from arcwise.errors import ArcwiseError, Note
from arcwise.model import Embedder
from arcwise.records import Embeddings, Prototypes, Run, read_json, read_tensors, write_tensors
from arcwise.train.checkpoint import checkpoints_of
from arcwise.weights import load_tensors, save_tensors

SETTINGS = ["train.epochs=4", "train.snapshots=true", "train.checkpoint_every=0", "train.journal_every=5"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with a checkpoint at every step, of which the last two are kept."""
    return arcwise.train("digits-2d", tmp_path_factory.mktemp("runs") / "run", settings=SETTINGS, device="cpu").path


@pytest.fixture
def run(finished, tmp_path):
    """A copy to damage."""
    return Run(shutil.copytree(finished, tmp_path / "run"))


def resumed(run, **more):
    return arcwise.train("digits-2d", run.path, settings=SETTINGS, device="cpu", resume=True, **more)


def flip(path, at, bit=1):
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def unfinished(run):
    """The run as it was before its end."""
    for name in ("result.json", "model.safetensors", "metrics.json"):
        (run.path / name).unlink(missing_ok=True)
    return run


@pytest.mark.parametrize("name", ["model.safetensors", "embeddings/test.safetensors", "prototypes/final.safetensors"])
def test_every_flipped_bit_of_a_tensor_file_is_noticed(run, name):
    path = run.path / name
    whole = path.read_bytes()
    places = np.random.default_rng(0).integers(0, len(whole), 60)
    for at in [*range(0, 8), *range(8, 400, 7), *places.tolist()]:
        flip(path, at, bit=int(at) % 8)
        with pytest.raises(ArcwiseError):
            load_tensors(path)
        path.write_bytes(whole)
    load_tensors(path)


def test_a_file_without_checksum_is_read_with_a_note(tmp_path):
    from safetensors.numpy import save_file

    meta = {"arcwise": "1", "names": '["a"]'}
    save_file({"x": np.eye(2, dtype=np.float32), "y": np.zeros(2, np.int32)}, tmp_path / "old.safetensors", meta)
    with pytest.warns(Note, match="from before arcwise wrote checksums"):
        assert len(Embeddings.load(tmp_path / "old.safetensors")) == 2
    save_file({"x": np.eye(2)}, tmp_path / "theirs.safetensors")  # somebody else's: nothing was promised of it
    assert read_tensors(tmp_path / "theirs.safetensors")[0]["x"].shape == (2, 2)


def test_what_is_written_can_be_read_by_the_safetensors_library(tmp_path):
    from safetensors.torch import load_file

    tensors = {"a": torch.randn(3, 5), "b": torch.arange(4), "c": torch.zeros(0, 2), "d": torch.ones(2).bfloat16()}
    save_tensors(tmp_path / "t.safetensors", tensors, {"k": "v"})
    back = load_file(tmp_path / "t.safetensors")
    assert all(torch.equal(back[name], value) for name, value in tensors.items())
    ours, meta = load_tensors(tmp_path / "t.safetensors")
    assert all(torch.equal(ours[name], value) for name, value in tensors.items()) and meta == {"k": "v"}


@pytest.mark.parametrize("damage", ["truncated", "flipped", "gone", "result"])
def test_a_finished_run_whose_model_or_result_is_damaged_is_brought_to_its_end_again(run, damage):
    before = load_tensors(run.model)[0]
    if damage == "result":
        (run.path / "result.json").write_text('{"test": null}')
    elif damage == "gone":
        run.model.unlink()
    elif damage == "flipped":
        flip(run.model, run.model.stat().st_size - 3)
    else:
        run.model.write_bytes(run.model.read_bytes()[:-100])
    assert not run.whole
    resumed(run)
    after = load_tensors(run.model)[0]
    assert run.whole and all(torch.equal(after[name], value) for name, value in before.items())


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before_with_a_note(run):
    expected = load_tensors(run.model)[0]
    newest = checkpoints_of(unfinished(run))[-1]
    flip(newest, newest.stat().st_size // 2)
    notes = []
    resumed(run, listener=lambda entry: notes.extend(entry.get("notes", ())))
    assert any("its checksum is another" in note and "checkpoint before it is taken" in note for note in notes)
    assert newest.with_suffix(".damaged").is_file()
    after = load_tensors(run.model)[0]
    assert all(torch.equal(after[name], value) for name, value in expected.items())


def rewritten(path, change):
    """A checkpoint that says something else, its checksum right."""
    tensors, meta = load_tensors(path)
    change(tensors, meta)
    save_tensors(path, tensors, meta)


def progress(**values):
    def change(tensors, meta):
        meta["progress"] = json.dumps({**json.loads(meta["progress"]), **values})

    return change


@pytest.mark.parametrize(
    "change",
    [
        progress(step=-5), progress(step=10**9), progress(step="7"), progress(seconds="long"), progress(within=[1.0]),
        progress(best=None), progress(stopped=1), progress(more=1), progress(within=[0, 0, 0, 0, float("nan")]),
        lambda tensors, meta: meta.update(arcwise="7"), lambda tensors, meta: meta.update(progress="{"),
        lambda tensors, meta: meta.update(progress="[" * 100_000), lambda tensors, meta: meta.pop("progress"),
        lambda tensors, meta: tensors.pop("random.cpu"),
        lambda tensors, meta: tensors.update({"random.cpu": torch.zeros(9)}),
        lambda tensors, meta: tensors.update({"optimiser.x.exp_avg": torch.zeros(1)}),
        lambda tensors, meta: tensors.update({"optimiser.99999.exp_avg": torch.zeros(1)}),
        lambda tensors, meta: tensors.update({"optimiser.0.exp_avg": torch.zeros(1, 2, 3)}),
        lambda tensors, meta: next(t for n, t in tensors.items() if n.endswith("fc.weight")).fill_(float("nan")),
    ],
)  # fmt: skip
def test_a_checkpoint_with_another_content_falls_back_too(run, change):
    newest = checkpoints_of(unfinished(run))[-1]
    rewritten(newest, change)
    notes = []
    resumed(run, listener=lambda entry: notes.extend(entry.get("notes", ())))
    assert newest.with_suffix(".damaged").is_file() and len(notes) == 1 and run.whole


def test_the_journals_last_line_is_restored(run):
    lines = (run.path / "journal.jsonl").read_text().splitlines(keepends=True)
    assert json.loads(lines[-1])["kind"] == "finished"
    for kept in ("".join(lines[:-1]), "".join(lines[:-1]) + lines[-1][:20]):
        (run.path / "journal.jsonl").write_text(kept)
        resumed(run)
        assert (run.path / "journal.jsonl").read_text().splitlines() == [line.strip() for line in lines]


def with_meta(path, **meta):
    """The same tensors with other metadata."""
    tensors, told = load_tensors(path)
    save_tensors(path, tensors, {**told, **meta})


def look(**values):
    told = {"side": 8, "channels": 1, "mean": [0.3], "std": [0.4], "fit": "stretch", "resample": "bilinear"}
    return json.dumps({**told, **values})


@pytest.mark.parametrize(
    "meta",
    [
        {"model": "{"}, {"model": "[]"}, {"model": '{"layers": 3}'}, {"model": '{"backbone": 7}'},
        {"model": '{"dim": "two"}'}, {"model": '{"backbone": "nothing"}'}, {"preprocessing": "null"},
        {"preprocessing": look(std=[0.0])}, {"preprocessing": look(std=["a"])}, {"preprocessing": look(mean=3)},
        {"preprocessing": '{"side": 8, "channels": 1, "mean": [0.3], "std": [NaN]}'},
        {"preprocessing": look(more=1)}, {"preprocessing": '{"side": 8}'}, {"preprocessing": look(side=10**9)},
        {"preprocessing": look(mean=[[1]])}, {"preprocessing": look(mean=[0.1, 0.2])},
        {"names": "7"}, {"names": '[1, null]'}, {"about": "[]"}, {"about": '{"config": 7}'},
        {"about": '{"config": {"data": 7}}'}, {"about": "{" * 9}, {"about": '[' * 99_999},
    ],
)  # fmt: skip
def test_a_models_metadata_is_read_or_refused_by_name(run, meta, capsys):
    with_meta(run.model, **meta)
    with pytest.raises(ArcwiseError, match=r"model\.safetensors"):
        Embedder.load(run.model)
    assert code_of(["embed", str(run.model), "digits", "--out", str(run.path.parent / "e.safetensors")]) == 1
    assert "Traceback" not in capsys.readouterr().err and not (run.path.parent / "e.safetensors").exists()


def test_weights_that_are_not_finite_are_refused_by_name(run):
    tensors, meta = load_tensors(run.model)
    name = next(name for name in tensors if name.endswith("weight"))
    tensors[name].view(-1)[0] = float("nan")
    save_tensors(run.model, tensors, meta)
    with pytest.raises(ArcwiseError, match=f"the weight {name} holds numbers that are not finite"):
        Embedder.load(run.model)


def test_a_model_that_overflows_on_an_image_names_it(run):
    model = Embedder.load(run.path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e30)
    with pytest.raises(ArcwiseError, match=r"the embedding of image digits#\d+ is not finite"):
        arcwise.embed(model, arcwise.load("digits").test)


def test_a_model_file_never_asks_for_weights_from_elsewhere(run, monkeypatch):
    from arcwise.backbones import from_timm

    asked = []

    class Net(torch.nn.Module):
        features = 4

        def forward(self, x):
            return x.flatten(1)[:, :4]

    monkeypatch.setattr(
        from_timm, "timm_backbone", lambda name, **options: asked.append(options) or Net(), raising=False
    )
    monkeypatch.setattr("arcwise.model.build_backbone", lambda name, **options: asked.append(options) or Net())
    save_tensors(
        run.model,
        {"neck.fc.weight": torch.zeros(2, 4), "neck.fc.bias": torch.zeros(2)},
        {
            "arcwise": "1",
            "model": '{"backbone": "timm:resnet18", "dim": 2, "pretrained": true}',
            "preprocessing": look(),
        },
    )
    Embedder.load(run.model)
    assert asked and all(options["pretrained"] is False for options in asked)


@pytest.mark.parametrize(
    ("arrays", "meta", "said"),
    [
        ({"x": np.ones((2, 3), np.int64)}, {}, "x must be an array of kind f"),
        ({"x": np.ones(6, np.float32)}, {}, r"x must be of shape \(n, d\)"),
        ({"x": np.ones((2, 0), np.float32)}, {}, "d at least 1"),
        ({"x": np.ones((2, 3), np.float32), "y": np.zeros((2, 1), np.int32)}, {}, r"y must be of shape \(n\)"),
        ({"x": np.ones((2, 3), np.float32), "y": np.zeros(3, np.int32)}, {}, r"y must be of shape \(n\)"),
        ({"x": np.ones((2, 3), np.float32), "y": np.array([0, -1])}, {}, r"must lie in \[0"),
        ({"x": np.ones((2, 3), np.float32)}, {"names": "7"}, "names must be a list"),
        ({"x": np.ones((2, 3), np.float32)}, {"names": "[7]"}, r"names\[0\] must be text"),
        ({"x": np.ones((2, 3), np.float32)}, {"about": "3"}, "about must be a table"),
        ({"x": np.ones((2, 3), np.float32), "keys": np.zeros(4, np.uint8), "key_ends": np.ones(2)}, {}, "key_ends m"),
        ({"x": np.ones((2, 3), np.float32), "keys": np.zeros(4, np.uint8)}, {}, "its keys are damaged"),
    ],
)  # fmt: skip
def test_embeddings_are_read_or_refused_by_name(tmp_path, arrays, meta, said):
    path = write_tensors(tmp_path / "e.safetensors", arrays, {"arcwise": "1", "names": '["a"]', **meta})
    with pytest.raises(ArcwiseError, match=said) as error:
        Embeddings.load(path)
    assert "e.safetensors" in str(error.value)


@pytest.mark.parametrize("kind", [torch.bfloat16, "F8_E4M3"])
def test_embeddings_of_a_type_that_numpy_lacks_are_refused(tmp_path, kind):
    from arcwise.records import Entry

    x = Entry(kind, (2, 2), 4, lambda: [b"1234"]) if isinstance(kind, str) else None
    if x is None:
        save_tensors(tmp_path / "e.safetensors", {"x": torch.ones(2, 2, dtype=kind)}, {"names": "[]"})
    else:
        write_tensors(tmp_path / "e.safetensors", {"x": x}, {"names": "[]"})
    with pytest.raises(ArcwiseError, match="x must be of a type that numpy has"):
        Embeddings.load(tmp_path / "e.safetensors")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"w": np.ones((2, 3)), "bias": np.zeros(3)}, r"bias must be of shape \(c\)"),
        ({"w": np.ones((2, 3), np.int64)}, "w must be an array of kind f"),
        ({"w": np.ones(3)}, r"w must be of shape \(c, d\)"),
        ({"v": np.ones((2, 3))}, "holds no prototypes"),
    ],
)
def test_prototypes_are_read_or_refused_by_name(tmp_path, arrays, said):
    path = write_tensors(tmp_path / "p.safetensors", arrays, {"arcwise": "1", "names": "[]"})
    with pytest.raises(ArcwiseError, match=said):
        Prototypes.load(path)


@pytest.mark.parametrize("name", ["config.json", "result.json", "metrics.json"])
@pytest.mark.parametrize(
    "content",
    [b"", b"null", b"[]", b'{"test": null}', b"[" * 200_000, b'{"a":' * 50_000, b"\xff\xfe{}", b'{"steps": 1e999}'],
)  # fmt: skip
def test_damaged_json_of_a_run_ends_in_a_message_or_is_measured_again(run, capsys, name, content):
    (run.path / name).write_bytes(content)
    code = code_of(["evaluate", str(run.path)])
    assert code == (0 if name == "metrics.json" else 1)
    assert "Traceback" not in capsys.readouterr().err


def test_the_resume_hint_follows_a_run_that_was_copied(run):
    about = read_json(run.path / "config.json")
    (run.path / "config.json").write_text(
        json.dumps({**about, "resume": "arcwise train digits-2d --out old/place --resume"})
    )
    assert run.resume_command == f"arcwise train digits-2d --out {run.path} --resume"


READING = {
    "json": ("load", "loads"), "pickle": ("load", "loads", "Unpickler"), "marshal": ("load", "loads"),
    "np": ("load", "loadtxt", "genfromtxt", "fromfile", "memmap"), "Image": ("open",), "csv": ("reader", "DictReader"),
    "tarfile": ("open",), "gzip": ("open",), "zipfile": ("ZipFile",), "ort": ("InferenceSession",),
    "onnxruntime": ("InferenceSession",), "torch": ("load",), "safetensors": ("safe_open", "deserialize"),
    "shelve": ("open",), "yaml": ("load", "safe_load"), "tomllib": ("load", "loads"), "onnx": ("load", "load_model"),
}  # fmt: skip
WHEREVER = (  # by these names alone
    "safe_open", "load_file", "deserialize", "eval", "exec", "Unpickler", "HuggingFaceStorageReader",
    "FileSystemReader", "InferenceSession",
)  # fmt: skip


def test_nothing_but_the_door_reads_files():
    """What reads files stands in one place each: everything a user may have touched goes through it."""
    import ast
    from pathlib import Path

    root = Path(arcwise.__file__).parent
    found, parts = set(), {f"{owner}.{name}" for owner, names in READING.items() for name in names}
    for path in root.rglob("*.py"):
        place = str(path.relative_to(root))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):  # by a name of its own it would not be found below
                assert not {f"{node.module}.{alias.name}" for alias in node.names} & parts, place
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                found |= {(place, name)} if name in parts or name in WHEREVER else set()
                if name == "torch.load":
                    assert any(
                        word.arg == "weights_only" and ast.unparse(word.value) == "True" for word in node.keywords
                    )
                if name == "Image.open":  # what ends in .jpg may be PostScript; a figure is one of our own
                    assert place == "figures/canvas.py" or "formats" in {word.arg for word in node.keywords}, place
    # values; the digits in the package itself; insightface's checkpoints; what was written a moment before; tensors;
    # images, their tables and their cache; downloads that were checked; a model and shards whose checksums were
    assert found == {
        ("schema.py", "json.loads"),
        ("data/sources.py", "np.load"),
        ("backbones/iresnet.py", "torch.load"),
        ("export/onnx.py", "onnx.load"),
        ("records/files.py", "np.fromfile"),
        ("records/preprocessing.py", "Image.open"),
        ("data/folder.py", "Image.open"),
        ("data/folder.py", "csv.reader"),
        ("data/folder.py", "np.memmap"),
        ("data/formats.py", "Image.open"),
        ("data/formats.py", "gzip.open"),
        ("data/formats.py", "tarfile.open"),
        ("embed.py", "np.memmap"),
        ("export/encoder.py", "onnxruntime.InferenceSession"),
        ("figures/canvas.py", "Image.open"),
        ("train/spread.py", "HuggingFaceStorageReader"),
        ("report/make.py", "zipfile.ZipFile"),  # written
    }
