"""manta key: a cluster key for one run."""
import json
import os
import resource
import string
import subprocess

import pytest

from conftest import PROGRAM


def test_a_key_is_made(manta, tmp_path):
    before = os.umask(0)
    try:
        assert manta("key", "run.key").stdout == "run.key\n"
    finally:
        os.umask(before)
    key = tmp_path / "run.key"
    assert key.stat().st_mode & 0o777 == 0o600
    text = key.read_text()
    assert len(text) == 65 and set(text[:64]) <= set(string.hexdigits) and text[64] == "\n"
    assert json.loads(manta("key", "other.key", "--json").stdout) == {"path": "other.key"}
    assert (tmp_path / "other.key").read_text() != text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other.key", "run.key"]


@pytest.mark.parametrize("there", ["file", "folder", "link", "dangling"])
def test_nothing_is_replaced(manta, tmp_path, there):
    path = tmp_path / "run.key"
    (tmp_path / "mine").write_text("mine")
    {"file": lambda: path.write_text("mine"), "folder": path.mkdir, "link": lambda: path.symlink_to("mine"),
     "dangling": lambda: path.symlink_to("nothing")}[there]()
    said = manta("key", "run.key", status=1).stderr
    assert said == "manta: cluster key run.key cannot be made: something has that name already, and stays as it is\n"
    assert (tmp_path / "mine").read_text() == "mine" and not (tmp_path / "nothing").exists()
    if there == "file":
        assert path.read_text() == "mine"


def test_what_cannot_be(manta, tmp_path):
    assert "no/such/run.key" in manta("key", "no/such/run.key", status=1).stderr
    assert "needs" in manta("key", "", status=2).stderr
    assert manta("key", status=2).stderr.startswith("manta: ")
    assert "File name too long" in manta("key", "x" * 300, status=1).stderr
    assert "at most 4095" in manta("key", "x/" * 3000, status=1).stderr
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing(tmp_path):
    """A file that may not grow, as on a full disk."""
    done = subprocess.run([PROGRAM, "key", "run.key"], cwd=tmp_path, capture_output=True, text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)))
    assert done.returncode == 1 and "run.key cannot be written" in done.stderr
    assert not list(tmp_path.iterdir())
