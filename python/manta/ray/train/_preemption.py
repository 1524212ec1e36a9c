"""Hosts that are taken away with notice, by the names that programs know: there is one host here, the program's own, of which nobody
gives notice. get_preemption_info() always says so, and PreemptionError is raised by nobody.
"""
from __future__ import annotations

import dataclasses
from typing import Mapping, Optional, Sequence

from manta.train import TrainingFailedError, _session

__all__ = ["PreemptionError", "PreemptionInfo", "get_preemption_info"]


@dataclasses.dataclass(frozen=True)
class PreemptionInfo:
    """Which hosts are about to be taken away, with the ranks of each, and by when (milliseconds since 1970)."""
    deadline_ms: Optional[int]
    preempted_node_to_ranks: Mapping[str, Sequence[int]]

    @property
    def preempted_node_ids(self) -> list[str]:
        """The hosts, sorted."""
        return sorted(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        """The ranks of all of them, sorted."""
        return sorted({rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks})


class PreemptionError(TrainingFailedError):
    """A training ended because hosts were taken away."""

    def __init__(self, preemption_info: PreemptionInfo, drain_timed_out: bool = False) -> None:
        super().__init__(f"hosts of the training were taken away, with ranks {', '.join(map(str, preemption_info.preempted_ranks))}")
        self.preemption_info, self.drain_timed_out = preemption_info, drain_timed_out

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.preemption_info, self.drain_timed_out)


def get_preemption_info() -> Optional[PreemptionInfo]:
    """None: this host is not about to be taken away. For loops, as other words of a loop are.

        if get_preemption_info() is not None: ...
    """
    _session.current("get_preemption_info()")
    return None
