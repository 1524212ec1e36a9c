"""ray.train.trainer."""
from manta.train.errors import TrainingFailedError
from manta.train.trainer import BaseTrainer

__all__ = ["BaseTrainer", "TrainingFailedError"]
