"""What fit() raises.

    try:
        trainer.fit()
    except manta.train.WorkerGroupError as e:
        print(e.worker_failures)          # {1: ValueError(...)}
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional

if TYPE_CHECKING:
    from manta.train.result import Result

__all__ = ["ControllerError", "TrainingFailedError", "UnequalReportsError", "WorkerGroupError"]


class TrainingFailedError(RuntimeError):
    """A training ended without success. `result` has what was reported until then."""
    result: Optional[Result] = None


class WorkerGroupError(TrainingFailedError):
    """A rank failed, and no attempt was left.

    worker_failures: what each failed rank raised, by its number; of a process that died, how.
    """

    def __init__(self, message: str, worker_failures: Mapping[int, BaseException]) -> None:
        super().__init__(message)
        self.worker_failures = dict(worker_failures)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.worker_failures)


class UnequalReportsError(TrainingFailedError):
    """The loops have ended, and one rank has called report() more often than another."""


class ControllerError(TrainingFailedError):
    """What drives the training failed, and no rank did."""
