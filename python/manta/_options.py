"""Options as users write them, and as manta_task_options has them."""
import os

NONE, UNLIMITED = -1, -2
MOST = 2**31 - 1  # of a whole number
MOST_NAME = 63  # bytes of a name of an actor or a call, and of a namespace
RETRIED = 1 << 4  # the status of an exception that is to be tried again (src/python/results.c)

STRATEGIES = {"default": 0, "spread": 1}


def node(options):
    """The options of init() as C takes them; those that are None are left out."""
    out = {k: v for k, v in options.items() if v is not None}
    for name, most in (("num_cpus", MOST), ("num_gpus", MOST), ("memory", 2**63 - 1), ("store_memory", 2**63 - 1)):
        if name in out:
            out[name] = _whole(name, out[name], most)
    for name in ("address", "namespace", "spill_folder", "log_level"):
        if name in out:
            text = os.fspath(out[name]) if hasattr(out[name], "__fspath__") else out[name]
            if not isinstance(text, str):
                raise TypeError(f"{name} is {text!r}, expected a text")
            out[name] = text
    if "num_cpus" in out:
        out["num_cpus"] = out["num_cpus"] or NONE
    if "namespace" in out:
        out["name_space"] = out.pop("namespace")
    if "resources" in out:
        out["resources"] = resources_text(out["resources"])
    return out


def _whole(name, value, most):
    """A whole number from 0 on, also of a float such as 2e9."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most or value != int(value):
        raise (ValueError if is_number else TypeError)(f"{name} is {value!r}, expected a whole number from 0 to {most}")
    return int(value)


def resources_text(resources):
    """{"disk": 1} as "disk=1"."""
    if not hasattr(resources, "items"):
        raise TypeError(f"resources is {resources!r}, expected a dict of names and numbers")
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
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= MOST:
        raise ValueError(f"{name} is {value!r}, expected a whole number up to {MOST}, or -1: without end")
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
    parts = {name: o.pop(name, None) for name in ("env_vars", "working_dir", "py_modules", "apart")}
    if any(parts.values()):
        out["environment"] = environment(**parts)
    if (v := o.pop("wait_infeasible", None)):
        out["wait_infeasible"] = True


def environment(env_vars=None, working_dir=None, py_modules=None, apart=None):
    """What is particular about a call's process, as the text that names its environment; apart: a word, where calls
    that say it have processes of their own."""
    import json
    for name, value in (env_vars or {}).items():
        if not isinstance(name, str) or not isinstance(value, str) or not name or "=" in name or "\0" in name + value:
            raise TypeError(f"env_vars: {name!r} is {value!r}, expected a name and a text")
    if working_dir is not None and not os.path.isdir(working_dir):
        raise ValueError(f"working_dir is {working_dir!r}, expected a folder")
    for path in py_modules or ():
        if not os.path.exists(path):
            raise ValueError(f"py_modules: there is no {path!r}, expected a package's folder, a module's file or a wheel")
    parts = {"env_vars": env_vars, "working_dir": working_dir and os.path.abspath(working_dir),
             "py_modules": [os.path.abspath(path) for path in py_modules or ()], "apart": apart}
    return json.dumps({k: v for k, v in parts.items() if v}, sort_keys=True)


def _end(o, what):
    unknown = [k for k, v in o.items() if v is not None]
    if unknown:
        raise TypeError(f"{what} has no option {', '.join(sorted(unknown))}")


def task(options):
    """(fields, num_returns or None, is_stream, how the worker is to run it)."""
    o, out = dict(options), {}
    _common(o, out)
    if (v := o.pop("max_retries", None)) is not None:
        out["max_retries"] = _count("max_retries", v, NONE)
    if (v := o.pop("max_calls", None)):
        out["max_calls"] = _at_least("max_calls", v, 1)
    results, is_stream, how = _of_call(o, out)
    if out.get("num_cpus", 0) >= 2:  # one is what its process has in any case (_threads.py)
        how["processors"] = int(out["num_cpus"])
    _end(o, "a remote function")
    return out, results, is_stream, how


def _of_call(o, out):
    """What calls of functions and methods have: (results or None, is_stream, how the worker is to run them)."""
    how = {}
    retry = o.pop("retry_exceptions", None)
    if isinstance(retry, (list, tuple)) and retry:
        out["retry_on"] = RETRIED
        how["retry"] = tuple(retry)
    elif retry:
        out["retry_errors"] = True
    if (v := o.pop("name", None)) is not None:
        if not isinstance(v, str):
            raise TypeError(f"the name of a call is {v!r}, expected a text")
        out["name"] = v.encode(errors="replace")[:MOST_NAME].decode(errors="ignore")
    if (v := o.pop("stream_window", None)) is not None:
        out["stream_window"] = UNLIMITED if v == -1 else _at_least("stream_window", v, 1)
    if (v := o.pop("num_objects_per_yield", None)) is not None and _at_least("num_objects_per_yield", v, 1) > 1:
        how["group"] = v
    results, is_stream = returns(value := o.pop("num_returns", None))
    if value == "dynamic":
        how["dynamic"] = True
        if out.pop("retry_errors", None):  # the references before a failure are lost when it is tried again
            out["retry_on"], how["retry"] = RETRIED, (Exception,)
    return results, is_stream, how


def _at_least(name, value, least):
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise ValueError(f"{name} is {value!r}, expected a whole number from {least} to {MOST}")
    return value


def returns(value):
    """(number of results or None, whether they come one by one)."""
    if value == "streaming":
        return 1, True
    if value == "dynamic":
        return 1, False
    if value is None:
        return None, False
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"num_returns is {value!r}, expected a whole number from 0 on, or \"streaming\"")
    return value, False


def _groups(groups):
    """{"io": 2} as "io=2"."""
    if not isinstance(groups, dict):
        raise TypeError(f"concurrency_groups is {groups!r}, expected a dict of names and numbers")
    for name, most in groups.items():
        _group_name("concurrency_groups", name)
        _at_least(f"concurrency_groups: {name}", most, 1)
    return ",".join(f"{name}={most}" for name, most in groups.items())


def _group_name(option, name):
    if not isinstance(name, str) or not name or any(c in name for c in "=,;"):
        raise ValueError(f"{option}: {name!r} is no name of a group")
    return name


def _actor_name(option, value):
    """A name of an actor, or its namespace, that the node can keep."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"{option} is {value!r}, expected a text")
    n = len(value.encode(errors="surrogatepass"))
    if "\0" in value or n > MOST_NAME:
        raise ValueError(f"{option} is {value!r}, expected a text without a NUL, of at most {MOST_NAME} bytes; it has {n}")
    return value


def actor(options):
    """(fields, how far its streams together may be ahead of their readers, or None)"""
    o, out = dict(options), {}
    if (v := o.pop("concurrency_groups", None)):
        out["concurrency_groups"] = _groups(v)
    _common(o, out)
    for name, zero in (("max_restarts", 0), ("max_task_retries", 0)):
        if (v := o.pop(name, None)) is not None:
            out[name] = _count(name, v, zero)
    for name in ("max_concurrency", "max_pending_calls"):
        if (v := o.pop(name, None)) is not None and _at_least(name, v, -1) > 0:
            out[name] = v
    for name in ("detached", "get_if_exists", "fail_away", "out_of_order", "with_maker"):
        if (v := o.pop(name, None)) is not None:
            out[name] = bool(v)
    if (v := o.pop("name", None)) is not None:
        out["name"] = _actor_name("the name of an actor", v)
    if (v := o.pop("namespace", None)) is not None:
        out["name_space"] = _actor_name("the namespace of an actor", v)
        if "/" in v:
            raise ValueError(f"the namespace of an actor is {v!r}, expected a text without a '/'")
    if (v := o.pop("place_cpus", None)) is not None:
        out["place_cpus"] = _amount("place_cpus", v)
    stream_limit = o.pop("stream_limit", None)
    _end(o, "an actor")
    return out, None if stream_limit is None else _at_least("stream_limit", stream_limit, 1)


def method(options):
    """(fields, results or None, is_stream, how the worker is to run it)"""
    o, out = dict(options), {}
    if (v := o.pop("max_task_retries", None)) is not None:
        out["max_task_retries"] = _count("max_task_retries", v, NONE)
    if (v := o.pop("concurrency_group", None)) is not None:
        out["concurrency_group"] = _group_name("concurrency_group", v)
    results, is_stream, how = _of_call(o, out)
    _end(o, "a method")
    return out, results, is_stream, how
