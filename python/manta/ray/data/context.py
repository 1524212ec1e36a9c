"""ray.data.context, which is manta.data's."""
from manta.data.context import *  # noqa: F401,F403
