"""The environment with TensorFlow, PyTorch and Ray is whole or not there, and is made once."""
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from support import ROOT
import peers


def installed(folder, requirements, progress):
    """In the place of pip: a script that names its environment, as pip's do."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "ray").write_text(f"#!{folder}/bin/python\n")
    (folder / "bin" / "python").symlink_to(sys.executable)


def broken(folder, requirements, progress):
    installed(folder, requirements, progress)
    raise peers.PeersMissing("pip ended with status 1")


class Peers(unittest.TestCase):
    def setUp(self):
        there = tempfile.TemporaryDirectory()
        self.addCleanup(there.cleanup)
        self.cache = pathlib.Path(there.name) / "cache"
        self.list = pathlib.Path(there.name) / "list.txt"
        self.list.write_text("ray==1\n")
        without = {k: v for k, v in os.environ.items() if k != "MANTA_OFFLINE"}
        patched = mock.patch.dict(os.environ, without, clear=True)
        patched.start()
        self.addCleanup(patched.stop)

    def make(self, installer=installed, room=0):
        self.out = io.StringIO()
        return peers.environment(self.list, self.cache, self.out, installer, room)

    def there(self):
        return sorted(p.name for p in self.cache.glob("peers-*"))

    def test_it_is_made_once_for_each_list(self):
        first = self.make()
        self.assertIn(str(first), self.out.getvalue())
        self.assertEqual((first / "bin" / "ray").read_text(), f"#!{first}/bin/python\n")
        self.assertEqual(self.make(broken), first)
        self.assertEqual(self.out.getvalue(), "")
        self.list.write_text("ray==2\n")
        second = self.make()
        self.assertEqual(self.there(), sorted([first.name, second.name]))

    def test_what_fails_leaves_nothing(self):
        with self.assertRaisesRegex(peers.PeersMissing, "status 1"):
            self.make(broken)
        self.assertEqual(self.there(), [])
        self.make()

    def test_what_a_killed_one_left_is_removed(self):
        aside = peers.folder_of(self.list, self.cache)
        aside = aside.with_name(aside.name + ".aside") / "bin"
        aside.mkdir(parents=True)
        made = self.make()
        self.assertEqual(self.there(), [made.name])

    def test_too_little_room_is_said(self):
        with self.assertRaisesRegex(peers.PeersMissing, r"GB free, and installing .* takes 1000000 GB; XDG_CACHE_HOME"):
            self.make(room=10**15)
        self.assertEqual(self.there(), [])

    def test_offline(self):
        with mock.patch.dict(os.environ, {"MANTA_OFFLINE": "1"}):
            with self.assertRaisesRegex(peers.PeersMissing, "MANTA_OFFLINE=1"):
                self.make()
        there = self.make()
        with mock.patch.dict(os.environ, {"MANTA_OFFLINE": "1"}):
            self.assertEqual(self.make(), there)

    def test_an_unused_one_is_removed(self):
        first = self.make()
        long_ago = time.time() - 2 * peers.UNUSED_S
        os.utime(first, (long_ago, long_ago))
        self.list.write_text("ray==2\n")
        second = self.make()
        self.assertEqual(self.there(), [second.name])

    def test_two_at_once_install_once(self):
        count = self.cache.parent / "count"
        script = ("import pathlib, sys; sys.path.insert(0, sys.argv[1]); import peers\n"
                  "def installer(folder, *others):\n"
                  "    (folder / 'bin').mkdir(parents=True)\n"
                  "    with open(sys.argv[4], 'a') as f: f.write('x')\n"
                  "print(peers.environment(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.stderr, installer, 0))")
        started = [subprocess.Popen([sys.executable, "-c", script, str(ROOT / "tools"), str(self.list), str(self.cache), str(count)],
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(4)]
        said = {p.communicate(timeout=120)[0] for p in started}
        self.assertEqual({p.returncode for p in started}, {0})
        self.assertEqual(len(said), 1)
        self.assertEqual(count.read_text(), "x")

    def test_a_command_that_fails_says_what_it_said(self):
        with self.assertRaisesRegex(peers.PeersMissing, r"status 3 \(can PyPI be reached\?.*\n.*no such package"):
            peers.run([sys.executable, "-c", "print('no such package'); raise SystemExit(3)"], peers.Progress(io.StringIO()), {})


if __name__ == "__main__":
    unittest.main()
