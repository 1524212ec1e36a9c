"""ray.util: what is built on tasks and actors."""
from manta.ray.util.actor_pool import ActorPool
from manta.ray.util.check_serialize import inspect_serializability
from manta.ray.util.helpers import as_completed, map_unordered
from manta.ray.util.nodes import get_node_instance_id, get_node_ip_address, list_named_actors
from manta.ray.util.placement_group import (get_current_placement_group, get_placement_group, placement_group,
                                            placement_group_table, remove_placement_group)
from manta.ray.util.serialization import deregister_serializer, register_serializer

__all__ = ["ActorPool", "as_completed", "deregister_serializer", "get_current_placement_group", "get_node_instance_id",
           "get_node_ip_address", "get_placement_group", "inspect_serializability", "list_named_actors", "map_unordered",
           "placement_group", "placement_group_table", "register_serializer", "remove_placement_group"]

_LAZY = ("accelerators", "actor_group", "annotations", "client", "collective", "iter", "joblib", "metrics", "multiprocessing", "queue",
         "scheduling_strategies", "state")


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
