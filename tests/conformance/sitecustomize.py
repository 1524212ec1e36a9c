"""In every interpreter that the tests start `ray` is manta.ray, and what only Ray's insides have is a stand-in."""
import importlib.abc
import importlib.machinery
import sys
import types

import manta._alias

manta._alias.install()
PRIVATE = ("manta.ray._private", "manta.ray._common", "manta.ray.core", "manta.ray.dashboard", "manta.ray.util.client",
           "manta.ray.job_submission", "manta.ray.autoscaler", "manta.ray.util.state", "manta.ray.job_config",
           "manta.ray.util.accelerators", "manta.ray.util.tracing", "manta.ray.experimental", "grpc", "manta.ray.tune",
           "manta.ray.train._internal", "manta.ray.train.v2._internal", "manta.ray.train.v2.jax", "manta.ray.train.lightgbm",
           "manta.ray.train.xgboost", "manta.ray.air._internal", "manta.ray.air.constants", "manta.ray.data._internal")


class Missing:
    """A name of Ray's insides: may be imported and handed on, and fails where it is used."""

    def __init__(self, name):
        self._name = name

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"{self._name} belongs to Ray's insides")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}")

    def __mro_entries__(self, bases):
        return ()           # a class that is made of it has nothing of it


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes the modules below PRIVATE that are nowhere else. Comes last."""

    def find_spec(self, name, path, target=None):
        if any((name + ".").startswith(p + ".") for p in PRIVATE):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: missing(spec.name, name)
        return module

    def exec_module(self, module):
        pass


def missing(module, name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Missing(f"{module}.{name}")


sys.meta_path.append(Finder())
