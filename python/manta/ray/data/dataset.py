"""ray.data.dataset, which is manta.data's."""
from manta.data.dataset import *  # noqa: F401,F403
