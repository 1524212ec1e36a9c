"""ray.train: Ray Train's API, which is manta.train's.

    from ray import train
    from ray.train.torch import TorchTrainer
"""
from manta.ray.train._preemption import PreemptionError, PreemptionInfo, get_preemption_info
from manta.ray.train.constants import TRAIN_DATASET_KEY
from manta.train import (BackendConfig, Checkpoint, CheckpointConfig, CheckpointConsistencyMode, CheckpointUploadMode,
                         ControllerError, DataConfig, FailureConfig, LoggingConfig, ReportedCheckpoint, ReportedCheckpointStatus,
                         Result, RunConfig, ScalingConfig, SyncConfig, TrainContext, TrainingFailedError, UnequalReportsError,
                         UserCallback, ValidationConfig, ValidationTaskConfig, WorkerGroupError, get_all_reported_checkpoints,
                         get_checkpoint, get_context, get_dataset_shard, report)
from manta.train.validation import ValidationFn

__all__ = [
    "BackendConfig", "Checkpoint", "CheckpointConfig", "CheckpointConsistencyMode", "CheckpointUploadMode", "ControllerError",
    "DataConfig", "FailureConfig", "LoggingConfig", "PreemptionError", "PreemptionInfo", "ReportedCheckpoint",
    "ReportedCheckpointStatus", "Result", "RunConfig", "ScalingConfig", "SyncConfig", "TRAIN_DATASET_KEY", "TrainContext",
    "TrainingFailedError", "UnequalReportsError", "UserCallback", "ValidationConfig", "ValidationFn", "ValidationTaskConfig",
    "WorkerGroupError", "get_all_reported_checkpoints", "get_checkpoint", "get_context", "get_dataset_shard",
    "get_preemption_info", "report",
]

_LAZY = ("torch", "tensorflow", "base_trainer", "collective", "data_parallel_trainer", "trainer", "backend", "constants", "context",
         "utils")


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
