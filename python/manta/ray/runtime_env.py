"""ray.runtime_env: what a worker's environment is to be.

`env_vars`, `working_dir` and `py_modules` are here, the latter two as folders of this host: workers read
them where they are. What would install packages (`pip`, `conda`, `uv`, containers) raises NotImplementedError when a
call is made that asks for it.
"""
from __future__ import annotations

import os
from typing import Any, Mapping

PARTS = ("env_vars", "working_dir", "py_modules")
KNOWN = (*PARTS, "config", "eager_install", "_ray_release", "_ray_commit", "excludes")
MISSING = ("py_executable", "pip", "conda", "uv", "container", "image_uri", "java_jars",
           "worker_process_setup_hook", "nsight", "mpi", "rocprof_sys")


class RuntimeEnv(dict):     # type: ignore[type-arg]
    """A dictionary of an environment's parts, checked when it is made."""

    def __init__(self, **parts: Any) -> None:
        _check(parts)
        super().__init__({k: v for k, v in parts.items() if v is not None})

    def env_vars(self) -> dict[str, str]:
        return dict(self.get("env_vars") or {})

    def to_dict(self) -> dict[str, Any]:
        return dict(self)


def _check(parts: Mapping[str, Any]) -> None:
    for name in parts:
        if name not in KNOWN and name not in MISSING:
            raise ValueError(f"runtime_env has no field {name!r}; there are {', '.join(KNOWN)}")
    env_vars = parts.get("env_vars")
    if env_vars is not None:
        if not isinstance(env_vars, dict):
            raise TypeError(f"runtime_env['env_vars'] is of type {type(env_vars).__name__}, expected a dict of names and values")
        for name, value in env_vars.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"runtime_env['env_vars'] has {name!r}: {value!r}, expected a text for a text")


def _path_of(module: Any) -> str:
    """Where a module lies: what is imported from its parent."""
    if isinstance(module, str):
        return module
    path = getattr(module, "__file__", None)
    if path is None:
        raise TypeError(f"runtime_env['py_modules'] has a value of type {type(module).__name__}, expected paths and modules")
    return os.path.dirname(path) if os.path.basename(path) == "__init__.py" else str(path)


def _local(name: str, path: Any) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"runtime_env[{name!r}] must be a path, got {type(path)}")
    path = os.fspath(path)
    if "://" in path or (name == "working_dir" and path.endswith(".zip")):
        raise NotImplementedError(f"runtime_env[{name!r}] = {path!r} is not part of manta.ray: expected a folder of this host")
    return str(path)


def parts(given: Any) -> dict[str, Any]:
    """What of an environment is here: options of manta.remote(). Raises of what is wrong, or not here."""
    if given is None:
        return {}
    if isinstance(given, str):
        import json
        given = json.loads(given)
    if not isinstance(given, Mapping):
        raise TypeError(f"runtime_env is of type {type(given).__name__}, expected a dict or a RuntimeEnv")
    _check(given)
    for name in MISSING:
        if given.get(name):
            raise NotImplementedError(f"runtime_env[{name!r}] is not part of manta.ray: install what workers need where "
                                      "the driver runs; they are processes of the same host and interpreter")
    out = {name: given[name] for name in PARTS if given.get(name)}
    if "working_dir" in out:
        out["working_dir"] = _local("working_dir", out["working_dir"])
    if "py_modules" in out:
        out["py_modules"] = [_local("py_modules", _path_of(module)) for module in out["py_modules"]]
    return out


def merged(before: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """The parts of a call's own environment over those of its program; variables are added."""
    out = {**before, **(new := parts(given))}
    if before.get("env_vars") and new.get("env_vars"):
        out["env_vars"] = {**before["env_vars"], **new["env_vars"]}
    return out
