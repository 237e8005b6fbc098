"""ArcFace on a model of timm: "timm:NAME" is a backbone, and arcwise trains it.

    pip install "arcwise[timm]"
    python examples/timm_model.py       # some ten seconds on two cores, nothing is downloaded

Any name of timm.list_models() will do. For images of your own: data.source=folder:PATH, a larger model, and
model.pretrained=true to start from timm's weights. In a loop of your own, timm.create_model(NAME, num_classes=DIM) is
the network of plain_loop.py.
"""

import tempfile
from pathlib import Path

import arcwise

settings = [
    "data.source=digits",
    "model.backbone=timm:resnet10t",
    "model.dim=32",
    "head.name=arcface:m=0.3,s=16",
    "train.epochs=6",
    "train.optimiser=adamw",
    "train.lr=0.003",
]

folder = Path(tempfile.mkdtemp())
run = arcwise.train("digits-2d", folder / "run", settings=settings, device="cpu")  # seeded
print(f"test accuracy: {run.result['test']['accuracy']:.1%}")

model = arcwise.Embedder.load(run.path)  # the timm model with its last layer and preprocessing; the head stays behind
model.save(folder / "digits.safetensors")  # one file, which needs nothing of the run
parts = arcwise.load("digits")
new, known = arcwise.embed(model, parts.test), arcwise.embed(model, parts.train)
nearest = arcwise.metrics.nearest_neighbour_accuracy(new, known)
print(f"nearest known image by cosine shows the same digit: {nearest:.1%}")
