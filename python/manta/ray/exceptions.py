"""The exceptions of Ray, by their names and relations.

All derive from RayError, which is a manta.exceptions.MantaError. What user code raised arrives as an
exception that is both a RayTaskError and of the class that was raised:

>>> try:
...     ray.get(divide.remote(1, 0))
... except ZeroDivisionError as e:
...     assert isinstance(e, ray.exceptions.RayTaskError)
"""
from __future__ import annotations

import logging
import pickle
import socket
from typing import Any, Optional

from manta import _dialect
from manta.exceptions import MantaError

logger = logging.getLogger(__name__)


class RayError(MantaError):
    """Whatever the runtime, or a call of the user's, has to complain about."""

    def to_bytes(self) -> bytes:
        return pickle.dumps(self)

    @staticmethod
    def from_bytes(b: bytes) -> "RayError":
        error = pickle.loads(b)
        assert isinstance(error, RayError)
        return error


class _Said(RayError):
    """An exception that is its text: base of those that say nothing of their own."""
    default = ""

    def __init__(self, *args: Any) -> None:
        super().__init__(*(args or ((self.default,) if self.default else ())))

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__


class CrossLanguageError(_Said):
    default = "a function of another language failed"


class TaskCancelledError(RayError):
    """The call was cancelled, before it began or while it ran."""

    def __init__(self, task_id: Any = None, error_message: Optional[str] = None) -> None:
        super().__init__(task_id, error_message)
        self.task_id = task_id
        self.error_message = error_message

    def __str__(self) -> str:
        if self.task_id is None:
            return "This task or its dependency was cancelled" + (f": {self.error_message}" if self.error_message else "")
        return f"Task: {self.task_id} was cancelled. {self.error_message or ''}".rstrip()


class RayTaskError(RayError):
    """User code in a worker raised an exception.

    cause: that exception, or what is known of one that could not be pickled. traceback_str: where it
    was raised, without frames of the runtime. pid, ip: of the process.
    """

    def __init__(self, function_name: str, traceback_str: str, cause: Any, proctitle: Optional[str] = None,
                 pid: Optional[int] = None, ip: Optional[str] = None, actor_repr: Optional[str] = None,
                 actor_id: Optional[str] = None) -> None:
        # Not super(): of a dual class that is the cause's, which takes other arguments.
        BaseException.__init__(self, cause)
        self.function_name = function_name
        self.traceback_str = traceback_str
        self.cause = cause
        self.proctitle = proctitle or f"ray::{function_name}()"
        self.pid = pid
        self.ip = ip or "127.0.0.1"
        self.actor_repr = actor_repr
        self.actor_id = actor_id

    def __reduce__(self) -> Any:
        # Of the dual class there are as many as of causes: made again where it is read.
        return _rebuild, (self.function_name, self.traceback_str, self.cause, self.proctitle, self.pid, self.ip,
                          self.actor_repr, self.actor_id, _is_dual(type(self)))

    def as_instanceof_cause(self) -> "RayTaskError":
        """The same error as an instance of the cause's class too, where such a class can be made."""
        cause = self.cause
        if isinstance(cause, RayTaskError) and _is_dual(type(cause)):
            cause = cause.cause         # one that a nested call passed on
        if not isinstance(cause, BaseException) or isinstance(cause, RayTaskError):
            return self
        return _dual(self, cause)

    make_dual_exception_instance = as_instanceof_cause

    def __str__(self) -> str:
        where = f"pid={self.pid}, ip={self.ip}"
        if self.actor_id is not None:
            where += f", actor_id={self.actor_id}"
        if self.actor_repr is not None:
            where += f", repr={self.actor_repr}"
        return f"\x1b[36m{self.proctitle}\x1b[39m ({where})\n{self.traceback_str}".rstrip("\n")


_duals: dict[type, type] = {}


def _is_dual(cls: type) -> bool:
    return getattr(cls, "_manta_is_dual", False)


def _dual_class(cause: type[BaseException]) -> type:
    """RayTaskError(Cause): attributes that the error lacks are the cause's."""
    def __init__(self: Any, *args: Any) -> None:
        RayTaskError.__init__(self, *args)

    def __getattr__(self: Any, name: str) -> Any:
        inner = self.__dict__.get("cause")
        if inner is None or name.startswith("__"):
            raise AttributeError(name)
        return getattr(inner, name)

    # args: a class of causes may have a property of that name, which is not for this.
    body: dict[str, Any] = {"__init__": __init__, "__getattr__": __getattr__, "_manta_is_dual": True,
                            "args": property(lambda self: (self.__dict__.get("cause"),)),
                            "__module__": "ray.exceptions", "__str__": RayTaskError.__str__,
                            "__reduce__": RayTaskError.__reduce__}
    name = f"RayTaskError({cause.__name__})"
    if issubclass(cause, BaseExceptionGroup):
        def __new__(cls: Any, *args: Any) -> Any:
            return cause.__new__(cls, args[2].message, args[2].exceptions)

        def derive(self: Any, exceptions: Any) -> Any:
            return self.cause.derive(exceptions)
        body.update(__new__=__new__, derive=derive)
    else:
        # A class with a __new__ of its own may want other arguments than ours.
        body["__new__"] = lambda cls, *args: _dialect.builtin_base(cls).__new__(cls)
    return type(name, (RayTaskError, cause), body)


def _dual(error: RayTaskError, cause: BaseException) -> RayTaskError:
    cls = type(cause)
    try:
        made = _duals.get(cls)
        if made is None:
            made = _duals[cls] = _dual_class(cls)
        dual = made(error.function_name, error.traceback_str, cause, error.proctitle, error.pid, error.ip,
                    error.actor_repr, error.actor_id)
        _dialect.copy_fields(dual, cause)
    except Exception as e:      # layouts that conflict, a class that must not be inherited from
        logger.warning("no class can be both RayTaskError and %s (%s): the error that is raised is RayTaskError alone, "
                       "and its attribute cause what the function raised", cls.__name__, e)
        return error
    return dual             # type: ignore[no-any-return]


def _rebuild(*args: Any) -> RayTaskError:
    error = RayTaskError(*args[:-1])
    return error.as_instanceof_cause() if args[-1] else error


class LocalRayletDiedError(_Said):
    default = "the daemon of the call's node is gone"


class WorkerCrashedError(_Said):
    default = ("the process that ran the call has ended before it answered; "
               "what it printed last is in the output of the driver")


class RayActorError(RayError):
    """The actor of a call could not do it: it is dead, being restarted, or died meanwhile."""
    BASE_ERROR_MSG = "the actor has failed before the call was done"

    def __init__(self, actor_id: Optional[str] = None, error_msg: str = BASE_ERROR_MSG,
                 actor_init_failed: bool = False, preempted: bool = False) -> None:
        super().__init__(actor_id, error_msg, actor_init_failed, preempted)
        self.actor_id = actor_id
        self.error_msg = error_msg
        self._actor_init_failed = actor_init_failed
        self._preempted = preempted

    def __str__(self) -> str:
        return self.error_msg

    @property
    def preempted(self) -> bool:
        return self._preempted

    @property
    def actor_init_failed(self) -> bool:
        return self._actor_init_failed


class ActorDiedError(RayActorError):
    """The actor is dead for good."""
    BASE_ERROR_MSG = "the actor's process has ended before the call was done"

    def __init__(self, cause: Any = None, actor_id: Optional[str] = None) -> None:
        failed = isinstance(cause, RayTaskError)
        if failed:
            text = f"the actor has died in its creation task: its constructor raised {cause}"
            actor_id = actor_id or cause.actor_id
        else:
            text = str(cause) if cause else self.BASE_ERROR_MSG
        super().__init__(actor_id, text, failed)
        self.args = (cause, actor_id)
        self.cause = cause

    @staticmethod
    def from_task_error(task_error: RayTaskError) -> "ActorDiedError":
        return ActorDiedError(task_error)


class ActorUnavailableError(RayActorError):
    """The actor is being restarted, or was while the call ran: whether it was done is not known."""

    def __init__(self, error_message: str, actor_id: Optional[Any] = None) -> None:
        super().__init__(actor_id, f"the actor cannot be reached now: {error_message}; whether it has run the call is not known")
        self.args = (error_message, actor_id)


class RaySystemError(RayError):
    """The runtime itself failed."""

    def __init__(self, client_exc: Any, traceback_str: Optional[str] = None) -> None:
        super().__init__(client_exc, traceback_str)
        self.client_exc = client_exc
        self.traceback_str = traceback_str

    def __str__(self) -> str:
        return f"System error: {self.client_exc}" + (f"\ntraceback: {self.traceback_str}" if self.traceback_str else "")


class AuthenticationError(_Said):
    pass


class UserCodeException(RayError):
    pass


class ObjectStoreFullError(_Said):
    default = "The object store has no room, in memory or on disk."


class OutOfDiskError(_Said):
    default = "The disk has no room for objects that memory cannot hold."


class OutOfMemoryError(_Said):
    default = "The process had more memory than it may have."


class NodeDiedError(_Said):
    default = "the node is gone"


class ObjectLostError(RayError):
    """The bytes of an object are gone and cannot be made again."""

    def __init__(self, object_ref_hex: str = "", owner_address: Any = None, call_site: str = "") -> None:
        super().__init__(object_ref_hex, owner_address, call_site)
        self.object_ref_hex = object_ref_hex
        self.owner_address = owner_address
        self.call_site = call_site

    def __str__(self) -> str:
        return f"object {self.object_ref_hex} is lost. {self.call_site}".rstrip()


class ObjectFetchTimedOutError(ObjectLostError):
    pass


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    pass


class ObjectFreedError(ObjectLostError):
    pass


class OwnerDiedError(ObjectLostError):
    pass


class ObjectReconstructionFailedError(ObjectLostError):
    pass


class RpcError(_Said):
    def __init__(self, message: str = "", rpc_code: Any = None) -> None:
        super().__init__(message)
        self.rpc_code = rpc_code


class GetTimeoutError(RayError, TimeoutError):
    """The time given to `get` was over before the value was there."""


class PlasmaObjectNotAvailable(RayError):
    pass


class AsyncioActorExit(RayError):
    pass


class RuntimeEnvSetupError(_Said):
    default = "what the call's runtime_env asks for could not be had"

    def __init__(self, error_message: Optional[str] = None) -> None:
        super().__init__(f"{self.default}\n{error_message}" if error_message else self.default)
        self.error_message = error_message


class TaskPlacementGroupRemoved(_Said):
    default = "the placement group that the call was to run in is removed"


class ActorPlacementGroupRemoved(_Said):
    default = "the placement group that the actor lives in is removed"


class PendingCallsLimitExceeded(_Said):
    default = "The actor has max_pending_calls calls of this caller waiting already."


class TaskUnschedulableError(_Said):
    def __str__(self) -> str:
        return f"no node can run the call: {super().__str__()}"


class ActorUnschedulableError(_Said):
    def __str__(self) -> str:
        return f"no node can hold the actor: {super().__str__()}"


class ObjectRefStreamEndOfStreamError(RayError):
    pass


class StreamingGeneratorReplayInconsistentError(RaySystemError):
    pass


class OufOfBandObjectRefSerializationException(RayError):
    pass


class RayChannelError(RaySystemError):
    pass


class RayChannelTimeoutError(RayChannelError, TimeoutError):
    pass


class RayCgraphCapacityExceeded(RaySystemError):
    pass


class RayDirectTransportError(RaySystemError):
    pass


class UnserializableException(RayError):
    """An exception of user code that could be pickled in the worker and cannot be read here."""

    def __init__(self, original_stack_trace: str) -> None:
        super().__init__(original_stack_trace)
        self._original_stack_trace = original_stack_trace

    def __str__(self) -> str:
        return f"the exception cannot be made again here; a __reduce__ of its own would help. It was:\n{self._original_stack_trace}"


class ActorAlreadyExistsError(ValueError, RayError):
    """The name of the actor is taken."""


class ActorHandleNotFoundError(ValueError, RayError):
    """The handle is of another session, or its actor is forgotten."""


def _host_ip() -> str:
    """The address by which this host is known; no network is asked."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


RAY_EXCEPTION_TYPES = [cls for cls in list(globals().values())
                       if isinstance(cls, type) and issubclass(cls, RayError) and not cls.__name__.startswith("_")]
