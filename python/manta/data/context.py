"""How datasets are executed: sizes of blocks, and how many may be on their way."""
from __future__ import annotations

import dataclasses

__all__ = ["DataContext"]


@dataclasses.dataclass
class DataContext:
    """What holds for datasets that are made from now on.

        manta.data.DataContext.get_current().target_max_block_size = 1 << 20

    target_max_block_size: bytes that a block has at most, if its rows are smaller.
    blocks_in_flight, bytes_in_flight: what one execution may have made and not yet handed out; the lesser counts, and
    one block at least for each process. parallelism: processes that work at once; 0: as many as the node has processors.
    """
    target_max_block_size: int = 16 << 20
    blocks_in_flight: int = 16
    bytes_in_flight: int = 256 << 20
    parallelism: int = 0

    @staticmethod
    def get_current() -> DataContext:
        """The one that new datasets copy."""
        return _current

    def room(self) -> int:
        """How many blocks may be on their way."""
        return max(1, min(self.blocks_in_flight, self.bytes_in_flight // max(self.target_max_block_size, 1)))


_current = DataContext()
