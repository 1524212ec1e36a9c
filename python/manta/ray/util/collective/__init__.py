"""ray.util.collective: groups of actors and tasks, and collectives between them."""
from manta.ray.util.collective import types
from manta.ray.util.collective.collective import (allgather, allgather_multigpu, allreduce, allreduce_multigpu, barrier, broadcast,
                                                  broadcast_multigpu, create_collective_group, destroy_collective_group,
                                                  get_collective_group_size, get_group_handle, get_rank, gloo_available,
                                                  init_collective_group, is_group_initialized, nccl_available, recv, recv_multigpu,
                                                  reduce, reduce_multigpu, reducescatter, reducescatter_multigpu, send,
                                                  send_multigpu)
from manta.ray.util.collective.types import Backend, ReduceOp

__all__ = ["Backend", "ReduceOp", "allgather", "allgather_multigpu", "allreduce", "allreduce_multigpu", "barrier", "broadcast",
           "broadcast_multigpu", "create_collective_group", "destroy_collective_group", "get_collective_group_size",
           "get_group_handle", "get_rank", "gloo_available", "init_collective_group", "is_group_initialized", "nccl_available",
           "recv", "recv_multigpu", "reduce", "reduce_multigpu", "reducescatter", "reducescatter_multigpu", "send", "send_multigpu",
           "types"]
