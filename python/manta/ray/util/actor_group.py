"""ray.util.actor_group: several actors that are called as one."""
from __future__ import annotations

import warnings
from typing import Any, Optional

import manta.ray as ray


class _Method:
    def __init__(self, group: "ActorGroup", name: str) -> None:
        self._group, self._name = group, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"a method of a group runs in its actors: call it by group.{self._name}.remote(...)")

    def remote(self, *args: Any, **kwargs: Any) -> list[Any]:
        return [getattr(actor, self._name).remote(*args, **kwargs) for actor in self._group.actors]


class ActorGroup:
    """Actors of one class; a method called on the group is called on each.

    >>> group = ActorGroup(Counter, num_actors=2)
    >>> ray.get(group.add.remote())
    """

    def __init__(self, actor_cls: type, num_actors: int = 1, num_cpus_per_actor: float = 1,
                 num_gpus_per_actor: float = 0, resources_per_actor: Optional[dict[str, float]] = None,
                 init_args: tuple[Any, ...] = (), init_kwargs: Optional[dict[str, Any]] = None) -> None:
        warnings.warn("ActorGroup is deprecated: use ray.util.multiprocessing.Pool instead", DeprecationWarning,
                      stacklevel=2)
        if num_actors <= 0:
            raise ValueError(f"num_actors={num_actors}, expected 1 or more")
        if num_cpus_per_actor < 0 or num_gpus_per_actor < 0:
            raise ValueError("num_cpus_per_actor or num_gpus_per_actor is negative, expected 0 or more")
        self._cls, self._n = actor_cls, num_actors
        self._remote = ray.remote(num_cpus=num_cpus_per_actor, num_gpus=num_gpus_per_actor,
                                  resources=resources_per_actor)(actor_cls)
        self._args, self._kwargs = init_args, init_kwargs or {}
        self.actors: list[Any] = []
        self.start()

    def __getattr__(self, name: str) -> _Method:
        if name.startswith("_") or "actors" not in self.__dict__:
            raise AttributeError(name)
        if not self.actors:
            raise RuntimeError("the group was shut down: start() begins it anew")
        if not callable(getattr(self._cls, name, None)):
            raise AttributeError(f"{self._cls.__name__} has no method {name}")
        return _Method(self, name)

    def __len__(self) -> int:
        return len(self.actors)

    def __getitem__(self, i: int) -> Any:
        return self.actors[i]

    def start(self) -> None:
        """Starts the actors. RuntimeError: they run."""
        if self.actors:
            raise RuntimeError("the group has its actors already: shutdown() ends them, then start() begins it anew")
        self.actors = [self._remote.remote(*self._args, **self._kwargs) for _ in range(self._n)]

    def shutdown(self, patience_s: float = 5) -> None:
        """Ends the actors: those that have not ended by themselves in that time are killed."""
        if patience_s > 0:
            asked = [a.__ray_terminate__.remote() for a in self.actors]
            ray.wait(asked, num_returns=len(asked), timeout=patience_s)
        for actor in self.actors:
            ray.kill(actor)
        self.actors = []

    @property
    def actor_metadata(self) -> list[Any]:
        return list(ray.get([a.get_actor_metadata.remote() for a in self.actors]))
