"""ray.actor: what @ray.remote makes of a class, handles, and what is called inside an actor."""
from __future__ import annotations

import inspect
from typing import Any, Callable, Mapping, Optional

import manta
from manta import _core, _manta, _worker
from manta.ray import _capture, _devices, _options, _session
from manta.ray._ids import ActorID
from manta.ray._signature import arity, checked
from manta.ray.exceptions import ActorAlreadyExistsError
from manta.ray.remote_function import Refused, decorated


class ActorClassInheritanceException(TypeError):
    """An actor class cannot be inherited from: inherit from the plain class and decorate that."""


class ActorHandle(manta.ActorHandle):
    """A handle on an actor; its methods are called by `handle.method.remote(...)`.

    Equal handles are of the same actor. The actor ends with its last handle unless it is detached.
    """

    @property
    def _actor_id(self) -> ActorID:
        return ActorID(self.id.to_bytes(8, "big"))

    @property
    def _ray_actor_id(self) -> ActorID:
        return self._actor_id

    def __getattr__(self, name: str) -> Any:
        method = super().__getattr__(name)
        known = (self._methods or {}).get(name, {})
        remote = checked(method.remote, known.get("arity"))
        if "decorator" in known:
            remote = decorated(known["decorator"], remote)
        method = Method(method, remote)
        vars(self)[name] = method
        return method

    def __dir__(self) -> list[str]:
        return [*(self._methods or ()), "__ray_ready__", "__ray_call__", "__ray_terminate__"]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, manta.ActorHandle) and other.id == self.id

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.id)


class Method:
    """handle.method: called by .remote(...), which refuses arguments that do not fit."""

    def __init__(self, inner: Any, remote: Callable[..., Any]) -> None:
        self._inner = inner
        self.remote = remote

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a method of an actor runs in the actor's process: call it by actor.METHOD.remote(...)")

    def options(self, **given: Any) -> Any:
        """The method with other options."""
        for name in given:
            if name not in METHOD_OPTIONS and name != "name":
                raise ValueError(f"The keyword {name!r} is no option of a method; there are {', '.join(METHOD_OPTIONS)}")
        if "_num_objects_per_yield" in given:
            raise ValueError("_num_objects_per_yield is an option of the definition, and not of one call")
        return self._inner.options(**_method_options(given))

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("bind(): graphs of calls (ray.dag) are not part of manta.ray")

    def __reduce__(self) -> Any:
        return _same, (self._inner,)


def _same(inner: Any) -> Method:
    return Method(inner, inner.remote)


def _bound(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raises TypeError, as a plain call would, when the arguments do not fit."""
    try:
        signature.bind(None, *args, **kwargs)
    except TypeError as e:
        raise TypeError(f"The actor's constructor cannot be called so: {e}") from None


def _add_known(methods: dict[str, Any], cls: type) -> None:
    for name, known in methods.items():
        function = inspect.getattr_static(cls, name, None)
        if inspect.isfunction(function):
            known["arity"] = arity(function, is_method=True)
        if hasattr(function, "__ray_invocation_decorator__"):
            known["decorator"] = function.__ray_invocation_decorator__
        if known.get("is_generator"):   # never held back, unless it asks for that
            known["options"] = {"stream_window": -1, **known.get("options", {})}


def methods_of(cls: type) -> dict[str, Any]:
    """What a handle knows of the methods of a plain class."""
    out: dict[str, Any] = _core._methods_of(cls)
    _add_known(out, cls)
    return out


class _Metadata:
    """ActorClass.__ray_metadata__: what old programs look at."""

    def __init__(self, cls: type) -> None:
        self.class_name = cls.__qualname__.rpartition(".")[2] if "<locals>" not in cls.__qualname__ else cls.__name__
        self.modified_class = cls
        self.method_names = [name for name, _ in inspect.getmembers(cls, callable) if not name.startswith("__")]


class _Options:
    """A.options(...): the same class with other options."""

    def __init__(self, cls: "ActorClass", given: Mapping[str, Any]) -> None:
        self._cls = cls
        self._given = given

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        return self._cls._start(self._given, args, kwargs)

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("bind(): graphs of calls (ray.dag) are not part of manta.ray")


def _auto_init() -> None:
    from manta.ray import _worker as functions
    functions.auto_init()


def _started(inner: Any, given: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Starts an actor. That its name is taken is said here, and not by its first call."""
    try:
        return inner.remote(*args, **kwargs)
    except ActorAlreadyExistsError:
        raise ActorAlreadyExistsError(f"the name {given.get('name')!r} is already taken in its namespace: expected another, "
                                      "get_if_exists=True, or ray.get_actor()") from None


class ActorClass:
    """A class whose instances live in processes of their own.

    >>> @ray.remote
    ... class Counter:
    ...     def __init__(self):
    ...         self.n = 0
    ...     def add(self):
    ...         self.n += 1
    ...         return self.n
    >>> counter = Counter.remote()
    >>> ray.get(counter.add.remote())
    1
    """

    def __init__(self, cls: type, given: Mapping[str, Any]) -> None:
        self._cls = cls
        self._default_options = dict(given)
        self._inner = self._make(given)
        self._signature: Optional[inspect.Signature] = None
        self.__ray_metadata__ = _Metadata(cls)
        self.__ray_actor_class__ = cls
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            self.__dict__[name] = getattr(cls, name, None)

    def _make(self, given: Mapping[str, Any]) -> Any:
        try:
            options = _options.of_actor(given)
        except NotImplementedError as e:
            return Refused(e)
        cls = _devices.of_class(self._cls) if _devices.are_wanted(given) else self._cls
        if "placement_group" in options and _capture.is_wanted(given):
            cls = _capture.of_class(cls, options["placement_group"])
        out = _core.actor_class(cls, **options)
        _add_known(out._methods, self._cls)
        return out

    def __mro_entries__(self, bases: Any) -> Any:
        raise ActorClassInheritanceException(
            f"{self._cls.__name__} is an actor class. Inheriting from actor classes is not currently supported. "
            "Inherit from the plain class, and decorate the class that inherits.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = self._cls.__name__
        raise TypeError(f"{name} is an actor class, which cannot be instantiated directly: {name}.remote(...) starts an actor")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_cls" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["_cls"], name)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Starts an actor and returns a handle at once."""
        return self._start({}, args, kwargs)

    def options(self, **given: Any) -> _Options:
        """The class with other options, for one actor or many."""
        _options.check(given, "actor", in_options=True)
        return _Options(self, given)

    def _start(self, given: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        merged = {**self._default_options, **given}
        if "__init__" in dir(self._cls) and self._cls.__init__ is not object.__init__:
            if self._signature is None:
                self._signature = inspect.signature(self._cls.__init__)
            _bound(self._signature, args, kwargs)
        elif args or kwargs:
            raise TypeError(f"{self._cls.__name__} has no constructor of its own and takes no arguments")
        if isinstance(self._inner, Refused):
            self._inner.remote()
        _auto_init()
        return _started(self._with(given, merged), merged, args, kwargs)

    def _with(self, given: Mapping[str, Any], merged: Mapping[str, Any]) -> Any:
        """What is started: with options of one actor, or of a program whose actors differ from what the class says."""
        inherited = None if _capture.is_placed(merged) else _capture.group()
        if inherited is not None:
            return self._inner.options(**{**_options.of_actor(merged), "placement_group": inherited, "place_cpus": 0})
        if not given and _session.get("lifetime") != "detached" and not _session.get("environment"):
            return self._inner
        if (_devices.are_wanted(merged) and not _devices.are_wanted(self._default_options)) or _capture.is_wanted(merged):
            return self._make(merged)
        return self._inner.options(**_options.of_actor(merged, self._cls.__qualname__))

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("bind(): graphs of calls (ray.dag) are not part of manta.ray")

    def __dir__(self) -> list[str]:
        return [*self.__ray_metadata__.method_names, "bind", "options", "remote"]

    def __reduce__(self) -> Any:
        return _rebuild, (self._inner, self._default_options, self.__ray_metadata__.class_name)

    def __repr__(self) -> str:
        return f"ActorClass({self._cls.__name__})"


class _Read(ActorClass):
    """An actor class that came from another process."""

    def __init__(self, inner: Any, given: Mapping[str, Any], name: str) -> None:
        self._inner = inner
        self._default_options = dict(given)
        self._signature = None
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_inner" not in self.__dict__:
            raise AttributeError(name)
        cls = self.__dict__.get("_cls")
        if cls is None:         # fetched when something of it is asked for
            code = self._inner._code
            cls = self.__dict__["_cls"] = _worker.function(code.name, code.export())
        return getattr(cls, name)

    def _start(self, given: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        merged = {**self._default_options, **given}
        is_as_defined = not given and _session.get("lifetime") != "detached"
        inner = self._inner if is_as_defined else self._inner.options(**_options.of_actor(merged))
        inherited = None if _capture.is_placed(merged) else _capture.group()
        if inherited is not None:
            inner = inner.options(placement_group=inherited, place_cpus=0)
        return _started(inner, merged, args, kwargs)

    def __dir__(self) -> list[str]:
        return ["bind", "options", "remote"]

    def __repr__(self) -> str:
        return f"ActorClass({self.__name__})"


def _rebuild(inner: Any, given: Mapping[str, Any], name: str) -> ActorClass:
    return _Read(inner, given, name)


def exit_actor() -> None:
    """Ends the actor that calls it, after this call; handlers of atexit run."""
    if not _manta.is_actor():
        raise TypeError("exit_actor API is called on a non-actor worker: it is for methods of actors")
    manta.exit_actor()


METHOD_OPTIONS = ("num_returns", "concurrency_group", "max_task_retries", "retry_exceptions", "enable_task_events",
                  "tensor_transport", "_generator_backpressure_num_objects", "_num_objects_per_yield")


def method(*args: Any, **given: Any) -> Callable[[Any], Any]:
    """Options of one method of an actor.

    >>> @ray.remote
    ... class A:
    ...     @ray.method(num_returns=2)
    ...     def two(self):
    ...         return 1, 2
    """
    if args or not given:
        raise ValueError("@ray.method says nothing without an option, such as num_returns=2")
    for name in given:
        if name not in METHOD_OPTIONS:
            raise ValueError(f"The keyword {name!r} is no option of a method; there are {', '.join(METHOD_OPTIONS)}")
    return manta.method(**_method_options(given))


def _method_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of manta.method()."""
    for wrong in (_options.wrong_backpressure(given.get("_generator_backpressure_num_objects")),
                  _options.wrong_group(given.get("_num_objects_per_yield"))):
        if wrong:
            raise ValueError(wrong)
    out = {k: v for k, v in given.items()
           if k in ("num_returns", "max_task_retries", "retry_exceptions", "concurrency_group", "name") and v is not None}
    if given.get("num_returns") == "streaming" or any(n in given for n in ("_generator_backpressure_num_objects",
                                                                           "_num_objects_per_yield")):
        out.update(_options.of_generator(given))
    return out
