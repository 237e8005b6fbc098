"""Every wrong call that a user may make, run as the user runs it: without the type checker of the tests.

Prints one JSON line per case: its name, the error's type and its message (or the value it returned).
"""

import json
import math
import sys

import numpy as np
import torch

import arcwise
from arcwise.heads import LinearHead

X, Y = torch.randn(4, 8), torch.tensor([0, 1, 2, 3])


def changed(x: torch.Tensor, row: int, value: float) -> torch.Tensor:
    x = x.clone()
    x[row, 0] = value
    return x


GREY = arcwise.Preprocessing(side=8, channels=1, mean=(0.3,), std=(0.4,))


def embedder():
    return arcwise.Embedder(arcwise.ModelConfig(dim=2), preprocessing=GREY)


def head(**options):
    return arcwise.Head(8, 10, **options)


def second_derivative():
    x = X.clone().requires_grad_()
    (g,) = torch.autograd.grad(head(engine="chunked")(x, Y), x, create_graph=True)
    return torch.autograd.grad(g.pow(2).sum(), x)


WRONG = {
    "label too large": lambda h: h(X, torch.tensor([0, 1, 12, 3])),
    "label negative": lambda h: h(X, torch.tensor([0, -1, 2, 3])),
    "labels float": lambda h: h(X, Y.float()),
    "labels bool": lambda h: h(X, Y > 1),
    "labels one-hot": lambda h: h(X, torch.eye(4, 10).long()),
    "labels one-hot in floats": lambda h: h(X, torch.eye(4, 10)),
    "labels in a column": lambda h: h(X, torch.arange(4)[:, None]),
    "labels in a column of floats": lambda h: h(X, torch.arange(4.0)[:, None]),
    "labels of wrong length": lambda h: h(X, Y[:3]),
    "labels a list": lambda h: h(X, [0, 1, 2, 3]),
    "labels on another device": lambda h: h(X, Y.to("meta")),
    "x of wrong width": lambda h: h(X[:, :5], Y),
    "x of rank 1": lambda h: h(X[0], Y),
    "x of rank 4": lambda h: h(X.reshape(4, 2, 2, 2), Y),
    "x whole numbers": lambda h: h(X.long(), Y),
    "x complex": lambda h: h(X.to(torch.complex64), Y),
    "x a numpy array": lambda h: h(np.zeros((4, 8)), Y),
    "x on another device": lambda h: h(X.to("meta"), Y),
    "x with NaN": lambda h: h(changed(X, 2, math.nan), Y),
    "x with infinity": lambda h: h(changed(X, 1, math.inf), Y),
    "x overflowing": lambda h: h(changed(X, 3, 1e30), Y),
    "logits of NaN": lambda h: h.logits(changed(X, 2, math.nan)),
    "score of a wrong label": lambda h: h.score(X, torch.tensor([0, 1, 12, 3])),
    "empty batch, mean": lambda h: h(X[:0], Y[:0]),
    "unknown reduction": lambda h: h(X, Y, reduction="average"),
}

BUILD = {
    "unknown margin": lambda: head(margin="arcfase"),
    "margin a number": lambda: head(margin=0.5),
    "margin a function": lambda: head(margin=lambda cos: cos),
    "unknown parameter": lambda: head(margin="arcface:q=1"),
    "parameter twice": lambda: head(margin="arcface:m=1,m=2"),
    "parameter without value": lambda: head(margin="arcface:m"),
    "unknown parameter of a head": lambda: arcwise.head_from("arcface:engine=chunked", 8, 10),
    "k inside the margin": lambda: head(margin="arcface:k=3"),
    "softmax as a margin": lambda: head(margin="softmax"),
    "flag a word": lambda: head(margin="elastic-arcface:plus=no"),
    "checks a word": lambda: head(checks="no"),
    "bias a word": lambda: LinearHead(8, 10, bias="yes"),
    "mode of second derivative": lambda: second_derivative(),
    "split_lse of half": lambda: arcwise.split_lse(X.half(), torch.randn(10, 8), Y, 4.0),
    "split_lse of another width": lambda: arcwise.split_lse(X, torch.randn(10, 7), Y, 4.0),
    "split_lse of too few labels": lambda: arcwise.split_lse(X, torch.randn(10, 8), Y[:3], 4.0),
    "split_lse of float labels": lambda: arcwise.split_lse(X, torch.randn(10, 8), Y.float(), 4.0),
    "split_lse of a learned s": lambda: arcwise.split_lse(
        X, torch.randn(10, 8), Y, torch.tensor([4.0], requires_grad=True)
    ),
    "split_lse of no classes": lambda: arcwise.split_lse(X, torch.randn(0, 8), Y, 4.0),
    "s beyond every number": lambda: head(s=10**400),
    "head from None": lambda: arcwise.head_from(None, 8, 10),
    "margin a layer": lambda: head(margin=torch.nn.Linear),
    "split_lse memory": lambda: arcwise.split_lse(X, torch.randn(10, 8), Y, 4.0, engine="chunked", memory=-5),
    "skip without the engine for it": lambda: head(engine="chunked", skip=1e-4),
    "split_lse skip": lambda: arcwise.split_lse(X, torch.randn(10, 8), Y, 4.0, engine="eager", skip=1e-4),
    "skip of nearly everything": lambda: head(skip=0.5),
    "nesterov a word": lambda: arcwise.optim.SGD(head(), lr=0.1, nesterov="yes"),
    "betas one number": lambda: arcwise.optim.AdamW(head(), betas=0.9),
    "paper continuation too wide": lambda: arcwise.margins.ArcFace(3.0, continuation="paper"),
    "whole-number dtype": lambda: head(dtype=torch.int64),
    "s inside the margin": lambda: head(margin="arcface:s=16"),
    "m a word": lambda: head(margin="arcface:m=much"),
    "m NaN": lambda: arcwise.margins.ArcFace(math.nan),
    "m negative": lambda: arcwise.margins.ArcFace(-0.1),
    "m beyond pi": lambda: arcwise.margins.ArcFace(4.0),
    "m of a class beyond pi": lambda: arcwise.margins.ArcFace([0.5, 4.0]),
    "sphereface m below 1": lambda: arcwise.margins.SphereFace(0.5),
    "combined m1 below 1": lambda: arcwise.margins.Combined(0.9, 0.0, 0.0),
    "magface bounds crossed": lambda: arcwise.margins.MagFace(l_a=100.0, u_a=10.0),
    "magface bounds equal": lambda: arcwise.margins.MagFace(l_a=10.0, u_a=10.0),
    "filter below every cosine": lambda: arcwise.margins.NoiseFilter(above=-1.5),
    "filter above every cosine": lambda: arcwise.margins.NoiseFilter(above=1.5),
    "adaface t_alpha": lambda: arcwise.margins.AdaFace(t_alpha=2.0),
    "per-class of wrong length": lambda: head(margin=arcwise.margins.ArcFace([0.1, 0.2])),
    "per-class negative": lambda: arcwise.margins.CosFace([0.1, -0.2]),
    "per-class a matrix": lambda: arcwise.margins.CosFace(torch.zeros(2, 2)),
    "continuation": lambda: arcwise.margins.ArcFace(continuation="jump"),
    "filter of a reshaping margin": lambda: arcwise.margins.NoiseFilter("curricularface"),
    "s zero": lambda: head(s=0.0),
    "s negative": lambda: head(s=-1.0),
    "s infinite": lambda: head(s=math.inf),
    "s a word": lambda: head(s="large"),
    "k zero": lambda: head(k=0),
    "classes zero": lambda: arcwise.Head(8, 0),
    "classes a float": lambda: arcwise.Head(8, 10.0),
    "dim zero": lambda: arcwise.Head(0, 10),
    "unknown engine": lambda: head(engine="cuda"),
    "unknown gradient": lambda: head(gradient="st"),
    "memory zero": lambda: head(memory=0),
    "unknown head": lambda: arcwise.head_from("arkface", 8, 10),
    "softmax with parameters": lambda: arcwise.head_from("softmax:m=1", 8, 10),
    "counts beyond every number": lambda: arcwise.margins_from_counts([1, 10**400]),
    "m beyond every number": lambda: arcwise.margins.ArcFace([0.1, 10**400]),
    "counts negative": lambda: arcwise.margins_from_counts([1, -2]),
    "counts empty": lambda: arcwise.margins_from_counts([]),
    "counts all zero": lambda: arcwise.margins_from_counts([0, 0]),
    "counts low above high": lambda: arcwise.margins_from_counts([1, 2], 0.5, 0.2),
    "advise no classes": lambda: arcwise.advise(0, 2),
    "encode floats": lambda: embedder().encode(np.zeros((2, 8, 8, 1), np.float32)),
    "batch of floats": lambda: GREY.batch(np.zeros((2, 8, 8, 1))),
    "embed with a path": lambda: arcwise.embed("runs/x", [np.zeros((8, 8), np.uint8)]),
    "embed into with a path": lambda: sys.modules["arcwise.embed"].embed_into("x.safetensors", "runs/x", []),
    "a gallery with a path": lambda: arcwise.Gallery.create("/nowhere/people", "runs/x"),
    "a gallery opened with a number": lambda: arcwise.Gallery.open("/nowhere/people", 3),
    "labels of floats": lambda: arcwise.Embeddings(np.eye(2), np.array([0.5, 1.0])),
    "rows that are a tensor": lambda: arcwise.Embeddings(torch.eye(2)),
    "rows that are a list": lambda: arcwise.Embeddings([[1.0, 0.0]]),
    "labels that are a list": lambda: arcwise.Embeddings(np.eye(2), [0, 1]),
    "half a model": lambda: embedder().half().encode(np.zeros((2, 8, 8, 1), np.uint8)),
    "a double model": lambda: embedder().double().encode(np.zeros((2, 8, 8, 1), np.uint8)),
    "a brain model": lambda: embedder().bfloat16().encode(np.zeros((2, 8, 8, 1), np.uint8)),
    "prototypes with a short bias": lambda: arcwise.Prototypes(np.zeros((3, 2)), np.zeros(2)),
    "an image that is a number": lambda: arcwise.embed(embedder(), 3),
    "a network that is a class": lambda: arcwise.train("digits-2d", "/nowhere/run", model=torch.nn.Flatten),
    "a network that is a name": lambda: arcwise.train("digits-2d", "/nowhere/run", model="resnet9"),
    "a head that is a number": lambda: arcwise.train("digits-2d", "/nowhere/run", head=3),
    "a recipe that is a number": lambda: arcwise.train(5, "/nowhere/run"),
    "a spec of None": lambda: arcwise.HeadSpec.parse(None),
}


def outcome(call) -> dict:
    try:
        return {"value": repr(call())}
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}


for kind, make in (
    ("Head", head),
    ("chunked", lambda: head(engine="chunked")),
    ("LinearHead", lambda: LinearHead(8, 10)),
):
    for name, call in WRONG.items():
        print(json.dumps({"name": f"{kind}: {name}", **outcome(lambda call=call, make=make: call(make()))}))
for name, call in BUILD.items():
    print(json.dumps({"name": name, **outcome(call)}))
