"""ray.util: the host, and names of actors."""
from __future__ import annotations

from typing import Any

from manta.ray import _worker


def get_node_ip_address(address: str = "") -> str:
    """The address of this host.

        ray.util.get_node_ip_address()
    """
    return "127.0.0.1"


def get_node_instance_id() -> str:
    """What names this host in the node.

        ray.util.get_node_instance_id()
    """
    return str(_worker.nodes()[0]["NodeID"])


def list_named_actors(all_namespaces: bool = False) -> list[Any]:
    """Names of the actors that live: in this namespace, or in all, then as {"name", "namespace"}.

        ray.util.list_named_actors()
    """
    from manta.ray.util import state

    _worker.auto_init()
    named = [a for a in state.picture()["actors"] if a["name"] and a["state"] != "dead"]
    if all_namespaces:
        return [{"name": a["name"], "namespace": a["name_space"]} for a in named]
    return [a["name"] for a in named if a["name_space"] == _worker.namespace()]
