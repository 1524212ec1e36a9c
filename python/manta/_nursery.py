"""The nursery: a process that never runs the program's code, and whose forks the workers are.

manta.init() has it started as `python -P .../manta/_nursery.py DIALECT`; it finds the package that it is a part of, and
nothing else, and serves forks until its node ends.

A warm nursery is given the driver's path and modules to import first, those of WARM that the driver has imported: workers then have them at
once. It must have no thread that a fork would miss, so the modules are told to use one (_threads.py says how many workers use);
what keeps a thread all the same is in FORK_TESTED, or ends the nursery, and workers import for themselves.

What every worker would do in the same way is done here, before it is forked or after the fork before its own: it then costs no worker
its time, nor memory of its own.
"""
import os
import sys

WARM = ("numpy", "pandas", "pyarrow", "torch", "torchvision", "sklearn")
NEEDED = ("faulthandler", "signal", "traceback", "cloudpickle")  # by the first call of a worker
DIALECTS = {"ray": ("manta.ray",)}  # and by the way in which the driver speaks
FORK_TESTED = {"jemalloc_bg_thd"}  # threads that forks were found to do without


def serve(arguments):
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.dirname(here))
    from manta import _core, _manta  # noqa: F401  _core sets the hooks
    del sys.path[0]
    _load([*NEEDED, *DIALECTS.get(arguments[0], ())])
    if len(arguments) > 1:
        _warm_up(arguments[1], arguments[2:])
    sys.argv = [""]
    _settle()
    _manta.nursery_run()


def _settle():
    """What workers inherit besides modules."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(line_buffering=True)
    value = os.environ.pop("MANTA_NURSERY", None)  # it is for nursery_run() alone, which asks C for it
    if value is not None:
        os.putenv("MANTA_NURSERY", value)
    from manta import _manta
    _manta.stack_prepare()


def _load(modules):
    """Imports what workers need in any case, once for all of them, and keeps it out of the way of their collectors."""
    import gc
    import importlib
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:  # it is where the driver says, and workers look there
            pass
    gc.collect()
    gc.freeze()


def _warm_up(path, modules):
    import gc
    import importlib
    from manta import _threads

    sys.path[:] = path.split(os.pathsep)
    before = {name: os.environ.get(name) for name in _threads.VARIABLES}
    os.environ.update(dict.fromkeys(_threads.VARIABLES, "1"))
    for name in modules:
        importlib.import_module(name)
    _prepare_workers()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    others = _thread_names() - FORK_TESTED
    if others:
        sys.exit(f"{', '.join(modules)} keep threads that forks would miss: {', '.join(sorted(others))}")
    gc.collect()
    gc.freeze()


def _prepare_workers():
    """Has each fork begin with random numbers of its own: those of `random` are by Python, and these are made here, after the
    fork before. numpy loads them when they are first asked for, which takes long."""
    if "numpy" in sys.modules:
        import itertools
        import numpy.random
        from manta import _threads
        _threads.find_openblas()
        seeds = itertools.count(int.from_bytes(os.urandom(4), "little"))  # a number is a quarter of the work, and none comes twice
        _after_each_fork(lambda: numpy.random.seed(next(seeds) % 2**32))
    if "torch" in sys.modules:
        _after_each_fork(sys.modules["torch"].seed)


def _after_each_fork(function):
    nursery = os.getpid()  # a worker that forks has the function, too
    os.register_at_fork(after_in_parent=lambda: function() if os.getpid() == nursery else None)


def _thread_names():
    """The names of this process's threads but the first."""
    out = set()
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            with open(f"/proc/self/task/{task}/comm") as f:
                out.add(f.read().strip())
    return out


if __name__ == "__main__":
    serve(sys.argv[1:])
