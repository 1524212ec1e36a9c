"""ray.remote_function: what @ray.remote makes of a function."""
from __future__ import annotations

import inspect
from typing import Any, Callable, Mapping

from manta import _core, _manta
from manta.ray import _capture, _devices, _options
from manta.ray._signature import arity, checked


class Refused:
    """In the place of what would be called with options that are not here: a call says so, the definition does not."""

    def __init__(self, error: NotImplementedError) -> None:
        self._text = str(error)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(self._text)

    def options(self, **given: Any) -> Any:
        raise NotImplementedError(self._text)


def _remote(inner: Any, given: Mapping[str, Any]) -> Callable[..., Any]:
    """inner.remote; in a worker a call may inherit the placement group of the one that makes it."""
    remote: Callable[..., Any] = _capture.inheriting(inner, given) if _manta.is_worker() else inner.remote
    return remote


def decorated(decorator: Callable[..., Any], remote: Callable[..., Any]) -> Callable[..., Any]:
    """`remote`, called through a decorator of calls (__ray_invocation_decorator__)."""
    invocation = decorator(lambda args, kwargs: remote(*args, **kwargs))
    return lambda *args, **kwargs: invocation(args, kwargs)


class _Options:
    """f.options(...): the same function, called otherwise."""

    def __init__(self, inner: Any, arity: Any) -> None:
        self.remote = checked(inner.remote, arity)

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("bind(): graphs of calls (ray.dag) are not part of manta.ray")


class RemoteFunction:
    """A function that runs in workers.

    >>> @ray.remote
    ... def add(a, b):
    ...     return a + b
    >>> ray.get(add.remote(1, 2))
    3
    """

    def __init__(self, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
        self._function = function
        self._default_options = dict(given)
        try:
            self._inner = self._make(given)
        except NotImplementedError as e:
            self._inner = Refused(e)
        self._arity = arity(function)
        self.remote = self._decorated(checked(_remote(self._inner, given), self._arity))
        self.__module__ = getattr(function, "__module__", None) or "builtins"
        self.__qualname__ = getattr(function, "__qualname__", type(function).__name__)      # a partial has none
        self.__name__ = getattr(function, "__name__", self.__qualname__)
        self.__doc__ = getattr(function, "__doc__", None)
        self._function_name = f"{self.__module__}.{self.__qualname__}"
        try:
            self.__signature__ = inspect.signature(function)
        except ValueError:      # of a function in C that does not say
            pass
        self.__wrapped__ = function

    def _make(self, given: Mapping[str, Any]) -> Any:
        options = _options.of_task(given)
        function = self._function
        is_generator = inspect.isgeneratorfunction(function)
        if given.get("num_returns") in ("dynamic", "streaming") and not is_generator:
            raise ValueError(f"num_returns=\"{given['num_returns']}\" can only be used with generator functions, and "
                             f"{getattr(function, '__qualname__', function)} is none")
        if is_generator:
            options.setdefault("num_returns", "streaming")
        if _devices.are_wanted(given):
            function = _devices.of_function(function)
        if "placement_group" in options and _capture.is_wanted(given):
            function = _capture.of_function(function, options["placement_group"])
        return _core.remote_function(function, **options)

    def _decorated(self, remote: Callable[..., Any]) -> Callable[..., Any]:
        """What a function that carries a decorator of its calls is called by."""
        decorator = getattr(self._function, "__ray_invocation_decorator__", None)
        return remote if decorator is None else decorated(decorator, remote)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self.__name__} is a remote function: {self.__name__}.remote(...) calls it")

    def options(self, **given: Any) -> _Options:
        """The function with other options, for one call or many."""
        given = _options.renamed(given)
        _options.check(given, "task", in_options=True)
        merged = {**self._default_options, **given}
        if "_num_objects_per_yield" in given:
            raise ValueError("_num_objects_per_yield is an option of the definition, and not of one call")
        if (_devices.are_wanted(given) and not _devices.are_wanted(self._default_options)) or _capture.is_wanted(merged):
            return _Options(self._make(merged), self._arity)
        return _Options(self._inner.options(**_options.of_task(merged, self.__qualname__)), self._arity)

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("bind(): graphs of calls (ray.dag) are not part of manta.ray")

    def __reduce__(self) -> Any:
        return _Read, (self._inner, self._default_options, self._function_name, self._arity)

    def __repr__(self) -> str:
        return f"RemoteFunction({self._function_name})"


class _Read(RemoteFunction):
    """A remote function that came from another process: its body is fetched where it runs."""

    def __init__(self, inner: Any, given: Mapping[str, Any], name: str, known: Any) -> None:
        self._inner = inner
        self._function = inner
        self._default_options = dict(given)
        self._function_name = name
        self._arity = known
        self.remote = checked(_remote(inner, given), known)
        self.__name__ = name.rpartition(".")[2]

    def options(self, **given: Any) -> _Options:
        given = _options.renamed(given)
        _options.check(given, "task", in_options=True)
        if _capture.is_wanted(given):
            raise NotImplementedError("placement_group_capture_child_tasks=True is for functions where they are defined, and "
                                      f"{self._function_name} came from another process")
        return _Options(self._inner.options(**_options.of_task(given)), self._arity)
