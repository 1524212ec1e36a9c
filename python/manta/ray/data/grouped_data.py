"""ray.data.grouped_data, which is manta.data's."""
from manta.data.grouped_data import *  # noqa: F401,F403
