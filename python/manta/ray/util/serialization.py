"""ray.util: serializers of the user's own."""
from __future__ import annotations

import copyreg
from typing import Any, Callable

import cloudpickle

_reducers: dict[type, Any] = {}


def register_serializer(cls: type, *, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]) -> None:
    """Objects of the class travel as what `serializer` makes of them.

        ray.util.register_serializer(C, serializer=lambda c: 1, deserializer=lambda s: C())

    Holds in this process. A worker that sends such objects must register the class for itself.
    """
    def reduce(obj: Any) -> Any:
        return _rebuild, (cloudpickle.dumps(deserializer), serializer(obj))
    _reducers[cls] = reduce
    copyreg.pickle(cls, reduce)
    cloudpickle.CloudPickler.dispatch[cls] = reduce        # what its own table would say otherwise


def _rebuild(deserializer: bytes, state: Any) -> Any:
    return cloudpickle.loads(deserializer)(state)


def deregister_serializer(cls: type) -> None:
    """Takes register_serializer() back; a class that has none is left as it is.

        ray.util.register_serializer(C, serializer=lambda c: 1, deserializer=lambda s: C())
        ray.util.deregister_serializer(C)
    """
    if _reducers.pop(cls, None) is not None:
        copyreg.dispatch_table.pop(cls, None)
        cloudpickle.CloudPickler.dispatch.pop(cls, None)
