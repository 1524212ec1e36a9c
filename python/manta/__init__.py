"""Manta: remote functions, actors and objects.

    import manta

    @manta.remote
    def add(a, b):
        return a + b

    print(manta.get(add.remote(1, 2)))

The first call starts a node on this host: `manta.init()` does so with options, `manta.shutdown()`
ends it, and so does the end of the program. `manta.ray` speaks Ray's API over the same runtime.
"""
from manta import exceptions
from manta._core import (ActorClass, ActorHandle, ActorMethod, ObjectRefGenerator, RemoteFunction, cancel, context,
                         current_actor, exit_actor, get, get_actor, init, is_initialized, kill, method, node_info, put, remote,
                         shutdown, wait)
from manta._groups import (PlacementGroup, placement_group_find, placement_group_get, placement_group_new,
                           placement_group_ready, placement_group_remove, placement_group_wait)
from manta._manta import ObjectRef

__all__ = [
    "ActorClass", "ActorHandle", "ActorMethod", "ObjectRef", "ObjectRefGenerator", "PlacementGroup", "RemoteFunction",
    "cancel", "context", "current_actor", "exceptions", "exit_actor", "get", "get_actor", "init", "is_initialized", "kill",
    "method", "node_info", "placement_group_find", "placement_group_get", "placement_group_new", "placement_group_ready",
    "placement_group_remove", "placement_group_wait", "put", "remote", "shutdown", "wait",
]

# Models: imported when they are first asked for, so that import stays quick.
_LAZY = {"Dataset": "manta.models", "Input": "manta.layers", "Model": "manta.models", "Sequential": "manta.models",
         "from_keras": "manta.models", "keras_strategy": "manta._strategy", "load_model": "manta.models",
         "to_keras": "manta.models", "zoo": "manta.models"}
_LAZY_MODULES = ("callbacks", "initializers", "layers", "losses", "metrics", "models", "optimizers", "regularizers")


def __getattr__(name):
    import importlib

    if name in _LAZY_MODULES:
        return importlib.import_module(f"manta.{name}")
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'manta' has no attribute {name!r}")
