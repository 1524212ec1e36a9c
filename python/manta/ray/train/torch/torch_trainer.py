"""ray.train.torch.torch_trainer."""
from manta.train.torch import TorchTrainer

__all__ = ["TorchTrainer"]
