"""Where Ray's meaning of a thing differs from Manta's own: manta._dialect asks here once `manta.ray` is imported."""
from __future__ import annotations

import os
import uuid
from typing import Any, Optional

import manta
from manta.ray import _ids, exceptions as errors


def _shown(traceback: str) -> str:
    """A traceback as Ray shows it: without the line that begins every one."""
    first, _, rest = traceback.partition("\n")
    return rest if first == "Traceback (most recent call last):" else traceback


def _cancelled(text: str, pid: Optional[int], function: Optional[str]) -> BaseException:
    """A call that was cancelled, which is an error of the task itself if it had begun, in the process `pid`. One without a function
    had only come there."""
    cause = errors.TaskCancelledError(error_message=text or None)
    if not pid or not function:
        return cause
    return errors.RayTaskError(function or "", f"{cause} (it was cancelled while it ran)", cause, pid=pid,
                               ip=errors._host_ip()).as_instanceof_cause()


_ENDS = {
    "the actor has ended: it has called manta_exit_actor()":
        "The actor has ended (INTENDED_USER_EXIT): a method of it has called exit_actor().",
    "the actor was killed": "The actor is dead because it was killed by `ray.kill`.",
}


_killed: set[int] = set()       # processes of actors that this process has killed


def note_killed(pid: int) -> None:
    _killed.add(pid)


def _why_dead(text: str, pid: Optional[int]) -> str:
    """Why an actor is dead, in words that programs look for. A call that ran in its process knows only that it died."""
    if pid and pid in _killed:
        return f"{_ENDS['the actor was killed']} ({text})"
    return _ENDS.get(text, text)


def _bounded(items: Any, most: int) -> Any:
    for n, item in enumerate(items):
        if n == most:
            raise ValueError(f"the generator yields more than {most} items, which RAY_max_num_generator_returns allows")
        yield item


class RayDialect:
    """What manta._core asks of a dialect (manta/_dialect.py has the contract)."""
    name = "ray"
    memory_is_free = True       # reserved, and no limit

    def __init__(self) -> None:
        self._namespace: Optional[str] = None

    @property
    def handle_class(self) -> type:
        from manta.ray.actor import ActorHandle
        return ActorHandle

    @property
    def stream_class(self) -> type:
        from manta.ray._generator import ObjectRefGenerator
        return ObjectRefGenerator

    def namespace(self) -> str:
        """Drivers do not see each other's named actors unless they name a namespace."""
        return str(uuid.uuid4())

    def bounded(self, items: Any) -> Any:
        """A generator is not to yield more than Ray's variable says, if it is set."""
        most = os.environ.get("RAY_max_num_generator_returns")
        return items if most is None else _bounded(items, int(most))

    def check_captured(self, name: str, captured: Any) -> None:
        """References travel with a function's code unless the program forbids that, by Ray's variable."""
        if os.environ.get("RAY_allow_out_of_band_object_ref_serialization") == "0" and captured and any(
                isinstance(x, manta.ObjectRef) for x in captured):
            raise errors.OufOfBandObjectRefSerializationException(
                f"{name} has captured an ObjectRef, and RAY_allow_out_of_band_object_ref_serialization is 0: pass it as "
                "an argument")

    def loose(self, ref: Any) -> Any:
        """It names its object for ever, in this process; the program may forbid that, by Ray's variable."""
        if os.environ.get("RAY_allow_out_of_band_object_ref_serialization") == "0":
            raise errors.OufOfBandObjectRefSerializationException(
                f"{ref!r} is pickled by itself, and RAY_allow_out_of_band_object_ref_serialization is 0: an ObjectRef belongs "
                "into a value that goes to ray.put(), to a remote call, or comes back from one")
        return _ids.loosen(ref)

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

    def actor_exit(self, in_coroutine: bool) -> BaseException:
        from manta import _failures
        return errors.AsyncioActorExit() if in_coroutine else _failures.ActorExit()

    def methods_of(self, cls: type) -> Any:
        from manta.ray.actor import methods_of
        return methods_of(cls)

    def failure(self, kind: str, text: str, **known: Any) -> BaseException:
        actor = known.get("actor_id")
        cause = known.get("cause")
        if kind == "actor":
            return errors.ActorDiedError(cause if isinstance(cause, errors.RayTaskError) else _why_dead(text, known.get("pid")), actor)
        if kind in ("unknown", "unavailable"):
            if kind == "unknown":
                return errors.ActorDiedError(_why_dead(text, known.get("pid")), actor)
            return errors.ActorUnavailableError(text, actor)
        if kind == "placement_group":
            return errors.ActorPlacementGroupRemoved(text) if actor else errors.TaskPlacementGroupRemoved(text)
        if kind == "impossible":
            return errors.ActorUnschedulableError(text) if actor else errors.TaskUnschedulableError(text)
        if kind == "cancelled":
            return _cancelled(text, known.get("pid"), known.get("function"))
        if kind == "lost":
            return errors.ObjectLostError(str(known.get("ref", "")), None, text)
        if kind == "node":
            return errors.NodeDiedError(f"{text} (the node at {errors._host_ip()})")
        return CLASSES.get(kind, errors.RaySystemError)(text)


CLASSES: dict[str, Any] = {
    "worker": errors.WorkerCrashedError,
    "exists": errors.ActorAlreadyExistsError,
    "submit": ValueError,
    "full": errors.ObjectStoreFullError,
    "memory": errors.OutOfMemoryError,
    "timeout": errors.GetTimeoutError,
    "stream_end": errors.ObjectRefStreamEndOfStreamError,
    "pending_calls": errors.PendingCallsLimitExceeded,
    "out_of_band": errors.OufOfBandObjectRefSerializationException,
}
