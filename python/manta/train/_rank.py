"""A rank: the actor in which a loop runs.

start() comes first and sets variables, logs and the framework; only then is the loop read by run(), since reading it may
import what looks at them.
"""
from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Callable, Iterable, Mapping, Optional

from manta import _core as _plain_core
from manta.train import _channel, _session
from manta.train._backend import Backend
from manta.train.checkpoint import Checkpoint
from manta.train.context import Place

_core: Any = _plain_core            # which has no types


class Log:
    """A text stream whose lines go where they went, and to the rank's file in the run's folder as well, while that has room:
    a loop does not fail because of what it prints."""

    def __init__(self, stream: Any, file: int) -> None:
        self._stream, self._file = stream, file

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            os.write(self._file, text.encode(errors="replace"))
        return int(self._stream.write(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _keep_output(place: Place) -> None:
    folder = os.path.join(place.run_path, "log")
    os.makedirs(folder, exist_ok=True)
    file = os.open(os.path.join(folder, f"rank-{place.rank}.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
                   0o600)
    sys.stdout, sys.stderr = Log(sys.stdout, file), Log(sys.stderr, file)


class Rank:
    """An actor of one attempt."""

    def __init__(self) -> None:
        self._session: Optional[_session.Session] = None
        self._backend = Backend()

    def start(self, place: Place, backend: Backend, socket: str, token: bytes, parts: str,
              checkpoint: Optional[Checkpoint]) -> int:
        """Makes this process a rank; its process number."""
        _keep_output(place)
        self._backend = backend
        connection = _channel.connect(socket, place.rank, token)
        session = _session.Session(place, connection, parts, checkpoint)
        backend.start(place)
        self._session = session             # else the loop would run without what could not be started
        return os.getpid()

    def execute(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Runs a function of a backend's."""
        return function(*args, **kwargs)

    def run(self, task: tuple[Callable[..., Any], Any, bool], shards: Mapping[str, Any], data_context: Any = None) -> Any:
        """Runs the loop; what rank 0's returns, if it can be sent: that it cannot is no failure of a training that is done."""
        if self._session is None:
            raise RuntimeError("the rank could not be started")
        if data_context is not None:
            data_context._set_current(data_context)
        out = run_loop(self._session, self._backend, task, shards)
        if out is None or self._session.place.rank:
            return None
        try:
            _core.put(out)              # as what this returns will be
        except Exception as e:  # noqa: BLE001  whatever a value's own code raises
            print(f"manta: what the loop returned cannot be sent, and is not in the result ({type(e).__name__}: {e})",
                  file=sys.stderr)
            return None
        return out


def run_loop(session: _session.Session, backend: Backend, task: tuple[Callable[..., Any], Any, bool],
             shards: Mapping[str, Any]) -> Any:
    loop, config, takes_config = task
    session.begin(shards)
    before = _session.set_current(session)          # a loop of this process may train, too
    try:
        out = loop(config) if takes_config else loop()
        session.settle()
        backend.end(session.place)
        return out
    finally:
        if "manta._strategy._group" in sys.modules:
            sys.modules["manta._strategy._group"].leave()       # a rank that waits for this one is told
        _session.set_current(before)
        sys.stdout.flush()
        sys.stderr.flush()
        session.close()
