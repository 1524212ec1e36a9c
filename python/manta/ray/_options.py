"""Options of tasks and actors: Ray's names checked as Ray does, and what they are called here.

`check()` refuses what Ray refuses, with the same kind of exception. `of_task()` and `of_actor()` turn
the rest into the options of manta.remote(). What Ray accepts and has no meaning on one host (labels,
events) is accepted and changes nothing; what would change what a program does and is not here raises
NotImplementedError.
"""
from __future__ import annotations

import math
import re
from typing import Any, Callable, Mapping, Optional

from manta.ray import _session

NONE = type(None)
UNIT = 10000            # resources have four decimal places


class _Option:
    """What one keyword may be: types, a test of the value, and whom it is for ("task", "actor")."""

    def __init__(self, types: tuple[type, ...], test: Optional[Callable[[Any], Optional[str]]] = None,
                 of: tuple[str, ...] = ("task", "actor")) -> None:
        self.types = types
        self.test = test
        self.of = of

    def check(self, name: str, value: Any) -> None:
        if self.types and not isinstance(value, self.types):
            raise TypeError(f"{name}={value!r} is of type {type(value).__name__}, expected one of {', '.join(t.__name__ for t in self.types)}")
        wrong = self.test(value) if self.test else None
        if wrong:
            raise ValueError(wrong)


def _counting(name: str) -> _Option:
    """A number that may be without end, which is said by -1."""
    return _Option((int, NONE), lambda v: None if v is None or v >= -1 else
                   f"{name}={v}, expected a whole number from 0 on, or -1 for any number of times")


def _quantity(name: str, value: Any) -> Optional[str]:
    if value is None:
        return None
    if value < 0:
        return f"{name}={value!r} is negative, expected 0 or more of a resource"
    if not math.isfinite(value):
        return f"{name}={value!r} is no amount of a resource, expected a finite number"
    if isinstance(value, float) and not math.isclose(value * UNIT, round(value * UNIT), rel_tol=1e-12):
        return f"{name}={value!r} is no amount of a resource, expected 0 or a multiple of 0.0001"
    return None


def _amount(name: str, **more: Any) -> _Option:
    return _Option((float, int, NONE), lambda v: _quantity(name, v), **more)


def _resources(value: Any) -> Optional[str]:
    if value is None:
        return None
    for name in ("CPU", "GPU"):
        if name in value:
            return f"resources has {name!r}, which is said by num_{name.lower()}s="
    for name in ("memory", "object_store_memory"):
        if name in value:
            return f"resources has {name!r}, which is said by memory="
    return next((wrong for name, n in value.items() if (wrong := _quantity(name, n))), None)


def _num_returns(value: Any) -> Optional[str]:
    if value is None or value in ("dynamic", "streaming") or (not isinstance(value, str) and value >= 0):
        return None
    return f"num_returns={value!r}, expected a whole number from 0 on, or, of a generator, 'streaming' or 'dynamic'"


def _retry_exceptions(value: Any) -> Optional[str]:
    if isinstance(value, (list, tuple)) and not all(isinstance(v, type) and issubclass(v, BaseException) for v in value):
        return "retry_exceptions has what is no class of exceptions"
    return None


_LABEL_KEY = re.compile(r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?/)?"
                        r"[a-zA-Z0-9](?:[a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?")
_LABEL_VALUE = r"[a-zA-Z0-9](?:[a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?"
_LABEL_CONDITION = re.compile(rf"!?{_LABEL_VALUE}|!?in\({_LABEL_VALUE}(?:, *{_LABEL_VALUE})*\)|")


def wrong_labels(selector: Any) -> Optional[str]:
    """What is wrong with a selector of labels; None: nothing."""
    if selector is None:
        return None
    for key, value in selector.items():
        if not isinstance(key, str) or not _LABEL_KEY.fullmatch(key):
            return f"label_selector has {key!r}, which cannot be the name of a label"
        if not isinstance(value, str) or not _LABEL_CONDITION.fullmatch(value):
            return f"label_selector asks for {key}={value!r}, expected 'v', '!v', 'in(v, w)' or '!in(v, w)'"
    return None


def _fallbacks(value: Any) -> Optional[str]:
    for item in value or []:
        if not isinstance(item, dict) or set(item) - {"label_selector"} or not item:
            return "fallback_strategy has what is no dict of label_selector alone"
        if not isinstance(item["label_selector"], dict):
            return "label_selector in fallback_strategy is no dict"
        wrong = wrong_labels(item["label_selector"])
        if wrong:
            return wrong
    return None


def wrong_backpressure(value: Any) -> Optional[str]:
    """What is wrong with how far a generator may run ahead of its reader; None: nothing."""
    if value is None or value == -1 or value > 0:
        return None
    return (f"_generator_backpressure_num_objects={value} is not allowed: it is a positive number, of which 1 has "
            "each object made when the one before was taken, or -1: without a limit")


def wrong_group(value: Any) -> Optional[str]:
    """What is wrong with how many objects each yield gives; None: nothing."""
    return None if value is None or value > 0 else f"_num_objects_per_yield must be positive, and is {value}"


def _concurrency(value: Any) -> Optional[str]:
    return None if value is None or value > 0 else "The keyword 'max_concurrency' only accepts positive integers"


TASK, ACTOR = ("task",), ("actor",)
ANYTHING: tuple[type, ...] = ()

OPTIONS: dict[str, _Option] = {
    "num_cpus": _amount("num_cpus"),
    "num_gpus": _amount("num_gpus"),
    "memory": _amount("memory"),
    "object_store_memory": _amount("object_store_memory", of=ACTOR),
    "resources": _Option((dict, NONE), _resources),
    "accelerator_type": _Option((str, NONE)),
    "label_selector": _Option((dict, NONE), wrong_labels),
    "fallback_strategy": _Option((list, NONE), _fallbacks),
    "name": _Option((str, NONE)),
    "runtime_env": _Option(ANYTHING),
    "scheduling_strategy": _Option(ANYTHING),
    "placement_group": _Option(ANYTHING),
    "placement_group_bundle_index": _Option((int, NONE)),
    "placement_group_capture_child_tasks": _Option((bool, NONE)),
    "enable_task_events": _Option((bool, NONE)),
    "_metadata": _Option((dict, NONE)),
    "_labels": _Option((dict, NONE)),
    "max_calls": _Option((int, NONE), lambda v: None if v is None or v >= 0 else
                         f"max_calls={v}, expected a whole number from 0 on", TASK),
    "max_retries": _Option(_counting("max_retries").types, _counting("max_retries").test, TASK),
    "retry_exceptions": _Option((bool, list, tuple, NONE), _retry_exceptions, TASK),
    "num_returns": _Option((int, str, NONE), _num_returns, TASK),
    "_generator_backpressure_num_objects": _Option((int, NONE), lambda v: wrong_backpressure(v), TASK),
    "_num_objects_per_yield": _Option((int, NONE), lambda v: wrong_group(v), TASK),
    "_actor_generator_backpressure_num_objects": _Option(
        (int, NONE), lambda v: None if v is None or v == -1 or v > 0 else
        f"_actor_generator_backpressure_num_objects must be > 0, or -1: without a limit; it is {v}", ACTOR),
    "concurrency_groups": _Option((list, dict, NONE), None, ACTOR),
    "allow_out_of_order_execution": _Option((bool, NONE), None, ACTOR),
    "enable_tensor_transport": _Option((bool, NONE), None, ACTOR),
    "lifetime": _Option((str, NONE), lambda v: None if v in (None, "detached", "non_detached") else
                        f"lifetime={v!r}, expected 'detached' or 'non_detached'", ACTOR),
    "max_concurrency": _Option((int, NONE), _concurrency, ACTOR),
    "max_restarts": _Option(_counting("max_restarts").types, _counting("max_restarts").test, ACTOR),
    "max_task_retries": _Option(_counting("max_task_retries").types, _counting("max_task_retries").test, ACTOR),
    "max_pending_calls": _Option((int, NONE), lambda v: None if v is None or v == -1 or v > 0 else
                                 f"max_pending_calls={v}, expected a whole number from 1 on, or -1 for as many as come", ACTOR),
    "namespace": _Option((str, NONE), None, ACTOR),
    "get_if_exists": _Option((bool, NONE), None, ACTOR),
}
# Names of old programs.
OLD_NAMES = {"num_return_vals": "num_returns"}


def renamed(given: Mapping[str, Any]) -> dict[str, Any]:
    return {OLD_NAMES.get(name, name): value for name, value in given.items()}


def check(given: Mapping[str, Any], kind: str, in_options: bool = False) -> None:
    """Raises what Ray raises of keywords that are wrong for a `kind`, "task" or "actor"."""
    for name, value in given.items():
        option = OPTIONS.get(name)
        if option is None or kind not in option.of:
            raise ValueError(f"{name}= is no option of {'remote functions' if kind == 'task' else 'actors'}, expected one of "
                             + ", ".join(sorted(n for n, o in OPTIONS.items() if kind in o.of)))
        if in_options and name == "max_calls":
            raise ValueError("max_calls is no option of a single call: it belongs to @ray.remote(max_calls=...)")
        option.check(name, value)
    if given.get("get_if_exists") and not given.get("name"):
        raise ValueError("get_if_exists=True says nothing without name=, by which an actor is found")
    if given.get("name") == "" and kind == "actor":
        raise ValueError("name='' is no name of an actor, expected a text that is not empty")


def _strategy_of(given: Mapping[str, Any]) -> Any:
    strategy = given.get("scheduling_strategy")
    group = given.get("placement_group")
    if strategy is not None and group not in (None, "default"):
        raise ValueError("placement_group= beside scheduling_strategy= says it twice: give the strategy alone, as "
                         "PlacementGroupSchedulingStrategy(group)")
    if group not in (None, "default"):
        from manta.ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
        return PlacementGroupSchedulingStrategy(group, given.get("placement_group_bundle_index") or -1,
                                                given.get("placement_group_capture_child_tasks"))
    return strategy


def _place(out: dict[str, Any], given: Mapping[str, Any], label: str) -> None:
    from manta.ray.util import scheduling_strategies as strategies

    strategy = _strategy_of(given)
    if strategy is None or strategy == "DEFAULT":
        return
    if strategy == "SPREAD":
        out["strategy"] = "spread"
    elif isinstance(strategy, strategies.PlacementGroupSchedulingStrategy):
        strategies.use_group(out, strategy, label)
    elif isinstance(strategy, strategies.NodeAffinitySchedulingStrategy):
        strategies.use_node(out, strategy)
    elif isinstance(strategy, strategies.NodeLabelSchedulingStrategy):
        pass                    # one host, which has every label
    else:
        raise ValueError(f"The scheduling strategy must be DEFAULT, SPREAD or an object of "
                         f"ray.util.scheduling_strategies, not {strategy!r}")


def _resources_of(out: dict[str, Any], given: Mapping[str, Any]) -> None:
    if given.get("num_gpus") is not None:   # what libraries keep of a device stays out of the processes of others
        out["apart"] = "gpu" if given["num_gpus"] else None
    for name in ("num_cpus", "num_gpus", "memory"):
        if given.get(name) is not None:
            out[name] = int(given[name]) if name == "memory" else given[name]
    if given.get("resources"):
        out["resources"] = {k: v for k, v in given["resources"].items() if v}


def _environment(out: dict[str, Any], given: Mapping[str, Any]) -> None:
    from manta.ray import runtime_env

    out.update(runtime_env.merged(_session.get("environment") or {}, given.get("runtime_env")))


def _not_here(given: Mapping[str, Any], **reasons: str) -> None:
    """Raises of options that would change what a program does and have no meaning here yet."""
    for name, reason in reasons.items():
        if given.get(name):
            raise NotImplementedError(f"the option {name} is not part of manta.ray: {reason}")


def of_generator(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a generator's items, of a function or a method."""
    out: dict[str, Any] = {"stream_window": given.get("_generator_backpressure_num_objects") or -1}
    if given.get("_num_objects_per_yield"):
        out["num_objects_per_yield"] = given["_num_objects_per_yield"]
    return out


def of_task(given: Mapping[str, Any], label: str = "a function") -> dict[str, Any]:
    """Options of manta.remote() for a function."""
    out: dict[str, Any] = {}
    _resources_of(out, given)
    _place(out, given, label)
    _environment(out, given)
    out.update(of_generator(given), wait_infeasible=True)
    for name in ("name", "max_retries", "retry_exceptions", "num_returns", "max_calls"):
        if given.get(name) is not None:
            out[name] = given[name]
    if given.get("num_gpus") is not None and given.get("max_calls") is None:
        out["max_calls"] = 1 if given["num_gpus"] else 0    # the process keeps the device's memory until it ends
    return out


def _processors_of(out: dict[str, Any], given: Mapping[str, Any]) -> None:
    """An actor that asks for nothing waits for a processor and holds none; one that asks for something else holds one."""
    out["place_cpus"] = 0       # said in any case: these options go over those of the definition
    if given.get("num_cpus") is not None:
        return
    if any(given.get(name) is not None for name in ("num_gpus", "resources", "accelerator_type")):
        out["num_cpus"] = 1
    elif "placement_group" not in out:
        out["place_cpus"] = 1


def _groups(given: Any) -> dict[str, int]:
    """Concurrency groups: a dictionary, or a list of dictionaries with name and max_concurrency."""
    if isinstance(given, dict):
        return given
    return {group["name"]: group["max_concurrency"] for group in given}


def of_actor(given: Mapping[str, Any], label: str = "an actor") -> dict[str, Any]:
    """Options of manta.remote() for a class."""
    out: dict[str, Any] = {}
    _resources_of(out, given)
    _place(out, given, label)
    _environment(out, given)
    _processors_of(out, given)
    out["wait_infeasible"] = True
    if given.get("allow_out_of_order_execution"):
        out["out_of_order"] = True
    if (given.get("_actor_generator_backpressure_num_objects") or -1) > 0:
        out["stream_limit"] = given["_actor_generator_backpressure_num_objects"]
    for name in ("name", "namespace", "max_restarts", "max_task_retries", "max_concurrency", "get_if_exists"):
        if given.get(name) is not None:
            out[name] = given[name]
    if given.get("concurrency_groups"):
        out["concurrency_groups"] = _groups(given["concurrency_groups"])
    if (given.get("max_pending_calls") or -1) > 0:
        out["max_pending_calls"] = given["max_pending_calls"]
    out["detached"] = (given.get("lifetime") or _session.get("lifetime")) == "detached"
    out["with_maker"] = not out["detached"]
    return out
