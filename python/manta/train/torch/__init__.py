"""PyTorch in the loops of manta.train.

    from manta.train.torch import TorchTrainer, prepare_data_loader, prepare_model

    def loop(config):
        model = prepare_model(Net())
        for images, labels in prepare_data_loader(loader): ...

    TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2)).fit()

Importing it does not import torch.
"""
from manta.train.torch.checkpoint import TorchCheckpoint
from manta.train.torch.config import TorchConfig, register_backend
from manta.train.torch.prepare import (accelerate, backward, enable_reproducibility, get_device, get_devices, prepare_data_loader,
                                       prepare_model, prepare_optimizer)
from manta.train.torch.trainer import TorchTrainer

__all__ = ["TorchCheckpoint", "TorchConfig", "TorchTrainer", "accelerate", "backward", "enable_reproducibility", "get_device",
           "get_devices", "prepare_data_loader", "prepare_model", "prepare_optimizer", "register_backend"]
