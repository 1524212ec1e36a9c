"""Where a loop runs: its rank, how many there are, and the run.

    rank = manta.train.get_context().get_world_rank()
"""
from __future__ import annotations

import dataclasses
import os
from typing import Any, Mapping, Optional

__all__ = ["LocalTrainContext", "TrainContext"]

RUNS_OWN = ("checkpoints", "log")       # folders in that of a run, which the run fills


@dataclasses.dataclass(frozen=True)
class Place:
    """What a rank is told of itself."""
    rank: int
    world_size: int
    run_name: str
    run_path: str
    storage: str
    attempt: int
    resources: Mapping[str, float]
    metadata: Mapping[str, Any]
    local_rank: Optional[int] = None        # None: all ranks are on this host
    address: Optional[str] = None           # where the ranks can meet, besides by their framework
    is_local: bool = False                  # the loop runs in the program itself
    can_validate: bool = False              # the trainer has a function that tries checkpoints


class TrainContext:
    """What get_context() returns."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def get_world_size(self) -> int:
        """How many ranks there are."""
        return self._place.world_size

    def get_world_rank(self) -> int:
        """The number of this rank, from 0."""
        return self._place.rank

    def get_local_rank(self) -> int:
        """The number of this rank among those of this host."""
        return self._place.rank if self._place.local_rank is None else self._place.local_rank

    def get_local_world_size(self) -> int:
        """How many ranks this host has."""
        return self._place.world_size

    def get_node_rank(self) -> int:
        """The number of this host; there is one."""
        return 0

    def get_experiment_name(self) -> str:
        """The run's name."""
        return self._place.run_name

    def get_trial_name(self) -> str:
        """The run's name: a run is one trial."""
        return self._place.run_name

    def get_trial_id(self) -> str:
        """The run's name: a run is one trial."""
        return self._place.run_name

    def get_trial_dir(self) -> str:
        """The run's folder."""
        return self._place.run_path

    def get_trial_resources(self) -> Mapping[str, float]:
        """What each rank may use."""
        return self._place.resources

    def get_storage(self) -> Storage:
        """Where the run lies."""
        from manta.train import _session
        return _session.current("get_storage()").storage

    def get_metadata(self) -> dict[str, Any]:
        """What the trainer was given as metadata."""
        return dict(self._place.metadata)

    def get_dataset_shard(self, dataset_name: str = "train") -> Any:
        """This rank's part of a dataset, as manta.train.get_dataset_shard()."""
        from manta.train import _session
        return _session.get_dataset_shard(dataset_name)


class LocalTrainContext(TrainContext):
    """What get_context() returns in a loop that the program itself runs (num_workers=0)."""


@dataclasses.dataclass(frozen=True)
class Storage:
    """Where a run lies."""
    storage_fs_path: str
    experiment_fs_path: str

    def build_checkpoint_path_from_name(self, checkpoint_name: str) -> str:
        """Where in the run's folder a loop may write a checkpoint that report() is to take without a copy of it staying there
        (CheckpointUploadMode.NO_UPLOAD, checkpoint_upload_fn).

            get_context().get_storage().build_checkpoint_path_from_name("epoch-3")
        """
        if not checkpoint_name or "/" in checkpoint_name or checkpoint_name.startswith(".") or checkpoint_name in RUNS_OWN:
            raise ValueError(f"{checkpoint_name!r} cannot be a checkpoint's name: expected the name of a folder that is not the run's own")
        return os.path.join(self.experiment_fs_path, checkpoint_name)

    @property
    def trial_fs_path(self) -> str:
        return self.experiment_fs_path
