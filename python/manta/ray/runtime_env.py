"""ray.runtime_env: what a worker's environment is to be.

`env_vars` is here. What would install packages (`pip`, `conda`, `uv`, containers) raises
NotImplementedError when a call is made that asks for it.
"""
from __future__ import annotations

from typing import Any, Mapping, Optional

KNOWN = ("env_vars", "config", "eager_install", "_ray_release", "_ray_commit", "excludes")
MISSING = ("working_dir", "py_modules", "py_executable", "pip", "conda", "uv", "container", "image_uri", "java_jars",
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
            raise TypeError(f"runtime_env['env_vars'] must be of type Dict[str, str], got {type(env_vars)}")
        for name, value in env_vars.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"runtime_env['env_vars'] must be of type Dict[str, str], got {type(name)}: {type(value)} "
                                f"of {name!r}")


def variables(given: Any) -> Optional[dict[str, str]]:
    """The variables that an environment sets; None: none. Raises of what is wrong, or not here."""
    if given is None:
        return None
    if isinstance(given, str):
        import json
        given = json.loads(given)
    if not isinstance(given, Mapping):
        raise TypeError(f"runtime_env must be dict or RuntimeEnv, not {type(given)}")
    _check(given)
    for name in MISSING:
        if given.get(name):
            raise NotImplementedError(f"runtime_env[{name!r}] is not part of manta.ray: install what workers need where "
                                      "the driver runs; they are processes of the same host and interpreter")
    return dict(given["env_vars"]) if given.get("env_vars") else None
