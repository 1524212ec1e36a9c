"""What ranks and their driver tell each other: messages over a socket of this host.

    rank ──▶ driver    ("hello", rank, token), ("report", metrics, part, name, own, validation), ("latest", number),
                       ("reported", number, mode or None), ("meet", number, kind, bytes), ("forget", number): a question
    rank ◀── driver    ("written",), of each report with a part; answers: ("latest", number, path or None),
                       ("reported", number, checkpoints), ("met", number, bytes, what is wrong or None)

A message that a rank has sent is in the driver's socket, and is read there when the rank has been killed since: no
report is lost by a death. A rank is told only what it waits for sooner or later: what nobody reads fills the
socket, and the driver would wait. Each is a pickle behind its length; the socket lies in a folder of its user's alone.
"""
from __future__ import annotations

import os
import pickle
import queue
import select
import selectors
import shutil
import socket
import struct
import tempfile
import threading
from typing import Any, Callable, Optional

_LENGTH = struct.Struct("<Q")


class Connection:
    """One end. Messages are whole: send() sends all of one, received() gives those that are there."""

    def __init__(self, at: socket.socket) -> None:
        self._at = at
        self._bytes = bytearray()
        self._lock = threading.Lock()
        self.ended = False

    def fileno(self) -> int:
        return self._at.fileno()

    def send(self, *message: Any) -> None:
        data = pickle.dumps(message, protocol=5)
        with self._lock:
            self._at.sendall(_LENGTH.pack(len(data)) + data)

    def received(self, wait: bool, timeout: Optional[float] = None) -> list[tuple[Any, ...]]:
        """The messages that have come; wait: at least one, unless the other end is gone, or the seconds are over."""
        out: list[tuple[Any, ...]] = []
        if wait and timeout is not None:
            poll = select.poll()
            poll.register(self._at, select.POLLIN)
            wait = bool(poll.poll(max(timeout, 0) * 1000))
        while not self.ended:
            try:
                data = self._at.recv(1 << 18, 0 if wait and not out else socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except ConnectionError:
                data = b""
            if not data:
                self.ended = True
            self._bytes += data
            out += self._whole()
        return out

    def _whole(self) -> list[tuple[Any, ...]]:
        out, at = [], 0
        while len(self._bytes) - at >= _LENGTH.size:
            (n,) = _LENGTH.unpack_from(self._bytes, at)
            if len(self._bytes) - at - _LENGTH.size < n:
                break
            begin = at + _LENGTH.size
            out.append(pickle.loads(self._bytes[begin:begin + n]))
            at = begin + n
        del self._bytes[:at]
        return out

    def end(self) -> None:
        """No more is sent; who forked from this process keeps nothing open."""
        try:
            self._at.shutdown(socket.SHUT_RDWR)     # who is in send() comes out of it
        except OSError:
            pass
        with self._lock:
            self._at.close()


def connect(path: str, rank: int, token: bytes) -> Connection:
    """Of a rank: the way to its driver."""
    at = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    at.connect(path)
    out = Connection(at)
    out.send("hello", rank, token)
    return out


class Listener:
    """Of the driver: a thread that reads what ranks say and calls `heard(rank, message)` for each message."""

    def __init__(self, heard: Callable[[int, tuple[Any, ...]], None]) -> None:
        self._heard = heard
        self.token = os.urandom(16)
        self._folder = tempfile.mkdtemp(prefix="manta-train-")
        self.path = os.path.join(self._folder, "s")
        self._at = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._at.bind(self.path)
        self._at.listen(256)
        self._at.setblocking(False)
        self._bell, self._rope = socket.socketpair()
        self._asked: queue.SimpleQueue[Optional[threading.Event]] = queue.SimpleQueue()     # None: to end
        self._ranks: dict[int, Connection] = {}
        self.problem: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._serve, name="manta-train", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            with selectors.DefaultSelector() as s:
                s.register(self._at, selectors.EVENT_READ)
                s.register(self._bell, selectors.EVENT_READ)
                self._answer(s)
        except Exception as e:  # noqa: BLE001  the thread that waits for the ranks raises it
            self.problem = self.problem or e

    def _answer(self, s: selectors.BaseSelector) -> None:
        while True:
            self._sweep(s, None)
            while not self._asked.empty():
                asked = self._asked.get()
                self._sweep(s, 0)
                self._sweep(s, 0)       # those that the first has let in
                if asked is None:
                    return
                asked.set()

    def _sweep(self, s: selectors.BaseSelector, timeout: Optional[float]) -> None:
        """Reads what is there, of those that are known before it."""
        for key, _ in s.select(timeout):
            connection: Any = key.fileobj
            if connection is self._bell:
                self._bell.recv(64)
            elif connection is self._at:
                self._let_in(s)
            else:
                self._read(connection, key.data)
                if connection.ended:
                    s.unregister(connection)
                    connection.end()        # a rank that still waits is not left waiting

    def _let_in(self, s: selectors.BaseSelector) -> None:
        while True:
            try:
                at = self._at.accept()[0]
            except BlockingIOError:
                return
            s.register(Connection(at), selectors.EVENT_READ, [None])

    def _read(self, connection: Connection, who: list[Optional[int]]) -> None:
        try:
            for message in connection.received(wait=False):
                if who[0] is not None:
                    self._heard(who[0], message)
                elif message[0] == "hello" and message[2] == self.token:
                    who[0] = message[1]
                    self._ranks[message[1]] = connection
                else:
                    connection.ended = True     # none of ours
        except Exception as e:  # noqa: BLE001  the thread that waits for the ranks raises it
            self.problem = self.problem or e
            connection.ended = True

    def settle(self) -> None:
        """Returns when all that ranks have said before was heard."""
        done = threading.Event()
        self._asked.put(done)
        self._rope.send(b".")
        while not done.wait(1) and self._thread.is_alive():
            pass

    def tell(self, rank: int, *message: Any) -> None:
        """Sends a rank a message; one that is gone hears nothing."""
        connection = self._ranks.get(rank)
        try:
            if connection is not None and not connection.ended:
                connection.send(*message)
        except OSError:
            pass

    def close(self) -> None:
        self._asked.put(None)
        self._rope.send(b".")
        self._thread.join()
        for end in self._ranks.values():
            end.end()
        for at in (self._at, self._bell, self._rope):
            at.close()
        shutil.rmtree(self._folder, ignore_errors=True)
