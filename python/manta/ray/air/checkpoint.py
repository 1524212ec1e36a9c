"""ray.air.checkpoint."""
from manta.train import Checkpoint

__all__ = ["Checkpoint"]
