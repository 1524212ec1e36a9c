"""ray.cloudpickle: cloudpickle under Ray's name."""
from cloudpickle import *  # noqa: F401,F403
from cloudpickle import CloudPickler, Pickler, dump, dumps, load, loads, register_pickle_by_value

__all__ = ["CloudPickler", "Pickler", "dump", "dumps", "load", "loads", "register_pickle_by_value"]
