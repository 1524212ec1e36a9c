"""What a framework needs around a loop: variables, a process group, ports.

A trainer has one BackendConfig; its `make_backend()` is called once by fit(), and what it returns travels to every rank.
"""
from __future__ import annotations

from typing import Any, Mapping, Optional

from manta.train.config import ScalingConfig
from manta.train.context import Place

__all__ = ["Backend", "BackendConfig"]


class Backend:
    """Nothing: a loop that needs no framework. `attempt()`, `end_attempt()` run in the driver, the others in ranks."""

    def environment(self) -> Optional[Mapping[str, str]]:
        """Variables that must be there before a rank's process imports anything; None: none, and any worker will do."""
        return None

    def attempt(self, n: int, folder: str, scaling: ScalingConfig) -> None:
        """Before the ranks of an attempt are started; `folder` is the attempt's, and short."""

    def end_attempt(self) -> None:
        """When they are gone."""

    def start(self, place: Place) -> None:
        """In a rank, before its loop is even read."""

    def end(self, place: Place) -> None:
        """In a rank whose loop has returned."""

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if not k.startswith("_")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)


class BackendConfig:
    """The configuration of a framework.

        DataParallelTrainer(loop, backend_config=BackendConfig())
    """

    def make_backend(self) -> Backend:
        """What does the work."""
        return Backend()
