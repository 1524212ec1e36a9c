"""ray.train.v2.api.callback"""
from manta.train import UserCallback  # noqa: F401
