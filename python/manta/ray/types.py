"""ray.types"""
from manta import ObjectRef

__all__ = ["ObjectRef"]
