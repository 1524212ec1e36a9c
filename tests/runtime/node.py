#!/usr/bin/env python3
"""node.py MANTA PROGRAM GUEST - a node that `manta start` began, and programs in it.

Every test has a folder of its own ($XDG_RUNTIME_DIR). This script adopts orphans:
whatever a node or a program leaves behind is seen.
"""
import contextlib
import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

from kills import PR_SET_CHILD_SUBREAPER, is_alive, reap, until

MANTA = PROGRAM = GUEST = None
NOBODY = 65534
WAIT_S = 120.0  # for what has no limit of its own, on a loaded machine


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


def end(pid, sig=signal.SIGKILL):
    assert pid > 1, f"no pid of ours: {pid}"
    os.kill(pid, sig)


def as_nobody(path):
    """What another user sees at the socket."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.settimeout(WAIT_S)
                s.connect(path)
                said = f"in {s.recv(10)}"
        except OSError as e:
            said = type(e).__name__
        os.write(into, said.encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as f:
        said = f.read()
    os.waitpid(child, 0)
    return said


class NodeTest(unittest.TestCase):
    def setUp(self):
        own = tempfile.TemporaryDirectory(prefix="manta-node-", ignore_cleanup_errors=True)
        self.addCleanup(own.cleanup)
        self.folder = os.path.join(own.name, "manta")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("MANTA_")}
        self.env["XDG_RUNTIME_DIR"] = own.name
        self.addCleanup(self.manta, "stop", status=None)

    def manta(self, *args, status=0):
        done = subprocess.run([MANTA, *args], env=self.env, capture_output=True, text=True, timeout=WAIT_S, check=False)
        if status is not None:
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def start(self, *args):
        self.pid = json.loads(self.manta("start", "--json", "--num-cpus", "2", *args).stdout)["pid"]
        return self.pid

    def status(self):
        return json.loads(self.manta("status", "--json").stdout)

    def guest(self, *args, env=None, status=0):
        done = subprocess.run([GUEST, *args], env={**self.env, **(env or {})}, capture_output=True, text=True,
                              timeout=WAIT_S, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def stay(self):
        """A program in the node, with a busy worker, an actor and a grandchild; its pids."""
        p = subprocess.Popen([PROGRAM, "stay"], env={**self.env, "MANTA_ADDRESS": "auto", "STAY": "1"},
                             stdout=subprocess.PIPE, text=True)
        self.addCleanup(p.wait)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.kill)
        words = p.stdout.readline().split()
        at = words.index("workers")
        pids = dict(zip(words[:at:2], map(int, words[1:at:2])))
        job = [j for j in self.status()["programs"] if j["pid"] == p.pid][0]
        pids["supervisor"] = job["supervisor"]
        pids["job keeper"] = parent_of(job["supervisor"])
        self.assertEqual(pids.pop("daemon"), self.pid)
        self.node_keeper = pids.pop("keeper")
        self.program = p
        return {**pids, **{f"worker {w}": int(w) for w in words[at + 1:]}}

    def gone(self, pids, *but, limit_s=WAIT_S):
        rest = [p for name, p in pids.items() if name not in but]
        known = {self.program.pid}
        until(lambda: not any(is_alive(p) for p in rest), limit_s, known)
        self.assertEqual([name for name, p in pids.items() if name not in but and is_alive(p)], [])

    # ---- programs that come and go ----

    def test_a_program_leaves_nothing(self):
        self.start()
        for scenario in ("calls", "zygote", "payloads", "codes"):
            subprocess.run([PROGRAM, scenario], env={**self.env, "MANTA_ADDRESS": "auto"}, check=True, timeout=WAIT_S,
                           stdout=subprocess.DEVNULL)
        self.assertTrue(until(lambda: self.status()["workers"] == 0 and not self.status()["programs"], WAIT_S))

    def test_programs_with_nurseries(self):
        """Keeper and supervisor are no forks of the program, its workers those of another: all that is there else, too."""
        self.start()
        folder = os.path.dirname(PROGRAM)
        for scenario in ("works", "fails", "refuses", "again", "environments", "no-environment", "warm"):
            with self.subTest(scenario):
                done = subprocess.run([os.path.join(folder, "runtime_nursery"), scenario,
                                       os.path.join(folder, "runtime_nursery_other")], capture_output=True, text=True,
                                      env={**self.env, "MANTA_ADDRESS": "auto"}, check=False, timeout=120)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(until(lambda: self.status()["workers"] == 0 and not self.status()["programs"], WAIT_S))

    def test_joining_is_automatic(self):
        self.start()
        p = subprocess.Popen([GUEST, "wait"], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.assertEqual(p.stdout.readline(), "waits\n")
        self.assertEqual([j["pid"] for j in self.status()["programs"]], [p.pid])
        own = subprocess.run([GUEST, "switch"], env={**self.env, "MANTA_ADDRESS": "local"}, check=False,
                             capture_output=True, timeout=WAIT_S)
        self.assertEqual(own.returncode, 0)
        p.communicate("", timeout=WAIT_S)

    def test_amounts_are_the_nodes(self):
        self.start()
        out = self.guest("wait", env={"CPUS": "1", "MANTA_ADDRESS": "auto"}, status=3)
        self.assertIn("give them to manta start", out)

    def test_no_node_to_join(self):
        self.assertIn("no node was started", self.guest("wait", env={"MANTA_ADDRESS": "auto"}, status=3))

    def test_driver_killed(self):
        self.start()
        pids = self.stay()
        end(pids["driver"])
        self.gone(pids)
        self.assertTrue(until(lambda: self.status()["programs"] == [], WAIT_S))
        self.assertTrue(is_alive(self.pid))

    def test_supervisor_killed(self):
        self.start()
        pids = self.stay()
        end(pids["supervisor"])
        self.gone(pids, "driver")
        self.assertIn("ended died", self.program.stdout.readline())
        self.assertTrue(is_alive(self.pid))

    def test_job_keeper_killed(self):
        self.start()
        pids = self.stay()
        end(pids["job keeper"])
        self.gone(pids, "driver")
        self.assertTrue(is_alive(self.pid))

    def test_daemon_killed(self):
        self.start()
        pids = self.stay()
        end(self.pid)
        self.gone(pids, "driver")
        self.assertIn("ended died: the node is gone", self.program.stdout.readline())
        self.assertTrue(until(lambda: not os.path.exists(f"{self.folder}/node.sock"), WAIT_S))
        self.start()

    def test_node_keeper_killed(self):
        self.start()
        pids = self.stay()
        end(self.node_keeper)
        self.gone({**pids, "daemon": self.pid}, "driver")

    def test_stop_ends_all(self):
        self.start()
        pids = self.stay()
        self.manta("stop")
        self.gone({**pids, "daemon": self.pid}, "driver")
        self.assertIn("no node runs", self.manta("stop", status=1).stderr)

    def test_stopped_daemon_is_killed(self):
        self.start()
        pids = self.stay()
        end(self.pid, signal.SIGSTOP)
        self.manta("stop", "--timeout", "1")
        self.gone(pids, "driver")

    def test_what_a_killed_node_leaves_is_replaced(self):
        pid = self.start()
        keeper = parent_of(pid)
        for p in (keeper, pid):
            end(p, signal.SIGSTOP)  # neither may clean up after the other
        for p in (keeper, pid):
            end(p)
        self.assertTrue(until(lambda: not is_alive(pid) and not is_alive(keeper), WAIT_S))
        self.assertTrue(os.path.exists(f"{self.folder}/node.sock"))
        self.assertIn("no node runs", self.manta("status", status=1).stderr)
        self.start()
        self.assertEqual(self.status()["pid"], self.pid)

    def test_two_nodes_of_one_name(self):
        self.start()
        self.assertIn("a node runs already", self.manta("start", status=1).stderr)

    # ---- detached actors and namespaces ----

    def test_detached_actors_outlive_their_driver(self):
        self.start()
        first = self.guest("detach", env={"SPACE": "one"})
        self.assertTrue(first.startswith("count 1 in "))
        pid = int(first.split()[-1])
        self.assertTrue(is_alive(pid))
        second = self.guest("count", env={"SPACE": "one"})
        self.assertIn("count 2", second)
        self.assertIn("count 3", self.guest("count", "one"))
        # In another namespace there is none.
        self.assertIn("no actor is called two/counter", self.guest("count", env={"SPACE": "two"}, status=1))
        self.guest("detach", env={"SPACE": "two"})
        self.assertIn("count 2", self.guest("count", env={"SPACE": "two"}))
        self.assertEqual(self.status()["actors"], 2)
        # Killed, it starts again, though its driver is long gone. A call that reaches it before that would be lost with it.
        end(pid)
        self.assertTrue(until(lambda: pid not in [r["pid"] for r in self.rows() if r["kind"] == "actor"], WAIT_S))
        self.assertIn("count 1", self.guest("count", env={"SPACE": "one"}))
        # What they say without a driver is in the node's log.
        self.assertTrue(until(lambda: "the count is" in self.log(), WAIT_S))
        for space in ("one", "two"):
            self.guest("drop", env={"SPACE": space})
        self.assertTrue(until(lambda: self.status()["programs"] == [] and self.status()["workers"] == 0, WAIT_S))

    def log(self):
        with open(f"{self.folder}/node.log", encoding="utf-8") as f:
            return f.read()

    # ---- looking ----

    def rows(self, *args):
        return [json.loads(line) for line in self.manta("ps", "--json", *args).stdout.splitlines()]

    def test_ps_shows_what_runs(self):
        self.start()
        pids = self.stay()
        rows = self.rows()
        workers = {r["pid"]: r for r in rows if r["kind"] == "worker"}
        self.assertEqual(set(workers), {p for name, p in pids.items() if name.startswith("worker")})
        self.assertEqual(workers[pids["actor"]]["state"], "actor")
        actors = [r for r in rows if r["kind"] == "actor"]
        self.assertEqual([(a["pid"], a["constructor"], a["state"]) for a in actors],
                         [(pids["actor"], "counter", "alive")])
        busy = [r for r in rows if r["kind"] == "task"]
        self.assertEqual([b["function"] for b in busy], ["linger"])
        self.assertEqual(workers[busy[0]["pid"]]["caller"], pids["driver"])
        text = self.manta("ps").stdout
        for word in ("linger", "leased", "counter", "Actors: 1"):
            self.assertIn(word, text)
        self.assertGreaterEqual(self.status()["resources"]["cpu"]["used"], 1)

    def test_a_programs_own_node_is_seen(self):
        p = subprocess.Popen([GUEST, "wait"], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.assertEqual(p.stdout.readline(), "waits\n")
        self.assertTrue(until(lambda: self.manta("status", status=None).returncode == 0, WAIT_S, {p.pid}))
        status = self.status()
        self.assertFalse(status["started"])
        self.assertEqual([j["pid"] for j in status["programs"]], [p.pid])
        # Two of them: one must be named.
        q = subprocess.Popen([GUEST, "wait"], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.assertEqual(q.stdout.readline(), "waits\n")
        self.assertTrue(until(lambda: "2 nodes run" in self.manta("status", status=None).stderr, WAIT_S, {p.pid, q.pid}))
        self.assertEqual(json.loads(self.manta("status", "--json", "--node", str(status["pid"])).stdout)["pid"],
                         status["pid"])
        self.assertIn("no node is called", self.manta("status", "--node", "1", status=1).stderr)
        self.assertIn("2 nodes run", self.guest("wait", env={"MANTA_ADDRESS": "any"}, status=3))
        p.communicate("", timeout=WAIT_S)
        q.communicate("", timeout=WAIT_S)

    def test_a_program_joins_the_only_node_where_it_says_so(self):
        self.assertIn("no node runs", self.guest("wait", env={"MANTA_ADDRESS": "any"}, status=3))
        p = subprocess.Popen([GUEST, "wait"], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.assertEqual(p.stdout.readline(), "waits\n")
        self.assertTrue(until(lambda: self.manta("status", status=None).returncode == 0, WAIT_S, {p.pid}))
        self.assertIn("no node was started", self.guest("wait", env={"MANTA_ADDRESS": "auto"}, status=3))
        q = subprocess.Popen([GUEST, "wait"], env={**self.env, "MANTA_ADDRESS": "any"}, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
        self.assertEqual(q.stdout.readline(), "waits\n")
        self.assertEqual(sorted(j["pid"] for j in self.status()["programs"]), sorted([p.pid, q.pid]))
        q.communicate("", timeout=WAIT_S)
        self.assertEqual(q.returncode, 0)
        self.assertTrue(until(lambda: [j["pid"] for j in self.status()["programs"]] == [p.pid], WAIT_S, {p.pid}))
        p.communicate("", timeout=WAIT_S)
        self.assertEqual(p.returncode, 0)

    def test_timeline_has_every_call(self):
        self.start()
        self.guest("detach")
        for _ in range(3):
            self.guest("count")
        path = os.path.join(os.path.dirname(self.folder), "t.json")

        def calls_told():
            self.manta("timeline", "-o", path)
            with open(path, encoding="utf-8") as f:
                return [e for e in json.load(f)["traceEvents"] if e["ph"] == "X"]

        until(lambda: len(calls_told()) >= 8, WAIT_S)  # a worker notes the end of a call when it has answered
        calls = calls_told()
        self.assertEqual([c["name"] for c in calls], ["counter", "add"] + ["add", "say_count"] * 3)
        for c in calls:
            self.assertGreaterEqual(c["dur"], 0)
        self.assertIn("cannot write", self.manta("timeline", "-o", "/nowhere/t.json", status=1).stderr)

    def test_stack_of_a_worker(self):
        self.start()
        pids = self.stay()
        busy = [r["pid"] for r in self.rows() if r["kind"] == "task"][0]
        text = self.manta("stack", "--own", str(busy)).stdout
        self.assertRegex(text, r"(?m)^#0 ")
        self.assertIn("is no worker of the node", self.manta("stack", "--own", str(pids["driver"]), status=1).stderr)
        self.assertIn("there is no process", self.manta("stack", str(2 ** 22 + 1), status=1).stderr)
        self.assertIn("is no pid", self.manta("stack", "0", status=2).stderr)

    # ---- who may come in ----

    def hello(self, fd, version):
        text = version.encode()
        fields = struct.pack("<IIIIII", 112, 0, 0x41544E4D, 1, 2, 0)
        return fd.send(fields + struct.pack("<Q", len(text)) + text + struct.pack("<Q", 0))

    def node_socket(self):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(s.close)
        s.settimeout(WAIT_S)
        s.connect(f"{self.folder}/node.sock")
        return s

    def test_another_version_is_refused(self):
        self.start()
        s = self.node_socket()
        self.hello(s, "9.9.9")
        self.assertIn(b"they must be the same", s.recv(4096))

    def test_strangers_words_are_ignored(self):
        self.start()
        for words in (b"x", b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), struct.pack("<II", 114, 0), b"\0" * 64):
            s = self.node_socket()
            with contextlib.suppress(BrokenPipeError):
                s.send(words)
            with contextlib.suppress(ConnectionResetError):
                self.assertIn(b"no greeting" if words[:1] == b"\x70" else b"", s.recv(4096))
        self.assertEqual(self.status()["pid"], self.pid)

    @unittest.skipUnless(os.getuid() == 0, "needs to become another user")
    def test_another_user(self):
        self.start()
        os.chmod(os.path.dirname(self.folder), 0o755)
        path = f"{self.folder}/node.sock"
        self.assertEqual(as_nobody(path), "PermissionError")
        # Even a folder and a socket that are open do not let a stranger in.
        os.chmod(self.folder, 0o755)
        os.chmod(path, 0o777)
        self.assertEqual(as_nobody(path), "in b''")
        # And what others could have tampered with is not used.
        self.assertIn("open to other users", self.manta("status", status=1).stderr)
        os.chmod(self.folder, 0o700)
        self.assertEqual(self.status()["pid"], self.pid)
        os.chown(self.folder, NOBODY, NOBODY)
        self.assertIn("belongs to user 65534", self.manta("status", status=1).stderr)
        os.chown(self.folder, 0, 0)


if __name__ == "__main__":
    GUEST, PROGRAM, MANTA = sys.argv.pop(3), sys.argv.pop(2), sys.argv.pop(1)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        unittest.main()
    finally:
        reap(())
