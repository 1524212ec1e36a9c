"""ray.air.session: what a loop calls, in the names of older programs.

    session.report({"loss": loss}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
"""
from __future__ import annotations

from typing import Any, Mapping, Optional

from manta.train import Checkpoint, get_checkpoint, get_context, get_dataset_shard
from manta.train import report as _report

__all__ = ["get_checkpoint", "get_dataset_shard", "get_experiment_name", "get_local_rank", "get_local_world_size",
           "get_node_rank", "get_trial_dir", "get_trial_id", "get_trial_name", "get_trial_resources", "get_world_rank",
           "get_world_size", "report"]


def report(metrics: Mapping[str, Any], *, checkpoint: Optional[Checkpoint] = None) -> None:
    """manta.train.report()."""
    _report(metrics, checkpoint)


def get_world_size() -> int:
    """How many ranks there are."""
    return get_context().get_world_size()


def get_world_rank() -> int:
    """The number of this rank, from 0."""
    return get_context().get_world_rank()


def get_local_rank() -> int:
    """The number of this rank among those of this host."""
    return get_context().get_local_rank()


def get_local_world_size() -> int:
    """How many ranks this host has."""
    return get_context().get_local_world_size()


def get_node_rank() -> int:
    """The number of this host; there is one."""
    return get_context().get_node_rank()


def get_experiment_name() -> str:
    """The run's name."""
    return get_context().get_experiment_name()


def get_trial_name() -> str:
    """The run's name."""
    return get_context().get_trial_name()


def get_trial_id() -> str:
    """The run's name."""
    return get_context().get_trial_id()


def get_trial_dir() -> str:
    """The run's folder."""
    return get_context().get_trial_dir()


def get_trial_resources() -> Mapping[str, float]:
    """What each rank may use."""
    return get_context().get_trial_resources()
