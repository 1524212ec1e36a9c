"""ray.util.scheduling_strategies: where a task or an actor is to run."""
from __future__ import annotations

from typing import Any, Mapping, Optional

__all__ = ["DEFAULT", "SPREAD", "DoesNotExist", "Exists", "In", "NodeAffinitySchedulingStrategy", "NodeLabelSchedulingStrategy",
           "NotIn", "PlacementGroupSchedulingStrategy"]

DEFAULT = "DEFAULT"
SPREAD = "SPREAD"


class PlacementGroupSchedulingStrategy:
    """In a bundle of a placement group; -1: in whichever has room.

        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
        f.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote(1)
    """

    def __init__(self, placement_group: Any, placement_group_bundle_index: int = -1,
                 placement_group_capture_child_tasks: Optional[bool] = None) -> None:
        self.placement_group = placement_group
        self.placement_group_bundle_index = placement_group_bundle_index
        self.placement_group_capture_child_tasks = placement_group_capture_child_tasks


class NodeAffinitySchedulingStrategy:
    """On one node; with `soft` elsewhere when that is not there.

        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
        here = ray.get_runtime_context().get_node_id()
        f.options(scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False)).remote(1)
    """

    def __init__(self, node_id: str, soft: bool, _spill_on_unavailable: bool = False,
                 _fail_on_unavailable: bool = False) -> None:
        self.node_id = node_id if isinstance(node_id, str) else node_id.hex()
        self.soft = soft


class _Values:
    def __init__(self, *values: str) -> None:
        if not values or not all(isinstance(v, str) for v in values):
            raise ValueError(f"{type(self).__name__} wants one or more strings, and was given {values!r}")
        self.values = list(values)


class In(_Values):
    pass


class NotIn(_Values):
    pass


class Exists:
    pass


class DoesNotExist:
    pass


class NodeLabelSchedulingStrategy:
    """On a node with such labels. On one host there is no choice, and every condition holds.

        from ray.util.scheduling_strategies import In, NodeLabelSchedulingStrategy
        f.options(scheduling_strategy=NodeLabelSchedulingStrategy({"zone": In("a", "b")})).remote(1)
    """

    def __init__(self, hard: Optional[Mapping[str, Any]], *, soft: Optional[Mapping[str, Any]] = None) -> None:
        if not hard and not soft:
            raise ValueError("NodeLabelSchedulingStrategy() says nothing without hard= or soft=")
        for name, conditions in (("hard", hard), ("soft", soft)):
            for key, condition in (conditions or {}).items():
                if not isinstance(key, str):
                    raise ValueError(f"{name}= has the key {key!r}, expected the name of a label")
                if not isinstance(condition, (In, NotIn, Exists, DoesNotExist)):
                    raise ValueError(f"{name}= has {condition!r} for {key!r}, expected In, NotIn, Exists or DoesNotExist")
        self.hard, self.soft = dict(hard or {}), dict(soft or {})


def use_group(out: dict[str, Any], strategy: PlacementGroupSchedulingStrategy, label: str) -> None:
    """Puts the group and the bundle into options of manta.remote()."""
    group = strategy.placement_group
    if group is None or group.is_empty:
        return
    index = strategy.placement_group_bundle_index
    if index < -1 or index >= group.bundle_count:
        raise ValueError(f"placement_group_bundle_index={index}, and the bundles of the group are 0 to {group.bundle_count - 1}")
    bundles = group.bundle_specs if index < 0 else [group.bundle_specs[index]]
    request = {name: n for name, n in (("CPU", out.get("num_cpus")), ("GPU", out.get("num_gpus")),
                                       *(out.get("resources") or {}).items()) if n}
    if not any(all(b.get(name, 0) >= n for name, n in request.items()) for b in bundles):
        shown = [{name: float(n) for name, n in b.items()} for b in bundles]
        raise ValueError(f"{label} asks for {request}, which no bundle of its placement group has room for: {shown}")
    out["placement_group"] = group._group
    out["bundle"] = index + 1           # counted from 1 there; 0: whichever has room


def use_node(out: dict[str, Any], strategy: NodeAffinitySchedulingStrategy) -> None:
    """Puts the node into options of manta.remote(); one that is not ours is left out when that will do."""
    from manta.ray import _worker

    here = _worker.nodes()[0]["NodeID"]
    if strategy.node_id == here or strategy.soft:
        return                          # all there is
    out["node"] = int(strategy.node_id, 16) & (2 ** 64 - 1) or 1
