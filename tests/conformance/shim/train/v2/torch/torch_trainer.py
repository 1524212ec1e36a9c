"""ray.train.v2.torch.torch_trainer"""
from manta.train.torch import TorchTrainer  # noqa: F401
