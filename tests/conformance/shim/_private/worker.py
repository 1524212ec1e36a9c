"""ray._private.worker, as far as Ray's tests use it."""
import manta.ray as ray
from manta.ray._worker import *  # noqa: F401,F403

_unhandled_error_handler = None


class _Worker:
    @property
    def mode(self):
        return ray.SCRIPT_MODE

    @property
    def connected(self):
        return ray.is_initialized()


global_worker = _Worker()


def __getattr__(name):
    from sitecustomize import missing
    return missing(__name__, name)
