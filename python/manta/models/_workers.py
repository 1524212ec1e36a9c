"""fit(workers=N) as the program sees it: starts the helper (_helper), sends it the job, and calls the callbacks."""
from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

from manta import _manta
from manta.models._dataset import Dataset
from manta.models._helper import Channel

if TYPE_CHECKING:
    from manta.models._training import Training

_ERRORS = {e.__name__: e for e in (ValueError, TypeError, RuntimeError, OSError, FileNotFoundError, FileExistsError, MemoryError,
                                   TimeoutError)}
_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from manta.models._helper import main; main()"


class Lent:
    """Memory that the helper gets, as descriptors."""

    def __init__(self) -> None:
        self.fds: list[int] = []

    def add(self, buffer: Any) -> int:
        fd = os.memfd_create("manta-samples")
        self.fds.append(fd)
        view = memoryview(buffer).cast("B") if memoryview(buffer).nbytes else memoryview(b"")
        while view:
            view = view[os.write(fd, view):]
        return fd

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()


def describe(data: Dataset, lent: Lent) -> list[Any]:
    """A dataset so that the helper can make it."""
    made = data._made
    if made[0] == "words":
        return list(made)
    if made[0] == "arrays":
        return ["arrays", [[name, lent.add(a), dtype, list(shape)] for name, a, dtype, shape in made[1]]]
    _, of, name, options = made
    return ["stage", describe(of, lent), name,
            [["dataset", describe(o, lent)] if isinstance(o, Dataset) else o for o in options]]


class Remote:
    """A fit that another process computes. While it runs the model's state is there; a callback that asks for it has it brought."""

    def __init__(self, session: _manta.Session):
        self.session = session
        self.thread = threading.get_ident()
        self.in_hook = self.is_here = False
        self.channel: Channel | None = None
        self.process: subprocess.Popen[bytes] | None = None

    # ---- the state ----

    def look(self) -> None:
        """Somebody wants to see the model: a callback of ours may."""
        if threading.get_ident() != self.thread or not self.in_hook:
            raise RuntimeError("the model is computing in another thread; expected one thread at a time")
        if self.is_here or self.channel is None:
            return
        self.channel.send({"save": True})
        if self.channel.receive() is None:
            raise self._died()
        self.is_here = True
        self.session.load(self.path, False)

    def _died(self) -> RuntimeError:
        assert self.process is not None
        code = self.process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        return RuntimeError(f"the process that trains the model {how}; the model is as it was before fit()")

    # ---- running ----

    def run(self, job: dict[str, Any], lent: Lent, listeners: list[tuple[Any, ...]]) -> None:
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryDirectory(prefix="manta-") as folder, ours, theirs:
            self.path = job["state"] = os.path.join(folder, "state.safetensors")
            self.session.save(self.path)
            root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, root, str(theirs.fileno()), str(os.getpid())], stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *lent.fds), start_new_session=True)
            theirs.close()
            lent.close()
            self.channel = Channel(ours)
            try:
                self._serve(job, listeners)
            finally:
                self.process.kill()     # it has said its last word, or none
                self.process.wait()

    def _serve(self, job: dict[str, Any], listeners: list[tuple[Any, ...]]) -> None:
        assert self.channel is not None and self.process is not None
        try:
            self.channel.send(job)
            last = self._listen(listeners)
        except BaseException:
            self._stop()
            raise
        self.session.load(self.path, False)
        if "error" in last:
            raise _ERRORS.get(last["error"], RuntimeError)(last["text"])

    def _listen(self, listeners: list[tuple[Any, ...]]) -> dict[str, Any]:
        """Calls callbacks until the last word."""
        assert self.channel is not None
        while True:
            said = self.channel.receive()
            if said is None:
                raise self._died()
            if "hook" not in said:
                return said
            self.in_hook, self.is_here = True, False
            logs = said["logs"]
            stop = listeners[said["which"]][0](said["hook"], said["epoch"], said["batch"], said["steps"], logs)
            if self.is_here:
                self.session.save(self.path)
            self.in_hook = False
            self.channel.send({"stop": stop, "logs": logs, "load": self.is_here})

    def _stop(self) -> None:
        """Ends it after the step it is in, and takes the state of then."""
        assert self.channel is not None and self.process is not None
        if self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)
        while True:
            said = self.channel.receive()
            if said is None:
                return
            if "done" in said or "error" in said:
                self.session.load(self.path, False)
                return


def fit(model: Training, session: _manta.Session, workers: int, config: str, settings: dict[str, Any], data: Dataset,
        validation: Dataset | None, listeners: list[tuple[Any, ...]], options: list[Any], class_weight: list[Any] | None) -> None:
    """Trains in so many processes; the session then has the state that they came to."""
    lent, remote = Lent(), Remote(session)
    try:
        job = {"config": config,
               "session": [model.seed, settings.get("threads", 0), workers, settings.get("shards", 0), settings.get("kernels"),
                           settings.get("precision"), settings.get("device"), settings.get("debug", False)],
               "data": describe(data, lent), "validation": None if validation is None else describe(validation, lent),
               "class_weight": class_weight and [[lent.add(a), dtype, list(shape)] for a, dtype, shape in class_weight],
               "callbacks": [list(c) if isinstance(c[0], str) else [None, c[1]] for c in listeners], "options": options,
               "max_failures": 0}
        model._remote = remote
        remote.run(job, lent, listeners)
    finally:
        model._remote = None
        lent.close()
