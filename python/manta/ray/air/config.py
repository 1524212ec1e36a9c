"""ray.air.config: what is asked for, in the classes of ray.train.

A program that says RAY_TRAIN_V2_ENABLED=1 is held to the second version of Ray Train, where these names are of the first: it gets
classes of their own here, which a trainer then refuses.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from manta import train
from manta.train.config import DataConfig, is_of_second_version

if TYPE_CHECKING:
    from manta.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

__all__ = ["CheckpointConfig", "DataConfig", "FailureConfig", "RunConfig", "ScalingConfig"]

CHANGING = ("CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig")
_FIRST = {name: type(name, (getattr(train, name),), {"__module__": __name__, "_of_first_version": True}) for name in CHANGING}


def __getattr__(name: str) -> object:
    if name in _FIRST:
        return _FIRST[name] if is_of_second_version() else getattr(train, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
