"""ray.util.collective: groups of actors and tasks, and collectives between them, in place on arrays of numpy and tensors of torch.

    import ray.util.collective as collective

    @ray.remote
    class Worker:
        def sum(self, rank):
            collective.init_collective_group(world_size=2, rank=rank, group_name="sums")
            array = numpy.full(3, float(rank))
            collective.allreduce(array, "sums")
            return array

The bytes are the same on every rank. The wait for a rank that dies ends at once, with an error that names it; destroy
the group then and make it again. A group of an actor is the actor's; one of a task is that call's.
"""
from __future__ import annotations

import logging
from typing import Any, NoReturn, Optional, Sequence

import manta
from manta.ray import _worker
from manta.ray.util.collective import _board
from manta.ray.util.collective._group import Group, address_of, whole_number
from manta.ray.util.collective.types import Backend, ReduceOp

__all__ = ["allgather", "allgather_multigpu", "allreduce", "allreduce_multigpu", "barrier", "broadcast", "broadcast_multigpu",
           "create_collective_group", "destroy_collective_group", "get_collective_group_size", "get_group_handle", "get_rank",
           "gloo_available", "init_collective_group", "is_group_initialized", "nccl_available", "recv", "recv_multigpu", "reduce",
           "reduce_multigpu", "reducescatter", "reducescatter_multigpu", "send", "send_multigpu"]

logger = logging.getLogger("manta.ray")
TIMEOUT_MS = 30000

_groups: dict[str, tuple[int, Group]] = {}      # by name, with whose it is: 0 the actor's, else the task's number


def _owner() -> int:
    """0 in an actor, else the number of the task."""
    here = manta.context()
    if not here.get("is_worker") and not here.get("in_process"):
        raise RuntimeError("collectives are of the processes of actors and tasks: expected a call from one of them")
    return 0 if here.get("actor") else int(here["task"])


def _joined(group_name: str) -> Optional[Group]:
    owner, group = _groups.get(group_name, (0, None))
    return group if owner == _owner() else None


def _check_name(group_name: Any) -> None:
    if not isinstance(group_name, str) or not group_name:
        raise ValueError(f"group_name is {group_name!r}, expected a text that is not empty")


def _check_timeout(timeout_ms: Any) -> None:
    if not isinstance(timeout_ms, int) or timeout_ms <= 0:
        raise ValueError(f"gloo_timeout is {timeout_ms!r}, expected a number of milliseconds above 0")


def _join(group_name: str, rank: int, size: int, timeout_ms: int, token: Optional[str] = None) -> Group:
    owner = _owner()
    old = _groups.pop(group_name, None)
    if old is not None:
        old[1].close()          # of a task that is over, and has not left it
    address = address_of(manta.context()["node"], _worker.namespace(), group_name, token)
    group = Group(group_name, rank, size, timeout_ms, address, token)
    _groups[group_name] = owner, group
    return group


def _group(group_name: str) -> Group:
    """The group; one that was declared for this actor is joined now."""
    group = _joined(group_name)
    if group is not None:
        return group
    actor = manta.context().get("actor")
    place = _board.place_of(group_name, _hex(actor)) if actor else None
    if place is None:
        raise RuntimeError(f"this process is in no collective group {group_name!r}: expected init_collective_group() in each rank, "
                           "or create_collective_group() with their actors")
    rank, size, timeout_ms, token = place
    return _join(group_name, rank, size, timeout_ms, token)


def _hex(actor: Any) -> str:
    return int(getattr(actor, "id", actor)).to_bytes(8, "big").hex()


def nccl_available() -> bool:
    """Whether there are collectives of devices: no.

        collective.nccl_available()
    """
    return False


def gloo_available() -> bool:
    """Whether there are collectives of processors: always.

        collective.gloo_available()
    """
    return True


def init_collective_group(world_size: int, rank: int, backend: str = Backend.AUTO, group_name: str = "default",
                          gloo_timeout: int = TIMEOUT_MS) -> None:
    """Makes this actor or task rank `rank` of a group of `world_size`, and waits until all are there.

        @ray.remote
        class Worker:
            def join(self, rank): collective.init_collective_group(2, rank, "gloo", "mine")
        ray.get([w.join.remote(i) for i, w in enumerate([Worker.remote(), Worker.remote()])])

    gloo_timeout: milliseconds of this wait, and of each collective.
    """
    _owner()
    Backend(backend)
    _check_name(group_name)
    _check_timeout(gloo_timeout)
    if _joined(group_name) is not None:
        raise RuntimeError(f"this process is in the group {group_name!r} already: destroy_collective_group() ends it")
    size, number = whole_number(world_size), whole_number(rank)
    if size is None or size <= 0:
        raise ValueError(f"world_size is {world_size!r}, expected a number above 0")
    if number is None or not 0 <= number < size:
        raise ValueError(f"rank is {rank!r}, expected 0 to {size - 1} in a group of {size}")
    _join(group_name, number, size, gloo_timeout)


def create_collective_group(actors: Sequence[Any], world_size: int, ranks: Sequence[int], backend: str = Backend.AUTO,
                            group_name: str = "default", gloo_timeout: int = TIMEOUT_MS) -> None:
    """Declares a group in the driver. Each actor joins it when it first uses it.

        collective.create_collective_group([handle, A.remote()], 2, [0, 1], "gloo", "mine")
    """
    Backend(backend)
    _check_name(group_name)
    _check_timeout(gloo_timeout)
    _worker.auto_init()
    actors, ranks = list(actors), list(ranks)
    for actor in actors:
        if not isinstance(actor, manta.ActorHandle):
            raise TypeError(f"create_collective_group() takes handles of actors, given {type(actor).__name__}")
    if len(ranks) != len(actors) or len({actor.id for actor in actors}) != len(actors):
        raise RuntimeError(f"{len(ranks)} ranks are given for {len({actor.id for actor in actors})} actors, expected one for each")
    numbers = [number for rank in ranks if (number := whole_number(rank)) is not None]
    if world_size != len(actors) or sorted(numbers) != list(range(world_size)) or not actors:
        raise RuntimeError(f"the ranks of {len(actors)} actors in a group of {world_size} are {ranks}, expected each of 0 to "
                           f"{len(actors) - 1} once, and as many actors as world_size says")
    _board.declare(group_name, {_hex(actor): number for actor, number in zip(actors, numbers)}, gloo_timeout)


def destroy_collective_group(group_name: str = "default") -> None:
    """Leaves the group; ranks that still need this one are told. In the driver: takes back what it has declared.

        collective.create_collective_group([handle], 1, [0], group_name="alone")
        collective.destroy_collective_group("alone")
    """
    here = manta.context()
    if not here.get("is_worker") and not here.get("in_process"):
        if not _board.remove(group_name):
            logger.warning("there is no group %r to be destroyed", group_name)
        return
    group = _joined(group_name)
    if group is None:
        logger.warning("there is no group %r to be destroyed", group_name)
        return
    group.close()
    del _groups[group_name]
    if group.token is not None:
        _board.remove(group_name, group.token)


def is_group_initialized(group_name: str = "default") -> bool:
    """Whether this actor or task is in the group by now; no driver ever is.

        ray.get(handle.__ray_call__.remote(lambda self: collective.is_group_initialized("mine")))
    """
    return group_name in _groups and _joined(group_name) is not None


def get_rank(group_name: str = "default") -> int:
    """The rank of this actor or task in the group; -1: it is not in it.

        ray.get(handle.__ray_call__.remote(lambda self: collective.get_rank("mine")))
    """
    group = _joined(group_name)
    return -1 if group is None else group.rank


def get_collective_group_size(group_name: str = "default") -> int:
    """How many ranks the group has; -1: this actor or task is not in it.

        ray.get(handle.__ray_call__.remote(lambda self: collective.get_collective_group_size("mine")))
    """
    group = _joined(group_name)
    return -1 if group is None else group.size


def get_group_handle(group_name: str = "default") -> Group:
    """The group itself, with its rank, its size and its collectives as methods.

        def rank_of(self): return collective.get_group_handle("mine").rank
    """
    _check_name(group_name)
    return _group(group_name)


def allreduce(tensor: Any, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """The reduction of all ranks' tensors, in place, on every rank.

        def work(self, array): collective.allreduce(array, "mine")
    """
    _group(group_name).allreduce(tensor, op)


def barrier(group_name: str = "default") -> None:
    """Waits until every rank is here.

        def work(self): collective.barrier("mine")
    """
    _group(group_name).barrier()


def reduce(tensor: Any, dst_rank: int = 0, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """The reduction of all ranks' tensors, in place, on `dst_rank`; the others' stay as they are.

        def work(self, array): collective.reduce(array, dst_rank=1, group_name="mine")
    """
    _group(group_name).reduce(tensor, dst_rank, op)


def broadcast(tensor: Any, src_rank: int = 0, group_name: str = "default") -> None:
    """The tensor of `src_rank`, in place, on every rank.

        def work(self, array): collective.broadcast(array, src_rank=0, group_name="mine")
    """
    _group(group_name).broadcast(tensor, src_rank)


def allgather(tensor_list: list[Any], tensor: Any, group_name: str = "default") -> None:
    """The tensors of all ranks, in the order of the ranks, into those of the list.

        def work(self, arrays, array): collective.allgather(arrays, array, "mine")
    """
    _group(group_name).allgather(tensor_list, tensor)


def reducescatter(tensor: Any, tensor_list: list[Any], group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """The reduction of what all ranks have in their lists for this rank, into `tensor`.

        def work(self, array, arrays): collective.reducescatter(array, arrays, "mine")
    """
    _group(group_name).reducescatter(tensor, tensor_list, op)


def send(tensor: Any, dst_rank: int, group_name: str = "default") -> None:
    """Sends the tensor to a rank, which receives it by recv().

        def work(self, array): collective.send(array, 1, "mine")
    """
    _group(group_name).send(tensor, dst_rank)


def recv(tensor: Any, src_rank: int, group_name: str = "default") -> None:
    """Receives into the tensor what a rank sends by send(): as many elements, of one type.

        def work(self, array): collective.recv(array, 0, "mine")
    """
    _group(group_name).recv(tensor, src_rank)


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(f"{name}(): collectives of manta.ray are of the memory of processors, and of one tensor for each rank; "
                              f"{name.removesuffix('_multigpu')}() is here")


def allreduce_multigpu(*args: Any, **kwargs: Any) -> None:
    """Not here: NotImplementedError.

        try: collective.allreduce_multigpu([], "mine")
        except NotImplementedError: pass
    """
    _refuse("allreduce_multigpu")


def reduce_multigpu(*args: Any, **kwargs: Any) -> None:
    """Not here: NotImplementedError.

        try: collective.reduce_multigpu([], 0)
        except NotImplementedError: pass
    """
    _refuse("reduce_multigpu")


def broadcast_multigpu(*args: Any, **kwargs: Any) -> None:
    """Not here: NotImplementedError.

        try: collective.broadcast_multigpu([], 0)
        except NotImplementedError: pass
    """
    _refuse("broadcast_multigpu")


def allgather_multigpu(*args: Any, **kwargs: Any) -> None:
    """Not here: NotImplementedError.

        try: collective.allgather_multigpu([], [])
        except NotImplementedError: pass
    """
    _refuse("allgather_multigpu")


def reducescatter_multigpu(*args: Any, **kwargs: Any) -> None:
    """Not here: NotImplementedError.

        try: collective.reducescatter_multigpu([], [])
        except NotImplementedError: pass
    """
    _refuse("reducescatter_multigpu")


def send_multigpu(*args: Any, **kwargs: Any) -> None:
    """Not here: NotImplementedError.

        try: collective.send_multigpu(None, 1, 0)
        except NotImplementedError: pass
    """
    _refuse("send_multigpu")


def recv_multigpu(*args: Any, **kwargs: Any) -> None:
    """Not here: NotImplementedError.

        try: collective.recv_multigpu(None, 1, 0)
        except NotImplementedError: pass
    """
    _refuse("recv_multigpu")
