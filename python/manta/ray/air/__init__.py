"""ray.air: names of older programs for what ray.train has."""
from typing import TYPE_CHECKING

from manta.ray.air import config, session
from manta.train import Checkpoint, Result
from manta.train.config import DataConfig as DatasetConfig

if TYPE_CHECKING:
    from manta.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

__all__ = ["Checkpoint", "CheckpointConfig", "DatasetConfig", "FailureConfig", "Result", "RunConfig", "ScalingConfig",
           "session"]


def __getattr__(name: str) -> object:
    if name in config.CHANGING:
        return getattr(config, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
