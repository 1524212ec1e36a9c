"""Remote functions, actors and objects."""
import atexit
import functools
import os
import sys
import threading
from _pickle import dumps, loads

from manta import _code, _dialect, _failures, _manta, _options, _prints, _streams, _threads, _values, _worker
from manta._streams import ObjectRefGenerator

_lock = threading.RLock()
_exporting = threading.RLock()  # not _lock, which shutdown() holds while it waits for the thread that shows prints

# ---- start and end ----


def init(address=None, *, num_cpus=None, num_gpus=None, memory=None, resources=None, namespace=None,
         store_memory=None, spill_folder=None, in_process=False, log_to_driver=True, log_level=None):
    """Starts a node on this host, or joins one.

        manta.init(num_cpus=4, resources={"disk": 2})

    address: "local" (one of its own), "auto" (the one that `manta start` began), "any" (that one, else the only one
    there is, which may be another program's own), a path or a pid.
    in_process: no other process; calls run at once, and breakpoints stop in them.
    log_to_driver: what workers print is shown here, behind the function's name; otherwise as it is.
    """
    with _lock:
        if _manta.is_initialized():
            raise RuntimeError("manta.init() was called before: a program has one runtime until manta.shutdown()")
        options = _options.node({"address": address, "num_cpus": num_cpus, "num_gpus": num_gpus, "memory": memory,
                                 "namespace": namespace or _dialect.current.namespace(), "store_memory": store_memory,
                                 "spill_folder": spill_folder, "log_level": log_level, "resources": resources or None})
        _prints.choose()
        _manta.init({**options, "in_process": in_process, "plain_output": not log_to_driver, "nursery": _nursery_argv(),
                     "memory_is_free": _dialect.current.memory_is_free})
        _code.start_job()
        _at_exit()
        if not in_process:
            _warm_up()


def _nursery_argv():
    flags = ["-X", "dev"] if sys.flags.dev_mode else []
    here = os.path.dirname(os.path.abspath(__file__))
    return [sys.executable, "-P", *flags, os.path.join(here, "_nursery.py"), _dialect.current.name]


def _warm_up():
    """Starts a second nursery that imports what this program has imported, if it is known to bear that."""
    from manta._nursery import WARM
    modules = [m for m in WARM if m in sys.modules]
    if modules:
        _manta.nursery_warm([*_nursery_argv(), os.pathsep.join(filter(None, sys.path)), *modules])


@functools.cache
def _at_exit():
    atexit.register(_exit)


_exiting = False


def _exit():
    global _exiting
    _exiting = True
    with _lock:
        _manta.shutdown(True)


def shutdown():
    """Ends the node, or leaves one that was joined; references name nothing afterwards.

        manta.shutdown()
    """
    with _lock:
        _manta.shutdown(False)
        aio = sys.modules.get("manta._aio")
        if aio is not None:
            aio.end_waits()


def is_initialized():
    """Whether the runtime runs.

        manta.is_initialized()
    """
    return _manta.is_initialized()


def _ensure():
    if not _manta.is_initialized():
        if _prints.is_here():
            raise RuntimeError("the runtime is being shut down")
        while _exiting and threading.current_thread() is not threading.main_thread():
            threading.Event().wait()  # the process ends, and starts no other node
        with _lock:
            if not _manta.is_initialized():
                init()


# ---- objects ----


def put(value):
    """Makes a value an object, once, for any number of calls.

        ref = manta.put(array)
        manta.get([f.remote(ref) for _ in range(10)])
    """
    return _manta.put(value)


def get(refs, timeout=None, *, copy=False):
    """The value of a reference, or the values of a list of them, in order.

        manta.get(ref, timeout=5)

    timeout: seconds; manta.exceptions.TimeoutError when they are over. What the call raised is raised.
    Arrays are read-only views of the store; with copy=True they are the caller's own.
    """
    if isinstance(refs, ObjectRefGenerator):
        refs = list(refs)
    return _manta.get(refs, timeout, copy)


def wait(refs, *, num_returns=1, timeout=None):
    """Waits until num_returns of the references are ready, or the time is over: (ready, others).

        ready, others = manta.wait(refs, num_returns=2, timeout=1)

    A generator is ready when next() would not wait.
    """
    try:
        return _manta.wait(refs, num_returns, timeout)
    except TypeError:
        if not hasattr(refs, "__iter__") or not any(isinstance(ref, ObjectRefGenerator) for ref in refs):
            raise
    return _streams.wait(list(refs), num_returns, timeout)


def cancel(ref, *, force=False, recursive=True):
    """Ends a call: one that has not begun never will, one that runs gets a KeyboardInterrupt.

        manta.cancel(ref)

    force: its process is killed. recursive: the calls that it has made, too.
    """
    if isinstance(ref, ObjectRefGenerator):
        ref._stream.close()
    else:
        _manta.cancel(ref, force, recursive)


# ---- remote functions ----

_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200  # flags of code objects, as inspect has them


def _has_flag(function, flags):
    function = getattr(function, "__func__", function)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    return code is not None and bool(code.co_flags & flags)


def _how(known):
    """What a call says besides its arguments, as bytes; None: nothing."""
    return _values.dump_plain(known) if known else None


def _new_key():
    return os.urandom(16)


def _label_of(function):
    return getattr(function, "__qualname__", type(function).__name__)  # a partial has none


class _Signature:
    """That of what was made remote: for help(), and for editors that ask inspect. It costs the calls nothing."""

    def __init__(self, name):
        self.name = name

    def __get__(self, instance, owner=None):
        what = None if instance is None else getattr(instance, self.name)
        if what is None:
            raise AttributeError("__signature__")
        import inspect
        return inspect.signature(what)


def _name_of(key, label):
    """"py.", the key, and as much of the label as fits, for people to read."""
    return f"py.{key.hex()}.{label.replace('<locals>.', '').rsplit('.', 1)[-1]}".encode()[:63].decode(errors="ignore")


class _Code:
    """A function or class that workers run, by key; put once in a life of the runtime."""

    def __init__(self, key, name, what):
        self.key, self.name, self.what = key, name, what
        self.life = 0
        self.captured = None

    def export(self):
        if self.what is None:  # it came from another process, which has put it
            return self.captured or _worker.captured_by_name.get(self.name)
        with _exporting:
            if self.life != _manta.life():
                before, self.life = self.life, _manta.life()  # before: it may refer to itself
                try:
                    label = self.what.__name__ if isinstance(self.what, type) else _label_of(self.what)
                    data, self.captured = _values.dump_code(self.what, label)
                    _dialect.current.check_captured(label, self.captured)
                    _code.put(self.key, data)
                except BaseException:
                    self.life = before
                    raise
        return self.captured


def _function_at(cls, key, name, options, module, qualname, doc, captured, is_generator):
    code = _Code(key, name, None)
    code.captured = captured
    out = cls._make(code, options, is_generator)
    out.__module__, out.__qualname__, out.__name__, out.__doc__ = module, qualname, qualname.rsplit(".")[-1], doc
    return out


class RemoteFunction(_manta.Function):
    """A function that runs in workers; what @manta.remote makes.

        ref = f.remote(1, y=2)
        ref = f.options(num_cpus=2).remote(1, y=2)
    """
    _function = None
    __signature__ = _Signature("_function")

    @classmethod
    def _make(cls, code, options, is_generator):
        fields, results, is_stream, how = _options.task(options)
        if results is None:
            results, is_stream = 1, is_generator
        out = cls.__new__(cls, code.name, fields, results, is_stream, _how(how))
        out._code, out._options, out._is_generator, out._is_stream = code, options, is_generator, is_stream
        return out

    @classmethod
    def _of(cls, function, options):
        if not callable(function):
            raise TypeError(f"remote() expects a function or a class, given {type(function).__name__}")
        if _has_flag(function, _COROUTINE):
            raise ValueError(f"{function.__qualname__} is async: only methods of actors may be")
        key = _new_key()
        label = _label_of(function)
        out = cls._make(_Code(key, _name_of(key, label), function), options, _has_flag(function, _GENERATOR))
        functools.update_wrapper(out, function)
        del out.__wrapped__
        out._function = function
        return out

    def _prepare(self):
        return self._code.export()

    def options(self, **options):
        """Returns this function with other options for its calls.

            f.options(num_returns=2).remote()
        """
        out = type(self)._make(self._code, {**self._options, **options}, self._is_generator)
        out._function = self._function
        for name in ("__module__", "__qualname__", "__name__", "__doc__"):
            if name in vars(self):
                vars(out)[name] = vars(self)[name]
        return out

    def __call__(self, *args, **kwargs):
        name = getattr(self, "__name__", "f")
        raise TypeError(f"{name} is a remote function: call {name}.remote(), or {name}._function() for a plain call")

    def __get__(self, instance, owner=None):
        return self

    def __reduce__(self):
        captured = self._prepare() if _manta.is_initialized() else None
        return _function_at, (RemoteFunction, self._code.key, self._code.name, self._options,
                              getattr(self, "__module__", None), getattr(self, "__qualname__", "f"),
                              getattr(self, "__doc__", None), captured, self._is_generator)

    def __repr__(self):
        return f"<remote function {getattr(self, '__qualname__', '')}>"


# ---- actors ----

class ActorMethod(_manta.Method):
    """A method of an actor: handle.method.

        ref = handle.add.remote(1)
    """

    def options(self, **options):
        """Returns this method of the actor with other options for its calls."""
        return _make_method(self._handle, self._name, self._known, {**self._options, **options})

    @property
    def _handle(self):
        out = self._handle_as(handle_class())
        out._methods, out._class_name = self._of
        return out

    def __reduce__(self):
        return _method_at, (self._handle, self._name, self._options)

    def __call__(self, *args, **kwargs):
        raise TypeError(f"{self._name} is a method of an actor: call {self._name}.remote()")


def _method_at(handle, name, options):
    out = getattr(handle, name)
    return out.options(**options) if options else out


def _make_method(actor, name, known, options):
    known_options = {k: v for k, v in known.get("options", {}).items() if k != "concurrency_group"}  # its process has it
    fields, results, is_stream, how = _options.method({**known_options, **options})
    if results is None:
        results, is_stream = 1, known.get("is_generator", False)
    if is_stream and "stream_limit" in known:
        how["limit"] = known["stream_limit"]
    out = ActorMethod.__new__(ActorMethod, actor, name, fields or None, results, is_stream, _how(how),
                              known.get("is_limited", False))
    out._name, out._known, out._options, out._of = name, known, options, (actor._methods, actor._class_name)
    return out


class ActorHandle(_manta.Actor):
    """A handle of an actor: its methods are attributes.

        manta.get(handle.add.remote(1))

    The actor ends, when its calls are done, with the last handle.
    """
    _methods = None  # name: what is known of it; None: anything may be called
    _class_name = "actor"

    def __getattr__(self, name):
        methods = self._methods
        if methods is not None and name not in methods and not (name.startswith("__") and name in _EVERY_ACTOR):
            raise AttributeError(f"{self._class_name} has no method {name}")
        if methods is None and name.startswith("__") and name not in _EVERY_ACTOR:
            raise AttributeError(name)
        known = (methods or {}).get(name, {})
        out = vars(self)[name] = _make_method(self, name, known, {})
        return out

    @property
    def id(self):
        """The actor's number."""
        return self._id

    def __repr__(self):
        return f"<actor {self._class_name} {self._id:016x}>"


_EVERY_ACTOR = ("__ray_ready__", "__ray_call__", "__ray_terminate__", "__manta_ready__", "__manta_call__",
                "__manta_end__")


def handle_class():
    return _dialect.current.handle_class or ActorHandle


def _handle_at(index, methods, name):
    out = _manta.actor_at(index, handle_class())
    out._methods, out._class_name = methods, name
    return out


def _reduce_handle(handle):
    return _handle_at, (_manta.actor_index(handle), handle._methods, handle._class_name)


def method(**options):
    """Options of a method, where it is defined.

        @manta.method(num_returns=2)
        def both(self): ...
    """
    _options.method(options)

    def set_options(f):
        f._manta_method = options
        return f
    return set_options


_SPECIAL = ("__call__", "__len__", "__getitem__", "__setitem__", "__contains__", "__init__", "__iter__", "__next__")


def _methods_of(cls):
    """What is known of each method, by name."""
    out = {}
    for name in dir(cls):
        f = getattr(cls, name, None)
        if not callable(f) or name.startswith("__") and name not in _SPECIAL:
            continue
        known = out[name] = {}
        if _has_flag(f, _GENERATOR | _ASYNC_GENERATOR):
            known["is_generator"] = True
        if hasattr(f, "_manta_method"):
            known["options"] = f._manta_method
    return out


def _is_async(cls):
    return any(_has_flag(getattr(cls, name, None), _COROUTINE | _ASYNC_GENERATOR) for name in dir(cls)
               if not name.startswith("__") or name in _SPECIAL)


class ActorClass:
    """A class whose instances are actors; what @manta.remote makes of a class.

        handle = A.remote(1)
        handle = A.options(name="a", max_restarts=1).remote(1)
    """
    __signature__ = _Signature("_class")

    def __init__(self, code, cls, options, methods, is_async):
        self._code, self._class, self._options, self._methods = code, cls, options, methods
        self._is_async = is_async
        self._fields, self._limit, self._stream_limit = _options_of_actor(options, is_async)
        self._groups = _add_groups(self._fields, options, methods, is_async)

    @classmethod
    def _of(cls, plain, options):
        key = _new_key()
        out = cls(_Code(key, _name_of(key, plain.__qualname__), plain), plain, options, _methods_of(plain),
                  _is_async(plain))
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(out, name, getattr(plain, name))
        return out

    def options(self, **options):
        """Returns this class with other options for the actors that it starts."""
        out = type(self)(self._code, self._class, {**self._options, **options}, self._methods, self._is_async)
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            if name in vars(self):
                setattr(out, name, vars(self)[name])
        return out

    def remote(self, *args, **kwargs):
        """Starts an actor, and returns its handle at once."""
        _ensure()
        captured = self._code.export()
        if self._groups:
            kwargs = {**kwargs, _worker.GROUPS: self._groups}
        handle = _manta.actor_start(handle_class(), self._code.name, self._fields, args, kwargs or None, captured,
                                     self._limit, self._is_concurrent())
        handle._methods, handle._class_name = self._limited(), self._code.name.split(".", 2)[-1]
        if "name" in self._fields:
            _code.put(_code.actor_key(handle._id), dumps((handle._methods, handle._class_name)))
        return handle

    def _limited(self):
        """What is known of the methods of an actor with these options."""
        more = {"stream_limit": self._stream_limit} if self._stream_limit is not None else {}
        if self._fields.get("max_pending_calls", 0) > 0:
            more["is_limited"] = True
        return {name: {**known, **more} for name, known in self._methods.items()} if more else self._methods

    def _is_concurrent(self):
        return bool(self._limit) or self._fields.get("max_concurrency", 1) > 1 or "concurrency_groups" in self._fields

    def __call__(self, *args, **kwargs):
        name = getattr(self, "__name__", "A")
        raise TypeError(f"{name} is a class of actors: {name}.remote() starts one")

    def __reduce__(self):
        captured = self._code.export() if _manta.is_initialized() else None
        return _class_at, (type(self), self._code.key, self._code.name, self._options, self._methods, self._is_async,
                           captured)

    def __repr__(self):
        return f"<class of actors {getattr(self, '__qualname__', '')}>"


def _class_at(cls, key, name, options, methods, is_async, captured):
    code = _Code(key, name, None)
    code.captured = captured
    out = cls(code, None, options, methods, is_async)
    out.__name__ = out.__qualname__ = name.split(".", 2)[-1]
    return out


def _options_of_actor(options, is_async):
    """(fields, how many coroutines may run at once, how far its streams together may be ahead)"""
    fields, stream_limit = _options.actor(options)
    return fields, fields.pop("max_concurrency", 1000) if is_async else 0, stream_limit


def _add_groups(fields, options, methods, is_async):
    """Sets the groups of an actor and of its methods. Of coroutines Python counts those that run, and the runtime lets one
    after the other begin: how many there may be of each group; None: the runtime counts."""
    groups = options.get("concurrency_groups")
    of_methods = {name: group for name, known in methods.items()
                  if (group := known.get("options", {}).get("concurrency_group"))}
    for name, group in of_methods.items():
        if group not in (groups or ()):
            raise ValueError(f"{name} is to run in the concurrency group {group}, which the class does not have")
    if of_methods:
        fields["method_groups"] = ",".join(f"py.{name}={group}" for name, group in of_methods.items())
    if not groups or not is_async:
        return None
    fields["concurrency_groups"] = ",".join(f"{name}=1" for name in groups)
    return dict(groups)


def get_actor(name, namespace=None):
    """The actor of that name. ValueError: there is none.

        handle = manta.get_actor("counter")
    """
    _ensure()
    handle = _manta.actor_find(handle_class(), name, namespace)
    try:
        handle._methods, handle._class_name = loads(_code.get(_code.actor_key(handle._id)))
    except Exception:
        pass  # of another program: anything may be called
    return handle


def kill(actor, *, no_restart=True):
    """Ends the actor's process at once.

        manta.kill(handle)
    """
    if not isinstance(actor, _manta.Actor):
        raise ValueError(f"kill() expects the handle of an actor, given {type(actor).__name__}")
    actor._kill(no_restart)


def exit_actor():
    """Ends the actor that this runs in, by an exception. Calls that run in it are finished, this one and those that
    wait fail, then its atexit functions run; it is not restarted.

        @manta.remote
        class A:
            def leave(self): manta.exit_actor()
    """
    if not _manta.is_actor():
        raise TypeError("exit_actor() is for methods of actors: there is none here")
    raise _worker.exit_actor()


def current_actor():
    """A handle of the actor that this runs in. RuntimeError: there is none.

        @manta.remote
        class A:
            def me(self): return manta.current_actor()
    """
    here = _manta.actor_here(handle_class())
    if here is None:
        raise RuntimeError("current_actor() is for methods of actors: there is none here")
    handle, instance = here
    if instance is not None:
        handle._methods, handle._class_name = _dialect.current.methods_of(type(instance)), type(instance).__name__
    return handle


def remote(*args, **options):
    """Makes a function or a class remote.

        @manta.remote
        def f(x): ...

        @manta.remote(num_cpus=2)
        class A: ...
    """
    if len(args) == 1 and not options and callable(args[0]):
        return _remote(args[0], {})
    if args or not options:
        raise TypeError("remote is a decorator: @manta.remote, or @manta.remote(num_cpus=2, ...)")
    return lambda what: _remote(what, options)


def _remote(what, options):
    return actor_class(what, **options) if isinstance(what, type) else remote_function(what, **options)


def remote_function(function, **options):
    return RemoteFunction._of(function, options)


def actor_class(cls, **options):
    return ActorClass._of(cls, options)


# ---- where one is ----

def context():
    """Where this runs: node, worker, task, actor, and what the call may use.

        manta.context()["task"]
    """
    here = _manta.context(_worker.deferred_here())
    here["function"] = _worker.shown(here["function"])
    return here


def node_info():
    """What the node has, what is free, which processes it consists of.

        manta.node_info()["total"]["cpu"]
    """
    return _manta.node_info()


# ---- what C asks for ----

def _prepare(function):
    _ensure()
    return None if function is None else function._prepare()


def _await_ref(ref):
    from manta import _aio
    return _aio.await_ref(ref)


def _future(ref):
    from manta import _aio
    return _aio.future(ref)


def _loose(ref):
    return _dialect.current.loose(ref)


def _stream(stream):
    return (_dialect.current.stream_class or ObjectRefGenerator)(stream)


_manta.set_hooks({
    "dump": _values.dump, "load": _values.load, "function": _worker.function, "failed": _worker.failed,
    "error": _failures.make, "prepare": _prepare, "await_ref": _await_ref, "future": _future,
    "start": _worker.start, "coroutine": _worker.coroutine, "reduce": _reduce_handle, "end": _worker.end,
    "limit": _worker.limit, "cancel": _worker.cancel, "leave": _worker.leave,
    "looped": _worker.looped, "method": _worker.method, "items": _streams.items,
    "stream": _stream, "how": _streams.how, "grant": _threads.grant, "apart": _worker.apart,
    "loose": _loose, "printed": _prints.show,
})
