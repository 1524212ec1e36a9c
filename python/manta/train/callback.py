"""What a program adds to a training: UserCallback, whose methods the driver calls.

    class Tell(UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            print(run_context.name, metrics[0])

    RunConfig(callbacks=[Tell()])
"""
from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Mapping, Optional

if TYPE_CHECKING:
    from manta.train.checkpoint import Checkpoint

__all__ = ["TrainRunContext", "UserCallback"]


@dataclasses.dataclass(frozen=True)
class TrainRunContext:
    """The run that a callback is told of."""
    name: str
    path: str
    run_config: Any
    scaling_config: Any
    train_loop_config: Any
    datasets: Mapping[str, Any]

    def get_run_config(self) -> Any:
        """The configuration of the run."""
        return self.run_config


class UserCallback:
    """Methods that the driver calls while ranks train. What one raises ends the training with a ControllerError.

        class Tell(UserCallback):
            def after_report(self, run_context, metrics, checkpoint): print(metrics[0])
    """

    def after_report(self, run_context: TrainRunContext, metrics: list[dict[str, Any]],
                     checkpoint: Optional[Checkpoint]) -> None:
        """All ranks have reported: what each said, by rank, and the checkpoint of it, which is on the disk by now."""

    def after_exception(self, run_context: TrainRunContext, worker_exceptions: Mapping[int, BaseException]) -> None:
        """Ranks have failed: what each raised, by its number."""
