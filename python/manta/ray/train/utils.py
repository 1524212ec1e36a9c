"""ray.train.utils."""
from manta.train import _session

__all__ = ["_in_ray_train_worker"]


def _in_ray_train_worker() -> bool:
    """Whether the loop of a trainer runs in this process."""
    return _session._current is not None
