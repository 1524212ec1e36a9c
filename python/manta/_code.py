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


def start_job():
    """In the driver: what every worker of the program does first."""
    from manta import _alias, _dialect
    put(JOB, dumps({"path": list(sys.path), "cwd": os.getcwd(), "alias": _alias.is_installed(),
                           "dialect": _dialect.current.name}))


_joined = False


def join_job():
    """In a worker: before it runs a function."""
    global _joined
    if _joined:
        return
    _joined = True
    job = loads(get(JOB))
    sys.path[:] = job["path"]
    try:
        os.chdir(job["cwd"])
    except OSError:
        pass  # it was removed: workers stay where they are
    if job["alias"]:
        from manta import _alias
        _alias.install()
    if job["dialect"] == "ray":
        import manta.ray  # noqa: F401  it sets the dialect
