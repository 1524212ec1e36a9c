"""Placement groups: bundles of resources that are reserved together."""
from manta import _manta, _options

_PLACEMENTS = {"PACK": 0, "SPREAD": 1, "STRICT_PACK": 2, "STRICT_SPREAD": 3}


class PlacementGroup:
    """Bundles of resources that are reserved together.

        group = manta.placement_group_new([{"num_cpus": 1}])
        group == manta.placement_group_new([{"num_cpus": 1}])
    """

    def __init__(self, id):
        self.id = id

    def __eq__(self, other):
        return isinstance(other, PlacementGroup) and other.id == self.id

    def __hash__(self):
        return hash(self.id)

    def __repr__(self):
        return f"<placement group {self.id:016x}>"


def _bundle(b):
    b = dict(b)
    cpus, gpus, memory = b.pop("num_cpus", 0), b.pop("num_gpus", 0), b.pop("memory", 0)
    more = b.pop("resources", None) or {}
    if b:
        raise ValueError(f"a bundle has no {', '.join(sorted(b))}")
    return float(cpus), float(gpus), int(memory), _options.resources_text(more) or None


def placement_group_new(bundles, strategy="PACK", name=None):
    """Asks for a group of bundles; it has its place when enough is free.

        group = manta.placement_group_new([{"num_cpus": 1}, {"num_cpus": 1}])
        f.options(placement_group=group).remote()
    """
    if strategy not in _PLACEMENTS:
        raise ValueError(f"strategy is {strategy!r}, expected one of {', '.join(_PLACEMENTS)}")
    bundles, most = list(bundles), _manta.group_most()
    if len(bundles) > most:  # before a look at each: there may be a million
        raise ValueError(f"a placement group has {len(bundles)} bundles, at most {most} are possible")
    return PlacementGroup(_manta.group_new([_bundle(b) for b in bundles], _PLACEMENTS[strategy], name))


def placement_group_ready(group):
    """A reference that is ready when the group has its place.

        manta.get(manta.placement_group_ready(group))
    """
    return _manta.group_ready(group.id)


def placement_group_wait(group, timeout=None):
    """Waits until the group has its place; False: the time is over.

        manta.placement_group_wait(group, timeout=10)
    """
    return _manta.group_wait(group.id, timeout)


def placement_group_remove(group):
    """Gives the bundles back; what runs in them is killed.

        manta.placement_group_remove(group)
    """
    _manta.group_remove(group.id)


def placement_group_find(name):
    """The group of that name. ValueError: there is none.

        group = manta.placement_group_find("mine")
    """
    return PlacementGroup(_manta.group_find(name))


def placement_group_get(group):
    """Name, strategy and bundles of a group.

        manta.placement_group_get(group)["bundles"]
    """
    return _manta.group_get(group.id)
