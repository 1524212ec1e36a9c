"""What a framework needs around a loop: variables, a process group, ports.

A trainer has one BackendConfig; its `make_backend()` is called once by fit(), and what it returns travels to every rank.
A program's own backend is a class of Backend with hooks, which its configuration names:

    class Greeting(Backend):
        def on_start(self, worker_group, backend_config):
            worker_group.execute(print, "hello")

    class GreetingConfig(BackendConfig):
        @property
        def backend_cls(self):
            return Greeting
"""
from __future__ import annotations

import os
from typing import Any, Callable, Mapping, Optional, Sequence

from manta.train.config import ScalingConfig
from manta.train.context import Place

__all__ = ["Backend", "BackendConfig", "WorkerGroup"]


class WorkerGroup:
    """The ranks of an attempt, to the hooks of a backend: functions are run in their processes."""

    def __init__(self, ranks: Sequence[Any]) -> None:
        self._ranks = ranks

    def __len__(self) -> int:
        return len(self._ranks)

    @property
    def num_workers(self) -> int:
        """How many ranks there are."""
        return len(self._ranks)

    def execute_async(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Has every rank run a function; references to what they return."""
        return [rank.execute_async(fn, *args, **kwargs) for rank in self._ranks]

    def execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """What a function returns in every rank, by rank."""
        refs = self.execute_async(fn, *args, **kwargs)
        return [rank.value_of(ref) for rank, ref in zip(self._ranks, refs)]

    def execute_single_async(self, rank: int, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Has one rank run a function; a reference to what it returns."""
        return self._ranks[rank].execute_async(fn, *args, **kwargs)

    def execute_single(self, rank: int, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What a function returns in one rank."""
        return self._ranks[rank].value_of(self.execute_single_async(rank, fn, *args, **kwargs))


class Backend:
    """Nothing: a loop that needs no framework. `attempt()`, `end_attempt()` run in the driver, `start()`, `end()` in ranks.

    A program's own class has hooks instead, which run in the driver: on_start when the ranks' processes are there,
    on_training_start before the loops, on_shutdown when the loops have ended. share_cuda_visible_devices: each rank sees the
    GPUs of all ranks.
    """
    share_cuda_visible_devices = False
    has_hooks = False

    def environment(self) -> Optional[Mapping[str, str]]:
        """Variables that must be there before a rank's process imports anything; None: none, and any worker will do."""
        return None

    def attempt(self, n: int, folder: str, scaling: ScalingConfig) -> None:
        """Before the ranks of an attempt are started; `folder` is the attempt's, and short."""

    def begin(self, workers: WorkerGroup) -> None:
        """In the driver, when the ranks have been started, before their loops are read; of backends with has_hooks."""

    def finish(self, workers: WorkerGroup) -> None:
        """In the driver, when the loops have ended, before the ranks do; of backends with has_hooks."""

    def end_attempt(self) -> None:
        """When they are gone."""

    def start(self, place: Place) -> None:
        """In a rank, before its loop is even read."""

    def end(self, place: Place) -> None:
        """In a rank whose loop has returned."""

    def on_start(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        """A program's own: the ranks' processes are there."""

    def on_training_start(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        """A program's own: the loops are about to begin."""

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        """A program's own: the loops have ended."""

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if not k.startswith("_")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)


class Hooks(Backend):
    """Calls the hooks of a program's own backend."""
    has_hooks = True

    def __init__(self, backend: Backend, config: Any) -> None:
        self._backend, self._config = backend, config       # of the driver: ranks are not sent them

    def begin(self, workers: WorkerGroup) -> None:
        if self._backend.share_cuda_visible_devices:
            seen = [one for text in workers.execute(_seen_devices) for one in text.split(",") if one]
            if seen:
                workers.execute(_see_devices, ",".join(sorted(set(seen))))
        self._backend.on_start(workers, self._config)
        self._backend.on_training_start(workers, self._config)

    def finish(self, workers: WorkerGroup) -> None:
        self._backend.on_shutdown(workers, self._config)


def _seen_devices() -> str:
    """Of this process. A method of os.environ would travel with the variables of whoever sends it."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "")


def _see_devices(devices: str) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = devices


class BackendConfig:
    """The configuration of a framework.

        DataParallelTrainer(loop, backend_config=BackendConfig())
    """

    @property
    def backend_cls(self) -> type[Backend]:
        """The class of a program's own backend, whose hooks are called."""
        return Backend

    def make_backend(self) -> Backend:
        """What does the work."""
        cls = self.backend_cls
        return Backend() if cls is Backend else Hooks(cls(), self)
