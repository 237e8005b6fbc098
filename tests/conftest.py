"""Fixtures for all tests: a fixed seed before each, and the markers' conditions."""

import importlib
import importlib.util
import os
import sys
import types
from pathlib import Path

import pytest
import torch
from hypothesis import settings

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is imported: kernels then run on the CPU


# pytorch-metric-learning turns faiss over to tensors for the whole process, and milvus-lite, which uses it, fails.
sys.modules.setdefault("faiss.contrib.torch_utils", types.ModuleType("faiss.contrib.torch_utils"))


def unwrapped(name: str) -> None:
    """Imports a module past the hook that checks types: triton wants the source of its kernels, not wrappers."""
    package, _, last = name.rpartition(".")
    path = Path(importlib.import_module(package).__path__[0]) / f"{last}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


if importlib.util.find_spec("triton") is not None:
    unwrapped("arcwise.ops.triton")

settings.register_profile("arcwise", deadline=None, derandomize=True)
settings.load_profile("arcwise")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def pytest_collection_modifyitems(config, items):
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="no CUDA device here")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)
