"""How datasets are executed: sizes of blocks, and how many may be on their way."""
from __future__ import annotations

import copy as _copy
import dataclasses
import math
from typing import Any, Optional

__all__ = ["DataContext", "ExecutionOptions", "ExecutionResources"]


@dataclasses.dataclass
class ExecutionResources:
    """Amounts of what an execution uses; None: not said, which counts as nothing.

        ExecutionResources(cpu=2)
    """
    cpu: Optional[float] = None
    gpu: Optional[float] = None
    object_store_memory: Optional[float] = None
    memory: Optional[float] = None

    @classmethod
    def zero(cls) -> ExecutionResources:
        """Nothing of anything."""
        return cls(0.0, 0.0, 0.0, 0.0)

    @classmethod
    def inf(cls) -> ExecutionResources:
        """As much as there is."""
        return cls(math.inf, math.inf, math.inf, math.inf)

    @classmethod
    def for_limits(cls, cpu: Optional[float] = None, gpu: Optional[float] = None, object_store_memory: Optional[float] = None,
                   memory: Optional[float] = None) -> ExecutionResources:
        """Limits: what is not said is not limited."""
        return cls(*(math.inf if v is None else v for v in (cpu, gpu, object_store_memory, memory)))

    def copy(self, **changes: Any) -> ExecutionResources:
        """The same with other amounts of some."""
        return dataclasses.replace(self, **{k: v for k, v in changes.items() if v is not None})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExecutionResources):
            return NotImplemented
        return all((getattr(self, f.name) or 0) == (getattr(other, f.name) or 0) for f in dataclasses.fields(self))

    __hash__ = None         # type: ignore[assignment]  # it may be changed


@dataclasses.dataclass
class ExecutionOptions:
    """How a dataset is executed.

        DataContext.get_current().execution_options.resource_limits = ExecutionResources.for_limits(cpu=2)

    resource_limits: of processors, so many processes work at once at most. The others are accepted: rows keep their order in
    any case, an execution reserves nothing, and there is one host.
    """
    resource_limits: Optional[ExecutionResources] = None
    exclude_resources: Optional[ExecutionResources] = None
    preserve_order: bool = False
    actor_locality_enabled: bool = True
    locality_with_output: Any = False
    verbose_progress: bool = False

    def __post_init__(self) -> None:
        for name, what in (("resource_limits", self.resource_limits), ("exclude_resources", self.exclude_resources)):
            if what is not None and not isinstance(what, ExecutionResources):
                raise ValueError(f"{name} is {type(what).__name__}, expected ExecutionResources")
        self.resource_limits = self.resource_limits or ExecutionResources.for_limits()
        self.exclude_resources = self.exclude_resources or ExecutionResources.zero()

    def is_resource_limits_default(self) -> bool:
        """Whether nothing is limited."""
        return self.resource_limits == ExecutionResources.for_limits()

    def copy(self) -> ExecutionOptions:
        """Another of the same options."""
        return _copy.deepcopy(self)


@dataclasses.dataclass
class DataContext:
    """What holds for datasets that are made from now on.

        manta.data.DataContext.get_current().target_max_block_size = 1 << 20

    target_max_block_size: bytes that a block has at most, if its rows are smaller.
    blocks_in_flight, bytes_in_flight: what one execution may have made and not yet handed out; the lesser counts, and
    one block at least for each process. parallelism: processes that work at once; 0: as many as the node has processors.
    execution_options: limits. set_config() keeps values of the program's own, which loops of trainers find again; a function of
    map_batches() and the like runs in a process that has not been told of them.
    """
    target_max_block_size: int = 16 << 20
    blocks_in_flight: int = 16
    bytes_in_flight: int = 256 << 20
    parallelism: int = 0
    execution_options: ExecutionOptions = dataclasses.field(default_factory=ExecutionOptions)
    _configs: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    def copy(self) -> DataContext:
        """Another that holds the same."""
        return dataclasses.replace(self, execution_options=self.execution_options.copy(), _configs=dict(self._configs))

    def get_config(self, key: str, default: Any = None) -> Any:
        """What set_config() was given.

            DataContext.get_current().get_config("folder")
        """
        return self._configs.get(key, default)

    def set_config(self, key: str, value: Any) -> None:
        """Keeps a value by its name.

            DataContext.get_current().set_config("folder", "/data")
        """
        self._configs[key] = value

    def remove_config(self, key: str) -> None:
        """Forgets a value."""
        self._configs.pop(key, None)

    @staticmethod
    def get_current() -> DataContext:
        """The one that new datasets copy."""
        return _current

    def room(self) -> int:
        """How many blocks may be on their way."""
        return max(1, min(self.blocks_in_flight, self.bytes_in_flight // max(self.target_max_block_size, 1)))


    def most_at_once(self, processors: int) -> int:
        """How many processes work at once on a node with so many processors."""
        wanted = self.parallelism or processors
        limit = (self.execution_options.resource_limits or ExecutionResources.inf()).cpu
        return wanted if limit is None or limit == math.inf else max(1, min(wanted, int(limit)))

    @staticmethod
    def _set_current(context: DataContext) -> None:
        """In a rank of a trainer: the driver's."""
        for field in dataclasses.fields(context):
            setattr(_current, field.name, getattr(context, field.name))


_current = DataContext()
