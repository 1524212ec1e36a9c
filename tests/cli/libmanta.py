"""The C library from Python, as far as the tests need it: what has no command yet is tested through the door that
it has. Layers are built from the library's own tables of options, by Keras's names."""
import ctypes as c
import pathlib

import numpy as np

from conftest import PROGRAM

MAX_DIMS = 8
DTYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool"]


class Array(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int), ("ndim", c.c_int), ("shape", c.c_int64 * MAX_DIMS),
                ("strides", c.c_int64 * MAX_DIMS)]


class Value(c.Structure):
    _fields_ = [("id", c.c_int)]


class Column(c.Structure):
    _fields_ = [("name", c.c_char_p), ("array", Array)]


class Field(c.Structure):
    _fields_ = [("key", c.c_char_p), ("kind", c.c_int), ("offset", c.c_size_t), ("extra", c.c_size_t)]


class LayerClass(c.Structure):
    _fields_ = [("name", c.c_char_p), ("options_size", c.c_size_t), ("fields", c.POINTER(Field)), ("n_fields", c.c_int),
                ("call", c.c_void_p)]


class Feed(c.Structure):
    _fields_ = [("count", c.c_int64), ("n_inputs", c.c_int), ("n_targets", c.c_int), ("inputs", Array * 8),
                ("targets", Array * 8), ("weights", c.c_void_p * 8), ("first", c.c_int64)]


class Compile(c.Structure):
    _fields_ = [("optimizer", c.c_void_p), ("n_losses", c.c_int), ("losses", c.c_void_p), ("n_metrics", c.c_int),
                ("metrics", c.c_void_p)]


class VariableInfo(c.Structure):
    _fields_ = [("name", c.c_char_p), ("layer", c.c_char_p), ("ndim", c.c_int), ("shape", c.c_int64 * MAX_DIMS),
                ("trainable", c.c_bool), ("frozen", c.c_bool)]


class EventsOptions(c.Structure):
    _fields_ = [("first_step", c.c_int64), ("restart", c.c_bool), ("suffix", c.c_char_p)]


class Hparam(c.Structure):
    _fields_ = [("name", c.c_char_p), ("kind", c.c_int), ("number", c.c_double), ("text", c.c_char_p)]


def load():
    """The library beside the program under test."""
    lib = c.CDLL(str(pathlib.Path(PROGRAM).parent / "libmanta.so"))
    p, i, s, i64, f64 = c.c_void_p, c.c_int, c.c_char_p, c.c_int64, c.c_double
    for name, result, args in [
            ("manta_error_text", s, []), ("manta_model_new", p, [s]), ("manta_model_free", None, [p]),
            ("manta_zoo", i, [s, c.POINTER(p)]), ("manta_input", Value, [p, s, i, i, c.POINTER(i64)]),
            ("manta_call_n", Value, [p, p, i, c.POINTER(Value)]), ("manta_output_named", None, [p, s, Value]),
            ("manta_model_build", i, [p]), ("manta_model_variables", i, [p]),
            ("manta_model_variable", VariableInfo, [p, i]), ("manta_model_inputs", i, [p]),
            ("manta_model_outputs", i, [p]), ("manta_model_input", Array, [p, i, c.POINTER(s)]),
            ("manta_layer_class_find", c.POINTER(LayerClass), [s]), ("manta_layer_new", p, [p, p, s, p]),
            ("manta_session_open", i, [p, p, p, c.POINTER(p)]), ("manta_session_close", None, [p]),
            ("manta_session_forward", i, [p, p, c.c_bool, i, c.POINTER(Array)]),
            ("manta_session_weight", i, [p, s, c.POINTER(Array)]),
            ("manta_session_set_weight", i, [p, s, c.POINTER(Array)]),
            ("manta_onnx_write", i, [s, p, i, c.POINTER(Column)]),
            ("manta_events_open", i, [s, p, c.POINTER(p)]), ("manta_events_path", s, [p]),
            ("manta_events_scalar", i, [p, s, i64, f64]), ("manta_events_text", i, [p, s, i64, s]),
            ("manta_events_histogram", i, [p, s, i64, c.POINTER(Array)]),
            ("manta_events_image", i, [p, s, i64, c.POINTER(Array)]), ("manta_events_graph", i, [p, p]),
            ("manta_events_hparams", i, [p, i, c.POINTER(Hparam), i, c.POINTER(s)]),
            ("manta_events_hparams_end", i, [p, c.c_bool]), ("manta_events_flush", i, [p]),
            ("manta_events_close", None, [p])]:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, args
    return lib


LIB = load()


def must(status):
    assert status == 0, LIB.manta_error_text().decode()


def view(a):
    """An Array over a NumPy array, which must outlive it."""
    v = Array(a.ctypes.data, DTYPES.index(str(a.dtype)), a.ndim)
    for k in range(a.ndim):
        v.shape[k] = a.shape[k]
        v.strides[k] = a.strides[k] // a.itemsize
    return v


def copy(v):
    """A NumPy copy of an Array (row-major)."""
    shape = tuple(v.shape[:v.ndim])
    n = int(np.prod(shape)) * np.dtype(DTYPES[v.dtype]).itemsize
    return np.frombuffer(c.string_at(v.data, n), DTYPES[v.dtype]).reshape(shape).copy()


class Options:
    """A layer's options by Keras's names, laid out as the class's own table says."""
    INT, INTS, PAIR, PAIRS, FLOAT, BOOL, NOT, TEXT, INIT, REG, FLOATS, FLOAT_DEFAULT = range(12)
    ZERO = -2**31     # MANTA_ZERO

    def __init__(self, cls, config):
        self.keep = []
        self.memory = c.create_string_buffer(cls.options_size or 1)
        fields = {cls.fields[k].key.decode(): cls.fields[k] for k in range(cls.n_fields)}
        for key, value in config.items():
            self.put(fields[key], value)

    def write(self, offset, ctype, *values):
        array = (ctype * len(values))(*values)
        c.memmove(c.addressof(self.memory) + offset, array, c.sizeof(array))

    def put(self, f, value):
        if f.kind == self.INT:
            self.write(f.offset, c.c_int64, value)
        elif f.kind == self.FLOAT:
            self.write(f.offset, c.c_double, value)
        elif f.kind == self.FLOAT_DEFAULT:
            self.write(f.offset, c.c_double, value or self.ZERO)
        elif f.kind in (self.PAIR, self.PAIRS):
            zero = self.ZERO if f.extra and f.kind == self.PAIR else 0
            self.write(f.offset, c.c_int64, *(n or zero for n in np.ravel(value).tolist()))
        elif f.kind == self.INTS:
            self.write(f.offset, c.c_int64, *value)
            self.write(f.extra, c.c_int, len(value))
        elif f.kind in (self.BOOL, self.NOT):
            self.write(f.offset, c.c_bool, value == (f.kind == self.BOOL))
        elif f.kind == self.TEXT:
            self.keep.append(c.create_string_buffer(value.encode()))
            self.write(f.offset, c.c_void_p, c.addressof(self.keep[-1]))
        elif f.kind == self.FLOATS:
            self.keep.append((c.c_float * len(value))(*value))
            self.write(f.offset, c.c_void_p, c.addressof(self.keep[-1]))
            self.write(f.extra, c.c_int64, len(value))
        else:
            raise ValueError(f"no option of kind {f.kind} is needed by a test yet")


class Model:
    def __init__(self, zoo=None):
        self.p = c.c_void_p()
        if zoo:
            must(LIB.manta_zoo(zoo.encode(), c.byref(self.p)))
        else:
            self.p = c.c_void_p(LIB.manta_model_new(b"functional"))

    def input(self, name, shape, dtype="float32"):
        return LIB.manta_input(self.p, name.encode(), DTYPES.index(dtype), len(shape), (c.c_int64 * len(shape))(*shape))

    def __call__(self, layer, x, **config):
        """Calls a new layer of that class on one value or on several."""
        x = x if isinstance(x, (list, tuple)) else [x]
        cls = LIB.manta_layer_class_find(layer.encode())
        assert cls, layer
        options = Options(cls.contents, config)
        made = LIB.manta_layer_new(self.p, cls, None, options.memory)
        return LIB.manta_call_n(self.p, made, len(x), (Value * len(x))(*x))

    def build(self, **outputs):
        for name, value in outputs.items():
            LIB.manta_output_named(self.p, name.encode(), value)
        must(LIB.manta_model_build(self.p))
        return self

    def variables(self):
        infos = [LIB.manta_model_variable(self.p, k) for k in range(LIB.manta_model_variables(self.p))]
        return {v.name.decode(): tuple(v.shape[:v.ndim]) for v in infos}

    def inputs(self):
        """Name, dtype and shape of each; -1 is the batch."""
        out = []
        for k in range(LIB.manta_model_inputs(self.p)):
            name = c.c_char_p()
            a = LIB.manta_model_input(self.p, k, c.byref(name))
            out.append((name.value.decode(), DTYPES[a.dtype], tuple(a.shape[:a.ndim])))
        return out

    def close(self):
        LIB.manta_model_free(self.p)


class Session:
    """A model with weights, for predicting."""

    def __init__(self, model):
        self.model, self.p = model, c.c_void_p()
        must(LIB.manta_session_open(model.p, c.byref(Compile()), None, c.byref(self.p)))

    def weights(self):
        out = {}
        for name in self.model.variables():
            a = Array()
            must(LIB.manta_session_weight(self.p, name.encode(), c.byref(a)))
            out[name] = copy(a)
        return out

    def set(self, name, value):
        must(LIB.manta_session_set_weight(self.p, name.encode(), c.byref(view(value))))

    def predict(self, *inputs):
        feed = Feed(count=len(inputs[0]), n_inputs=len(inputs))
        for k, a in enumerate(inputs):
            feed.inputs[k] = view(a)
        n = LIB.manta_model_outputs(self.model.p)
        outputs = (Array * n)()
        must(LIB.manta_session_forward(self.p, c.byref(feed), False, n, outputs))
        return [copy(a) for a in outputs]

    def close(self):
        LIB.manta_session_close(self.p)


def columns(arrays):
    """Named arrays as the library takes them; keep the second value as long as the first is used."""
    kept = [(name.encode(), np.ascontiguousarray(a)) for name, a in arrays.items()]
    return (Column * len(kept))(*[Column(name, view(a)) for name, a in kept]), kept
