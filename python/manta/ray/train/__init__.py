"""ray.train: Ray Train's API, which is manta.train's.

    from ray import train
    from ray.train.torch import TorchTrainer
"""
from manta.train import (BackendConfig, Checkpoint, CheckpointConfig, ControllerError, DataConfig, FailureConfig, Result,
                         RunConfig, ScalingConfig, SyncConfig, TrainContext, TrainingFailedError, WorkerGroupError,
                         get_checkpoint, get_context, get_dataset_shard, report)
from manta.train.config import CheckpointUploadMode
from manta.train.errors import UnequalReportsError

__all__ = [
    "BackendConfig", "Checkpoint", "CheckpointConfig", "CheckpointUploadMode", "ControllerError", "DataConfig",
    "FailureConfig", "Result", "RunConfig", "ScalingConfig", "SyncConfig", "TrainContext", "TrainingFailedError",
    "UnequalReportsError", "WorkerGroupError", "get_checkpoint", "get_context", "get_dataset_shard", "report",
]

_LAZY = ("torch", "tensorflow", "base_trainer", "data_parallel_trainer", "trainer", "backend", "context")


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
