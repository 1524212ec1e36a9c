"""ray.data.iterator, which is manta.data's."""
from manta.data.iterator import *  # noqa: F401,F403
