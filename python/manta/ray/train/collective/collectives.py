"""ray.train.collective.collectives."""
from manta.train.collective import barrier, broadcast_from_rank_zero

__all__ = ["barrier", "broadcast_from_rank_zero"]
