"""python docs/launch/ray_train.py: Ray starts the processes and their process group. Not tried by arcwise's authors."""

from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def work() -> None:
    """What each process does: arcwise takes the process group that Ray has made."""
    import arcwise

    arcwise.train("faces-r50", "/runs/faces", settings=["data.source=folder:/data/faces"], resume=True)


if __name__ == "__main__":
    scaling = ScalingConfig(num_workers=8, use_gpu=True)
    TorchTrainer(work, scaling_config=scaling, run_config=RunConfig(name="arcwise")).fit()
