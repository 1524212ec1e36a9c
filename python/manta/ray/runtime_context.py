"""ray.runtime_context: where code runs, and what it may use."""
from __future__ import annotations

import asyncio
import os
from typing import Any, Optional

import manta
from manta import _core
from manta.ray._ids import ActorID, JobID, NodeID, PlacementGroupID, TaskID, WorkerID


def _hex(n: Any, size: int = 8) -> str:
    return int(n or 0).to_bytes(size, "big").hex()


class RuntimeContext:
    """ray.get_runtime_context(): asks the node at every call.

    >>> ray.get_runtime_context().get_node_id()
    """

    def _here(self) -> dict[str, Any]:
        return dict(manta.context())

    def get(self) -> dict[str, Any]:
        here: dict[str, Any] = {"job_id": self.job_id, "node_id": self.node_id, "namespace": self.namespace}
        if self._here().get("is_worker"):
            if self.get_task_id() is not None:
                here["task_id"] = TaskID.from_hex(self.get_task_id() or "")
            if self.get_actor_id() is not None:
                here["actor_id"] = ActorID.from_hex(self.get_actor_id() or "")
        return here

    @property
    def job_id(self) -> JobID:
        return JobID.from_hex(self.get_job_id())

    @property
    def node_id(self) -> NodeID:
        return NodeID.from_hex(self.get_node_id())

    @property
    def task_id(self) -> TaskID:
        """Of the call that runs here."""
        task = self.get_task_id()
        assert task is not None, "task_id is there in calls and methods of actors alone"
        return TaskID.from_hex(task)        # type: ignore[no-any-return]

    @property
    def current_placement_group_id(self) -> PlacementGroupID:
        """Of the group that this code runs in; nil in none."""
        group = self.get_placement_group_id()
        return PlacementGroupID.from_hex(group) if group else PlacementGroupID.nil()      # type: ignore[no-any-return]

    def get_job_id(self) -> str:
        return _hex(self._here().get("job", 1), 4)

    def get_node_id(self) -> str:
        return _hex(self._here()["node"])

    def get_worker_id(self) -> str:
        return WorkerID.from_hex(_hex(self._here()["worker"])).hex()

    def get_task_id(self) -> Optional[str]:
        task = self._here().get("task")
        return _hex(task) if task else None

    def get_task_name(self) -> Optional[str]:
        here = self._here()
        return here.get("name") or here.get("function") or None

    def get_task_function_name(self) -> Optional[str]:
        return self._here().get("function") or None

    def get_actor_id(self) -> Optional[str]:
        actor = self._here().get("actor")
        actor = getattr(actor, "id", actor)
        return _hex(actor) if actor else None

    def get_actor_name(self) -> Optional[str]:
        here = self._here()
        return here.get("actor_name") or ("" if here.get("actor") else None)

    @property
    def actor_id(self) -> ActorID:
        text = self.get_actor_id()
        return ActorID.from_hex(text) if text else ActorID.nil()

    @property
    def current_actor(self) -> Any:
        here = self._here()
        if not here.get("actor"):
            raise RuntimeError("current_actor is there in methods of actors alone")
        return _core.current_actor()

    @property
    def namespace(self) -> str:
        from manta.ray import _worker
        return _worker.namespace()

    @property
    def was_current_actor_reconstructed(self) -> bool:
        here = self._here()
        assert here.get("actor"), "only methods of actors know whether their actor was restarted"
        return bool(here.get("was_restarted"))

    def is_canceled(self) -> bool:
        """Whether this call was cancelled. In an async method that is a CancelledError, and this a RuntimeError."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError("This method is not supported in an async actor. There await raises asyncio.CancelledError.")
        return bool(self._here().get("is_cancelled"))

    def get_assigned_resources(self) -> dict[str, float]:
        here = self._here()
        assert here.get("is_worker"), "only calls and actors have resources assigned"
        return resources(here)

    def get_placement_group_id(self) -> Optional[str]:
        group = self._here().get("placement_group")
        return _hex(getattr(group, "id", group)) if group else None

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        from manta.ray import _accelerators, _devices
        return {"GPU": [str(i) for i in _devices.ids()], **_accelerators.ids()}

    def get_resource_ids(self) -> dict[str, list[str]]:
        """The older name of get_accelerator_ids()."""
        return self.get_accelerator_ids()

    def get_runtime_env_string(self) -> str:
        return "{}"

    @property
    def runtime_env(self) -> dict[str, Any]:
        return {}

    def get_session_name(self) -> str:
        return f"session_{_hex(self._here()['node'])}"

    def get_temp_dir(self) -> str:
        return os.environ.get("TMPDIR", "/tmp")

    @property
    def gcs_address(self) -> str:
        return "local"

    def get_node_labels(self) -> dict[str, str]:
        return {"ray.io/node-id": self.get_node_id()}

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        from manta.ray import _capture
        return _capture.group() is not None


# Names of resources: Ray's on the left.
RAY_NAMES = {"cpu": "CPU", "gpu": "GPU", "memory": "memory"}


def resources(here: dict[str, Any]) -> dict[str, float]:
    """Text or dictionary of amounts, as Ray calls them."""
    amounts = here.get("resources") or {}
    if isinstance(amounts, str):
        amounts = {k: float(v) for k, _, v in (part.partition("=") for part in amounts.split(",")) if k}
    return {RAY_NAMES.get(k, k): float(v) for k, v in amounts.items() if v}


_context = RuntimeContext()


def get_runtime_context() -> RuntimeContext:
    """The context of the code that calls it, in a driver, a task or an actor.

        ray.get_runtime_context().get_node_id()
    """
    from manta.ray import _worker
    _worker.auto_init()
    return _context
