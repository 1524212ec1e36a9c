"""ray.util.multiprocessing: multiprocessing.Pool whose processes are actors."""
from multiprocessing import JoinableQueue, TimeoutError

from manta.ray.util.multiprocessing.pool import AsyncResult, Pool

__all__ = ["AsyncResult", "JoinableQueue", "Pool", "TimeoutError"]
