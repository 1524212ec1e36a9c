"""ray.air.config."""
from manta.train import CheckpointConfig, DataConfig, FailureConfig, RunConfig, ScalingConfig

__all__ = ["CheckpointConfig", "DataConfig", "FailureConfig", "RunConfig", "ScalingConfig"]
