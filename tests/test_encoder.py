"""Encoders: an Embedder is one, anything with the same four things is another, and embed speaks only that."""

import copy
import threading

import numpy as np
import pytest
import torch
from PIL import Image

import arcwise
from arcwise.records import Embeddings, Encoder, Preprocessing

LOOK = Preprocessing(side=8, channels=1, mean=(0.3,), std=(0.4,))


def model(**options):
    torch.manual_seed(0)
    net = arcwise.Embedder(arcwise.ModelConfig(dim=3, dropout=0.5, **options), preprocessing=LOOK, names=("a",))
    net(torch.randn(16, 1, 8, 8))  # batch norms that have seen something
    return net


class Means:
    """An encoder without any torch: the mean of each half of the image."""

    dim, fingerprint = 2, "means"
    preprocessing = LOOK

    def encode(self, pixels):
        halves = pixels[:, :, :4], pixels[:, :, 4:]
        return np.stack([half.mean((1, 2, 3)) for half in halves], axis=1).astype(np.float32)


PIXELS = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), dtype=np.uint8)


def test_both_are_encoders():
    assert isinstance(model(), Encoder) and isinstance(Means(), Encoder) and not isinstance(object(), Encoder)


def test_embed_takes_any_encoder_and_any_images(tmp_path):
    found = arcwise.embed(Means(), arcwise.load("digits").test)
    assert found.model == "means" and found.dim == 2 and found.y is not None and found.keys[0].startswith("digits#")
    for i, pixels in enumerate(PIXELS[:3]):
        Image.fromarray(pixels[..., 0]).save(tmp_path / f"{i}.png")
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    found = arcwise.embed(Means(), paths)
    assert found.y is None and found.keys == tuple(map(str, paths))
    assert np.array_equal(found.x, Means().encode(PIXELS[:3]))
    assert np.array_equal(arcwise.embed(Means(), PIXELS[:3]).x, found.x)
    assert arcwise.embed(Means(), paths[0]).x.shape == (1, 2) and arcwise.embed(Means(), []).x.shape == (0, 2)
    assert np.array_equal(arcwise.embed(Means(), PIXELS[:3], mirror=True).x, found.x + found.x[:, ::-1])
    with pytest.raises(arcwise.ArcwiseError, match="takes images of 8 x 8 x 1, these are 28 x 28 x 1"):
        arcwise.embed(
            Means(), arcwise.Images(pixels=np.zeros((1, 28, 28, 1), np.uint8), y=np.zeros(1, int), names=("a",))
        )


def test_the_rows_do_not_depend_on_the_mode_nor_change_it():
    net = model().eval()
    wanted = net.encode(PIXELS)
    net.train()
    net.backbone.body[1].eval()  # one batch norm is frozen
    before = [layer.training for layer in net.modules()]
    assert np.array_equal(net.encode(PIXELS), wanted)
    assert [layer.training for layer in net.modules()] == before


def test_many_threads_encode_at_once_while_the_model_is_in_training_mode():
    net = model().train()
    wanted, found = net.encode(PIXELS), {}

    def work(number):
        found[number] = [net.encode(PIXELS[number : number + 20]) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8  # a thread that failed would have left nothing
    for number, rows in found.items():
        assert len(rows) == 5 and all(np.allclose(some, wanted[number : number + 20], atol=1e-5) for some in rows)
    assert all(layer.training for layer in net.modules())


def test_a_fingerprint_is_of_weights_network_and_preprocessing_alone(tmp_path):
    net = model()
    one = net.fingerprint
    assert len(one) == 64 and copy.deepcopy(net).fingerprint == one
    net.names, net.about = ("b", "c"), {"when": "today"}
    assert net.fingerprint == one == arcwise.Embedder.load(net.save(tmp_path / "m.safetensors")).fingerprint
    assert arcwise.Embedder.load(tmp_path / "m.safetensors").to(memory_format=torch.channels_last).fingerprint == one
    net.preprocessing = Preprocessing(side=8, channels=1, mean=(0.3,), std=(0.4,), fit="stretch")
    assert net.fingerprint != one
    net.preprocessing = LOOK
    with torch.no_grad():
        net.neck.fc.bias[0] += 1e-6
    assert net.fingerprint != one


def test_equal_models_are_equal_files(tmp_path):
    first, second = (model().save(tmp_path / name).read_bytes() for name in ("1", "2"))
    assert first == second


def test_bf16_weights_travel_and_are_told_apart(tmp_path):
    net = model().to(torch.bfloat16)
    from arcwise.weights import load_tensors, save_tensors

    path = save_tensors(tmp_path / "w.safetensors", net.state_dict())
    back = load_tensors(path)[0]
    assert all(
        torch.equal(value, back[name]) and value.dtype == back[name].dtype for name, value in net.state_dict().items()
    )
    assert net.fingerprint != model().fingerprint


def test_a_file_of_rows_says_whose_they_are(tmp_path):
    net = model()
    path = arcwise.embed(net, arcwise.load("digits").test).save(tmp_path / "e.safetensors")
    assert Embeddings.load(path).model == net.fingerprint


def test_stacks_without_channels_and_tensors_are_images_too():
    wanted = Means().encode(PIXELS[:6])
    for images in (PIXELS[:6, ..., 0], torch.from_numpy(PIXELS[:6]), list(torch.from_numpy(PIXELS[:6]))):
        assert np.array_equal(arcwise.embed(Means(), images).x, wanted)


def test_channels_that_come_first_are_named_and_not_guessed():
    picture = np.random.default_rng(0).integers(0, 256, (8, 9, 3), dtype=np.uint8)
    for image in (picture.transpose(2, 0, 1), torch.from_numpy(picture).permute(2, 0, 1)):
        for images in (image, [image], image[None]):
            with pytest.raises(arcwise.ArcwiseError, match="channels"):
                arcwise.embed(Means(), images)
    grey = PIXELS[:3, ..., 0]
    assert np.array_equal(arcwise.embed(Means(), list(grey)).x, arcwise.embed(Means(), PIXELS[:3]).x)


def test_images_that_cannot_be_used_are_named(tmp_path):
    (tmp_path / "no.png").write_text("no image")
    for image, said in (
        (tmp_path / "gone.png", r"gone\.png cannot be used \(No such file"),
        (tmp_path / "no.png", r"no\.png cannot be used \(no image that Pillow can read\)"),
        (tmp_path, "Is a directory"),
        (np.zeros((8, 8), np.float32), "image #0: an image is an array of bytes"),
    ):
        with pytest.raises(arcwise.ArcwiseError, match=said):
            arcwise.embed(Means(), [image])


def test_rows_stay_what_they_are_while_another_thread_switches_the_mode():
    net = model().eval()
    wanted, before = net.encode(PIXELS), {name: value.clone() for name, value in net.state_dict().items()}
    done = threading.Event()

    def switch():
        while not done.is_set():
            net.train()
            net.eval()

    thread = threading.Thread(target=switch)
    thread.start()
    try:
        assert all(np.array_equal(net.encode(PIXELS), wanted) for _ in range(20))
    finally:
        done.set()
        thread.join()
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_encoding_follows_weights_that_have_moved():
    net = model()
    first = net.encode(PIXELS)
    with torch.no_grad():
        net.neck.fc.bias += 1.0
    assert np.allclose(net.encode(PIXELS), first + 1.0, atol=1e-5)
    net.double().float()  # every tensor is a new one
    assert np.allclose(net.encode(PIXELS), first + 1.0, atol=1e-5)


@pytest.mark.parametrize("batch", [0, -3])
def test_a_batch_holds_an_image_at_least(batch):
    with pytest.raises(arcwise.ArcwiseError, match="batch must be a whole number of at least 1"):
        arcwise.embed(Means(), PIXELS, batch=batch)


def test_pixels_of_another_shape_are_not_encoded():
    for call in (model().encode, LOOK.batch):
        with pytest.raises(arcwise.ArcwiseError, match="takes images of 8 x 8 x 1"):
            call(np.zeros((1, 8, 8, 3), np.uint8))
