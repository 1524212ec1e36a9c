"""Values that C does not know by itself: pickles, functions, classes."""
import copyreg
import functools
import sys
from _pickle import Pickler, Unpickler, dumps, loads
from io import BytesIO

from manta import _manta

CODE_WARN, CODE_MOST = 10**7, 10**8  # bytes


def _cloudpickle():
    import cloudpickle  # when first needed: it takes 20 ms
    return cloudpickle


def dump(value):
    """(pickle, buffers) of a value. Only cloudpickle can bring what __main__ defines."""
    if "torch" not in sys.modules and "tensorflow" not in sys.modules:
        return _dump(value, None)
    from manta import _tensors  # for programs that have tensors
    layout = _tensors.Layout()
    out = _dump(value, layout)
    return out if layout.is_final() else _dump(value, layout)


def _dump(value, layout):
    """layout: where the tensors of the value lie; None when there can be none."""
    buffers = []
    try:
        if layout is None:
            data = dumps(value, 5, buffer_callback=buffers.append)
        else:
            data = _dump_with(_plain_pickler, value, buffers, layout)
        if b"__main__" not in data and b"__mp_main__" not in data:
            return data, buffers
    except Exception as e:  # lambdas, local classes; what cloudpickle cannot do either it says itself
        if isinstance(e, RecursionError):
            raise
    buffers = []
    if layout is None:
        return _cloudpickle().dumps(value, protocol=5, buffer_callback=buffers.append), buffers
    return _dump_with(_value_pickler(), value, buffers, layout), buffers


def _dump_with(pickler, value, buffers, layout):
    out = BytesIO()
    pickler(out, buffers, layout).dump(value)
    return out.getvalue()


def _plain_pickler(out, buffers, layout):
    p = Pickler(out, 5, buffer_callback=buffers.append)
    p.dispatch_table = layout.table(copyreg.dispatch_table)
    return p


@functools.cache
def _value_pickler():
    cloudpickle = _cloudpickle()

    class ValuePickler(cloudpickle.CloudPickler):
        def __init__(self, out, buffers, layout):
            self.dispatch_table = layout.table(cloudpickle.CloudPickler.dispatch_table)     # before: it is read there
            super().__init__(out, protocol=5, buffer_callback=buffers.append)

    return ValuePickler


def dump_plain(value):
    """The pickle of a value that has no buffers."""
    return bytes(dump(value)[0])


def load(data, buffers):
    return loads(data, buffers=buffers)


# ---- code: functions and classes, once per definition ----

def _code_pickler():
    cloudpickle = _cloudpickle()

    class CodePickler(cloudpickle.CloudPickler):
        """References and handles that a function captures travel beside its code, with every call of it."""

        def __init__(self, file):
            super().__init__(file, protocol=5)
            self.captured = []

        def persistent_id(self, o):
            if isinstance(o, (_manta.ObjectRef, _manta.Actor)):
                self.captured.append(o)
                return len(self.captured) - 1
            return None

        def reducer_override(self, o):
            if isinstance(o, functools._lru_cache_wrapper) and _is_the_programs(o):
                return _cached, (o.__wrapped__, o.cache_parameters())
            return super().reducer_override(o)

    return CodePickler


def _is_the_programs(o):
    """Whether workers could not import it."""
    return o.__module__ in ("__main__", "__mp_main__") or "<locals>" in o.__qualname__


def _cached(function, parameters):
    """A function with a cache, which is its own in each process."""
    return functools.lru_cache(**parameters)(function)


_pickler = None


class _CodeUnpickler(Unpickler):
    captured = ()

    def persistent_load(self, i):
        return self.captured[i]


def dump_code(code, name):
    """(pickle, captured) of a function or class."""
    global _pickler
    if _pickler is None:
        _pickler = _code_pickler()
    out = BytesIO()
    pickler = _pickler(out)
    try:
        pickler.dump(code)
    except RecursionError:
        raise
    except Exception as e:
        raise TypeError(f"{name} cannot be sent to workers: {e}{_largest(code, lambda v: not _can_pickle(v))}") from e
    data = out.getvalue()
    if len(data) > CODE_WARN:
        what = "actor" if isinstance(code, type) else "remote function"
        text = (f"The {what} {name} is {{}}: it has captured {len(data) // 10**6} MB{_largest(code)}. Put that with "
                f"manta.put() and pass the reference, and it travels once.")
        if len(data) > CODE_MOST:
            raise ValueError(text.format("too large"))
        import warnings
        warnings.warn(text.format("very large"), stacklevel=5)
    return data, pickler.captured or None


def load_code(data, captured):
    unpickler = _CodeUnpickler(BytesIO(data))
    unpickler.captured = captured or ()
    return unpickler.load()


def _can_pickle(value):
    try:
        _cloudpickle().dumps(value)
        return True
    except Exception:
        return False


def _variables(code):
    """(name, value) of what a function or a class captures, with what those of the program that it uses capture."""
    todo, seen = [code[0] if isinstance(code, tuple) else code], set()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for name, value in _attributes(one) if isinstance(one, type) else _captured(one):
            value = getattr(value, "__func__", value)
            if isinstance(value, type) or hasattr(value, "__code__"):
                if _is_the_programs(value) or value.__module__ == one.__module__:
                    todo.append(value)
            yield name, value


def _attributes(cls):
    return [(name, value) for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__", "__doc__")]


def _captured(function):
    code = getattr(function, "__code__", None)
    if code is None:
        return
    defaults = function.__defaults__ or ()
    yield from zip(code.co_varnames[code.co_argcount - len(defaults):], defaults)
    yield from (function.__kwdefaults__ or {}).items()
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        try:
            yield name, cell.cell_contents
        except ValueError:
            pass
    codes = [code]
    while codes:  # those of functions inside it, too
        code = codes.pop()
        codes += [c for c in code.co_consts if isinstance(c, type(code))]
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]


def _size(value):
    n = getattr(value, "nbytes", None)
    return n if isinstance(n, int) else sys.getsizeof(value)


def _largest(code, which=lambda v: True):
    try:
        found = [(n, v) for n, v in _variables(code) if which(v)]
        name = max(found, key=lambda p: _size(p[1]))[0] if found else None
    except Exception:
        name = None
    return f" (in the variable {name})" if name else ""
