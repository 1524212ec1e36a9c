"""The backend that register_ray() registers."""
from __future__ import annotations

from typing import Any, Optional

from joblib._parallel_backends import MultiprocessingBackend

import manta.ray as ray
from manta.ray.util.multiprocessing.pool import Pool


class RayBackend(MultiprocessingBackend):       # type: ignore[misc]
    """joblib's backend of processes, with a pool of actors."""
    supports_timeout = True

    def __init__(self, nesting_level: Optional[int] = None, inner_max_num_threads: Optional[int] = None,
                 ray_remote_args: Optional[dict[str, Any]] = None, **kwargs: Any) -> None:
        self.ray_remote_args = ray_remote_args
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads, **kwargs)

    def effective_n_jobs(self, n_jobs: int) -> int:
        """-1: as many as the node has processors."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 has no meaning")
        if not ray.is_initialized():
            ray.init()
        return int(ray.cluster_resources().get("CPU", 1)) if n_jobs < 0 else n_jobs

    def configure(self, n_jobs: int = 1, parallel: Any = None, prefer: Any = None, require: Any = None,
                  **kwargs: Any) -> int:
        n_jobs = self.effective_n_jobs(n_jobs)
        self._pool = Pool(n_jobs, ray_remote_args=self.ray_remote_args)
        self.parallel = parallel
        return n_jobs
