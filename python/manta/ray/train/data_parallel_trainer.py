"""ray.train.data_parallel_trainer."""
from manta.train.trainer import DataParallelTrainer

__all__ = ["DataParallelTrainer"]
