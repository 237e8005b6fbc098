"""ArcFace in a plain PyTorch loop: your network, your DataLoader, arcwise.Head as the loss.

    pip install "arcwise[figures]"      # the characters are drawn with matplotlib's fonts
    python examples/plain_loop.py       # some ten seconds on two cores, nothing is downloaded

A small network learns a hundred characters. Then the head is dropped, and cosines of embeddings tell whether two
images show the same character, for a hundred others that took no part in training.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import arcwise

DIM, EPOCHS, LR = 64, 6, 1e-2


def tensors(images: arcwise.Images) -> tuple[torch.Tensor, torch.Tensor]:
    pixels = torch.tensor(images.pixels[:]).permute(0, 3, 1, 2)
    return pixels.float() / 255, torch.tensor(images.y)


def block(inside: int, outside: int) -> nn.Sequential:
    convolution = nn.Conv2d(inside, outside, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outside), nn.ReLU(), nn.MaxPool2d(2))


def equal_error_rate(x: torch.Tensor, y: torch.Tensor) -> float:
    pairs = arcwise.metrics.all_pairs(arcwise.Embeddings(x.numpy(), y.numpy()))  # the cosine of every pair
    found = arcwise.metrics.eer(pairs)
    return (found.far + 1 - found.tar) / 2


torch.manual_seed(0)
parts = arcwise.load("glyphs[0-99]", unseen="300-399", size=16)
assert parts.unseen is not None
loader = DataLoader(TensorDataset(*tensors(parts.train)), batch_size=128, shuffle=True)

network = nn.Sequential(block(1, 16), block(16, 64), nn.Flatten(), nn.Linear(64 * 4 * 4, DIM))
head = arcwise.Head(DIM, parts.train.classes, margin=arcwise.margins.ArcFace(m=0.3), s=16.0)
optimiser = torch.optim.AdamW([*network.parameters(), *head.parameters()], lr=LR)  # the head learns too
schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LR, total_steps=EPOCHS * len(loader))
for _ in range(EPOCHS):
    for images, y in loader:
        optimiser.zero_grad()
        head(network(images), y).backward()  # raw embeddings: the head normalises
        optimiser.step()
        schedule.step()

network.eval()
(images, y), (others, label) = tensors(parts.test), tensors(parts.unseen)
with torch.no_grad():
    accuracy = (head.logits(network(images)).argmax(1) == y).float().mean()  # logits never see the margin
    print(f"test accuracy on {parts.train.classes} characters: {accuracy:.1%}")
    print(f"equal error rate on {parts.unseen.classes} unseen ones: {equal_error_rate(network(others), label):.1%}")
    print(f"the same from pixels alone: {equal_error_rate(others.flatten(1), label):.1%}")
