"""fit(workers=N) in a process of its own.

The workers of a training are forks of the process that calls manta_fit(). A Python program has threads, its own and those of
NumPy and others, whose locks a fork would inherit as they are; so the program is never forked. It starts this one anew
(exec), which has imported nothing but manta and has one thread, and which the library forks:

    the program ── socket ── helper ── fork ── worker 0, worker 1, ...
      callbacks               manta_fit()

Arrays go over as descriptors of memory, once. The state (weights, optimizer) lies in a file that both know: the program
writes it before, the helper at the end, and around a callback that looks at the model, or changes it.

Messages are lines of JSON. The program sends one job; then the helper speaks: {"hook": ...} for each call of a callback of Python's,
which is answered with {"stop", "logs", "load"}, before which the program may ask {"save": true}; and at the end {"done": true} or
{"error": kind, "text": text}. SIGINT ends the training after a step, or in a hook. The helper dies with the program.
"""
from __future__ import annotations

import json
import mmap
import os
import signal
import socket
import sys
from typing import Any

from manta import _manta


class Channel:
    """Lines of JSON over a socket."""

    def __init__(self, at: socket.socket):
        self.at, self.lines = at, at.makefile("rb")

    def send(self, message: dict[str, Any]) -> None:
        """Sends; that the other side has ended is seen by receive()."""
        try:
            self.at.sendall(json.dumps(message).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            pass

    def receive(self) -> dict[str, Any] | None:
        """The next message; None: the other side has ended."""
        try:
            line = self.lines.readline()
        except ConnectionResetError:
            return None
        return json.loads(line) if line.endswith(b"\n") else None


def make_dataset(made: list[Any]) -> _manta.Dataset:
    """A dataset as the program has described it (_workers.describe)."""
    kind = made[0]
    if kind == "words":
        return _manta.Dataset(made[1])
    if kind == "arrays":
        return _manta.Dataset([(name, _memory(fd), dtype, tuple(shape)) for name, fd, dtype, shape in made[1]])
    _, of, name, options = made
    given = [make_dataset(o[1]) if isinstance(o, list) and o[:1] == ["dataset"] else o for o in options]
    return getattr(make_dataset(of), name)(*given)  # type: ignore[no-any-return]


def _memory(fd: int) -> Any:
    size = os.fstat(fd).st_size
    return mmap.mmap(fd, size, prot=mmap.PROT_READ) if size else b""


class Helper:
    """One fit."""

    def __init__(self, channel: Channel, job: dict[str, Any]):
        self.channel, self.job, self.path = channel, job, job["state"]
        self.is_fitting = False
        settings: tuple[Any, ...] = (_manta.Model(job["config"], None), True, *job["session"], True)
        self.session = _manta.Session(*settings)
        self.session.load(self.path, False)

    def ask(self, which: int, hook: str, epoch: int, batch: int, steps: int, logs: dict[str, float]) -> str | None:
        """Has the program call one of its callbacks."""
        self.channel.send({"which": which, "hook": hook, "epoch": epoch, "batch": batch, "steps": steps, "logs": logs})
        while True:
            said = self.channel.receive()
            if said is None:
                os._exit(1)         # nobody is left to tell
            if not said.get("save"):
                break
            self.session.save(self.path)
            self.channel.send({"saved": True})
        if said.get("load"):
            self.session.load(self.path, False)
        logs.update(said["logs"])
        return said["stop"]  # type: ignore[no-any-return]

    def callback(self, which: int, described: list[Any]) -> tuple[Any, ...]:
        if described[0] is not None:
            return tuple(described)

        def call(hook: str, epoch: int, batch: int, steps: int, logs: dict[str, float]) -> str | None:
            return self.ask(which, hook, epoch, batch, steps, logs)
        return call, described[1]

    def run(self) -> None:
        job = self.job
        data = make_dataset(job["data"])
        validation = make_dataset(job["validation"]) if job["validation"] else None
        weights = job["class_weight"] and [(_memory(fd), dtype, tuple(shape)) for fd, dtype, shape in job["class_weight"]]
        callbacks = [self.callback(i, c) for i, c in enumerate(job["callbacks"])]
        options: tuple[Any, ...] = (data, validation, callbacks, *job["options"], weights, job["max_failures"])
        try:
            try:
                self.is_fitting = True
                self.session.fit(*options)
            finally:
                self.is_fitting = False     # an interrupt that comes here ends in the next line
        finally:
            self.session.save(self.path)

    def interrupt(self, *unused: Any) -> None:
        """The handler of SIGINT: once, and only while there is something to end."""
        if self.is_fitting:
            self.is_fitting = False
            raise KeyboardInterrupt


def serve(channel: Channel, job: dict[str, Any]) -> None:
    try:
        helper = Helper(channel, job)
        signal.signal(signal.SIGINT, helper.interrupt)
        helper.run()
        channel.send({"done": True})
    except KeyboardInterrupt:
        channel.send({"done": True})        # the program knows why
    except Exception as e:
        channel.send({"error": type(e).__name__, "text": str(e)})


def main() -> None:
    """Of `python -P _helper.py DESCRIPTOR PID`: the socket, and the program that it dies with."""
    from manta._guard import become_rank

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    become_rank(int(sys.argv[2]), ())
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    job = channel.receive()
    if job is not None:
        serve(channel, job)
