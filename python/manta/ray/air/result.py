"""ray.air.result."""
from manta.train import Result

__all__ = ["Result"]
