"""TorchConfig, and what it does around a loop: variables, threads, the process group."""
from __future__ import annotations

import dataclasses
import datetime
import os
from typing import Any, Optional

from manta import _threads
from manta.train._backend import Backend, BackendConfig
from manta.train.config import ScalingConfig
from manta.train.context import Place

__all__ = ["TorchConfig", "register_backend"]


@dataclasses.dataclass
class TorchConfig(BackendConfig):
    """The process group of a TorchTrainer.

        TorchConfig(backend="gloo", timeout_s=60)

    backend: "manta" (collectives of this library, the default on processors), "gloo" or "nccl". init_method is
    accepted and not used: the ranks meet by a file of the attempt's, and no port is opened.
    """
    backend: Optional[str] = None
    init_method: str = "env"
    timeout_s: int = 1800

    def make_backend(self) -> Backend:
        return TorchBackend(self.backend, self.timeout_s)


def _is_backend_nccl(backend: str) -> bool:
    """Whether a backend of torch.distributed, or what it is for one kind of device ("cpu:gloo,cuda:nccl"), is NCCL on GPUs."""
    for part in backend.split(","):
        device, colon, name = part.partition(":")
        if (name if colon else device) == "nccl" and (not colon or device == "cuda"):
            return True
    return False


def register_backend() -> None:
    """Makes "manta" a backend of torch.distributed in this process, for a program that makes its process group itself.

        register_backend()
        torch.distributed.init_process_group("manta")
    """
    from manta.train.torch import _collectives
    _collectives.register()


def _device(place: Place) -> Any:
    from manta.train.torch import prepare
    return prepare._devices_of(place)[0]


class TorchBackend(Backend):
    """The process group, from before the loop until it has returned."""

    def __init__(self, backend: Optional[str], timeout_s: float) -> None:
        self.backend, self.timeout_s = backend, timeout_s
        self.store = ""

    def attempt(self, n: int, folder: str, scaling: ScalingConfig) -> None:
        self.store = os.path.join(folder, "store")
        if self.backend is None:
            self.backend = "nccl" if scaling.use_gpu else "manta"
        elif _is_backend_nccl(self.backend) and not scaling.use_gpu:
            raise ValueError(f"TorchConfig(backend={self.backend!r}) is of GPUs: set ScalingConfig(use_gpu=True), or leave the backend out")

    def start(self, place: Place) -> None:
        n = str(place.world_size)
        os.environ.update(RANK=str(place.rank), LOCAL_RANK=str(place.rank), WORLD_SIZE=n, LOCAL_WORLD_SIZE=n,
                          NODE_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        import torch
        import torch.distributed as distributed

        os.environ["ACCELERATE_TORCH_DEVICE"] = str(_device(place))
        if _threads.is_ours or "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(max(1, int(place.resources.get("CPU", 1))))
        if self.backend == "manta":
            register_backend()
        distributed.init_process_group(
            self.backend, store=distributed.FileStore(self.store, place.world_size), rank=place.rank,
            world_size=place.world_size, timeout=datetime.timedelta(seconds=self.timeout_s))
        if "gloo" in (self.backend or "") and place.world_size > 1:
            distributed.barrier()       # a rank whose loop is over at once would leave while others still connect to it

    def end(self, place: Place) -> None:
        import torch.distributed as distributed
        if distributed.is_initialized():
            distributed.destroy_process_group()
