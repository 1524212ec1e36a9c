"""What the ranks of `manta launch` print, on its way through the launcher.

    rank ── pipe ──▶ Stream ── lines ──┬──▶ Sink ──▶ the launcher's stdout or stderr
                                       └──▶ Log, a file of this rank

Bytes are passed on as they are, whatever they mean. Nothing here waits.
"""
from __future__ import annotations

import os
import re
import select
from typing import Optional

CHUNK = 1 << 16
LONGEST = 1 << 20           # bytes of a line; what is longer becomes several
# Progress bars end their lines by a carriage return. One at the end of what is there may be the first half of \r\n.
LINE = re.compile(rb"[^\r\n]*+(?:\r?\n|\r(?=[^\n]))")


def open_missing() -> None:
    """Gives this process the standard files that it was started without, or pipes would get their numbers."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)          # gets the lowest number that is free: this one


class Sink:
    """One of the launcher's outputs, and what waits to be written there."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.waiting = bytearray()
        self._watch()

    def _watch(self) -> None:
        self._poll = select.poll()
        self._poll.register(self.fd, select.POLLOUT)

    def discard(self) -> None:
        """The reader has left: what waits is dropped, and so is what comes."""
        self.fd = os.open(os.devnull, os.O_WRONLY)
        self.waiting.clear()
        self._watch()

    def write(self) -> None:
        """Writes what can be written without waiting. Raises OSError when the reader has left."""
        while self.waiting and self._poll.poll(0):
            try:
                n = os.write(self.fd, self.waiting[:select.PIPE_BUF])
            except BlockingIOError:
                return
            del self.waiting[:n]


class Log:
    """A rank's output in a file, as the rank wrote it."""

    def __init__(self, folder: str, rank: int) -> None:
        self.path = os.path.join(folder, f"rank-{rank}.txt")
        try:
            os.makedirs(folder, exist_ok=True)
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
        except OSError as e:
            raise OSError(e.errno, f"{self.path}: {e.strerror}") from None
        self.error: Optional[str] = None        # why nothing more is written

    def write(self, data: bytes) -> None:
        try:
            while data and self.error is None:
                data = data[os.write(self._fd, data):]
        except OSError as e:
            self.error = e.strerror


class Stream:
    """A pipe from a rank. With several ranks it passes on whole lines, so that none is torn by another's."""

    def __init__(self, fd: int, sink: Sink, prefix: bytes, by_lines: bool, log: Optional[Log]) -> None:
        self.fd, self.sink, self._prefix, self._by_lines, self._log = fd, sink, prefix, by_lines, log
        self._part = b""
        os.set_blocking(fd, False)

    def read(self, n: int = CHUNK) -> bool:
        """Takes what is there; False when no more will come."""
        try:
            data = os.read(self.fd, n)
        except BlockingIOError:
            return True
        if not self._by_lines:
            self._pass(data)
            return bool(data)
        self._part += data
        end = 0
        while line := LINE.match(self._part, end):
            self._pass(line[0])
            end = line.end()
        self._part = self._part[end:]
        if len(self._part) > LONGEST or (self._part and not data):
            self._pass(self._part + b"\n")
            self._part = b""
        return bool(data)

    def end(self) -> None:
        """Takes what a rank that has ended has left in the pipe, which holds no more than this."""
        if self.read(1 << 20) and self._part:
            self._pass(self._part + b"\n")

    def _pass(self, data: bytes) -> None:
        self.sink.waiting += self._prefix + data if data else b""
        if self._log is not None:
            self._log.write(data)
