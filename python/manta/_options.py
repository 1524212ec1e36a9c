"""Options as users write them, and as manta_task_options has them."""
NONE, UNLIMITED = -1, -2

STRATEGIES = {"default": 0, "spread": 1}


def resources_text(resources):
    """{"disk": 1} as "disk=1"."""
    for name, amount in resources.items():
        if not isinstance(name, str) or not name or any(c in name for c in "=, "):
            raise ValueError(f"resources: {name!r} is no name of a resource")
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or amount < 0:
            raise ValueError(f"resources: {name} is {amount!r}, expected a number from 0 on")
    return ",".join(f"{n}={a:.10g}" for n, a in resources.items() if a)


def _amount(name, value):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise ValueError(f"{name} is {value!r}, expected a number from 0 on")
    return float(value)


def _count(name, value, zero):
    """-1: without end; 0 is `zero`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < -1:
        raise ValueError(f"{name} is {value!r}, expected a whole number, or -1: without end")
    return UNLIMITED if value == -1 else value or zero


def _common(o, out):
    if (v := o.pop("num_cpus", None)) is not None:
        out["num_cpus"] = _amount("num_cpus", v) or NONE
    if (v := o.pop("num_gpus", None)) is not None:
        out["num_gpus"] = _amount("num_gpus", v)
    if (v := o.pop("memory", None)) is not None:
        out["memory"] = int(_amount("memory", v))
    if (v := o.pop("resources", None)) and (text := resources_text(v)):
        out["resources"] = text
    if (v := o.pop("strategy", None)) is not None:
        if v not in STRATEGIES:
            raise ValueError(f"strategy is {v!r}, expected \"default\" or \"spread\"")
        out["strategy"] = STRATEGIES[v]
    if (v := o.pop("placement_group", None)) is not None:
        out["placement_group"] = getattr(v, "id", v)
    if (v := o.pop("bundle", None)) is not None:
        out["bundle"] = v
    if (v := o.pop("node", None)) is not None:
        out["node"] = v
    if (v := o.pop("env_vars", None)):
        out["environment"] = environment(v)


def environment(variables):
    """Variables of a call's process as the text that names its environment."""
    import json
    for name, value in variables.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name or "=" in name or "\0" in name + value:
            raise TypeError(f"env_vars: {name!r} is {value!r}, expected a name and a text")
    return json.dumps({"env_vars": variables}, sort_keys=True)


def _end(o, what):
    unknown = [k for k, v in o.items() if v is not None]
    if unknown:
        raise TypeError(f"{what} has no option {', '.join(sorted(unknown))}")


def task(options):
    """(fields, num_returns or None, is_stream, classes to retry on)."""
    o, out = dict(options), {}
    _common(o, out)
    if (v := o.pop("max_retries", None)) is not None:
        out["max_retries"] = _count("max_retries", v, NONE)
    retry = o.pop("retry_exceptions", None)
    if retry:
        out["retry_errors"] = True
    if (v := o.pop("name", None)) is not None:
        out["name"] = v[:63]
    results, is_stream = returns(o.pop("num_returns", None))
    _end(o, "a remote function")
    return out, results, is_stream, tuple(retry) if isinstance(retry, (list, tuple)) else None


def returns(value):
    """(number of results or None, whether they come one by one)."""
    if value in ("streaming", "dynamic"):
        return 1, True
    if value is None:
        return None, False
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"num_returns is {value!r}, expected a whole number from 0 on, or \"streaming\"")
    return value, False


def actor(options):
    o, out = dict(options), {}
    _common(o, out)
    for name, zero in (("max_restarts", 0), ("max_task_retries", 0)):
        if (v := o.pop(name, None)) is not None:
            out[name] = _count(name, v, zero)
    for name in ("max_concurrency", "max_pending_calls"):
        if (v := o.pop(name, None)) is not None and v > 0:
            out[name] = v
    for name in ("detached", "get_if_exists", "fail_away"):
        if (v := o.pop(name, None)) is not None:
            out[name] = bool(v)
    if (v := o.pop("name", None)) is not None:
        if not isinstance(v, str) or not v:
            raise TypeError(f"the name of an actor is {v!r}, expected a text")
        out["name"] = v
    if (v := o.pop("namespace", None)) is not None:
        out["name_space"] = v
    _end(o, "an actor")
    return out


def method(options):
    """(fields, results or None, is_stream)"""
    o, out = dict(options), {}
    if (v := o.pop("max_task_retries", None)) is not None:
        out["max_task_retries"] = _count("max_task_retries", v, NONE)
    if o.pop("retry_exceptions", None):
        out["retry_errors"] = True
    if (v := o.pop("name", None)) is not None:
        out["name"] = v[:63]
    results, is_stream = returns(o.pop("num_returns", None))
    _end(o, "a method")
    return out, results, is_stream
