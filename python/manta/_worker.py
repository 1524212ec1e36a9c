"""What C asks Python for in a worker."""
import os
import sys

from manta import _code, _failures, _manta, _values

captured_by_name = {}  # of functions that this process knows


def function(name, captured):
    """What a call of `name` ("py.KEY.label") calls: a function, or the class of an actor."""
    _code.join_job()
    key = bytes.fromhex(name.split(".")[1])
    if captured is not None:
        captured_by_name[name] = captured
    return _values.load_code(_code.get(key), captured)


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
    import signal
    signal.signal(signal.SIGINT, signal.default_int_handler)  # how a cancelled call is told
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(line_buffering=True)
    os.environ.pop("MANTA_NURSERY", None)  # the nursery's own
    if "random" in sys.modules:
        sys.modules["random"].seed()
    if "numpy" in sys.modules or "torch" in sys.modules:
        from manta import _nursery
        _nursery.set_threads()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].seed()
    if environment:
        import json
        for name, value in json.loads(environment).get("env_vars", {}).items():
            os.environ[name] = value


def coroutine(awaitable, deferred):
    from manta import _aio
    _aio.begin(awaitable, deferred)


def limit(n):
    from manta import _aio
    _aio.set_limit(n)


def cancel(task):
    aio = sys.modules.get("manta._aio")
    if aio is not None:
        aio.cancel(task)


def end():
    """In a worker that ends as it should."""
    import atexit
    import threading
    atexit._run_exitfuncs()
    del threading
    sys.stdout.flush()
    sys.stderr.flush()


def failed(error, name, actor):
    return _failures.describe(error, name, actor)


def items(out):
    """What a call that yields yields."""
    return iter(out)
