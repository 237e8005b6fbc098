"""The Embedder: one file, no pickle, nothing else needed; public checkpoints load."""

import json
import subprocess
import sys

import pytest
import torch

from arcwise.config import ModelConfig
from arcwise.embed import embed
from arcwise.errors import ArcwiseError
from arcwise.model import Embedder
from arcwise.records import Preprocessing

LOOK = Preprocessing(side=16, channels=3, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.2))


def model(**options):
    net = Embedder(ModelConfig(backbone="vgg8", dim=5, **options), preprocessing=LOOK, names=("a", "b"), about={"k": 1})
    net(torch.randn(8, 3, 16, 16))  # batch norms have seen something
    return net.eval()


def test_a_saved_model_comes_back_whole_in_another_process(tmp_path):
    net, x = model(norm=True), torch.randn(3, 3, 16, 16)
    path = net.save(tmp_path / "model.safetensors")
    back = Embedder.load(path)
    assert torch.equal(back(x), net(x))
    assert (back.preprocessing, back.names, back.about, back.config) == (LOOK, ("a", "b"), {"k": 1}, net.config)
    torch.save(x, tmp_path / "x.pt")
    code = f"""
import torch
from arcwise.model import Embedder
x = torch.load({str(tmp_path / "x.pt")!r}, weights_only=True)
print(Embedder.load({str(path)!r})(x).double().sum().item())
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert float(said.stdout) == pytest.approx(net(x).double().sum().item(), rel=1e-6)


def test_insightface_checkpoints_load(tmp_path):
    original = Embedder(
        ModelConfig(backbone="iresnet18", dim=64, norm=True),
        preprocessing=Preprocessing(side=32, channels=3, mean=(0.5,) * 3, std=(0.5,) * 3),
    ).eval()
    named = {name.removeprefix("backbone.").removeprefix("neck."): v for name, v in original.state_dict().items()}
    assert {"fc.weight", "fc.bias", "features.running_var", "layer4.1.bn3.weight"} <= set(named)
    torch.save(named, tmp_path / "backbone.pth")
    back = Embedder.load(tmp_path / "backbone.pth")
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(back(x), original(x))
    assert back.config.backbone == "iresnet18" and back.preprocessing == original.preprocessing


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        (None, "none.safetensors", "there is no model"),
        (b"", "empty.safetensors", "cannot be read as a model"),
        (b"x" * 100, "noise.safetensors", "cannot be read as a model"),
        (None, "none.pth", "there is no checkpoint"),
        (b"noise", "noise.pth", "no checkpoint of an insightface backbone"),
    ],
)
def test_unreadable_models_say_so(tmp_path, content, name, says):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ArcwiseError, match=says):
        Embedder.load(tmp_path / name)


def test_a_pickle_that_would_run_code_is_not_run(tmp_path):
    import pickle

    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    (tmp_path / "evil.pth").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ArcwiseError, match="no checkpoint"):
        Embedder.load(tmp_path / "evil.pth")
    assert not (tmp_path / "ran").exists()


def test_other_tensors_and_other_formats_are_refused(tmp_path):
    from arcwise.weights import save_tensors

    save_tensors(tmp_path / "x.safetensors", {"x": torch.zeros(2)})
    with pytest.raises(ArcwiseError, match="no arcwise model"):
        Embedder.load(tmp_path / "x.safetensors")
    meta = {"arcwise": "99", "model": json.dumps({}), "preprocessing": "{}"}
    save_tensors(tmp_path / "new.safetensors", {"x": torch.zeros(2)}, meta)
    with pytest.raises(ArcwiseError, match="format 99"):
        Embedder.load(tmp_path / "new.safetensors")


def test_embeddings_follow_the_images_and_leave_the_model_as_it_was():
    import numpy as np

    from arcwise.data import Images

    net = model().train()
    pixels = np.random.default_rng(0).integers(0, 256, (7, 16, 16, 3), dtype=np.uint8)
    images = Images(pixels=pixels, y=np.arange(7) % 2, names=("a", "b"))
    found = embed(net, images, batch=3)
    assert net.training and found.x.shape == (7, 5) and found.y.tolist() == images.y.tolist()
    again = embed(net, images.take(np.arange(7)[::-1]), batch=2)
    assert np.allclose(again.x[::-1], found.x, atol=1e-5)
    both = embed(net, images, mirror=True)
    assert both.model != found.model and found.model == net.fingerprint  # it is another function
    flipped = Images(pixels=pixels[:, :, ::-1].copy(), y=images.y, names=images.names)
    assert np.allclose(both.x, found.x + embed(net, flipped).x, atol=1e-4)
    with pytest.raises(ArcwiseError, match="takes images of 16 x 16 x 3, these are 16 x 16 x 1"):
        embed(net, Images(pixels=pixels[..., :1], y=images.y, names=images.names))
