"""ray.util.joblib: joblib.Parallel on actors, by `register_ray()` and `parallel_backend("ray")`."""
from __future__ import annotations


def register_ray() -> None:
    """Makes the backend "ray" known to joblib, which must be installed."""
    from joblib.parallel import register_parallel_backend

    from manta.ray.util.joblib.ray_backend import RayBackend
    register_parallel_backend("ray", RayBackend)


__all__ = ["register_ray"]
