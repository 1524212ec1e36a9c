"""manta.ray: Ray's public API on Manta's runtime.

    import manta.ray as ray

or `python -m manta run script.py`, where `import ray` is this module, in workers too. What is not here
raises NotImplementedError or ImportError and says so; docs/from-ray-python.md has the list of what
differs and why.
"""
from manta import ObjectRef
from manta.ray import _worker

_worker.use_dialect()

from manta.ray import _missing, actor, exceptions, remote_function, runtime_context, types  # noqa: E402
from manta.ray import runtime_env as runtime_env  # noqa: E402
from manta.ray._ids import (ActorID, JobID, NodeID, PlacementGroupID, TaskID, UniqueID, WorkerID)  # noqa: E402
from manta.ray._generator import ObjectRefGenerator  # noqa: E402
from manta.ray._worker import (available_resources, cancel, cluster_resources, get, get_actor, get_gpu_ids,  # noqa: E402
                               init, is_initialized, kill, nodes, put, remote, shutdown, timeline, wait)
from manta.ray.actor import method  # noqa: E402
from manta.ray.runtime_context import get_runtime_context  # noqa: E402

__version__ = _worker.RAY_VERSION
__commit__ = ""

LOCAL_MODE, SCRIPT_MODE, WORKER_MODE = 2, 0, 1

__all__ = [
    "ActorID", "JobID", "LOCAL_MODE", "NodeID", "ObjectID", "ObjectRef", "ObjectRefGenerator", "PlacementGroupID",
    "SCRIPT_MODE", "TaskID", "UniqueID", "WORKER_MODE", "WorkerID", "__version__", "actor", "available_resources",
    "cancel", "cluster_resources", "exceptions", "get", "get_actor", "get_gpu_ids", "get_runtime_context", "init",
    "is_initialized", "kill", "method", "nodes", "put", "remote", "remote_function", "runtime_context", "runtime_env",
    "shutdown", "timeline", "types", "util", "wait",
]

ObjectID = ObjectRef

# Modules that are imported when they are first looked at, and names that Ray has and we do not.
_LAZY = ("util", "cloudpickle", "experimental", "_raylet", "train", "air", "data")
_MISSING = {"client": "Ray's client protocol", "java_function": "Java", "java_actor_class": "Java",
            "cpp_function": "calls of C++", "LoggingConfig": "logging configurations"}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    if name in _missing.MODULES:
        _missing.refuse(name)
    if name in _MISSING:
        raise NotImplementedError(f"ray.{name}: {_MISSING[name]} are not part of manta.ray")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
