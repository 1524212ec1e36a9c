"""ray's module functions: init, get, put, wait and the like, over manta's."""
from __future__ import annotations

import gc
import inspect
import logging
import os
from typing import Any, Callable, Mapping, Optional, Sequence

import manta
from manta import _dialect, _manta
from manta.ray import _devices, _options, _session, exceptions, runtime_env as _runtime_env
from manta.ray._dialect import RayDialect, note_killed
from manta.ray._ids import TaskID
from manta.ray._generator import ObjectRefGenerator
from manta.ray.actor import ActorClass, ActorHandle
from manta.ray.job_config import JobConfig
from manta.ray.remote_function import RemoteFunction
from manta.ray.runtime_context import RAY_NAMES, resources as _resources

logger = logging.getLogger("manta.ray")

# Keywords of init that change nothing on one host without a dashboard, or that tests of Ray's pass.
IGNORED = ("labels", "include_dashboard", "dashboard_host", "dashboard_port", "job_config", "configure_logging",
           "logging_level", "logging_format", "logging_config", "enable_resource_isolation", "cgroup_path",
           "system_reserved_cpu", "system_reserved_memory", "proxy_server_url")
HIDDEN = ("_system_config", "_temp_dir", "_memory", "_node_ip_address", "_metrics_export_port", "_redis_password",
          "_redis_username", "_redis_max_memory", "_enable_object_reconstruction", "_driver_object_store_memory",
          "_plasma_directory", "_object_spilling_directory", "_node_name", "_tracing_startup_hook", "_lru_evict",
          "_skip_env_hook", "_raylet_ip_address", "object_spilling_directory")


class BaseContext(Mapping[str, Any]):
    """What ray.init() returns: the addresses, and a context manager that ends the session."""

    def __init__(self, info: Mapping[str, Any]) -> None:
        self.address_info = dict(info)
        self.dashboard_url: Optional[str] = None
        self.python_version = ".".join(map(str, __import__("sys").version_info[:3]))
        self.ray_version = RAY_VERSION
        self.ray_commit = ""

    def __getitem__(self, name: str) -> Any:
        return self.address_info[name]

    def __iter__(self) -> Any:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def __enter__(self) -> "BaseContext":
        return self

    def __exit__(self, *_: Any) -> None:
        shutdown()

    def disconnect(self) -> None:
        shutdown()


RayContext = BaseContext
RAY_VERSION = "2.60.0"          # the version whose interface this is


def _address(address: Optional[str]) -> Optional[str]:
    """Ray's words for which node, in ours."""
    if address is None:
        address = os.environ.get("RAY_ADDRESS") or None
    if address is not None and not isinstance(address, str):
        raise TypeError(f"address is of type {type(address).__name__}, expected a text or None")
    if address is None or address == "local":
        return address
    if address == "auto":
        return "any"
    if address.startswith("ray://"):
        raise NotImplementedError(f"{address}: Ray's client protocol is not part of manta.ray; run the program on the "
                                  "host of the node")
    return address


def init(address: Optional[str] = None, *, num_cpus: Optional[int] = None, num_gpus: Optional[int] = None,
         resources: Optional[Mapping[str, float]] = None, object_store_memory: Optional[int] = None,
         local_mode: bool = False, ignore_reinit_error: bool = False, log_to_driver: bool = True,
         namespace: Optional[str] = None, runtime_env: Any = None, **kwargs: Any) -> BaseContext:
    """Starts a node for this program, or joins one that was started.

    >>> with ray.init(num_cpus=4):
    ...     print(ray.cluster_resources()["CPU"])
    4.0

    address: "local" a node of its own; "auto" the one that `manta start` began, else the only one there is, which may
    be another program's own; None: the started one where it runs, else one of its own. local_mode: calls run in this process, where a debugger stops in them.
    """
    for name in kwargs:
        if name not in IGNORED and name not in HIDDEN:
            raise RuntimeError(f"{name}= is no option of ray.init()")
    if namespace is not None and (not isinstance(namespace, str) or not namespace):
        raise ValueError("namespace is empty, expected a text or None" if isinstance(namespace, str) else
                         f"namespace is of type {type(namespace).__name__}, expected a text or None")
    if is_initialized():
        if ignore_reinit_error:
            logger.info("ray.init() was called before: the session goes on as it is")
            return BaseContext(_address_info())
        raise RuntimeError("ray.init was called twice: end the first session by ray.shutdown(), or say "
                           "ignore_reinit_error=True")
    options = _init_options(num_cpus, num_gpus, resources, object_store_memory, local_mode, log_to_driver,
                            kwargs.get("_memory"))
    where = _address(address)
    if where is not None:
        options["address"] = where
    config = kwargs.get("job_config") or JobConfig()
    if isinstance(config, dict):
        config = JobConfig(**config)
    if not isinstance(config, JobConfig):
        raise TypeError(f"job_config is of type {type(config).__name__}, expected a JobConfig or a dict of its arguments")
    namespace = namespace or config.ray_namespace or _dialect.current.namespace()
    environment = _runtime_env.parts(runtime_env if runtime_env is not None else config.runtime_env)
    try:
        manta.init(namespace=namespace, **options)
    except (manta.exceptions.MantaError, ValueError) as e:
        is_of_nodes = isinstance(e, manta.exceptions.MantaError) or vars(e).get("_manta_status") == "not found"
        if is_of_nodes and where is not None and where != "local":
            raise ConnectionError(f"no node to join: {e}") from e
        raise
    _session.put(namespace=namespace, environment=environment, lifetime=config.default_actor_lifetime)
    return BaseContext(_address_info())


def _is_negative(name: str, value: Any) -> bool:
    try:
        return bool(value < 0)
    except TypeError:
        raise TypeError(f"{name}={value!r} is of type {type(value).__name__}, expected a number") from None


def _init_options(num_cpus: Any, num_gpus: Any, amounts: Any, store: Any, local_mode: bool, log_to_driver: bool,
                  memory: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in ("CPU", "GPU"):
        if amounts and name in amounts:
            raise ValueError(f"Use the 'num_{name.lower()}s' keyword instead of '{name}' in 'resources'")
    for name, value in (("num_cpus", num_cpus), ("num_gpus", num_gpus), ("store_memory", store), ("memory", memory)):
        if value is not None:
            if _is_negative(name, value):
                raise ValueError(f"{name}={value} is negative, expected 0 or more")
            out[name] = value
    if "memory" in out:
        out["memory"] = int(out["memory"])      # bytes; 0 is what the machine has
    if amounts:
        out["resources"] = {k: v for k, v in amounts.items() if v}
    if local_mode:
        out["in_process"] = True
    if not log_to_driver:
        out["log_to_driver"] = False
    return out


def _address_info() -> dict[str, Any]:
    info = manta.node_info()
    node = int(info.get("node", 0))
    return {"node_ip_address": "127.0.0.1", "node_id": node.to_bytes(8, "big").hex(), "address": "local",
            "gcs_address": "local", "raylet_socket_name": "", "object_store_address": "", "webui_url": None,
            "session_dir": "", "redis_address": None, "metrics_export_port": None, "dashboard_agent_listen_port": None}


def namespace() -> str:
    """The namespace of this program, in its workers too."""
    return str(_session.get("namespace", ""))


def shutdown(_exiting_interpreter: bool = False, *, wait_for_processes: bool = False) -> None:
    """Ends what init() began; nothing is left of it. May be called twice.

        ray.shutdown()
    """
    manta.shutdown()


def is_initialized() -> bool:
    """Whether the runtime runs.

        ray.is_initialized()
    """
    return manta.is_initialized()


def auto_init() -> None:
    """Starts a node when a program begins without init()."""
    if not manta.is_initialized():
        if os.environ.get("RAY_ENABLE_AUTO_CONNECT") == "0":
            raise exceptions.RaySystemError("the session has ended: ray.init() begins another")
        init()


def remote(*args: Any, **given: Any) -> Any:
    """Makes a function or a class remote.

    >>> @ray.remote
    ... def f(x):
    ...     return x + 1
    >>> @ray.remote(num_cpus=0.5, max_restarts=-1)
    ... class A:
    ...     pass
    """
    if len(args) == 1 and not given and callable(args[0]):
        return _make_remote(args[0], {})
    if args or not given:
        raise TypeError("ray.remote is a decorator: @ray.remote alone, or with keywords, as @ray.remote(num_cpus=2)")
    options = _options.renamed(given)
    return lambda it: _make_remote(it, options)


def _make_remote(it: Any, given: Mapping[str, Any]) -> Any:
    if inspect.isclass(it):
        _options.check(given, "actor")
        return ActorClass(it, given)
    if isinstance(it, (ActorClass, RemoteFunction)):
        raise TypeError(f"{it!r} is remote already")
    if not callable(it):
        raise TypeError(f"@ray.remote is for functions and classes, and this is of type {type(it).__name__}")
    _options.check(given, "task")
    return RemoteFunction(it, given)


def get(object_refs: Any, *, timeout: Optional[float] = None, _use_object_store: bool = False) -> Any:
    """The value of a reference, or the values of a list of them; waits for them.

    >>> ray.get([ray.put(i) for i in range(3)])
    [0, 1, 2]
    """
    if timeout is not None and _is_negative("timeout", timeout):
        if timeout != -1:
            raise ValueError(f"timeout={timeout}, expected seconds from 0 on, or None")
        timeout = None
    if isinstance(object_refs, ObjectRefGenerator):
        return object_refs
    if isinstance(object_refs, list):
        for ref in object_refs:
            if not isinstance(ref, manta.ObjectRef):
                raise ValueError(f"get() of a list that has a value of type {type(ref).__name__}, expected references alone")
    elif not isinstance(object_refs, manta.ObjectRef):
        raise ValueError(f"get() of a value of type {type(object_refs).__name__}, expected a reference or a list of references")
    return manta.get(object_refs, timeout=timeout)


def put(value: Any, *, _owner: Any = None, _tensor_transport: Any = None) -> Any:
    """A reference to a value, which lies in the node's store from now on.

        ref = ray.put([1, 2, 3])
        ray.get([f.remote(ref) for _ in range(10)])
    """
    if isinstance(value, manta.ObjectRef):
        raise TypeError("put() of a reference: what it refers to lies in the store already; put a list that has it")
    if _owner is not None:
        raise NotImplementedError("put(_owner=...): objects are the node's here and outlive whoever puts them")
    auto_init()
    ref = manta.put(value)
    _collect_cycles(value)
    return ref


PUT_STEP = 8 << 20      # bytes after which put() looks at the store
STORE_MUCH = 0.7        # of the store: then cycles may hold what nobody needs
_put_since = 0


def _collect_cycles(value: Any) -> None:
    """References in cycles of objects are let go by the collector alone, which knows nothing of a full store."""
    global _put_since
    _put_since += getattr(value, "nbytes", 0) or (len(value) if isinstance(value, (bytes, bytearray)) else 0)
    if _put_since < PUT_STEP:
        return
    _put_since = 0
    info = manta.node_info()
    if info["store_used"] > STORE_MUCH * info["store_limit"]:
        gc.collect()


def wait(ray_waitables: Sequence[Any], *, num_returns: int = 1, timeout: Optional[float] = None,
         fetch_local: bool = True) -> tuple[list[Any], list[Any]]:
    """Waits until `num_returns` of the references are ready, or the time is over: (ready, the others).

        ready, others = ray.wait(refs, num_returns=2, timeout=10)
    """
    if isinstance(ray_waitables, (manta.ObjectRef, manta.ObjectRefGenerator)):
        raise TypeError("wait() of one reference, expected a list of them")
    if not isinstance(ray_waitables, list):
        raise TypeError(f"wait() of a value of type {type(ray_waitables).__name__}, expected a list of references or generators")
    if timeout is not None and _is_negative("timeout", timeout):
        raise ValueError(f"timeout={timeout}, expected seconds from 0 on")
    if not ray_waitables:
        return [], []
    try:
        ready, others = _manta.wait(ray_waitables, num_returns, timeout)  # it looks at all of them, once
    except Exception:
        _refuse_unfit(ray_waitables, num_returns)
        ready, others = manta.wait(ray_waitables, num_returns=num_returns, timeout=timeout)
    return list(ready), list(others)


def _refuse_unfit(waitables: list[Any], num_returns: int) -> None:
    """Raises what Ray raises when wait() is given what it cannot wait for."""
    for ref in waitables:
        if not isinstance(ref, (manta.ObjectRef, manta.ObjectRefGenerator)):
            raise TypeError(f"wait() of a list that has a value of type {type(ref).__name__}, expected references or generators alone")
    if len(set(waitables)) != len(waitables):
        raise ValueError("wait() of a list that has a reference twice")
    if num_returns <= 0:
        raise ValueError(f"num_returns={num_returns}, expected 1 or more")
    if num_returns > len(waitables):
        raise ValueError(f"num_returns={num_returns}, and the list has {len(waitables)}")


def cancel(ray_waitable: Any, *, force: bool = False, recursive: bool = True) -> None:
    """Ends a call: one that has not begun never will; one that runs is interrupted, but for a plain method of an
    actor, which may look at get_runtime_context().is_canceled(). force: the process is ended, which no actor's is.

        ref = sleep.remote()
        ray.cancel(ref)
    """
    if isinstance(ray_waitable, manta.ObjectRefGenerator):
        ray_waitable = ray_waitable.completed()
    elif not isinstance(ray_waitable, manta.ObjectRef):
        raise TypeError(f"cancel() of a value of type {type(ray_waitable).__name__}, expected the reference of a call; ray.kill() ends actors")
    if force and ray_waitable._of_actor:
        raise ValueError("force=True is not supported for actor tasks: it would end the actor. ray.kill() does that.")
    manta.cancel(ray_waitable, force=force, recursive=recursive)


def kill(actor: Any, *, no_restart: bool = True) -> None:
    """Ends an actor at once: no handler of atexit runs, and calls under way fail.

        ray.kill(handle)
    """
    if not isinstance(actor, manta.ActorHandle):
        raise ValueError(f"kill() of a value of type {type(actor).__name__}, expected the handle of an actor; ray.cancel() ends calls")
    note_killed(actor._pid)
    manta.kill(actor, no_restart=no_restart)


def get_actor(name: str, namespace: Optional[str] = None) -> ActorHandle:
    """A handle on the actor of that name. ValueError: there is none.

        A.options(name="mine", lifetime="detached").remote()
        handle = ray.get_actor("mine")
    """
    if not name:
        raise ValueError(f"get_actor() of {name!r}, expected a name that is not empty")
    if namespace is not None and (not isinstance(namespace, str) or not namespace):
        raise ValueError(f"namespace={namespace!r}, expected a text that is not empty, or None for the program's own")
    auto_init()
    try:
        return manta.get_actor(name, namespace=namespace)      # type: ignore[no-any-return]
    except (KeyError, LookupError, ValueError, manta.exceptions.MantaError):
        raise ValueError(f"Failed to look up actor with name '{name}': there is none in the namespace "
                         f"{namespace or _session.get('namespace', '')!r}, or it is dead") from None


def get_gpu_ids() -> list[Any]:
    """Devices that the call may use.

        ray.get_gpu_ids()
    """
    auto_init()
    return _devices.ids()


def _amounts(which: str) -> dict[str, float]:
    auto_init()
    info = manta.node_info()
    out = {RAY_NAMES.get(name, name): float(n) for name, n in info[which].items()}
    out["node:127.0.0.1"] = out["node:__internal_head__"] = 1.0
    out["object_store_memory"] = float(info["store_limit"])
    return {k: v for k, v in out.items() if v}


def cluster_resources() -> dict[str, float]:
    """All that tasks and actors may ask for.

        ray.cluster_resources()["CPU"]
    """
    return _amounts("total")


def available_resources() -> dict[str, float]:
    """What of that nobody holds now.

        ray.available_resources().get("CPU", 0)
    """
    return _amounts("available")


def nodes() -> list[dict[str, Any]]:
    """One dictionary for each host of the node.

        ray.nodes()[0]["Resources"]
    """
    info = _address_info()
    return [{"NodeID": info["node_id"], "Alive": True, "NodeManagerAddress": "127.0.0.1",
             "NodeManagerHostname": os.uname().nodename, "NodeManagerPort": 0, "ObjectManagerPort": 0,
             "ObjectStoreSocketName": "", "RayletSocketName": "", "MetricsExportPort": 0, "NodeName": "127.0.0.1",
             "alive": True, "Resources": cluster_resources(), "Labels": {"ray.io/node-id": info["node_id"]}}]


def timeline(filename: Optional[str] = None) -> Any:
    """The recent past of every worker as events of Chrome's tracing; into a file when one is named.

        ray.timeline("calls.json")
    """
    from manta.ray.util import state
    return state.timeline(filename)


def _on_completed(ref: Any, callback: Callable[[Any], Any]) -> None:
    """Calls callback(value), or with what the call raised, when the reference is ready."""
    def tell(future: Any) -> None:
        error = future.exception()
        callback(future.result() if error is None else error)
    ref.future().add_done_callback(tell)


def use_dialect() -> None:
    """From here on failures are Ray's exceptions in this process, and in its workers."""
    if not isinstance(_dialect.current, RayDialect):
        _dialect.current = RayDialect()
        _manta.set_title_prefix("ray::")
        _manta.set_calm_methods(True)
        _manta.set_cancel_keeps(True)
        # What programs for Ray ask of references.
        manta.ObjectRef._on_completed = _on_completed
        manta.ObjectRef.task_id = lambda ref: TaskID(ref.binary())


__all__ = ["get", "put", "wait", "remote", "init", "shutdown", "cancel", "kill", "Callable", "_resources"]
