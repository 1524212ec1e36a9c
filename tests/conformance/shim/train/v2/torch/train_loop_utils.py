"""ray.train.v2.torch.train_loop_utils"""
from manta.train.torch import (accelerate, backward, enable_reproducibility, get_device, get_devices,  # noqa: F401
                               prepare_data_loader, prepare_model, prepare_optimizer)
