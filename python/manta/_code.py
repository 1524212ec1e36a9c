"""Code by key, and what workers must know of their program."""
import os
import sys
from _pickle import dumps, loads

from manta import _manta

JOB = b"manta.python.job"  # a key: what start_job() puts


def put(key, data):
    _manta.code_put(key, data)


def get(key):
    return _manta.code_get(key)


def actor_key(actor_id):
    """Where the description of an actor lies that has a name."""
    return b"manta.ac" + actor_id.to_bytes(8, "big")


def _pickler():
    """Where this process would import cloudpickle from; None: nowhere, or in a way of its own."""
    from importlib.machinery import PathFinder
    spec = PathFinder.find_spec("cloudpickle")
    return spec and spec.origin


def _use_pickler(path):
    """Another cloudpickle than the nursery has imported reads other pickles: the driver's is the one."""
    there = sys.modules.get("cloudpickle")
    if there is not None and path is not None and there.__file__ != path:
        for name in [n for n in sys.modules if n.partition(".")[0] == "cloudpickle"]:
            del sys.modules[name]


def start_job():
    """In the driver: what every worker of the program does first."""
    from manta import _alias, _dialect
    put(JOB, dumps({"path": list(sys.path), "cwd": _working_folder(), "alias": _alias.is_installed(),
                           "dialect": _dialect.current.name, "pickler": _pickler()}))


def _working_folder():
    try:
        return os.getcwd()
    except OSError:  # it was removed: workers are where the node is
        return "."


_joined = False
environment = {}  # of this process, as _options.environment() wrote it


def join_job():
    """In a worker: before it runs a function."""
    global _joined
    if _joined:
        return
    _joined = True
    job = loads(get(JOB))
    folder = environment.get("working_dir")
    modules = [path if path.endswith((".whl", ".zip")) else os.path.dirname(path)
               for path in environment.get("py_modules", ())]
    sys.path[:] = [*modules, *([folder] if folder else []), *job["path"]]
    _use_pickler(job["pickler"])
    try:
        os.chdir(folder or job["cwd"])
    except OSError:
        pass  # it was removed: workers stay where they are
    if job["alias"]:
        from manta import _alias
        _alias.install()
    if job["dialect"] == "ray":
        import manta.ray  # noqa: F401  it sets the dialect
