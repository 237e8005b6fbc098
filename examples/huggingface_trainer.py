"""ArcFace under the Trainer of Hugging Face's transformers: a module that returns its loss with the logits.

    pip install arcwise "transformers[torch]"
    python examples/huggingface_trainer.py      # some ten seconds on two cores, nothing is downloaded

Ten digits of 8 x 8. After training only the network is kept: a new image is compared with known ones by the cosine of
their embeddings. A model of transformers takes the network's place if its pooled output goes to the head.
"""

import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset

import arcwise

arcwise.mend_torchvision()  # for a torchvision that was built for another torch; changes nothing elsewhere
from transformers import Trainer, TrainingArguments

DIM = 32


class Digits(Dataset):
    def __init__(self, images: arcwise.Images):
        self.pixels = torch.tensor(images.pixels[:]).permute(0, 3, 1, 2).float() / 255
        self.y = torch.tensor(images.y)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return {"pixel_values": self.pixels[index], "labels": self.y[index]}


class ArcFaceModel(nn.Module):
    def __init__(self, network: nn.Module, classes: int):
        super().__init__()
        self.network, self.head = network, arcwise.Head(DIM, classes, margin=arcwise.margins.ArcFace(m=0.3), s=16.0)

    def forward(self, pixel_values, labels):
        x = self.network(pixel_values)  # raw embeddings: the head normalises
        return {"loss": self.head(x, labels), "logits": self.head.logits(x)}  # logits never see the margin


torch.manual_seed(0)
known, new = Digits(arcwise.load("digits").train), Digits(arcwise.load("digits").test)
layer = nn.Conv2d(1, 32, 3, padding=1, bias=False)
network = nn.Sequential(layer, nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 8 * 8, DIM))
quiet = {"report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True, "use_cpu": True}
how = {"num_train_epochs": 8, "per_device_train_batch_size": 64, "learning_rate": 5e-3, "seed": 0}
trainer = Trainer(ArcFaceModel(network, 10), TrainingArguments(tempfile.mkdtemp(), **how, **quiet), train_dataset=known)
trainer.train()  # its optimiser has the parameters of network and head
found = trainer.predict(new)
right = torch.as_tensor(found.predictions).argmax(1) == torch.as_tensor(found.label_ids)
print(f"test accuracy: {right.float().mean():.1%}")
with torch.no_grad():  # the head is dropped
    a, b = (arcwise.Embeddings(network.eval()(part.pixels).numpy(), part.y.numpy()) for part in (new, known))
print(f"nearest known image by cosine shows the same digit: {arcwise.metrics.nearest_neighbour_accuracy(a, b):.1%}")
