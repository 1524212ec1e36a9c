"""ray.train.v2.api.result"""
from manta.train import Result  # noqa: F401
