"""ray.train.torch: PyTorch in loops."""
from manta.train.torch import (TorchCheckpoint, TorchConfig, TorchTrainer, accelerate, backward, enable_reproducibility,
                               get_device, get_devices, prepare_data_loader, prepare_model, prepare_optimizer)

__all__ = ["TorchCheckpoint", "TorchConfig", "TorchTrainer", "accelerate", "backward", "enable_reproducibility", "get_device",
           "get_devices", "prepare_data_loader", "prepare_model", "prepare_optimizer"]
