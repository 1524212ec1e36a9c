"""Checkpoints that are tried while the training goes on.

    def accuracy(checkpoint, split):
        return {"accuracy": ...}

    DataParallelTrainer(loop, validation_config=ValidationConfig(
        fn=accuracy, task_config=ValidationTaskConfig(fn_kwargs={"split": "test"})))

    report({"loss": loss}, checkpoint=checkpoint, validation=True)          # in the loop

The function is a remote call; what it returns becomes part of the checkpoint's metrics.
"""
from __future__ import annotations

import dataclasses
import enum
from typing import Any, Callable, Mapping, Optional, Union

from manta.train.checkpoint import Checkpoint

__all__ = ["ReportedCheckpoint", "ReportedCheckpointStatus", "ValidationConfig", "ValidationFn", "ValidationTaskConfig"]

ValidationFn = Callable[..., Mapping[str, Any]]         # of a checkpoint, and of what its task says


@dataclasses.dataclass
class ValidationTaskConfig:
    """One validation: what the function is given besides the checkpoint, and the seconds that it may take.

        report(metrics, checkpoint=checkpoint, validation=ValidationTaskConfig(fn_kwargs={"split": "test"}))
    """
    fn_kwargs: Optional[Mapping[str, Any]] = None
    timeout_s: Optional[float] = None

    def __post_init__(self) -> None:
        if self.fn_kwargs is not None and not isinstance(self.fn_kwargs, Mapping):
            raise ValueError(f"fn_kwargs is {type(self.fn_kwargs).__name__}, expected a dictionary of arguments by name")
        if self.timeout_s is not None and (isinstance(self.timeout_s, bool) or not isinstance(self.timeout_s, (int, float))
                                           or not self.timeout_s > 0):
            raise ValueError(f"timeout_s is {self.timeout_s!r}, expected seconds, more than none")

    def over(self, other: Optional[ValidationTaskConfig]) -> ValidationTaskConfig:
        """This one, and of another what this one does not say."""
        if other is None:
            return self
        return ValidationTaskConfig({**(other.fn_kwargs or {}), **(self.fn_kwargs or {})},
                                    other.timeout_s if self.timeout_s is None else self.timeout_s)


@dataclasses.dataclass
class ValidationConfig:
    """The function that tries checkpoints, and what it is given unless report() says otherwise.

        ValidationConfig(fn=accuracy, ray_remote_kwargs={"num_cpus": 2})

    ray_remote_kwargs: options of the remote call, as of `manta.remote`.
    """
    fn: ValidationFn
    task_config: Optional[ValidationTaskConfig] = None
    ray_remote_kwargs: Optional[Mapping[str, Any]] = None

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise ValueError(f"fn of ValidationConfig is {type(self.fn).__name__}, expected a function")


class ReportedCheckpointStatus(enum.Enum):
    """How far a checkpoint is: on the disk and no more, to be validated, or what its validation came to."""
    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_FAILED = "VALIDATION_FAILED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"


@dataclasses.dataclass(frozen=True)
class ReportedCheckpoint:
    """One of get_all_reported_checkpoints(). metrics: those of its report, and of its validation."""
    checkpoint: Checkpoint
    metrics: Mapping[str, Any]
    status: ReportedCheckpointStatus = ReportedCheckpointStatus.COMMITTED


Validation = Union[bool, ValidationTaskConfig]
