"""ray.util.state: what there is in the node, as lists.

The node is asked at every call; what ended is kept for the recent past (docs/runtime.md).
"""
from __future__ import annotations

import json
from typing import Any, Callable, Optional, Sequence

from manta import _manta
from manta.ray import _worker
from manta.ray.util.state.exception import RayStateApiException

__all__ = ["RayStateApiException", "get_actor", "get_job", "get_log", "get_node", "get_objects", "get_placement_group", "get_task",
           "get_worker", "list_actors", "list_cluster_events", "list_jobs", "list_logs", "list_nodes", "list_objects",
           "list_placement_groups", "list_runtime_envs", "list_tasks", "list_workers", "summarize_actors", "summarize_objects", "summarize_tasks",
           "timeline"]

Row = dict[str, Any]
Filter = tuple[str, str, Any]


def picture() -> dict[str, Any]:
    """One picture of the node: jobs, workers, actors, objects, calls."""
    _worker.auto_init()
    return dict(_manta.view())


def _hex(n: int) -> str:
    return int(n).to_bytes(8, "big").hex()


class StateRow(Row):
    """A row whose columns are attributes as well."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


# The columns of each list, by which it may be filtered.
COLUMNS = {
    "actors": ("actor_id", "class_name", "state", "job_id", "name", "ray_namespace", "node_id", "pid", "is_detached", "restarts_left"),
    "tasks": ("task_id", "name", "func_or_class_name", "type", "state", "worker_pid", "job_id", "start_time_ms", "end_time_ms"),
    "workers": ("worker_id", "is_alive", "worker_type", "pid", "ip", "node_id"),
    "objects": ("object_id", "object_size", "pid", "task_status", "reference_count", "in_memory"),
    "nodes": ("node_id", "node_ip", "state", "is_head_node", "node_name", "resources_total", "labels"),
    "jobs": ("job_id", "type", "status", "driver_info"),
    "placement_groups": ("placement_group_id", "name", "state", "bundles", "is_detached", "stats"),
}


def _check_filters(filters: Optional[Sequence[Filter]], noun: str) -> None:
    for column, how, _ in filters or []:
        if how not in ("=", "!="):
            raise RayStateApiException(f"a filter compares by = or !=, not by {how!r}")
        if column not in COLUMNS[noun]:
            raise ValueError(f"list_{noun}() has no column {column!r} to filter by; there are {', '.join(COLUMNS[noun])}")


def _matches(row: Row, filters: Optional[Sequence[Filter]]) -> bool:
    for column, how, value in filters or []:
        if (str(row.get(column)).lower() == str(value).lower()) != (how == "="):
            return False
    return True


def _listed(rows: list[Row], filters: Optional[Sequence[Filter]], limit: int) -> list[Any]:
    return [StateRow(row) for row in rows if _matches(row, filters)][:limit]


ACTOR_STATES = {"waiting": "PENDING_CREATION", "starting": "PENDING_CREATION", "alive": "ALIVE", "dead": "DEAD"}


def _actors() -> list[Row]:
    return [{"actor_id": _hex(a["id"]), "class_name": _class_name(a["constructor"]),
             "state": ACTOR_STATES.get(a["state"], "ALIVE"), "job_id": f"{a['job']:08x}", "name": a["name"],
             "ray_namespace": a["name_space"], "node_id": _worker.nodes()[0]["NodeID"], "pid": a["pid"],
             "is_detached": a["detached"], "restarts_left": a["restarts"]} for a in picture()["actors"]]


def _class_name(constructor: str) -> str:
    """"py.KEY.label" as the class is called."""
    return constructor.partition(".__init__")[0].rpartition(".")[2] or constructor


def _of_call(function: str, cls: Optional[str], task: int) -> Row:
    """Columns that say what was called: in a process of an actor of class `cls`, its constructor (0) or a method."""
    if cls is None:
        return {"task_id": _hex(task), "name": function, "func_or_class_name": function, "type": "NORMAL_TASK"}
    name = f"{cls}.{function if task else '__init__'}"
    return {"task_id": _hex(task), "name": name, "func_or_class_name": name,
            "type": "ACTOR_TASK" if task else "ACTOR_CREATION_TASK"}


def _tasks() -> list[Row]:
    now = picture()
    classes = {a["pid"]: _class_name(a["constructor"]) for a in now["actors"] if a["pid"]}
    done = [{**_of_call(c["function"], classes.get(c["pid"]), c["task"]),
             "state": "FAILED" if c["failed"] else "FINISHED", "worker_pid": c["pid"], "job_id": f"{c['job']:08x}",
             "start_time_ms": c["begin_ns"] // 10 ** 6, "end_time_ms": c["end_ns"] // 10 ** 6} for c in now["calls"]]
    running = [{**_of_call(w["function"], classes.get(w["pid"]), w["task"]), "state": "RUNNING", "worker_pid": w["pid"],
                "job_id": f"{w['job']:08x}", "start_time_ms": w["since_ns"] // 10 ** 6, "end_time_ms": None}
               for w in now["workers"] if w["task"]]
    return done + running


def _workers() -> list[Row]:
    return [{"worker_id": _hex(w["id"]), "is_alive": not w["is_dead"], "worker_type": "WORKER", "pid": w["pid"],
             "ip": "127.0.0.1", "node_id": _worker.nodes()[0]["NodeID"]} for w in picture()["workers"]]


def _objects() -> list[Row]:
    return [{"object_id": _hex(o["id"]), "object_size": o["size"], "pid": o["owner_pid"],
             "task_status": "FINISHED" if o["state"] == "alive" else "PENDING", "reference_count": o["holders"],
             "in_memory": o["in_memory"]}
            for o in picture()["objects"]]


def _nodes() -> list[Row]:
    return [{"node_id": n["NodeID"], "node_ip": n["NodeManagerAddress"], "state": "ALIVE", "is_head_node": True,
             "node_name": n["NodeName"], "resources_total": n["Resources"], "labels": n["Labels"]}
            for n in _worker.nodes()]


def _jobs() -> list[Row]:
    return [{"job_id": f"{j['id']:08x}", "type": "DRIVER", "status": "RUNNING" if j["driver_pid"] else "SUCCEEDED",
             "driver_info": {"pid": str(j["driver_pid"])}} for j in picture()["jobs"]]


def _placement_groups() -> list[Row]:
    from manta.ray.util.placement_group import _all_groups
    return [{"placement_group_id": g["placement_group_id"], "name": g["name"], "state": g["state"], "is_detached": False,
             "stats": g["stats"], "bundles": [{"bundle_id": i, "unit_resources": amounts, "node_id": g["bundles_to_node_id"][i]}
                                              for i, amounts in g["bundles"].items()]} for g in _all_groups()]


def _lister(rows: Callable[[], list[Row]], noun: str) -> Callable[..., list[Any]]:
    def lister(address: Optional[str] = None, filters: Optional[Sequence[Filter]] = None, limit: int = 100,
               timeout: int = 30, detail: bool = False, raise_on_missing_output: bool = True,
               **_: Any) -> list[Any]:
        _check_filters(filters, noun)
        return _listed(rows(), filters, limit)
    lister.__name__ = lister.__qualname__ = f"list_{noun}"
    lister.__doc__ = f"""Rows of {noun}, those that the filters [(column, '=' or '!=', value)] let through.

        from ray.util.state import list_{noun}
        list_{noun}(limit=10)
    """
    return lister


def _getter(rows: Callable[[], list[Row]], noun: str, key: str) -> Callable[..., Any]:
    def getter(id: str, address: Optional[str] = None, timeout: int = 30, **_: Any) -> Any:
        found = _listed(rows(), [(key, "=", id)], 1)
        return found[0] if found else None
    get = "get_objects" if noun == "object" else f"get_{noun}"
    getter.__name__ = getter.__qualname__ = get
    getter.__doc__ = f"""The row of the {noun} of that id; None: it is not known.

        from ray.util import state
        state.{get}(id)
    """
    return getter


list_actors, get_actor = _lister(_actors, "actors"), _getter(_actors, "actor", "actor_id")
list_tasks, get_task = _lister(_tasks, "tasks"), _getter(_tasks, "task", "task_id")
list_workers, get_worker = _lister(_workers, "workers"), _getter(_workers, "worker", "worker_id")
list_objects, get_objects = _lister(_objects, "objects"), _getter(_objects, "object", "object_id")
list_nodes, get_node = _lister(_nodes, "nodes"), _getter(_nodes, "node", "node_id")
list_jobs, get_job = _lister(_jobs, "jobs"), _getter(_jobs, "job", "job_id")
list_placement_groups = _lister(_placement_groups, "placement_groups")
get_placement_group = _getter(_placement_groups, "placement_group", "placement_group_id")


def _refuser(name: str, why: str) -> Callable[..., Any]:
    def refuser(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"ray.util.state.{name}(): {why}")
    refuser.__name__ = refuser.__qualname__ = name
    refuser.__doc__ = f"""Not here: {why}.

        from ray.util import state
        try: state.{name}()
        except NotImplementedError as e: print(e)
    """
    return refuser


list_runtime_envs = _refuser("list_runtime_envs", "an environment is its worker's own, and the node keeps no list of them")
list_cluster_events = _refuser("list_cluster_events", "the node keeps no list of events")
list_logs = _refuser("list_logs", "what workers print goes to the program's own output, and to no files")
get_log = _refuser("get_log", "what workers print goes to the program's own output, and to no files")


def _summary(rows: list[Row], column: str) -> dict[str, Any]:
    """How many of each state, by name."""
    names: dict[str, Any] = {}
    for row in rows:
        entry = names.setdefault(row[column], {"state_counts": {}})
        entry[column] = row[column]
        entry["state_counts"][row["state"]] = entry["state_counts"].get(row["state"], 0) + 1
    return {"cluster": {"summary": names, "total": len(rows)}}


def summarize_tasks(**_: Any) -> dict[str, Any]:
    """How many calls there are of each function, by state.

        from ray.util.state import summarize_tasks
        summarize_tasks()["cluster"]["summary"]
    """
    return _summary(_tasks(), "func_or_class_name")


def summarize_actors(**_: Any) -> dict[str, Any]:
    """How many actors there are of each class, by state.

        from ray.util.state import summarize_actors
        summarize_actors()["cluster"]["summary"]
    """
    return _summary(_actors(), "class_name")


def summarize_objects(**_: Any) -> dict[str, Any]:
    """How many objects there are, and how large.

        from ray.util.state import summarize_objects
        summarize_objects()["cluster"]["total_objects"]
    """
    rows = _objects()
    return {"cluster": {"total_objects": len(rows), "total_size_mb": sum(r["object_size"] for r in rows) / 2 ** 20}}


def timeline(filename: Optional[str] = None) -> Any:
    """Calls as events of Chrome's tracing (chrome://tracing, Perfetto).

        from ray.util.state import timeline
        timeline("calls.json")
    """
    events = [{"cat": "task", "name": c["function"], "pid": "127.0.0.1", "tid": f"worker:{c['pid']}", "ph": "X",
               "ts": c["begin_ns"] / 1000, "dur": (c["end_ns"] - c["begin_ns"]) / 1000,
               "args": {"failed": c["failed"]}} for c in picture()["calls"]]
    if filename is None:
        return events
    with open(filename, "w", encoding="utf-8") as f:
        json.dump(events, f)
    return None
