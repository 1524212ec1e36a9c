"""What all processes of a program know of it: put once by init(), fetched by a worker that asks."""
from __future__ import annotations

import pickle
from typing import Any

from manta import _code, _manta

KEY = b"manta.ray.sessio"       # 16 bytes, under which it lies in the node
_known: dict[str, Any] = {}
_life = 0


def put(**session: Any) -> None:
    """In the driver, when the node runs."""
    global _known, _life
    _known, _life = session, _manta.life()
    _code.put(KEY, pickle.dumps(session))


def get(name: str, otherwise: Any = None) -> Any:
    """What init() was told; `otherwise` in a program that began without it."""
    global _known, _life
    if not _manta.is_initialized():
        return otherwise
    if _life != _manta.life():
        _life = _manta.life()
        try:
            _known = pickle.loads(_code.get(KEY))
        except Exception:       # nobody put it
            _known = {}
    return _known.get(name, otherwise)
