"""ray.train.base_trainer."""
from manta.train.errors import TrainingFailedError
from manta.train.trainer import BaseTrainer

__all__ = ["BaseTrainer", "TrainingFailedError"]
