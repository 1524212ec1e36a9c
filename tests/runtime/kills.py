#!/usr/bin/env python3
"""kills.py PROGRAM - kill -9 of every process of a node, and what is left.

Runs `PROGRAM stay`, which starts a node with a busy worker, an actor and a
grandchild (a process that a worker started and forgot, in a session of its
own) and prints their pids; kills one of them; and looks. This script adopts
orphans, so that whatever the node leaves behind becomes its child: a survivor
is seen, and so is a zombie.
"""
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = None
LIMIT_S = 120  # within which nothing may be left: it takes a moment, but a machine may be busy
PR_SET_CHILD_SUBREAPER = 36


def is_alive(pid):
    """Whether a process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def reap(known):
    """Collects dead children, except those that subprocess waits for."""
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in known:
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            if int(fields[1]) == os.getpid() and fields[0] == "Z":
                os.waitpid(int(name), os.WNOHANG)
        except (OSError, ChildProcessError):
            continue


def until(condition, limit_s, known=()):
    """Waits for a condition; whether it came true in time."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        reap(known)
        if condition():
            return True
        time.sleep(0.002)
    return condition()


class Node:
    """A running `PROGRAM stay` and the pids it printed."""

    def __init__(self, stay):
        env = {**os.environ, **({"STAY": "1"} if stay else {})}
        self.process = subprocess.Popen([PROGRAM, "stay"], stdout=subprocess.PIPE, text=True, env=env)
        words = self.process.stdout.readline().split()
        at = words.index("workers")
        self.pid = dict(zip(words[:at:2], map(int, words[1:at:2])))
        self.workers = [int(w) for w in words[at + 1:]]
        self.busy = [w for w in self.workers if w != self.pid["actor"]]

    def all(self):
        return [*self.pid.values(), *self.workers]

    def rest(self, *but):
        return [p for p in self.all() if p not in but]

    def left(self, *but):
        """Processes still alive after the limit."""
        until(lambda: not any(is_alive(p) for p in self.rest(*but)), LIMIT_S, {self.process.pid})
        return [p for p in self.rest(*but) if is_alive(p)]

    def line(self):
        return self.process.stdout.readline().strip()

    def end(self):
        for pid in self.all():
            with contextlib.suppress(OSError):
                if is_alive(pid):
                    os.kill(pid, signal.SIGKILL)
        self.process.stdout.close()
        self.process.wait()
        reap(())


class Kills(unittest.TestCase):
    def node(self, stay=False):
        n = Node(stay)
        self.addCleanup(n.end)
        return n

    def test_driver(self):
        n = self.node()
        os.kill(n.pid["driver"], signal.SIGKILL)
        self.assertEqual(n.left(), [])

    def test_driver_terminated(self):
        n = self.node()
        os.kill(n.pid["driver"], signal.SIGTERM)
        self.assertEqual(n.left(), [])

    def test_daemon(self):
        n = self.node(stay=True)
        os.kill(n.pid["daemon"], signal.SIGKILL)
        self.assertEqual(n.left(n.pid["driver"]), [])
        self.assertIn("ended died: the node is gone", n.line())
        self.assertIn("after died: the node is gone", n.line())
        self.assertTrue(is_alive(n.pid["driver"]))

    def test_keeper(self):
        n = self.node(stay=True)
        os.kill(n.pid["keeper"], signal.SIGKILL)
        self.assertEqual(n.left(n.pid["driver"]), [])
        self.assertIn("ended died: the node is gone", n.line())

    def test_keeper_and_daemon(self):
        n = self.node(stay=True)
        os.kill(n.pid["keeper"], signal.SIGSTOP)
        os.kill(n.pid["daemon"], signal.SIGKILL)
        os.kill(n.pid["keeper"], signal.SIGKILL)
        self.assertEqual(n.left(n.pid["driver"], n.pid["grandchild"]), [])
        self.assertIn("ended died: the node is gone", n.line())

    def test_zygote(self):
        n = self.node()
        os.kill(n.pid["zygote"], signal.SIGKILL)
        self.assertFalse(until(lambda: any(not is_alive(w) for w in n.workers), 0.3))
        os.kill(n.pid["driver"], signal.SIGKILL)
        self.assertEqual(n.left(), [])

    def test_workers_one_after_the_other(self):
        n = self.node()
        for w in n.busy:
            os.kill(w, signal.SIGKILL)
            self.assertTrue(until(lambda: not is_alive(w), LIMIT_S))  # pylint: disable=cell-var-from-loop
        # Their grandchild went with them; the driver and the actor are unharmed.
        self.assertTrue(until(lambda: not is_alive(n.pid["grandchild"]), LIMIT_S))
        self.assertTrue(is_alive(n.pid["driver"]) and is_alive(n.pid["actor"]))
        os.kill(n.pid["driver"], signal.SIGKILL)
        self.assertEqual(n.left(), [])

    def test_all_at_once(self):
        n = self.node()
        names = ("keeper", "daemon", "zygote", "driver")
        for number in (signal.SIGSTOP, signal.SIGKILL):  # nobody can answer the death of another
            for name in names:
                os.kill(n.pid[name], number)
        # What a worker had started itself has nobody left to end it.
        self.assertEqual(n.left(n.pid["grandchild"]), [])

    def test_stopped_driver_killed(self):
        n = self.node()
        os.kill(n.pid["driver"], signal.SIGSTOP)
        os.kill(n.pid["driver"], signal.SIGKILL)
        self.assertEqual(n.left(), [])

    def test_one_socket_listens(self):
        """The node's socket, in a folder that is closed to others, and gone afterwards."""
        n = self.node()
        self.assertTrue(until(lambda: os.path.exists(self.node_socket(n)), LIMIT_S, {n.process.pid}))
        inodes = set()
        for pid in n.all():
            with contextlib.suppress(OSError):
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        target = os.readlink(f"/proc/{pid}/fd/{fd}")
                        if target.startswith("socket:["):
                            inodes.add(target[8:-1])
        self.assertTrue(inodes)
        for table in ("tcp", "tcp6", "udp", "udp6", "raw"):
            with contextlib.suppress(FileNotFoundError), open(f"/proc/net/{table}", encoding="utf-8") as f:
                for entry in f.readlines()[1:]:
                    self.assertNotIn(entry.split()[9], inodes, f"{table}: {entry}")
        with open("/proc/net/unix", encoding="utf-8") as f:
            for entry in f.readlines()[1:]:
                fields = entry.split()
                if fields[6] in inodes and len(fields) > 7:
                    self.assertEqual(fields[7], self.node_socket(n), f"a socket with another name: {entry}")
        folder = os.stat(os.path.dirname(self.node_socket(n)))
        self.assertEqual((folder.st_uid, folder.st_mode & 0o777), (os.getuid(), 0o700))
        os.kill(n.pid["driver"], signal.SIGKILL)
        self.assertEqual(n.left(), [])
        self.assertTrue(until(lambda: not os.path.exists(self.node_socket(n)), LIMIT_S, {n.process.pid}))

    def test_socket_of_killed_daemon(self):
        """Its keeper removes what the daemon could not."""
        n = self.node(stay=True)
        self.assertTrue(until(lambda: os.path.exists(self.node_socket(n)), LIMIT_S, {n.process.pid}))
        os.kill(n.pid["daemon"], signal.SIGKILL)
        self.assertTrue(until(lambda: not os.path.exists(self.node_socket(n)), LIMIT_S, {n.process.pid}))

    @staticmethod
    def node_socket(n):
        return os.path.join(os.environ["XDG_RUNTIME_DIR"], "manta", f"{n.pid['daemon']}.sock")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="manta-kills-") as own:
        os.environ["XDG_RUNTIME_DIR"] = own
        os.environ["MANTA_ADDRESS"] = "local"
        unittest.main()
