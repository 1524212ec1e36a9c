"""What C asks Python for in a worker."""
import os
import sys
from _contextvars import Context

from manta import _code, _failures, _manta, _streams, _threads, _values

GROUPS = "__manta_groups__"  # an argument of constructors: how many coroutines of each concurrency group may run at once
captured_by_name = {}  # of functions that this process knows


def function(name, captured):
    """What a call of `name` ("py.KEY.label") calls: a function, or the class of an actor."""
    _code.join_job()
    key = bytes.fromhex(name.split(".")[1])
    if captured is not None:
        captured_by_name[name] = captured
    return _values.load_code(_code.get(key), captured)


def shown(name):
    """The name of what a call runs, as people know it: "f", "Class.method", "Class.__init__"."""
    label = _failures.label(name)
    if not _manta.is_actor() or label == name:
        return label
    instance = _manta.actor_here(_manta.Actor)[1]
    return f"{label}.__init__" if instance is None else f"{type(instance).__name__}.{label}"


def method(actor, name):
    """A method that every actor has."""
    if name == "__ray_ready__" or name == "__manta_ready__":
        return lambda: True
    if name == "__ray_call__" or name == "__manta_call__":
        return lambda f, *args, **kwargs: f(actor, *args, **kwargs)
    if name == "__ray_terminate__" or name == "__manta_end__":
        from manta import _core
        return _core.exit_actor
    raise AttributeError(f"{type(actor).__name__} has no method {name}")


def start(environment):
    """In a new worker, before its first call."""
    import _signal  # whose functions make no enumerations
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)  # how a cancelled call is told
    _signal.signal(_signal.SIGPIPE, _signal.SIG_IGN)
    there = _manta.stack_begin()
    if there is not None:
        import faulthandler  # the nursery has it
        faulthandler.register(there[0], there[1], all_threads=True, chain=True)
    if environment:
        import json
        _code.environment = json.loads(environment)
        os.environ.update(_code.environment.get("env_vars", {}))
    _threads.begin()


def coroutine(awaitable, deferred, how):
    if awaitable is None:
        _streams.linger(deferred)
        return
    from manta import _aio
    _aio.begin(awaitable, deferred, how)


def limit(n, cls):
    """What constructs an actor with coroutines: in their loop, where it may begin some."""
    from manta import _aio

    def make(*args, **kwargs):
        _aio.set_limit(n, kwargs.pop(GROUPS, None))
        return _aio.construct(cls, args, kwargs)
    return make


async def _call_in_loop(method, *args, **kwargs):
    return method(*args, **kwargs)


def looped(method):
    """Of an actor with coroutines every method runs in their loop, on one thread."""
    code = getattr(getattr(method, "__func__", method), "__code__", None)
    if code is not None and code.co_flags & 0x2A0:  # it is async, or a generator
        return method
    import functools
    return functools.partial(_call_in_loop, method)


def deferred_here():
    """The call whose coroutine this runs in; None: none."""
    aio = sys.modules.get("manta._aio")
    return aio.call_here() if aio is not None and aio.in_loop() else None


def exit_actor():
    """The actor of this process is to end; the exception that ends the call which says so."""
    from manta import _dialect
    aio = sys.modules.get("manta._aio")
    in_loop = aio is not None and aio.in_loop()
    _manta.exit_actor(aio.leave() if in_loop else None)
    return _dialect.current.actor_exit(in_loop)


def leave(actor):
    """The actor ends as it should, before the atexit functions of its process."""
    for name in ("__manta_shutdown__", "__ray_shutdown__"):
        if hasattr(actor, name):
            try:
                getattr(actor, name)()
            except BaseException:
                import traceback
                traceback.print_exc()


def apart(call):
    """Runs a call on a thread where another one waits for it, with context variables of its own."""
    Context().run(_manta.run_apart, call)


def cancel(task):
    aio = sys.modules.get("manta._aio")
    if aio is not None:
        aio.cancel(task)


def end():
    """In a worker that ends as it should."""
    import atexit
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()


def failed(error, name, actor, how):
    return (*_failures.describe(error, name, actor), isinstance(error, how.get("retry", ())))
