"""Our own scripts: clean bash, and set-up that does what it says."""
import pathlib
import shutil
import tempfile
import unittest

from support import ROOT, run, tracked


class Scripts(unittest.TestCase):
    def test_shellcheck(self):
        scripts = [p for p in tracked() if p.suffix in ("", ".sh")
                   and p.read_bytes()[:64].splitlines()[:1] in ([b"#!/usr/bin/env bash"], [b"#!/bin/bash"], [b"#!/bin/sh"])]
        self.assertGreaterEqual(len(scripts), 4)
        done = run("shellcheck", *scripts)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_python_tools_compile(self):
        for path in tracked("*.py"):
            compile(path.read_text(), str(path), "exec")


class Setup(unittest.TestCase):
    """tools/setup.sh before stand-ins for dpkg-query, id, sudo and apt-get."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        self.bin = self.home / "bin"
        self.bin.mkdir()

    def put(self, name, body):
        path = self.bin / name
        path.write_text("#!/bin/sh\n" + body)
        path.chmod(0o755)

    def setup(self, *groups, **env):
        return run(ROOT / "tools" / "setup.sh", *groups,
                   env={"PATH": f"{self.bin}:/usr/bin:/bin", "CALLS": str(self.home / "calls"), **env})

    def calls(self):
        path = self.home / "calls"
        return path.read_text() if path.exists() else ""

    def packages(self, group):
        lines = (ROOT / "tools" / "packages.txt").read_text().splitlines()
        return [line.split()[1] for line in lines if line.split()[:1] == [group]]

    # A dpkg-query that knows every package but cmake.
    ALL_BUT_CMAKE = 'for p; do case $p in -*|\\$*) ;; cmake) ;; *) echo "$p installed" ;; esac; done; exit 1\n'

    def test_nothing_missing_runs_nothing(self):
        self.put("dpkg-query", 'for p; do echo "$p installed"; done\n')
        self.put("apt-get", 'echo "$@" >>"$CALLS"\n')
        done = self.setup("build", "test")
        self.assertEqual((done.returncode, done.stdout, self.calls()), (0, "", ""))

    def test_root_installs_just_what_is_missing(self):
        self.put("dpkg-query", self.ALL_BUT_CMAKE)
        self.put("id", "echo 0\n")
        self.put("apt-get", 'echo "$DEBIAN_FRONTEND $*" >>"$CALLS"\n')
        done = self.setup("build")
        self.assertEqual(done.returncode, 0, done.stderr)
        last = self.calls().splitlines()[-1]
        self.assertTrue(last.startswith("noninteractive ") and last.endswith("--no-install-recommends cmake"), last)

    def test_sudo_is_used_when_it_asks_nothing(self):
        self.put("dpkg-query", self.ALL_BUT_CMAKE)
        self.put("id", "echo 1000\n")
        self.put("sudo", 'echo "sudo $*" >>"$CALLS"; shift; exec "$@"\n')
        self.put("apt-get", 'echo "apt-get $*" >>"$CALLS"\n')
        done = self.setup("build")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("sudo -n true", self.calls())
        self.assertTrue(self.calls().splitlines()[-1].endswith("cmake"))

    def test_a_list_when_it_may_not_install(self):
        self.put("dpkg-query", "exit 1\n")
        self.put("id", "echo 1000\n")
        self.put("sudo", "exit 1\n")
        self.put("apt-get", 'echo "$@" >>"$CALLS"\n')
        done = self.setup("build")
        self.assertEqual((done.returncode, self.calls()), (1, ""))
        for package in self.packages("build"):
            self.assertIn(f"    {package}\n", done.stderr)
        for package in self.packages("test"):
            self.assertNotIn(f"    {package}\n", done.stderr)

    def test_a_failing_apt_is_said(self):
        self.put("dpkg-query", self.ALL_BUT_CMAKE)
        self.put("id", "echo 0\n")
        self.put("apt-get", 'echo "mirror on fire"; exit 100\n')
        done = self.setup("build")
        self.assertEqual(done.returncode, 1)
        self.assertIn("mirror on fire", done.stderr)
        self.assertIn("could not install: cmake", done.stderr)

    def test_skipped_on_request(self):
        self.put("dpkg-query", "exit 1\n")
        self.assertEqual(self.setup("build", MANTA_SKIP_SETUP="1").returncode, 0)

    def test_an_unknown_group_is_refused(self):
        self.assertEqual(self.setup("no-such-group").returncode, 2)


class Quickstart(unittest.TestCase):
    """./quickstart before stand-ins for the build and the program."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        for name in ("bin", "tools", "build/release"):
            (self.home / name).mkdir(parents=True)
        shutil.copy(ROOT / "quickstart", self.home)
        shutil.copy(ROOT / "tools" / "setup.sh", self.home / "tools")
        self.put("bin/cmake", "exit 0\n")

    def put(self, name, body):
        path = self.home / name
        path.write_text("#!/bin/sh\n" + body)
        path.chmod(0o755)

    def quickstart(self):
        return run(self.home / "quickstart", env={"PATH": f"{self.home}/bin:/usr/bin:/bin", "MANTA_SKIP_SETUP": "1"})

    def test_it_ends_with_accuracy_rate_and_what_next(self):
        self.put("build/release/manta", """case $1 in
            evaluate) echo '{"event":"epoch","accuracy":0.1}'
                      echo '{"event":"result","status":"ok","metrics":{"loss":0.05,"accuracy":0.98765}}' ;;
            esac\n""")
        done = self.quickstart()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"Test accuracy 98\.7[67] %; \d+ images a second")
        self.assertIn("What to try next", done.stdout)

    def test_a_failing_build_shows_why(self):
        self.put("bin/cmake", "echo no compiler here; exit 1\n")
        done = self.quickstart()
        self.assertEqual(done.returncode, 1)
        self.assertIn("no compiler here", done.stderr)

    def test_a_failing_training_is_a_failure(self):
        self.put("build/release/manta", "echo 'manta: no data' >&2; exit 1\n")
        done = self.quickstart()
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("Test accuracy", done.stdout)

    def test_no_accuracy_is_a_failure(self):
        self.put("build/release/manta", "echo '{\"event\":\"epoch\",\"accuracy\":0.9}'\n")
        self.assertEqual(self.quickstart().returncode, 1)


if __name__ == "__main__":
    unittest.main()
