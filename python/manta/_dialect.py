"""How failures become exceptions, and the defaults that manta and manta.ray do not share.

`current` is the one in use; manta.ray puts its own there.
"""
import functools
import types

from manta import exceptions

KINDS = {
    "worker": exceptions.WorkerDiedError, "actor": exceptions.ActorDiedError,
    "unknown": exceptions.ActorUnavailableError, "unavailable": exceptions.ActorUnavailableError,
    "cancelled": exceptions.CancelledError, "lost": exceptions.ObjectLostError, "full": exceptions.StoreFullError,
    "impossible": exceptions.ImpossibleError, "node": exceptions.NodeError, "submit": exceptions.SubmitError,
    "memory": exceptions.OutOfMemoryError, "placement_group": exceptions.PlacementGroupError,
    "timeout": exceptions.TimeoutError, "pending_calls": exceptions.PendingCallsError,
    "stream_end": StopIteration, "out_of_band": TypeError, "exists": exceptions.SubmitError,
    "system": exceptions.SubmitError,
}


_HEAP = 1 << 9  # of a class's __flags__: it was made by a program (Py_TPFLAGS_HEAPTYPE)


def both(base, cause):
    """An exception that is `base` and of the class of `cause`; `base` alone where there can be no such class."""
    if cause is None or isinstance(cause, base) or not isinstance(cause, Exception):
        return base()
    try:
        error = _both_class(base, type(cause))(*_parts(cause))
        copy_fields(error, cause)
        return error
    except Exception:
        return base()


@functools.lru_cache(maxsize=256)
def _both_class(base, kind):
    # A class with a __new__ of its own may want other arguments than ours.
    body = {"__new__": lambda cls, *parts: builtin_base(cls).__new__(cls, *parts), "__init__": base.__init__,
            "__str__": base.__str__, "__setattr__": base.__setattr__, "args": BaseException.args, "__module__": base.__module__,
            "__reduce__": _reduce_both, "_base": base}
    if issubclass(kind, ExceptionGroup):
        body["derive"] = lambda error, exceptions: error.cause.derive(exceptions)
    return type(f"{base.__name__}({kind.__name__})", (base, kind), body)


def _parts(cause):
    """What cannot be made without them."""
    return (cause.message, cause.exceptions) if isinstance(cause, ExceptionGroup) else ()


def builtin_base(cls):
    """The class of the interpreter's own that instances of `cls` are laid out as."""
    while cls.__flags__ & _HEAP:
        cls = cls.__base__
    return cls


def copy_fields(error, cause):
    """What `cause` keeps outside of __dict__: errno, filename, object, ..., and slots."""
    for name, field in [item for c in type(cause).__mro__ for item in vars(c).items()]:
        if isinstance(field, types.MemberDescriptorType) and not name.startswith("__"):
            try:
                field.__set__(error, field.__get__(cause))
            except (AttributeError, TypeError):
                pass  # it is not set, or only read


def _reduce_both(error):
    return _remake, (error._base, error.cause, {k: v for k, v in vars(error).items() if k != "cause"})


def _remake(base, cause, known):
    error = both(base, cause)
    vars(error).update(known, cause=cause)
    return error


class Dialect:
    name = "manta"
    handle_class = None  # manta.ActorHandle
    stream_class = None  # manta.ObjectRefGenerator
    memory_is_free = False  # what a call reserves of memory is a limit

    def bounded(self, items):
        """What a generator yields, with an end where the dialect sets one."""
        return items

    def namespace(self):
        return None

    def check_captured(self, name, captured):
        """Raises of references and handles that the code of a function must not have captured."""

    def loose(self, ref):
        """What pickle wants of a reference that is in no value of the runtime's, where the dialect has such."""
        raise TypeError("an ObjectRef can be pickled only inside a value that goes to manta.put(), to a remote call, or comes "
                        "back from one")

    def task_error(self, cause, type_name, text, traceback, pid, host, function, actor_repr=None):
        error = both(exceptions.TaskError, cause)
        if cause is not None:
            error.args = BaseException.args.__get__(cause)
            for name, value in vars(cause).items():
                vars(error).setdefault(name, value)
        error.cause, error.type_name, error.text, error.traceback = cause, type_name, text, traceback
        error.pid, error.host, error.function = pid, host, function
        return error

    def actor_exit(self, in_coroutine):
        """What exit_actor() raises."""
        from manta import _failures
        return _failures.CoroutineExit() if in_coroutine else _failures.ActorExit()

    def methods_of(self, cls):
        """What a handle knows of the methods of an actor, by name."""
        from manta import _core
        return _core._methods_of(cls)

    def failure(self, kind, text, **known):
        error = KINDS.get(kind, exceptions.MantaError)(text)
        if isinstance(error, exceptions.MantaError):
            vars(error).update(known)
            if isinstance(known.get("cause"), BaseException):
                error.__cause__ = known["cause"]
        return error


current = Dialect()
