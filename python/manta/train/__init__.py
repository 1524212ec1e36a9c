"""manta.train: loops in several workers, their reports and checkpoints, in the words of Ray Train.

    from manta import train
    from manta.train.torch import TorchTrainer, prepare_model

    def loop(config):
        model = prepare_model(Net())
        for epoch in range(config["epochs"]):
            ...
            train.report({"loss": loss.item()}, checkpoint=train.Checkpoint.from_directory(folder))

    result = TorchTrainer(loop, train_loop_config={"epochs": 3},
                          scaling_config=train.ScalingConfig(num_workers=2)).fit()

| file | what |
|---|---|
| config | what is asked for |
| trainer, result, errors | DataParallelTrainer; what fit() returns and raises |
| checkpoint, context | what a loop has in its hands |
| collective | what all ranks do together |
| callback, validation | what the driver calls beside the ranks: UserCallback, functions that try checkpoints |
| _session | what a loop calls |
| _rank | the actor in which a loop runs |
| _controller | fit(): attempts, failures |
| _channel | messages between ranks and driver |
| _record, _validate | the run's folder: reports, rounds, checkpoints; validations |
| _copy, _shard, _backend | copies of folders; parts of datasets; what a framework needs |
| torch, tensorflow | TorchTrainer and its collectives; TensorflowTrainer and its ports |

Importing it imports no framework.
"""
from manta.train import collective as collective
from manta.train._backend import Backend, BackendConfig
from manta.train._session import get_all_reported_checkpoints, get_checkpoint, get_context, get_dataset_shard, report
from manta.train._shard import DataIterator
from manta.train.callback import TrainRunContext, UserCallback
from manta.train.checkpoint import Checkpoint
from manta.train.config import (CheckpointConfig, CheckpointConsistencyMode, CheckpointUploadMode, DataConfig, FailureConfig,
                                LoggingConfig, RunConfig, ScalingConfig, SyncConfig)
from manta.train.context import LocalTrainContext, TrainContext
from manta.train.errors import ControllerError, TrainingFailedError, UnequalReportsError, WorkerGroupError
from manta.train.result import Result
from manta.train.trainer import BaseTrainer, DataParallelTrainer
from manta.train.validation import ReportedCheckpoint, ReportedCheckpointStatus, ValidationConfig, ValidationTaskConfig

__all__ = [
    "Backend", "BackendConfig", "BaseTrainer", "Checkpoint", "CheckpointConfig", "CheckpointConsistencyMode",
    "CheckpointUploadMode", "ControllerError", "DataConfig", "DataIterator", "DataParallelTrainer", "FailureConfig",
    "LocalTrainContext", "LoggingConfig", "ReportedCheckpoint", "ReportedCheckpointStatus", "Result", "RunConfig",
    "ScalingConfig", "SyncConfig", "TrainContext", "TrainRunContext", "TrainingFailedError", "UnequalReportsError",
    "UserCallback", "ValidationConfig", "ValidationTaskConfig", "WorkerGroupError", "get_all_reported_checkpoints",
    "get_checkpoint", "get_context", "get_dataset_shard", "report",
]
