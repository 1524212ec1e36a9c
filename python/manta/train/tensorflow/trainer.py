"""TensorflowTrainer: a loop in N workers that are one cluster of TensorFlow."""
from __future__ import annotations

from typing import Any, Callable, Mapping, Optional

from manta.train.checkpoint import Checkpoint
from manta.train.config import DataConfig, RunConfig, ScalingConfig
from manta.train.tensorflow.config import TensorflowConfig
from manta.train.trainer import DataParallelTrainer

__all__ = ["TensorflowTrainer"]


class TensorflowTrainer(DataParallelTrainer):
    """Runs a loop in each of N workers, with TF_CONFIG set in it, so that MultiWorkerMirroredStrategy finds the others.

        TensorflowTrainer(loop, train_loop_config={"epochs": 3}, scaling_config=ScalingConfig(num_workers=2)).fit()
    """
    _kind = "tensorflow"

    def __init__(self, train_loop_per_worker: Callable[..., Any], *, train_loop_config: Optional[Mapping[str, Any]] = None,
                 tensorflow_config: Optional[TensorflowConfig] = None, scaling_config: Optional[ScalingConfig] = None,
                 run_config: Optional[RunConfig] = None, dataset_config: Optional[DataConfig] = None,
                 datasets: Optional[Mapping[str, Any]] = None, metadata: Optional[Mapping[str, Any]] = None,
                 resume_from_checkpoint: Optional[Checkpoint] = None, validation_config: Optional[Any] = None) -> None:
        if tensorflow_config is not None and not isinstance(tensorflow_config, TensorflowConfig):
            raise ValueError(f"tensorflow_config is {type(tensorflow_config).__name__}, expected TensorflowConfig")
        super().__init__(train_loop_per_worker, train_loop_config=train_loop_config,
                         backend_config=tensorflow_config or TensorflowConfig(), scaling_config=scaling_config,
                         run_config=run_config, dataset_config=dataset_config, datasets=datasets, metadata=metadata,
                         resume_from_checkpoint=resume_from_checkpoint, validation_config=validation_config)
