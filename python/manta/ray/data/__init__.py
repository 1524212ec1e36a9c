"""ray.data: Ray Data's API, which is manta.data's.

    import ray
    ds = ray.data.range(1000)
"""
from manta.data import *  # noqa: F401,F403
from manta.data import __all__ as __all__
from manta.data import __getattr__ as __getattr__
