"""ray.air: names of older programs for what ray.train has."""
from manta.ray.air import session
from manta.train import (Checkpoint, CheckpointConfig, FailureConfig, Result, RunConfig, ScalingConfig)
from manta.train.config import DataConfig as DatasetConfig

__all__ = ["Checkpoint", "CheckpointConfig", "DatasetConfig", "FailureConfig", "Result", "RunConfig", "ScalingConfig",
           "session"]
