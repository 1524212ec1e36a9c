"""ray.util.annotations, as far as Ray's tests use it."""
RayDeprecationWarning = DeprecationWarning


def __getattr__(name):
    from sitecustomize import missing
    return missing(__name__, name)
