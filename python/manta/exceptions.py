"""What can go wrong, as exceptions.

    try:
        manta.get(f.remote())
    except ValueError as e:          # what f raised
        print(e.traceback)           # where, in the worker
    except manta.exceptions.WorkerDiedError:
        ...
"""
import builtins

__all__ = ["ActorDiedError", "ActorError", "ActorUnavailableError", "CancelledError", "ImpossibleError", "MantaError",
           "NodeError", "ObjectLostError", "OutOfMemoryError", "PendingCallsError", "PlacementGroupError",
           "StoreFullError", "SubmitError", "TaskError", "TimeoutError", "WorkerDiedError"]


class MantaError(Exception):
    """All of these."""


class TaskError(MantaError):
    """A remote function raised an exception.

    It is raised as a class that is also the class of that exception, so that `except ValueError` sees it.
    cause: the exception itself, None when it could not be brought over; type_name, text: what it was and
    said; traceback: where, in the worker; pid, host, function: who.
    """
    cause: BaseException | None = None
    type_name = text = traceback = host = function = ""
    pid = 0

    def __str__(self) -> str:
        where = f"{self.function} (pid {self.pid})" if self.function else f"pid {self.pid}"
        return f"{self.type_name}: {self.text}\n\nIn {where}:\n{self.traceback}".rstrip()


class TimeoutError(MantaError, builtins.TimeoutError):
    """The time is over, and the value is not there."""


class WorkerDiedError(MantaError):
    """The process that ran the call died, as often as it was tried."""


class ActorError(MantaError):
    """The actor is dead, or a call of it was under way when its process died."""


class ActorDiedError(ActorError):
    """The actor is dead for good."""


class ActorUnavailableError(ActorError):
    """The actor died during the call, which may have happened or not, or is being restarted."""


class CancelledError(MantaError):
    """The call was cancelled."""


class ObjectLostError(MantaError):
    """The bytes of an object are gone, and cannot be made again."""


class StoreFullError(MantaError):
    """The store has no room."""


class OutOfMemoryError(MantaError):
    """The process of the call had more memory than it may."""


class ImpossibleError(MantaError):
    """No node could ever run the call."""


class NodeError(MantaError):
    """The node is gone, or there is none."""


class SubmitError(MantaError, ValueError):
    """The call itself was wrong."""


class PendingCallsError(MantaError):
    """The actor has as many calls pending as it may."""


class PlacementGroupError(MantaError):
    """The placement group of the call was removed."""
