#!/usr/bin/env python3
"""output.py GUEST - what workers print, as their driver shows it."""
import collections
import os
import re
import subprocess
import sys
import tempfile
import unittest

GUEST = None
LIMIT_S = 240  # for what must end
LINE = re.compile(r"\((\w+) pid=(\d+)\) (.*)")


class OutputTest(unittest.TestCase):
    def setUp(self):
        own = tempfile.TemporaryDirectory(prefix="manta-output-")
        self.addCleanup(own.cleanup)
        self.env = {**os.environ, "XDG_RUNTIME_DIR": own.name, "MANTA_ADDRESS": "local"}

    def run_guest(self, *args, env=None, stderr=subprocess.PIPE):
        done = subprocess.run([GUEST, *args], env={**self.env, **(env or {})}, stdout=subprocess.PIPE, stderr=stderr,
                              text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def lines(self, text):
        """Lines of each worker, in order: {pid: [(function, text)]}."""
        by_pid = collections.defaultdict(list)
        for line in text.splitlines():
            found = LINE.fullmatch(line)
            self.assertTrue(found, f"a line without its origin: {line!r}")
            by_pid[found[2]].append((found[1], found[3]))
        return by_pid

    def test_each_line_has_the_name_of_its_function(self):
        got = self.lines(self.run_guest("switch", env={"CPUS": "1"}).stdout)
        all_lines = [x for lines in got.values() for x in lines]
        self.assertEqual(len(all_lines), 50 * 4)
        for function, text in all_lines:
            self.assertEqual(function, "other" if text == "other" else "lines")
        if len(got) == 1:  # one worker, one order
            self.assertEqual([t for f, t in all_lines if f == "lines"], [f"line {i}" for i in range(150)])

    def test_nothing_is_lost_and_the_order_is_kept(self):
        n = 30000
        got = self.lines(self.run_guest("flood", str(n)).stdout)
        self.assertEqual(sum(len(x) for x in got.values()), 2 * n)
        for lines in got.values():
            numbers = [int(t.split()[1]) for _, t in lines]
            for i in range(0, len(numbers), n):
                self.assertEqual(numbers[i:i + n], list(range(n)))

    def test_a_slow_reader_holds_the_workers_up(self):
        n = 20000
        p = subprocess.Popen([GUEST, "flood", str(n)], env=self.env, stdout=subprocess.PIPE)
        text = b""
        while len(text) < 64 << 10:  # some, and then nothing until the program can only wait
            text += os.read(p.stdout.fileno(), 4096)
        self.assertIsNone(p.poll())
        text += p.stdout.read()
        p.stdout.close()
        self.assertEqual(p.wait(timeout=LIMIT_S), 0)
        self.assertEqual(text.count(b"\n"), 2 * n)
        self.lines(text.decode())

    def test_last_words(self):
        self.assertIn("last words", [t for x in self.lines(self.run_guest("last").stdout).values() for _, t in x])

    def test_a_line_without_an_end(self):
        got = self.lines(self.run_guest("raw").stdout)
        self.assertEqual([x for lines in got.values() for x in lines], [("raw", "raw"), ("raw", "and the rest")])

    def test_streams_stay_apart(self):
        done = self.run_guest("error")
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"^\(to_error pid=\d+\) to the error stream\n$")

    def test_plain(self):
        out = self.run_guest("switch", env={"CPUS": "1", "PLAIN": "1"}).stdout.splitlines()
        self.assertEqual(sorted(out), sorted([f"line {i}" for i in range(150)] + ["other"] * 50))

    def test_nobody_reads(self):
        p = subprocess.Popen([GUEST, "flood", "20000"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdout.close()
        said = p.stderr.read()
        p.stderr.close()
        self.assertEqual(p.wait(timeout=LIMIT_S), 0)
        self.assertIn(b"what workers print cannot be written", said)


if __name__ == "__main__":
    GUEST = sys.argv.pop(1)
    unittest.main()
