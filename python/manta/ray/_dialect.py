"""Where Ray's meaning of a thing differs from Manta's own: manta._dialect asks here once `manta.ray` is imported."""
from __future__ import annotations

import uuid
from typing import Any, Optional

from manta.ray import exceptions as errors


def _shown(traceback: str) -> str:
    """A traceback as Ray shows it: without the line that begins every one."""
    first, _, rest = traceback.partition("\n")
    return rest if first == "Traceback (most recent call last):" else traceback


class RayDialect:
    """What manta._core asks of a dialect (manta/_dialect.py has the contract)."""
    name = "ray"
    stream_window = 0           # a generator is never held back, unless it asks for that
    infeasible_waits = True     # what no node could run waits for one
    actor_placement_cpus = 1    # an actor without num_cpus waits for a processor and then holds none

    def __init__(self) -> None:
        self._namespace: Optional[str] = None

    @property
    def handle_class(self) -> type:
        from manta.ray.actor import ActorHandle
        return ActorHandle

    def namespace(self) -> str:
        """Drivers do not see each other's named actors unless they name a namespace."""
        return str(uuid.uuid4())

    def task_error(self, cause: Optional[BaseException], type_name: str, text: str, traceback: str, pid: int,
                   host: str, function: str, actor_repr: Optional[str] = None,
                   actor_id: Optional[str] = None) -> BaseException:
        if isinstance(cause, KeyboardInterrupt):
            return errors.TaskCancelledError(error_message=text or None)
        known: Any = cause
        if cause is None:
            known = errors.RaySystemError(f"the exception of type {type_name} isn't serializable: {text}")
        error = errors.RayTaskError(function, _shown(traceback), known, pid=pid, ip=errors._host_ip(), actor_repr=actor_repr,
                                    actor_id=actor_id)
        return error.as_instanceof_cause()

    def failure(self, kind: str, text: str, **known: Any) -> BaseException:
        actor = known.get("actor_id")
        cause = known.get("cause")
        if kind == "actor":
            return errors.ActorDiedError(cause if isinstance(cause, errors.RayTaskError) else text, actor)
        if kind in ("unknown", "unavailable"):
            if kind == "unknown":
                return errors.ActorDiedError(text, actor)
            return errors.ActorUnavailableError(text, actor)
        if kind == "placement_group":
            return errors.ActorPlacementGroupRemoved(text) if actor else errors.TaskPlacementGroupRemoved(text)
        if kind == "impossible":
            return errors.ActorUnschedulableError(text) if actor else errors.TaskUnschedulableError(text)
        if kind == "cancelled":
            return errors.TaskCancelledError(error_message=text or None)
        if kind == "lost":
            return errors.ObjectLostError(str(known.get("ref", "")), None, text)
        return CLASSES.get(kind, errors.RaySystemError)(text)


CLASSES: dict[str, Any] = {
    "worker": errors.WorkerCrashedError,
    "full": errors.ObjectStoreFullError,
    "node": errors.NodeDiedError,
    "memory": errors.OutOfMemoryError,
    "timeout": errors.GetTimeoutError,
    "stream_end": errors.ObjectRefStreamEndOfStreamError,
    "pending_calls": errors.PendingCallsLimitExceeded,
    "out_of_band": errors.OufOfBandObjectRefSerializationException,
}
