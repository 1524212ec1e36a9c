"""The nursery: a process that never runs the program's code, and whose forks the workers are.

manta.init() has it started as `python -P .../manta/_nursery.py DIALECT`; it finds the package that it is a part of, and
nothing else, and serves forks until its node ends.

A warm nursery is given the driver's path and modules to import first, those of WARM that the driver has imported: workers then have them at
once. It must have no thread that a fork would miss, so the modules are told to use one, which every worker takes back
(set_threads()); what keeps a thread all the same is in FORK_TESTED, or ends the nursery, and workers import for themselves.
"""
import os
import sys

WARM = ("numpy", "pandas", "torch", "torchvision", "sklearn")
NEEDED = ("signal", "traceback", "cloudpickle")  # by the first call of a worker
DIALECTS = {"ray": ("manta.ray",)}  # and by the way in which the driver speaks
FORK_TESTED = {"jemalloc_bg_thd"}  # threads that forks were found to do without
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_openblas = []  # what sets the number of threads of each OpenBLAS here


def serve(arguments):
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.dirname(here))
    from manta import _core, _manta  # noqa: F401  _core sets the hooks
    del sys.path[0]
    _load([*NEEDED, *DIALECTS.get(arguments[0], ())])
    if len(arguments) > 1:
        _warm_up(arguments[1], arguments[2:])
    sys.argv = [""]
    _manta.nursery_run()


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

    sys.path[:] = path.split(os.pathsep)
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    for name in modules:
        importlib.import_module(name)
    _prepare_workers()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    others = _threads() - FORK_TESTED
    if others:
        sys.exit(f"{', '.join(modules)} keep threads that forks would miss: {', '.join(sorted(others))}")
    gc.collect()
    gc.freeze()


def _prepare_workers():
    """What every worker would do for itself in start(): numpy loads its random numbers when they are first asked for, and
    that takes three times as long as all else that a new worker does."""
    if "numpy" in sys.modules:
        import numpy.random  # noqa: F401
        from manta import _nursery  # this file is __main__ here, and the module that workers import is another
        _nursery.find_openblas()


def _threads():
    """The names of this process's threads but the first."""
    out = set()
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            with open(f"/proc/self/task/{task}/comm") as f:
                out.add(f.read().strip())
    return out


def set_threads():
    """In a fork of a warm nursery: as many threads as if the modules had been imported here."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    n = int(wanted) if wanted.isdigit() and int(wanted) else len(os.sched_getaffinity(0))
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(n)
    for set_number in _openblas:
        set_number(n)


def find_openblas():
    """Finds what set_threads() calls, among the libraries that this process has."""
    import ctypes
    with open("/proc/self/maps") as f:
        paths = {line.split(maxsplit=5)[-1].strip() for line in f if "openblas" in line}
    for path in paths:
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads64_",
                     "openblas_set_num_threads"):
            if hasattr(library, name):
                _openblas.append(getattr(library, name))
                break


if __name__ == "__main__":
    serve(sys.argv[1:])
