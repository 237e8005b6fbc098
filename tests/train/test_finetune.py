"""Fine-tuning on few images: what the recipe `finetune` ends with is what it had at its best."""

import statistics

import pytest

from arcwise.config import override
from arcwise.recipes import recipe
from arcwise.train import train

SMALL = ["data.size=24", "data.channels=1", "data.cutout=0", "data.shift=2", "model.backbone=simple_cnn"]
FIRST = ["data.source=glyphs[0-99]", "data.limit=3000", "train.epochs=6", *SMALL]
THEN = ["data.source=glyphs[300-339]", "data.limit=400"]  # forty characters that the first training had not, ten each


@pytest.mark.slow
def test_on_ten_images_of_forty_classes_the_last_epoch_is_within_a_point_of_the_best(tmp_path):
    base = train(override(recipe("folder"), FIRST), tmp_path / "base", device="cpu")
    lost, gained = [], []
    for seed in range(5):
        config = override(recipe("finetune"), [*THEN, f"seed={seed}", f"init={base.path}"])
        run = train(config, tmp_path / f"run{seed}", device="cpu")
        accuracy = [line["accuracy"] for line in run.journal("evaluation")]
        lost.append(max(accuracy) - run.result["test"]["accuracy"])
        gained.append(run.result["test"]["accuracy"] - accuracy[0])
    assert max(lost) <= 0.01, lost
    assert statistics.mean(gained) > 0.05, gained
