"""Fixtures for all tests: a fixed seed before each, and the markers' conditions."""

import pytest
import torch
from hypothesis import settings

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
