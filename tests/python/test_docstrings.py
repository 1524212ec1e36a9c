"""Docstrings: each public name has an example, and what the example shows can be done."""
import importlib
import itertools
import textwrap
import types

import pytest
from conftest import DEADLINE_S

MODULES = ("manta", "manta.ray", "manta.ray.util", "manta.ray.util.queue", "manta.ray.util.actor_pool",
           "manta.ray.util.placement_group", "manta.ray.util.scheduling_strategies", "manta.ray.util.state",
           "manta.ray.util.collective", "manta.ray.util.annotations")
PARTS = {"In", "NotIn", "Exists", "DoesNotExist"}       # of conditions, which NodeLabelSchedulingStrategy shows


def public_names(module):
    """Functions and classes of the module's own, or that it names as its own; no exceptions."""
    names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
    for name in names:
        o = getattr(module, name)
        is_own = hasattr(module, "__all__") or getattr(o, "__module__", None) == module.__name__
        if isinstance(o, types.ModuleType) or not callable(o) or not is_own or name in PARTS:
            continue
        if not (isinstance(o, type) and issubclass(o, BaseException)):
            yield name, o


def docstring(o):
    """Its own, or of a class, that of the nearest base that has one."""
    return next((c.__doc__ for c in o.__mro__[:-1] if c.__doc__), "") if isinstance(o, type) else o.__doc__ or ""


def examples(o):
    """What is indented in the docstring more than its prose, or behind >>>."""
    lines = docstring(o).splitlines()
    marked = [line.strip()[4:] for line in lines if line.strip().startswith((">>>", "..."))]
    if marked:
        return ["\n".join(marked)]
    margin = len(lines[-1]) if lines and not lines[-1].strip() else 0      # where the quotes end; in C there are none
    deeper = " " * (margin + 4)
    blocks = itertools.groupby(lines[1:], lambda line: line.startswith(deeper) or not line.strip())
    return [text for is_code, block in blocks if is_code and (text := textwrap.dedent("\n".join(block)).strip())]


def cases(modules):
    return [pytest.param(o, id=f"{m}.{name}") for m in modules for name, o in public_names(importlib.import_module(m))]


RAY = """
import sys, manta.ray
sys.modules["ray"] = manta.ray      # as under `manta run`
for name in ("util", "util.state", "util.scheduling_strategies", "util.queue", "util.actor_pool", "util.placement_group",
             "util.collective", "util.annotations"):
    __import__("manta.ray." + name)
    sys.modules["ray." + name] = sys.modules["manta.ray." + name]
import ray
from manta.ray.util import collective
from manta.ray.util.collective import Backend, ReduceOp
"""
PREPARED = """
import threading, time, manta
OURS.init(num_cpus=4)
class C: pass
lock = threading.Lock()
def made(module):
    @module.remote
    def f(x=0, y=0): return x
    @module.remote
    def sleep(): time.sleep(1000)
    @module.remote
    class A:
        def __init__(self, x=0): self.x = x
        def method(self, *args): return args
        def add(self, x): return self.x + x
        def double(self, x): return 2 * x
    @module.remote
    def numbers(n):
        yield from range(n)
    return f, sleep, A, numbers
f, sleep, A, numbers = made(OURS)
Doubler = A
handle = A.options(name="counter").remote()
refs = [f.remote(i) for i in range(4)]
ref, array, items = refs[0], [1], [1, 2]
id = "00"
if OURS is manta: group = manta.placement_group_new([{"num_cpus": 1}], name="mine")
else: group = ray.util.placement_group([{"CPU": 1}])
"""


@pytest.mark.parametrize("o", cases(MODULES))
def test_what_is_public_has_an_example(o):
    assert examples(o), f"{o.__name__} has no example:\n{docstring(o)}"


@pytest.mark.parametrize("module", ["manta", "ray"])
def test_the_examples_run(python, tmp_path, module):
    """Each in a node of its own, one after the other: some end it, and several give one name to different things."""
    own = [m for m in MODULES if m.startswith("manta.ray") == (module == "ray")]
    texts = {f"{m}.{name}: {text}": text for m in own for name, o in public_names(importlib.import_module(m)) for text in examples(o)}
    program = tmp_path / "program.py"
    program.write_text(f"""
import ast, asyncio, inspect, os
TEXTS = {texts!r}
PREPARED = {(PREPARED if module == "manta" else RAY + PREPARED).replace("OURS", module)!r}
async def run(name, text):
    names = {{}}
    exec(PREPARED, names)
    if ".init(" in text: names[{module!r}].shutdown()
    code = compile(text, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    out = eval(code, names)
    if inspect.iscoroutine(out): await out
    names[{module!r}].shutdown()
failed = []
for name, text in TEXTS.items():
    try: asyncio.run(run(name, text))
    except BaseException as e: failed.append((name, repr(e)))
    import manta
    manta.shutdown()
print(failed)
""")
    out = python(str(program), cwd=tmp_path, timeout=4 * DEADLINE_S)        # a hundred nodes and more
    assert out.stdout.splitlines()[-1:] == ["[]"], out.stdout + out.stderr
