"""Any model of timm as a backbone; timm is an extra, imported here and only when asked for."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from types import ModuleType

import torch
from torch import Tensor, nn

from arcwise.errors import ArcwiseError

KEPT_ALIVE: list[torch.library.Library] = []  # schemas vanish with the object that declared them


def import_timm() -> ModuleType:
    """timm, also where torchvision was built for a torch with CUDA and this one has none."""
    mend_torchvision()
    try:
        return importlib.import_module("timm")
    except ImportError as error:
        raise ArcwiseError(f"timm models need timm: pip install 'arcwise[timm]' ({error}).") from None


def mend_torchvision() -> bool:
    """Whether torchvision can be imported from here on, also where it was built for another torch than this one.

    Such a torchvision fails with "operator torchvision::nms does not exist", and so does all that imports it: timm,
    Lightning, the Trainer of transformers. Call this before them. Its Python part then works, its compiled operators
    (nms, roi_align) still do not. Where torchvision is sound or not installed, nothing changes.

    >>> mend_torchvision() == mend_torchvision()
    True
    """
    try:
        importlib.import_module("torchvision")
    except ImportError:
        return False
    except RuntimeError:  # kernels were to be registered for operators that nobody declared
        declare_operators()
        importlib.import_module("torchvision")
    return True


def declare_operators() -> None:
    """Declares the two operators that torchvision's own library would have, so that its Python part can be imported."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("torchvision", "timm")]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    KEPT_ALIVE.append(library)


class TimmBackbone(nn.Module):
    """The pooled features of a timm model for images of any side and number of channels."""

    def __init__(self, name: str, *, channels: int, side: int, dropout: float = 0.0, pretrained: bool = False):
        super().__init__()
        timm = import_timm()
        if not timm.is_model(name.split(".")[0]):
            near = difflib.get_close_matches(name, timm.list_models(), n=5)
            hint = " or ".join(near) or "one of timm.list_models()"
            raise ArcwiseError(f"unknown timm model {name!r}: did you mean {hint}?")
        options = {"num_classes": 0, "in_chans": channels, "pretrained": pretrained}
        if "img_size" in inspect.signature(timm.model_entrypoint(name.split(".")[0])).parameters or takes_side(name):
            options["img_size"] = side
        self.dropout = nn.Dropout(dropout)
        try:
            self.body = timm.create_model(name, **options)
            with torch.no_grad():
                self.features = self.body.eval()(torch.zeros(1, channels, side, side)).shape[1]
        except Exception as error:  # a thousand models fail in a thousand ways
            raise ArcwiseError(f"timm cannot build {name} for {side} x {side} images: {error}") from None
        self.body.train()

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.body(x))


def takes_side(name: str) -> bool:
    """Whether a family is built for one size of image, as vision transformers are."""
    return any(part in name for part in ("vit_", "deit", "swin", "beit", "eva", "mixer", "cait", "xcit"))
