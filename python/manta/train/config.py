"""What is asked for: ScalingConfig, RunConfig, FailureConfig, CheckpointConfig.

    ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1})
    RunConfig(name="first", failure_config=FailureConfig(max_failures=3),
              checkpoint_config=CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="accuracy"))
"""
from __future__ import annotations

import dataclasses
import enum
import os
from typing import Any, Mapping, Optional, Sequence, Union

__all__ = ["CheckpointConfig", "CheckpointUploadMode", "DataConfig", "FailureConfig", "RunConfig", "ScalingConfig", "SyncConfig"]


def _whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {value!r}, expected a whole number from {least} on")


def _kind(name: str, value: object, kind: type, expected: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"{name} is {value!r}, expected {expected}")


@dataclasses.dataclass
class ScalingConfig:
    """How many workers there are, and what each may use.

        ScalingConfig(num_workers=2, use_gpu=False)

    num_workers: at most 64; 0 runs the loop in this process, where breakpoints stop. resources_per_worker: by name,
    "CPU" (1 unless told otherwise) and "GPU" among them.
    """
    num_workers: Optional[Union[int, tuple[int, int]]] = 1
    use_gpu: bool = False
    resources_per_worker: Optional[Mapping[str, float]] = None
    placement_strategy: str = "PACK"
    accelerator_type: Optional[str] = None
    trainer_resources: Optional[Mapping[str, float]] = None     # the controller is in the driver, and needs none
    label_selector: Optional[Any] = None
    use_tpu: bool = False
    topology: Optional[str] = None

    def __post_init__(self) -> None:
        if isinstance(self.num_workers, (tuple, list)):
            raise NotImplementedError("ScalingConfig: num_workers as a range (elastic training) is not here yet")
        if self.use_tpu or self.topology:
            raise NotImplementedError("ScalingConfig: TPUs are not part of manta.train")
        if self.accelerator_type is not None or self.label_selector:
            raise NotImplementedError("ScalingConfig: accelerator_type and label_selector choose among nodes, and manta.train "
                                      "runs on one")
        if self.num_workers is None:
            self.num_workers = 1
        _whole("num_workers", self.num_workers, 0)
        _kind("resources_per_worker", self.resources_per_worker, Mapping, "a dictionary of numbers by name")
        if not self.use_gpu and (self.resources_per_worker or {}).get("GPU"):
            raise ValueError("resources_per_worker has GPU and use_gpu is False: set use_gpu=True")

    @property
    def total_workers(self) -> int:
        """How many ranks there are; the loop in this process is one."""
        assert isinstance(self.num_workers, int)
        return max(self.num_workers, 1)

    @property
    def num_cpus_per_worker(self) -> float:
        return float((self.resources_per_worker or {}).get("CPU", 1))

    @property
    def num_gpus_per_worker(self) -> float:
        return float((self.resources_per_worker or {}).get("GPU", 1)) if self.use_gpu else 0.0

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """What is neither CPU nor GPU."""
        return {k: v for k, v in (self.resources_per_worker or {}).items() if k not in ("CPU", "GPU") and v}


@dataclasses.dataclass
class FailureConfig:
    """How often all ranks begin again from the last checkpoint when one fails.

        FailureConfig(max_failures=-1)        # without end
    """
    max_failures: int = 0
    fail_fast: Union[bool, str] = False
    controller_failure_limit: int = -1
    max_preemption_failures: int = -1

    def __post_init__(self) -> None:
        _whole("max_failures", self.max_failures, -1)
        if self.fail_fast and self.max_failures != 0:
            raise ValueError(f"fail_fast is set and max_failures is {self.max_failures}: expected 0")


@dataclasses.dataclass
class CheckpointConfig:
    """Which checkpoints are kept: all, the latest, or the best and the latest.

        CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")
    """
    num_to_keep: Optional[int] = None
    checkpoint_score_attribute: Optional[str] = None
    checkpoint_score_order: Optional[str] = "max"
    checkpoint_frequency: Optional[int] = 0
    checkpoint_at_end: Optional[bool] = None

    def __post_init__(self) -> None:
        if self.num_to_keep is not None and (isinstance(self.num_to_keep, bool) or not isinstance(self.num_to_keep, int) or
                                             not 0 < self.num_to_keep < 1 << 31):
            raise ValueError(f"num_to_keep is {self.num_to_keep!r}, expected a whole number from 1 on, or None: all")
        _kind("checkpoint_score_attribute", self.checkpoint_score_attribute, str, "the name of a metric")
        if self.checkpoint_score_order not in ("max", "min"):
            raise ValueError(f"checkpoint_score_order is {self.checkpoint_score_order!r}, expected \"max\" or \"min\"")


class CheckpointUploadMode(enum.Enum):
    """Accepted by report(): a folder is copied before it returns and brought to disk behind the loop's back, in each."""
    SYNC = "SYNC"
    ASYNC = "ASYNC"
    NO_UPLOAD = "NO_UPLOAD"


@dataclasses.dataclass
class SyncConfig:
    """Accepted for older programs: a run lies where RunConfig.storage_path says, and is not copied elsewhere."""
    sync_period: int = 300
    sync_timeout: int = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True


@dataclasses.dataclass
class DataConfig:
    """Which datasets are divided between the ranks: "all", or a list of names. The others each rank has whole.

        DataConfig(datasets_to_split=["train"])
    """
    datasets_to_split: Union[str, Sequence[str]] = "all"
    execution_options: Optional[Any] = None
    enable_shard_locality: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.datasets_to_split, str) and self.datasets_to_split != "all":
            raise TypeError(f"datasets_to_split is {self.datasets_to_split!r}, expected \"all\" or a list of names")

    def is_split(self, name: str) -> bool:
        return self.datasets_to_split == "all" or name in self.datasets_to_split


@dataclasses.dataclass
class RunConfig:
    """Where a run lies, under which name, and what becomes of failures and checkpoints.

        RunConfig(name="first", storage_path="/data/runs", failure_config=FailureConfig(max_failures=2))

    storage_path: a folder; $MANTA_STORAGE or ~/manta-runs unless told otherwise, where `manta runs` looks.
    """
    name: Optional[str] = None
    storage_path: Optional[Union[str, os.PathLike[str]]] = None
    storage_filesystem: Optional[Any] = None
    failure_config: Optional[FailureConfig] = None
    checkpoint_config: Optional[CheckpointConfig] = None
    sync_config: Optional[SyncConfig] = None
    verbose: Optional[Any] = None
    stop: Optional[Any] = None
    callbacks: Optional[Sequence[Any]] = None
    progress_reporter: Optional[Any] = None
    log_to_file: Any = False
    worker_runtime_env: Optional[Mapping[str, Any]] = None
    logging_config: Optional[Any] = None
    local_dir: Optional[str] = None

    def __post_init__(self) -> None:
        _kind("name", self.name, str, "a text: the run's folder is called so")
        if self.storage_filesystem is not None:
            raise NotImplementedError("RunConfig: storage_filesystem (pyarrow) is not here; storage_path is a folder")
        if self.stop is not None:
            raise NotImplementedError("RunConfig: stop is not here; a loop returns when it is done")
        if self.callbacks:
            raise NotImplementedError("RunConfig: callbacks are not here yet")
        if self.storage_path is None and self.local_dir is not None:
            self.storage_path = self.local_dir
        if self.storage_path is not None:
            path = os.fspath(self.storage_path)
            if "://" in path and not path.startswith("file://"):
                raise NotImplementedError(f"RunConfig: storage_path is {path}, expected a folder of this host")
            self.storage_path = os.path.abspath(os.path.expanduser(path.removeprefix("file://")))
        _kind("failure_config", self.failure_config, FailureConfig, "FailureConfig")
        _kind("checkpoint_config", self.checkpoint_config, CheckpointConfig, "CheckpointConfig")
        _kind("worker_runtime_env", self.worker_runtime_env, Mapping, "a dictionary")
        _kind("env_vars of worker_runtime_env", (self.worker_runtime_env or {}).get("env_vars"), Mapping, "a dictionary of texts")
        if self.failure_config is None:
            self.failure_config = FailureConfig()
        if self.checkpoint_config is None:
            self.checkpoint_config = CheckpointConfig()
        unknown = set(self.worker_runtime_env or {}) - {"env_vars"}
        if unknown:
            raise NotImplementedError(f"RunConfig: worker_runtime_env has {', '.join(sorted(unknown))}; env_vars alone is "
                                      "here: workers are processes of this host and interpreter")
