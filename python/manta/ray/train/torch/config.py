"""ray.train.torch.config."""
from manta.train.torch.config import TorchConfig, _is_backend_nccl

__all__ = ["TorchConfig", "_is_backend_nccl"]
