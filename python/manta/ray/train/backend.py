"""ray.train.backend."""
from manta.train import Backend, BackendConfig

__all__ = ["Backend", "BackendConfig"]
