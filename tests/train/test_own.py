"""A user's own network, head, margin and arrays: trained, told in the Run, and resumed when they are given again."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import arcwise
from arcwise.errors import Interrupted

SHORT = ["train.epochs=2", "train.batch=16", "train.journal_every=2", "train.checkpoint_every=0"]


class Net(nn.Module):
    """Two layers and a batch norm, which is in another mode while it is judged."""

    def __init__(self, dim=5, side=8):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(side * side, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.last = nn.Linear(32, dim)

    def forward(self, x):
        return self.last(self.body(x))


class Softer(nn.Module):
    """A margin nobody else has."""

    def __init__(self, m=0.1):
        super().__init__()
        self.m = m

    def forward(self, cos_y, *, norm, y):
        return cos_y - self.m


def net(**options):
    torch.manual_seed(7)
    return Net(**options)


def arrays(n=120, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    pixels = rng.integers(0, 60, (n, 8, 8), dtype=np.uint8)
    pixels[np.arange(n), y] += 150  # a bright row tells the class
    return pixels, y


def trained(folder, **options):
    given = {"settings": SHORT, "model": net(), "head": Softer(), "data": arrays(), "device": "cpu", **options}
    return arcwise.train("digits-2d", folder, **given)


def test_own_network_margin_and_arrays_train_in_one_call(tmp_path):
    run = trained(tmp_path / "run", settings=[*SHORT, "train.epochs=8"])
    assert run.result["test"]["accuracy"] > 0.9
    assert run.given == {"model": "Net", "head": "Softer", "data": "tuple"}
    assert run.settings.model.backbone == "own:Net" and run.settings.model.dim == 5
    assert run.settings.head.kind == "softer" and run.settings.head.m == 0.1
    assert run.head.name == "Softer" and run.head.m == 0.1 and run.settings.data.source == "given"
    found = run.embeddings("test")
    assert found.keys[0].startswith("data:train#") and found.names == ("0", "1", "2")
    assert arcwise.measure(run)["measured"]["accuracy"] == pytest.approx(run.result["test"]["accuracy"])


def test_a_margin_of_ones_own_gets_the_scale_that_the_advisor_has_for_the_network(tmp_path):
    advised = arcwise.advise(3, 5).s
    softmax = arcwise.override(arcwise.recipe("digits-2d"), ["head.name=softmax", *SHORT])  # not what is trained
    run = arcwise.train(softmax, tmp_path / "run", model=net(), head=Softer(), data=arrays(), device="cpu")
    assert run.head.s == pytest.approx(advised, rel=1e-3)
    wide = trained(tmp_path / "wide", settings=[*SHORT, "head.s=none"], model=net(dim=64))
    assert wide.head.s == pytest.approx(arcwise.advise(3, 64).s, rel=1e-3) and wide.settings.model.dim == 64


def test_the_model_loads_when_its_network_is_given(tmp_path):
    run = trained(tmp_path / "run")
    with pytest.raises(arcwise.ArcwiseError, match=r"network is Net, which is not arcwise's: pass it"):
        arcwise.Embedder.load(run.path)
    model = arcwise.Embedder.load(run.path, network=Net())
    assert model.fingerprint == run.embeddings("test").model
    pixels, _ = arrays()
    assert model.encode(pixels[:4, ..., None]).shape == (4, 5)
    with pytest.raises(arcwise.ArcwiseError, match="do not fit own:Net"):
        arcwise.Embedder.load(run.path, network=Net(dim=4))


def test_a_stopped_run_goes_on_to_the_same_bits_when_all_is_given_again(tmp_path):
    whole = trained(tmp_path / "whole")

    def stop(event):
        if event["kind"] == "steps" and event["step"] == 4:
            import signal

            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        trained(tmp_path / "run", listener=stop)
    run = arcwise.Run.open(tmp_path / "run")
    assert "model=..., head=..., data=..., resume=True" in run.resume_command
    with pytest.raises(arcwise.ArcwiseError, match=r"begun with a (model|head|data) of your own"):
        arcwise.train("digits-2d", run.path, settings=SHORT, resume=True, device="cpu")
    with pytest.raises(arcwise.ArcwiseError, match="images are not those"):
        trained(run.path, data=arrays(n=99), resume=True)
    pixels, labels = arrays()
    with pytest.raises(arcwise.ArcwiseError, match="images are not those"):
        trained(run.path, data=(255 - pixels, labels), resume=True)
    with pytest.raises(arcwise.ArcwiseError, match=r"another head: Softer m=0\.1 s=8, now Softer m=0\.2"):
        trained(run.path, head=Softer(0.2), resume=True)
    with pytest.raises(arcwise.ArcwiseError, match="another head: Softer, now CosFace"):
        trained(run.path, head=arcwise.margins.CosFace(0.1), resume=True)
    with pytest.raises(arcwise.ArcwiseError, match="another model: Net, now Sequential"):
        trained(run.path, model=nn.Sequential(nn.Flatten(), nn.Linear(64, 5)), resume=True)
    with pytest.raises(arcwise.ArcwiseError, match=r"train\.epochs was 2, now 3"):
        trained(run.path, settings=[*SHORT, "train.epochs=3"], resume=True)
    torch.manual_seed(1)
    again = trained(run.path, model=Net(), resume=True)  # its first weights do not matter any more
    one, two = load_file(again.model), load_file(whole.model)
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    with pytest.raises(arcwise.ArcwiseError, match="images are not those"):  # finished, and yet not the same
        trained(run.path, data=(255 - pixels, labels), resume=True)


def test_a_run_without_objects_does_not_take_them_later(tmp_path):
    run = arcwise.train("digits-2d", tmp_path / "run", settings=SHORT, device="cpu")
    (run.path / "result.json").unlink()
    with pytest.raises(arcwise.ArcwiseError, match="without a head of your own"):
        arcwise.train("digits-2d", run.path, settings=SHORT, head=Softer(), resume=True, device="cpu")


def test_a_ready_head_is_taken_as_it_is(tmp_path):
    head = arcwise.Head(5, 3, margin="cosface:m=0.2", s=12.0)
    run = trained(tmp_path / "run", head=head)
    assert run.head.label == "CosFace m=0.2 s=12"
    assert np.array_equal(run.prototypes().w, head.weight.detach().numpy())
    with pytest.raises(arcwise.ArcwiseError, match=r"build it as arcwise\.Head\(5, 3\)"):
        trained(tmp_path / "other", head=arcwise.Head(5, 4))
    assert not (tmp_path / "other" / "config.json").exists()
    text = arcwise.train("digits-2d", tmp_path / "text", settings=SHORT, head="cosface:m=0.2,s=12", device="cpu")
    assert text.head.label == "CosFace m=0.2 s=12" and text.given == {}


def test_parts_may_be_given_apart(tmp_path):
    data = {"train": arrays(90), "test": arrays(30, seed=1), "unseen": arrays(20, classes=2, seed=2)}
    run = trained(tmp_path / "run", data=data)
    assert len(run.embeddings("test")) == 30 and len(run.embeddings("unseen")) == 20
    assert run.embeddings("unseen").keys[3] == "data:unseen#3"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((np.zeros((4, 8, 8), np.float32), np.arange(4)), "uint8, got float32"),
        ((np.zeros((4, 8, 9), np.uint8), np.arange(4)), "square images"),
        ((np.zeros((4, 8, 8), np.uint8), np.arange(3)), "labels are 4 whole numbers"),
        ((np.zeros((4, 8, 8), np.uint8), np.eye(4)), "labels are 4 whole numbers"),
        (3, r"\(pixels, labels\)"),
        ({"test": arrays()}, 'needs a part "train"'),
        ({"train": arrays(), "tset": arrays()}, "did you mean 'test'"),
    ],
)
def test_arrays_that_cannot_be_images_are_named(tmp_path, data, said):
    with pytest.raises(arcwise.ArcwiseError, match=said):
        trained(tmp_path / "run", data=data)
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_network_that_gives_no_rows_is_named(tmp_path):
    with pytest.raises(arcwise.ArcwiseError, match=r"Conv2d made \(2, 3, 8, 8\)"):
        trained(tmp_path / "run", model=nn.Conv2d(1, 3, 3, padding=1))
    with pytest.raises(arcwise.ArcwiseError, match=r"Net cannot take images of 1 x 8 x 8"):
        trained(tmp_path / "run", model=net(side=9))


def test_the_report_of_such_a_run_does_not_pretend_to_know_the_command(tmp_path):
    run = trained(tmp_path / "run")
    page = arcwise.report(run.path, tmp_path / "report", pdf=False)[0].read_text()
    assert "model=Net, head=Softer, data=tuple" in page and "data.source=given" not in page


def test_a_head_of_another_scale_or_other_layers_are_refused_on_resume(tmp_path):
    run = trained(tmp_path / "run", head=arcwise.Head(5, 3, margin="cosface:m=0.2", s=12.0))
    with pytest.raises(arcwise.ArcwiseError, match=r"CosFace m=0\.2 s=12, now CosFace m=0\.2 s=99"):
        trained(run.path, head=arcwise.Head(5, 3, margin="cosface:m=0.2", s=99.0), resume=True)

    class Net(type(net())):
        def __init__(self):
            super().__init__()
            self.body.append(nn.Tanh())

    with pytest.raises(arcwise.ArcwiseError, match="another Net: its layers are not the same"):
        trained(run.path, head=arcwise.Head(5, 3, margin="cosface:m=0.2", s=12.0), model=Net(), resume=True)
    with pytest.raises(arcwise.ArcwiseError, match=r"data\.test was 0\.2, now 0\.4"):
        trained(run.path, head=arcwise.Head(5, 3, margin="cosface:m=0.2", s=12.0), resume=True,
                settings=[*SHORT, "data.test=0.4"])  # fmt: skip


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"settings": [*SHORT, "head.m=0.9"]}, r"head\.m has no effect here: the head was handed over"),
        ({"settings": [*SHORT, "model.dim=9"]}, r"model\.dim has no effect"),
        ({"settings": [*SHORT, "data.source=mnist"]}, r"data\.source has no effect"),
        ({"head": arcwise.Head(5, 3), "settings": [*SHORT, "head.s=9"]}, r"head\.s has no effect"),
        ({"head": nn.ReLU()}, r"a margin has forward\(cos_y, \*, norm, y\); ReLU has not"),
    ],
)
def test_what_would_have_no_effect_or_cannot_be_is_refused(tmp_path, options, said):
    with pytest.raises(arcwise.ArcwiseError, match=said):
        trained(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_run_that_nobody_named_goes_to_its_recipe_head_and_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = arcwise.train("digits-2d", settings=[*SHORT, "seed=3"], head="cosface", device="cpu")
    assert run.path == Path("runs/digits-2d-cosface-3") and run.finished
    own = arcwise.train(arcwise.Config(), settings=SHORT, head=Softer(), data=arrays(), device="cpu")
    assert own.path == Path("runs/own-softer-0") and own.finished


def test_weights_are_averaged_of_a_network_without_buffers(tmp_path):
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    assert trained(tmp_path / "run", model=plain, settings=[*SHORT, "train.ema=0.9"]).finished


def test_an_own_network_is_fine_tuned_from_its_run(tmp_path):
    first = trained(tmp_path / "first")
    second = trained(tmp_path / "second", settings=[*SHORT, f"init={first.path}"], model=net())
    assert second.settings.model.backbone == "own:Net" and second.result["steps"] == first.result["steps"]


def test_other_layers_between_equal_weights_are_another_model():
    look = arcwise.Preprocessing(side=8, channels=1, mean=(0.5,), std=(0.5,))

    def model(layer):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), layer, nn.Linear(8, 4))
        return arcwise.Embedder(arcwise.ModelConfig(dim=4), preprocessing=look, network=network)

    assert model(nn.ReLU()).fingerprint == model(nn.ReLU()).fingerprint != model(nn.Sigmoid()).fingerprint
