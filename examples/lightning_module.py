"""ArcFace in a LightningModule: the head is a part of the module, and so of its optimiser and its checkpoints.

    pip install arcwise lightning
    python examples/lightning_module.py     # some ten seconds on two cores, nothing is downloaded

Ten digits of 8 x 8. After training only the network is kept: a new image is compared with known ones by the cosine of
their embeddings.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import arcwise

arcwise.mend_torchvision()  # for a torchvision that was built for another torch; changes nothing elsewhere
import lightning

DIM, EPOCHS, LR = 32, 8, 5e-3


class Digits(lightning.LightningModule):
    def __init__(self, classes: int):
        super().__init__()
        layer = nn.Conv2d(1, 32, 3, padding=1, bias=False)
        self.network = nn.Sequential(layer, nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 8 * 8, DIM))
        self.head = arcwise.Head(DIM, classes, margin=arcwise.margins.ArcFace(m=0.3), s=16.0)

    def training_step(self, batch, index):
        images, y = batch
        return self.head(self.network(images), y)  # raw embeddings: the head normalises

    def test_step(self, batch, index):
        images, y = batch
        guess = self.head.logits(self.network(images)).argmax(1)  # logits never see the margin
        self.log("accuracy", (guess == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=LR)  # network and head


def tensors(images: arcwise.Images) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(images.pixels[:]).permute(0, 3, 1, 2).float() / 255, torch.tensor(images.y)


lightning.seed_everything(0, verbose=False)
known, new = (tensors(part) for part in (arcwise.load("digits").train, arcwise.load("digits").test))
module = Digits(classes=10)
trainer = lightning.Trainer(
    max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
)
trainer.fit(module, DataLoader(TensorDataset(*known), batch_size=64, shuffle=True))
(result,) = trainer.test(module, DataLoader(TensorDataset(*new), batch_size=512), verbose=False)
print(f"test accuracy: {result['accuracy']:.1%}")

network = module.network.eval()  # the head is dropped
with torch.no_grad():
    a, b = (arcwise.Embeddings(network(images).numpy(), y.numpy()) for images, y in (new, known))
print(f"nearest known image by cosine shows the same digit: {arcwise.metrics.nearest_neighbour_accuracy(a, b):.1%}")
