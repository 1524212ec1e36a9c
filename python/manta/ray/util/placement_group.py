"""ray.util.placement_group: resources that are reserved together."""
from __future__ import annotations

from typing import Any, Optional, Sequence

import manta
from manta import _manta
from manta.ray import _worker
from manta.ray._ids import PlacementGroupID
from manta.ray.exceptions import ActorAlreadyExistsError, RayError

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
OURS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}


class PlacementGroup:
    """A handle on a group; may be passed to tasks and actors.

        group = ray.util.placement_group([{"CPU": 1}])
        group.wait(10), group.bundle_specs
    """

    def __init__(self, group: Any = None, bundles: Optional[Sequence[dict[str, float]]] = None) -> None:
        self._group = group
        self.bundle_cache = [dict(b) for b in bundles or []]

    @staticmethod
    def empty() -> "PlacementGroup":
        return PlacementGroup()

    @property
    def id(self) -> PlacementGroupID:
        if self._group is None:
            return PlacementGroupID.nil()           # type: ignore[no-any-return]
        return PlacementGroupID(int(self._group.id).to_bytes(8, "big"))

    @property
    def is_empty(self) -> bool:
        return self._group is None

    def ready(self) -> Any:
        """A reference that is ready when the group has its place."""
        return manta.placement_group_ready(self._group)

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Whether it has its place within that time."""
        return bool(manta.placement_group_wait(self._group, timeout_seconds))

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        return [dict(b) for b in self.bundle_cache]

    @property
    def bundle_count(self) -> int:
        return len(self.bundle_cache)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> Any:
        return PlacementGroup, (self._group, self.bundle_cache)


def _check(bundles: Any, strategy: str, lifetime: Optional[str]) -> None:
    if not isinstance(bundles, list):
        raise ValueError(f"bundles is of type {type(bundles).__name__}, expected a list of dicts")
    if not bundles:
        raise ValueError("bundles is empty, expected a list of dicts such as [{'CPU': 1}]")
    for bundle in bundles:
        if not isinstance(bundle, dict) or not all(isinstance(k, str) and isinstance(v, (int, float)) for k, v in bundle.items()):
            raise ValueError(f"bundles has {bundle!r}, expected dicts of names of resources and amounts")
        if not bundle or all(v == 0 for v in bundle.values()):
            raise ValueError(f"bundles has {bundle!r}, which asks for nothing")
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy={strategy!r}, expected one of {', '.join(STRATEGIES)}")
    if lifetime not in (None, "detached"):
        raise ValueError(f"lifetime={lifetime!r}, expected 'detached' or None")


def _ours(bundle: dict[str, float]) -> dict[str, Any]:
    out: dict[str, Any] = {OURS[k]: v for k, v in bundle.items() if k in OURS}
    more = {k: v for k, v in bundle.items() if k not in OURS and v}
    if more:
        out["resources"] = more
    return out


def placement_group(bundles: list[dict[str, float]], strategy: str = "PACK", name: str = "",
                    lifetime: Optional[str] = None, **_: Any) -> PlacementGroup:
    """Asks for bundles of resources, which are had together or not at all.

    >>> group = ray.util.placement_group([{"CPU": 1}, {"CPU": 1}])
    >>> ray.get(group.ready())
    """
    _check(bundles, strategy, lifetime)
    if lifetime == "detached":
        raise NotImplementedError("placement_group(lifetime='detached'): groups end with the program that made them")
    _worker.auto_init()
    try:
        group = manta.placement_group_new([_ours(b) for b in bundles], strategy, name or None)
    except ActorAlreadyExistsError as e:        # of names that are taken, whatever they are of
        raise ValueError(str(e)) from None
    return PlacementGroup(group, bundles)


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Gives the bundles back; what runs in them is ended.

        ray.util.remove_placement_group(group)
    """
    if not isinstance(placement_group, PlacementGroup):
        raise TypeError(f"remove_placement_group() of a value of type {type(placement_group).__name__}, expected a placement group")
    manta.placement_group_remove(placement_group._group)


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """The group of that name. ValueError: there is none.

        ray.util.placement_group([{"CPU": 1}], name="mine")
        group = ray.util.get_placement_group("mine")
    """
    if not placement_group_name:
        raise ValueError("get_placement_group() of '', expected the name of a group")
    try:
        group = manta.placement_group_find(placement_group_name)
    except Exception:
        raise ValueError(f"no placement group is called {placement_group_name!r}") from None
    return PlacementGroup(group, _bundles(manta.placement_group_get(group)))


def _bundles(info: Any) -> list[dict[str, float]]:
    """Bundles as Ray writes them, of "cpu=1,disk=2"."""
    from manta.ray.runtime_context import resources
    return [resources({"resources": text}) for text in info["bundles"]]


def placement_group_table(placement_group: Optional[PlacementGroup] = None) -> dict[str, Any]:
    """What is known of a group: its state, bundles, strategy; without one, of all groups of the node by their numbers, but
    for those that were removed.

        ray.util.placement_group_table(group)["state"]
    """
    if placement_group is None:
        return {str(row["placement_group_id"]): row for row in _all_groups()}
    info = manta.placement_group_get(placement_group._group)
    is_placed = placement_group.wait(0) or any(o["id"] == placement_group._group.id and o["state"] == "alive"     # another process's
                                               for o in _manta.view()["objects"])
    return _row(placement_group, info, is_placed)


def _row(placement_group: PlacementGroup, info: Any, is_placed: bool) -> dict[str, Any]:
    state = "REMOVED" if info["removed"] else "CREATED" if is_placed else "PENDING"
    return {"placement_group_id": placement_group.id.hex(), "name": info["name"], "strategy": info["strategy"],
            "state": state, "bundles": dict(enumerate(_bundles(info))),
            "bundles_to_node_id": {i: _worker.nodes()[0]["NodeID"] for i in range(len(info["bundles"]))},
            "stats": {"scheduling_state": state}}


MOST_OBJECTS = 10000        # that a picture of the node has, the largest first; a group has no size


def _all_groups() -> list[dict[str, Any]]:
    """What is known of each group of the node, whoever made it."""
    _worker.auto_init()
    objects = _manta.view()["objects"]
    if len(objects) >= MOST_OBJECTS:
        raise RuntimeError(f"the placement groups of a node with {MOST_OBJECTS} objects or more cannot be listed; name one")
    out = []
    for o in objects:
        if o["size"] == 0:
            try:
                group = manta.PlacementGroup(o["id"])
                out.append(_row(PlacementGroup(group), manta.placement_group_get(group), o["state"] == "alive"))
            except (manta.exceptions.MantaError, RayError, ValueError):
                continue        # it is no group, or was removed meanwhile
    return [row for row in out if row["state"] != "REMOVED"]


def get_current_placement_group() -> Optional[PlacementGroup]:
    """The group that this code runs in; None: in none.

        ray.util.get_current_placement_group()
    """
    _worker.auto_init()
    group = manta.context().get("placement_group")
    if not group:
        return None
    if isinstance(group, int):
        group = manta.PlacementGroup(group)
    return PlacementGroup(group, _bundles(manta.placement_group_get(group)))
