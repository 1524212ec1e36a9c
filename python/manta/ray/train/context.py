"""ray.train.context."""
from manta.train import TrainContext, get_context

__all__ = ["TrainContext", "get_context"]
