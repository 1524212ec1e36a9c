"""ray.job_config: what holds for all calls of a program."""
from __future__ import annotations

from typing import Any, Optional


class JobConfig:
    """For ray.init(job_config=...): a namespace, an environment, and how long actors live that say nothing.

    Search paths of other languages and metadata are kept and change nothing.
    """

    def __init__(self, jvm_options: Optional[list[str]] = None, code_search_path: Optional[list[str]] = None,
                 runtime_env: Any = None, _client_job: bool = False, metadata: Optional[dict[str, str]] = None,
                 ray_namespace: Optional[str] = None, default_actor_lifetime: str = "non_detached",
                 _py_driver_sys_path: Optional[list[str]] = None) -> None:
        if default_actor_lifetime not in ("detached", "non_detached"):
            raise ValueError(f"default_actor_lifetime={default_actor_lifetime!r}, expected 'detached' or 'non_detached'")
        self.jvm_options, self.code_search_path = jvm_options or [], code_search_path or []
        self.runtime_env, self.metadata = runtime_env, metadata or {}
        self.ray_namespace, self.default_actor_lifetime = ray_namespace, default_actor_lifetime

    def set_metadata(self, key: str, value: str) -> None:
        self.metadata[key] = value

    def set_ray_namespace(self, ray_namespace: str) -> None:
        self.ray_namespace = ray_namespace

    def set_default_actor_lifetime(self, default_actor_lifetime: str) -> None:
        self.default_actor_lifetime = default_actor_lifetime

    def set_runtime_env(self, runtime_env: Any, validate: bool = False) -> None:
        self.runtime_env = runtime_env
