"""TorchTrainer: a loop in N workers that are one process group of torch.distributed."""
from __future__ import annotations

from typing import Any, Callable, Mapping, Optional

from manta.train.checkpoint import Checkpoint
from manta.train.config import DataConfig, RunConfig, ScalingConfig
from manta.train.torch.config import TorchConfig
from manta.train.trainer import DataParallelTrainer

__all__ = ["TorchTrainer"]


class TorchTrainer(DataParallelTrainer):
    """Runs a loop in each of N workers, with torch.distributed ready in it.

        TorchTrainer(loop, train_loop_config={"lr": 0.1}, scaling_config=ScalingConfig(num_workers=2)).fit()
    """
    _kind = "torch"

    def __init__(self, train_loop_per_worker: Callable[..., Any], *, train_loop_config: Optional[Mapping[str, Any]] = None,
                 torch_config: Optional[TorchConfig] = None, scaling_config: Optional[ScalingConfig] = None,
                 run_config: Optional[RunConfig] = None, dataset_config: Optional[DataConfig] = None,
                 datasets: Optional[Mapping[str, Any]] = None, metadata: Optional[Mapping[str, Any]] = None,
                 resume_from_checkpoint: Optional[Checkpoint] = None, validation_config: Optional[Any] = None) -> None:
        if torch_config is not None and not isinstance(torch_config, TorchConfig):
            raise ValueError(f"torch_config is {type(torch_config).__name__}, expected TorchConfig")
        super().__init__(train_loop_per_worker, train_loop_config=train_loop_config,
                         backend_config=torch_config or TorchConfig(), scaling_config=scaling_config,
                         run_config=run_config, dataset_config=dataset_config, datasets=datasets, metadata=metadata,
                         resume_from_checkpoint=resume_from_checkpoint, validation_config=validation_config)
