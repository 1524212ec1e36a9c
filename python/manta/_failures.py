"""Exceptions on their way: described in the worker, made again in the caller.

A payload is a pickle of plain texts and numbers, and of the exception's own pickle as bytes: when that cannot be
written or read, the rest still arrives.
"""
import os
import sys
from _pickle import dumps, loads

from manta import _dialect, _manta, _values

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class ActorExit(SystemExit):
    """exit_actor() was called, in a method."""


class CoroutineExit(BaseException):
    """exit_actor() was called, in a coroutine."""


def describe(error, name, actor=None):
    """(text, payload) of an exception that a call ended with; actor: the instance whose method raised it."""
    if isinstance(error, ActorExit):
        return "exit_actor() was called", b""  # the runtime says so itself
    if isinstance(error, SystemExit) and _manta.is_worker():
        _leave(error)
    kept = vars(error).get("_manta_payload")  # it came from another call, and is passed on as it is
    text = _text_of(error)
    if kept is not None:
        return text, kept
    known = {"type": type(error).__name__, "text": text, "traceback": _trace(error), "pid": os.getpid(),
             "host": os.uname().nodename, "function": label(name), "cause": None, "actor": None, "actor_id": None,
             "constructs": name.endswith(".__init__")}
    if actor is not None:
        known["function"] = f"{type(actor).__name__}.{known['function']}"
        try:
            known["actor"] = repr(actor)
        except Exception:
            pass  # its own fault, and not the one to be told of
    try:
        known["cause"] = _pickled(error)
    except (Exception, SystemExit) as e:
        known["why"] = f"{type(e).__name__}: {e}"
    return f"{known['type']}: {text}", b"E" + dumps(known)


def _pickled(error):
    """The exception's pickle; one that cannot be read back is worth nothing."""
    data = b"".join(bytes(x) for x in [_values.dump(error)[0]])
    loads(data)
    return data


def _text_of(error):
    try:
        return str(error)
    except Exception as e:
        return f"<its text cannot be made: {type(e).__name__}>"


def label(name):
    """"py.0123...cdef.add" and "py.add" as "add"."""
    parts = name.split(".", 2)
    return parts[-1] if len(parts) > 1 else name


def _trace(error):
    """The frames of the user's own code, and those of its causes."""
    import traceback
    try:
        seen = traceback.TracebackException.from_exception(error)
    except Exception:  # it looks for attributes, and the exception's class raises something else where it has none
        frames = _users(traceback.extract_tb(error.__traceback__))
        return "".join([*traceback.format_list(frames), f"{type(error).__name__}: {_text_of(error)}\n"])
    one = seen
    while one is not None:
        one.stack = _users(one.stack)
        one = one.__cause__ or one.__context__
    return "".join(seen.format())


def _users(frames):
    import traceback
    return traceback.StackSummary.from_list([f for f in frames if not f.filename.startswith(_HERE)])


def _leave(error):
    """Ends this process as the interpreter ends one."""
    code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    try:
        if not isinstance(error.code, (int, type(None))):
            print(error.code, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:
        pass  # the program has closed them
    os._exit(code & 0xFF)


STATUSES = {"interrupted": "node", "out of band": "out_of_band", "exists": "exists", "timed out": "timeout", "cancelled": "cancelled", "died": "node", "out of space": "full",
            "unsupported": "impossible", "not permitted": "node", "busy": "pending_calls"}


def _readable(text):
    """A sentence of the runtime with the names of functions as people gave them."""
    import re
    return re.sub(r"\bpy\.(?:[0-9a-f]{32}\.)?", "", text)


def make(status, text, failure, payload):
    """The exception of a failure of the runtime."""
    kind = failure["kind"] if failure else STATUSES.get(status, "submit")
    code = failure["code"] if failure else status
    text = _readable(text)
    cause = None
    if payload:
        cause = _remade(payload, text)
        if vars(cause).get("_manta_constructs"):
            kind = "actor"
        elif kind in ("task", "none", "submit") or not failure:
            return cause
    known = {"pid": failure["pid"], "host": failure["host"], "function": label(failure["function"])} if failure else {}
    if kind == "cancelled" and failure and text.startswith("KeyboardInterrupt:"):
        text = f"{known['function']} was interrupted"
    if kind == "task" and failure["function"] == "manta.promise":  # src/task/promises.c
        kind = "stream_end"
    if kind == "task":  # a function in C, or an exception that could not be described
        return _dialect.current.task_error(None, failure["code"], text, "", failure["pid"], failure["host"],
                                           label(failure["function"]), None)
    if kind == "submit" and status == "not found":
        error = ValueError(text)
        vars(error)["_manta_status"] = status
        return error
    if kind == "submit" and code == "busy":
        kind = "pending_calls"
    if kind == "submit" and code != "invalid":
        kind = "system"
    return _dialect.current.failure(kind, text, cause=cause, **known)


def _remade(payload, text):
    known = loads(payload[1:])
    if known["type"] == "KeyboardInterrupt":
        return _dialect.current.failure("cancelled", f"{known['function']} was interrupted", pid=known["pid"],
                                        host=known["host"], function=known["function"])
    cause = None
    if known["cause"]:
        try:
            cause = loads(known["cause"])
        except Exception as e:
            known["traceback"] += f"\n(the exception itself cannot be read here: {type(e).__name__}: {e})\n"
    elif known.get("why"):
        known["traceback"] += f"\n(the exception itself cannot be pickled: {known['why']})\n"
    error = _dialect.current.task_error(cause, known["type"], known["text"], known["traceback"], known["pid"],
                                        known["host"], known["function"], known["actor"])
    vars(error).update(_manta_payload=payload, _manta_constructs=known["constructs"])
    return error
