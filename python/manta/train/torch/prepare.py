"""What makes a model and a loader of one process those of a rank.

    model = prepare_model(Net())
    loader = prepare_data_loader(DataLoader(data, batch_size=32, shuffle=True))
"""
from __future__ import annotations

import copy
import random
import sys
import threading
from typing import Any, Iterator, Mapping, MutableMapping, Optional

from manta.train import _session
from manta.train.context import Place

__all__ = ["accelerate", "backward", "enable_reproducibility", "get_device", "get_devices", "prepare_data_loader", "prepare_model",
           "prepare_optimizer"]


def get_devices() -> list[Any]:
    """The devices of this rank, as torch names them.

        device = get_devices()[0]
    """
    return _devices_of(_session.current("get_devices()").place)


def _devices_of(place: Place) -> list[Any]:
    import torch
    n = int(place.resources.get("GPU", 0))
    if not n or not torch.cuda.is_available():
        return [torch.device("cpu")]
    return [torch.device(f"cuda:{i}") for i in range(min(n, torch.cuda.device_count()))]


def get_device() -> Any:
    """The device of this rank.

        model.to(get_device())
    """
    return get_devices()[0]


def prepare_model(model: Any, move_to_device: Any = True, parallel_strategy: Optional[str] = "ddp",
                  parallel_strategy_kwargs: Optional[Mapping[str, Any]] = None) -> Any:
    """The model on this rank's device and, with several ranks, in DistributedDataParallel (or, "fsdp", fully sharded); in mixed
    precision after accelerate(amp=True).

        model = prepare_model(Net())
    """
    import torch
    place = _session.current("prepare_model()").place
    if parallel_strategy not in (None, "ddp", "fsdp"):
        raise ValueError(f"parallel_strategy is {parallel_strategy!r}, expected \"ddp\", \"fsdp\" or None")
    device = move_to_device if isinstance(move_to_device, torch.device) else get_device()
    if move_to_device:
        model = model.to(device)
    if (mixed := _mixed()) is not None:
        mixed.prepare(model)
    if parallel_strategy is None or place.world_size == 1:
        return model
    how = dict(parallel_strategy_kwargs or {})
    if parallel_strategy == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel
        return FullyShardedDataParallel(model, **how)
    if device.type == "cuda":
        how = {"device_ids": [device], "output_device": device, **how}
    return torch.nn.parallel.DistributedDataParallel(model, **how)


class Mixed:
    """Mixed precision: a model computes in sixteen bits where torch holds that safe, and its results are float32."""

    def __init__(self, device: Any) -> None:
        import torch
        self._device = device
        self._scaler: Any = torch.amp.GradScaler() if device.type == "cuda" else None       # gradients of float16 are small

    def prepare(self, model: Any) -> None:
        model.register_forward_pre_hook(_enter_mixed)
        model.register_forward_hook(_leave_mixed, always_call=True)

    def backward(self, tensor: Any) -> None:
        (tensor if self._scaler is None else self._scaler.scale(tensor)).backward()

    def prepare_optimizer(self, optimizer: Any) -> Any:
        return optimizer if self._scaler is None else ScaledOptimizer(optimizer, self._scaler)


class ScaledOptimizer:
    """An optimizer whose gradients backward() has scaled; everything else is the optimizer's."""

    def __init__(self, optimizer: Any, scaler: Any) -> None:
        self._optimizer, self._scaler = optimizer, scaler

    def step(self, closure: Any = None) -> Any:
        """A step with the gradients as they are; none when one of them is no number."""
        out = self._scaler.step(self._optimizer) if closure is None else self._scaler.step(self._optimizer, closure)
        self._scaler.update()
        return out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)


def _mixed() -> Optional[Mixed]:
    """That of the loop which runs here, if it has asked for it."""
    return None if _session._current is None else _session._current.mixed


_inside = threading.local()         # the contexts of the models that compute


def _enter_mixed(model: Any, inputs: Any) -> None:
    import torch
    parameter = next(model.parameters(), None)
    context = torch.autocast("cpu" if parameter is None else parameter.device.type)
    context.__enter__()
    _inside.contexts = [*getattr(_inside, "contexts", ()), context]


def _leave_mixed(model: Any, inputs: Any, output: Any) -> Any:
    _inside.contexts.pop().__exit__(None, None, None)
    return _as_float32(output)


def _as_float32(value: Any) -> Any:
    import torch
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, MutableMapping):
        out = copy.copy(value)          # of its own class: the outputs of some models are read by attributes
        for k, v in value.items():
            out[k] = _as_float32(v)
        return out
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_as_float32, value))
    if isinstance(value, (list, tuple)):
        return type(value)(_as_float32(v) for v in value)
    return value


def accelerate(amp: bool = False) -> None:
    """Before prepare_model(): amp=True has models compute in mixed precision, bfloat16 on processors and float16 on GPUs. There
    backward() and prepare_optimizer() belong to it.

        accelerate(amp=True)
    """
    _session.current("accelerate()").mixed = Mixed(get_device()) if amp else None


def prepare_optimizer(optimizer: Any) -> Any:
    """The optimizer as mixed precision needs it; without accelerate(amp=True) as it is."""
    mixed = _mixed()
    return optimizer if mixed is None else mixed.prepare_optimizer(optimizer)


def backward(tensor: Any) -> None:
    """The gradients of a tensor, scaled as prepare_optimizer() expects them; without accelerate(amp=True) its backward()."""
    mixed = _mixed()
    if mixed is None:
        tensor.backward()
    else:
        mixed.backward(tensor)


def enable_reproducibility(seed: int = 0) -> None:
    """Has torch, numpy and random draw the same numbers each time, and torch compute by rules that give the same.

        enable_reproducibility(1)
    """
    import torch
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


def _moved(value: Any, device: Any) -> Any:
    if hasattr(value, "to"):
        return value.to(device, non_blocking=True)
    if isinstance(value, Mapping):
        return {k: _moved(v, device) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_moved(v, device) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(v, device) for v in value)
    return value


def prepare_data_loader(data_loader: Any, add_dist_sampler: bool = True, move_to_device: bool = True,
                        auto_transfer: bool = True) -> Any:
    """A loader of this rank's part of the samples, which are other ones in each pass if the loader shuffles.

        for images, labels in prepare_data_loader(DataLoader(data, batch_size=32, shuffle=True)): ...

    Each rank has equally many batches. The epoch of the sampler is set by each pass, unless the loop sets it itself.
    """
    from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

    place = _session.current("prepare_data_loader()").place
    device = get_device() if move_to_device else None
    sampler = data_loader.sampler
    if (add_dist_sampler and place.world_size > 1 and not isinstance(sampler, DistributedSampler)
            and not isinstance(data_loader.dataset, IterableDataset)):
        if not isinstance(sampler, (RandomSampler, SequentialSampler)):
            raise ValueError(f"prepare_data_loader: the loader has a {type(sampler).__name__}, which cannot be divided between "
                             "ranks; give it a DistributedSampler, or add_dist_sampler=False")
        if data_loader.batch_size is None and data_loader.batch_sampler is not None:
            raise ValueError(f"prepare_data_loader: the loader has a batch_sampler ({type(data_loader.batch_sampler).__name__}), "
                             "which cannot be divided between ranks; give it a sampler, or add_dist_sampler=False")
        sampler = DistributedSampler(data_loader.dataset, num_replicas=place.world_size, rank=place.rank,
                                     shuffle=isinstance(sampler, RandomSampler))
        kept = ("batch_size", "num_workers", "collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn",
                "multiprocessing_context", "generator", "prefetch_factor", "persistent_workers")
        data_loader = DataLoader(data_loader.dataset, sampler=sampler, **{k: getattr(data_loader, k) for k in kept})
    return PreparedLoader(data_loader, device if device is not None and device.type != "cpu" else None)


class PreparedLoader:
    """A DataLoader whose passes are epochs of its sampler; everything else is the loader's."""

    def __init__(self, loader: Any, device: Any) -> None:
        self._loader, self._device = loader, device
        self._epoch: Optional[int] = None           # that was set here last

    def __iter__(self) -> Iterator[Any]:
        sampler = self._loader.sampler
        if hasattr(sampler, "set_epoch"):
            now = getattr(sampler, "epoch", 0)
            if self._epoch is not None and now == self._epoch:      # else the loop has set it
                sampler.set_epoch(now + 1)
            self._epoch = getattr(sampler, "epoch", now)
        for batch in self._loader:
            yield batch if self._device is None else _moved(batch, self._device)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
