"""ray.train.v2.api.config"""
from manta.train import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig  # noqa: F401
