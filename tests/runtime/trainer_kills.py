#!/usr/bin/env python3
"""trainer_kills.py PROGRAM - a trainer's run, killed at instants of chance, and what is left.

`PROGRAM victim` drives a run of two workers to its end, from wherever the last one
left it. Its processes (driver, daemon, keeper, zygote, workers) are killed at once,
or one of them, again and again; the last one is let alone. Then the run has the
bytes and the record of one that nobody disturbed, and nothing is left behind.
"""
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

PROGRAM = None
DEADLINE_S = 240


def processes(tag):
    """Those that were started with this word in their environment, but for zombies."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if tag in (folder / "environ").read_bytes() and \
                    (folder / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.append(int(folder.name))
    return found


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def in_memory():
    """A folder in memory where there is such a place: every checkpoint is brought to disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class TrainerKills(unittest.TestCase):
    def setUp(self):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="manta-kills-", dir=in_memory()))
        self.addCleanup(shutil.rmtree, self.base, True)

    def victim(self, folder, whom=None, after_s=0.0, chance=None):
        """Runs a driver; whom: None for nobody, else a function that chooses among (driver, all pids)."""
        tag = uuid.uuid4().hex
        folder.mkdir(exist_ok=True)
        env = {**os.environ, "VICTIM_FOLDER": str(folder), "VICTIM_DIES_AT": "-1", "VICTIM_TAG": tag,
               "SCENARIO_FOLDER": str(self.base), "TMPDIR": str(self.base)}
        if whom:  # the leak sanitizer looks from a process of its own, and waits for ever when that is killed
            env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        with subprocess.Popen([PROGRAM, "victim"], env=env, stderr=subprocess.PIPE, text=True) as process:
            if whom:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(after_s)
                for pid in whom(process.pid, processes(tag.encode()), chance):
                    kill(pid)
            try:
                _, err = process.communicate(timeout=DEADLINE_S)
            except subprocess.TimeoutExpired:
                left = processes(tag.encode())
                for pid in left:
                    kill(pid)
                self.fail(f"not done after {DEADLINE_S} s; {left} were there")
        end = time.monotonic() + DEADLINE_S
        while left := processes(tag.encode()):
            if time.monotonic() > end:
                for pid in left:
                    kill(pid)
                self.fail(f"{left} are left")
            time.sleep(0.002)
        return process.returncode, err

    def finished(self, folder):
        """What a run that has come to its end left, after a look at the rest."""
        run = folder / "victim"
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        record = {rank: [x["step"] for x in lines if x["rank"] == rank] for rank in (0, 1)}
        self.assertEqual(record, {0: [1, 2, 3, 4], 1: [1, 2, 3, 4]})
        self.assertEqual(json.loads((run / "result.json").read_text())["status"], "done")
        self.assertEqual([p for p in folder.rglob(".*") if p.name.startswith(".parts") or "manta-tmp" in p.name], [])
        return (folder / "victim.npz").read_bytes()

    def storm(self, seed, whom):
        chance = random.Random(seed)
        began = time.monotonic()
        status, err = self.victim(self.base / "calm")
        took_s = time.monotonic() - began
        self.assertEqual((status, err), (0, ""))
        calm = self.finished(self.base / "calm")
        for i in range(5):
            folder = self.base / f"cut-{i}"
            for _ in range(chance.randint(1, 3)):
                self.victim(folder, whom, chance.uniform(0, took_s), chance)
            status, err = self.victim(folder)
            self.assertEqual((status, err), (0, ""))
            self.assertEqual(self.finished(folder), calm)

    def test_all_at_once(self):
        self.storm(1, lambda driver, pids, chance: pids)

    def test_the_driver(self):
        self.storm(2, lambda driver, pids, chance: [driver])

    def test_any_one(self):
        self.storm(3, lambda driver, pids, chance: [chance.choice(pids)] if pids else [])


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
