"""ray.remote_function: what @ray.remote makes of a function."""
from __future__ import annotations

import inspect
from typing import Any, Callable, Mapping

import manta
from manta import _core
from manta.ray import _devices, _options
from manta.ray._signature import arity, checked


class DynamicObjectRefGenerator:
    """What num_returns="dynamic" gives: references to all that a generator yielded, once it has ended."""

    def __init__(self, refs: list[Any]) -> None:
        self._refs = refs

    def __iter__(self) -> Any:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)


def _collected(function: Callable[..., Any]) -> Callable[..., Any]:
    """The generator function as one that returns references to what it yields."""
    def collect(*args: Any, **kwargs: Any) -> DynamicObjectRefGenerator:
        return DynamicObjectRefGenerator([manta.put(item) for item in function(*args, **kwargs)])
    collect.__name__, collect.__qualname__ = function.__name__, function.__qualname__
    collect.__module__, collect.__doc__ = function.__module__, function.__doc__
    return collect


class Refused:
    """In the place of what would be called with options that are not here: a call says so, the definition does not."""

    def __init__(self, error: NotImplementedError) -> None:
        self._text = str(error)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(self._text)

    def options(self, **given: Any) -> Any:
        raise NotImplementedError(self._text)


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
        self.remote = self._decorated(checked(self._inner.remote, self._arity))
        self._function_name = f"{function.__module__}.{function.__qualname__}"
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            self.__dict__[name] = getattr(function, name, None)
        self.__signature__ = inspect.signature(function)
        self.__wrapped__ = function

    def _make(self, given: Mapping[str, Any]) -> Any:
        options = _options.of_task(given)
        function = self._function
        if given.get("num_returns") == "dynamic":
            function = _collected(function)
        elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            options.setdefault("num_returns", "streaming")
        if given.get("num_gpus"):
            function = _devices.of_function(function)
        return _core.remote_function(function, **options)

    def _decorated(self, remote: Callable[..., Any]) -> Callable[..., Any]:
        """What a function that carries a decorator of its calls is called by."""
        decorator = getattr(self._function, "__ray_invocation_decorator__", None)
        if decorator is None:
            return remote
        invocation = decorator(lambda args, kwargs: remote(*args, **kwargs))
        return lambda *args, **kwargs: invocation(args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"Remote functions cannot be called directly. Instead of running '{self._function.__name__}()', "
                        f"try '{self._function.__name__}.remote()'.")

    def options(self, **given: Any) -> _Options:
        """The function with other options, for one call or many."""
        given = _options.renamed(given)
        _options.check(given, "task", in_options=True)
        merged = {**self._default_options, **given}
        if merged.get("num_returns") == "dynamic" or (given.get("num_gpus") and not self._default_options.get("num_gpus")):
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
        self.remote = checked(inner.remote, known)
        self.__name__ = name.rpartition(".")[2]

    def options(self, **given: Any) -> _Options:
        given = _options.renamed(given)
        _options.check(given, "task", in_options=True)
        return _Options(self._inner.options(**_options.of_task(given)), self._arity)
