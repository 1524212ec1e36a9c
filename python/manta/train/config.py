"""What is asked for: ScalingConfig, RunConfig, FailureConfig, CheckpointConfig, and how a checkpoint is handed over.

    ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1})
    RunConfig(name="first", failure_config=FailureConfig(max_failures=3),
              checkpoint_config=CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="accuracy"))
"""
from __future__ import annotations

import dataclasses
import enum
import os
import warnings
from typing import Any, Mapping, Optional, Sequence, Union

from manta.train.callback import UserCallback

__all__ = ["CheckpointConfig", "CheckpointConsistencyMode", "CheckpointUploadMode", "DataConfig", "FailureConfig", "LoggingConfig",
           "RunConfig", "ScalingConfig", "SyncConfig"]

_YES = ("1", "true", "True")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def is_of_second_version() -> bool:
    """Whether this program says that it is for the second version of Ray Train."""
    return os.environ.get("RAY_TRAIN_V2_ENABLED") in _YES


def check_class(name: str, value: object) -> None:
    """Refuses a configuration of ray.air's, which is of a class of its own in a program for the second version."""
    if getattr(value, "_of_first_version", False):
        kind = type(value).__name__
        raise ValueError(f"{name} is ray.air.{kind}, of the first version of Ray Train, and RAY_TRAIN_V2_ENABLED asks for the second: "
                         f"expected ray.train.{kind}")


def check_version(what: str) -> None:
    """A program that says RAY_TRAIN_V2_ENABLED=1 is held to the second version of Ray Train: what that has dropped is refused.
    With RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS=1 it is told and works."""
    told = f"{what} is of the first version of Ray Train"
    if is_of_second_version():
        raise DeprecationWarning(f"{told}, and RAY_TRAIN_V2_ENABLED asks for the second; without that variable it works")
    if os.environ.get("RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS") in _YES:
        warnings.warn(f"{told} and not of the second", DeprecationWarning, stacklevel=3)


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
    "CPU" (1 unless told otherwise) and "GPU" among them. accelerator_type and label_selector choose among hosts: a
    trainer refuses them, because its workers are all on one.
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
        if self.num_workers is None:
            self.num_workers = 1
        if self.trainer_resources is not None:
            check_version("ScalingConfig(trainer_resources=...)")
        least, most = self._range()
        _whole("num_workers", least, 0)
        _whole("num_workers", most, least)
        _kind("resources_per_worker", self.resources_per_worker, Mapping, "a dictionary of numbers by name")
        if self.use_gpu and self.use_tpu:
            raise ValueError("ScalingConfig: use_gpu and use_tpu are both set, expected one of them")
        if not self.use_gpu and (self.resources_per_worker or {}).get("GPU"):
            raise ValueError("resources_per_worker has GPU and use_gpu is False: set use_gpu=True")
        if self.label_selector and self.use_tpu:
            raise ValueError("ScalingConfig: label_selector and use_tpu are both set; the hosts of a TPU are chosen by its topology")
        if isinstance(self.label_selector, (list, tuple)) and not least == most == len(self.label_selector):
            if isinstance(self.num_workers, int) or len(self.label_selector) != most:
                raise ValueError(f"label_selector has {len(self.label_selector)} entries for {most} workers, expected one for each")
        if self.use_tpu or self.topology:
            raise NotImplementedError("ScalingConfig: TPUs are not part of manta.train")

    def _range(self) -> tuple[Any, Any]:
        """The least and the greatest number of workers."""
        if isinstance(self.num_workers, (tuple, list)):
            if len(self.num_workers) != 2:
                raise ValueError(f"num_workers is {self.num_workers!r}, expected a number, or the least and the greatest")
            return self.num_workers[0], self.num_workers[1]
        return self.num_workers, self.num_workers

    def check(self) -> None:
        """Refuses what can be described and not be trained with. A trainer calls."""
        if not isinstance(self.num_workers, int):
            raise NotImplementedError("ScalingConfig: num_workers as a range (elastic training) is not here yet")
        if self.accelerator_type is not None or self.label_selector:
            raise NotImplementedError("ScalingConfig: accelerator_type and label_selector choose among nodes, and manta.train "
                                      "runs on one")

    @property
    def total_workers(self) -> int:
        """How many ranks there are; the loop in this process is one."""
        return max(int(self._range()[0]), 1)

    @property
    def num_cpus_per_worker(self) -> float:
        return float((self.resources_per_worker or {}).get("CPU", 1))

    @property
    def num_gpus_per_worker(self) -> float:
        return float((self.resources_per_worker or {}).get("GPU", 1)) if self.use_gpu else 0.0

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """What is neither CPU nor GPU."""
        return {k: v for k, v in self._resources_per_worker_not_none.items() if k not in ("CPU", "GPU") and v}

    @property
    def total_resources(self) -> dict[str, float]:
        """What all workers together ask for, by name.

            ScalingConfig(num_workers=2).total_resources["CPU"]
        """
        return {k: v * self.total_workers for k, v in self._resources_per_worker_not_none.items()}

    @property
    def _resources_per_worker_not_none(self) -> dict[str, float]:
        """What a worker asks for; of processors one, unless it has a GPU or was told otherwise."""
        out = dict(self.resources_per_worker or ({"GPU": 1} if self.use_gpu else {"CPU": 1}))
        if self.use_gpu:
            out.setdefault("GPU", 1)
        if self.accelerator_type is not None:
            out.setdefault(f"accelerator_type:{self.accelerator_type}", 0.001)
        return out

    def _label_selector_per_worker(self, num_workers: int) -> Optional[list[dict[str, str]]]:
        """The labels that each worker's host must have; None: any host will do."""
        if self.label_selector is None:
            return None
        if isinstance(self.label_selector, Mapping):
            return [dict(self.label_selector) for _ in range(num_workers)]
        return [dict(one) for one in self.label_selector[:num_workers]]


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
        if self.fail_fast:
            check_version("FailureConfig(fail_fast=...)")
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

    def check(self) -> None:
        """Refuses what can be described and not be trained with. fit() calls."""
        if self.checkpoint_frequency or self.checkpoint_at_end:
            raise ValueError("checkpoint_frequency and checkpoint_at_end are not for loops of one's own: the loop says when there is a "
                             "checkpoint, with report(metrics, checkpoint=...)")


class CheckpointUploadMode(enum.Enum):
    """How report() takes a checkpoint. A folder is copied before report() returns and brought to disk behind the loop's back, in
    each; a function of one's own (checkpoint_upload_fn) runs in a thread with ASYNC. NO_UPLOAD: the folder lies in the run's already
    (Storage.build_checkpoint_path_from_name)."""
    SYNC = "SYNC"
    ASYNC = "ASYNC"
    NO_UPLOAD = "NO_UPLOAD"


class CheckpointConsistencyMode(enum.Enum):
    """What get_all_reported_checkpoints() waits for: that what this rank has reported is on the disk, or validated as well."""
    COMMITTED = "COMMITTED"
    VALIDATED = "VALIDATED"


@dataclasses.dataclass
class LoggingConfig:
    """How much is told. Accepted: what the driver tells are failures, one block each.

        LoggingConfig(log_level="WARNING")
    """
    log_level: str = "INFO"
    encoding: Optional[str] = None
    additional_log_standard_attrs: Optional[Sequence[str]] = None

    def __post_init__(self) -> None:
        if not isinstance(self.log_level, str) or self.log_level.upper() not in _LEVELS:
            raise ValueError(f"Invalid log_level: it is {self.log_level!r}, expected one of {', '.join(_LEVELS)}")
        self.log_level = self.log_level.upper()


@dataclasses.dataclass
class SyncConfig:
    """Accepted for older programs: a run lies where RunConfig.storage_path says, and is not copied elsewhere."""
    sync_period: int = 300
    sync_timeout: int = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True


class DataConfig:
    """Which datasets are divided between the ranks: "all", or a list of names. The others each rank has whole.

        DataConfig(datasets_to_split=["train"])

    execution_options: manta.data.ExecutionOptions of all datasets, or a dictionary of them by the dataset's name; of a
    dataset without any they are those of DataContext.get_current(). A class of one's own may divide otherwise: configure().
    """

    def __init__(self, datasets_to_split: Union[str, Sequence[str]] = "all", execution_options: Optional[Any] = None,
                 enable_shard_locality: bool = True) -> None:
        if datasets_to_split != "all" and (isinstance(datasets_to_split, str) or not isinstance(datasets_to_split, (list, tuple, set))):
            raise TypeError(f"datasets_to_split is {datasets_to_split!r}, expected \"all\" or a list of names")
        self.datasets_to_split = datasets_to_split
        self.execution_options = execution_options
        self.enable_shard_locality = enable_shard_locality

    def is_split(self, name: str) -> bool:
        """Whether a dataset is divided."""
        return self.datasets_to_split == "all" or name in self.datasets_to_split

    @staticmethod
    def default_ingest_options() -> Any:
        """The options of a dataset for which none were given.

            DataConfig.default_ingest_options()
        """
        from manta.data.context import DataContext
        return DataContext.get_current().execution_options.copy()

    def _resolve_execution_options(self, name: str) -> Any:
        given = self.execution_options
        if isinstance(given, Mapping):
            given = given.get(name)
        return self.default_ingest_options() if given is None else given.copy()

    def configure(self, datasets: Mapping[str, Any], world_size: int, worker_handles: Optional[Sequence[Any]] = None,
                  worker_node_ids: Optional[Sequence[Any]] = None, **more: Any) -> list[dict[str, Any]]:
        """What each rank is given of each dataset, by its name: called in the driver, before the ranks begin.

            DataConfig().configure({"train": ds}, world_size=2)[0]["train"]
        """
        from manta.data.dataset import Dataset
        out: list[dict[str, Any]] = [{} for _ in range(world_size)]
        near = worker_node_ids if self.enable_shard_locality else None
        for name, dataset in datasets.items():
            if isinstance(dataset, Dataset):
                dataset = dataset._executed_so(self._resolve_execution_options(name))
            parts = (dataset.streaming_split(world_size, equal=True, locality_hints=near) if self.is_split(name)
                     else [dataset] * world_size)
            for rank, part in enumerate(parts):
                out[rank][name] = part
        return out


@dataclasses.dataclass
class RunConfig:
    """Where a run lies, under which name, and what becomes of failures and checkpoints.

        RunConfig(name="first", storage_path="/data/runs", failure_config=FailureConfig(max_failures=2))

    storage_path: a folder; $MANTA_STORAGE or ~/manta-runs unless told otherwise, where `manta runs` looks.
    callbacks: objects of UserCallback, which the driver calls.
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
        for name in ("verbose", "stop", "progress_reporter", "sync_config"):
            if getattr(self, name) is not None:
                check_version(f"RunConfig({name}=...)")
        if self.stop is not None:
            raise NotImplementedError("RunConfig: stop is not here; a loop returns when it is done")
        for callback in self.callbacks or ():
            if not isinstance(callback, UserCallback):
                raise ValueError(f"callbacks has {type(callback).__name__}, expected UserCallback of manta.train")
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

    def check(self) -> None:
        """Refuses what can be described and not be trained with. A trainer calls."""
        check_class("failure_config", self.failure_config)
        check_class("checkpoint_config", self.checkpoint_config)
        if self.storage_filesystem is not None and not _is_local(self.storage_filesystem):
            raise NotImplementedError("RunConfig: storage_filesystem is another than this host's; storage_path is a folder")


def _is_local(filesystem: Any) -> bool:
    """Whether a filesystem of pyarrow is this host's own."""
    return bool(getattr(filesystem, "type_name", "") == "local")
