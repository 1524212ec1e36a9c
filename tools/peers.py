#!/usr/bin/env python3
"""peers.py - the virtual environment with TensorFlow, PyTorch and Ray.

    tools/peers.py          installs it if it is not there, and prints its folder

It is some 8 GB large and takes minutes to install, so it lies outside the repository and is kept:
$XDG_CACHE_HOME/manta/peers-HASH (~/.cache without the variable), HASH being that of the pinned list and of the
interpreter. A folder of that name is complete: it is built beside it and renamed at the end, by one
process at a time, which holds a lock. One that nobody has asked for in a month is removed.
"""
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "tests" / "peers" / "requirements.txt"
ROOM = 13 * 10**9           # bytes: what is installed, and what pip downloads and unpacks before
UNUSED_S = 30 * 24 * 3600
WIDTH = 120                 # of such a line
LOUD_S = 30                 # between two lines of progress where they are not written over each other


class PeersMissing(Exception):
    """The environment is not there and cannot be made; the text says why."""


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "manta"


def folder_of(requirements, cache):
    """Where the environment of this list and this interpreter lies, or will."""
    wanted = requirements.read_bytes() + sys.version.encode() + sys.executable.encode()
    return cache / f"peers-{hashlib.sha256(wanted).hexdigest()[:16]}"


class Progress:
    """One line that is written over on a terminal; elsewhere a line now and then."""

    def __init__(self, out):
        self.out, self.begun, self.said = out, time.monotonic(), -LOUD_S

    def say(self, text):
        now = time.monotonic() - self.begun
        line = f"        {now:4.0f} s: {text}"
        if self.out.isatty():
            self.out.write(f"\r\033[K{line[:shutil.get_terminal_size().columns - 1]}")
        elif now - self.said >= LOUD_S:
            self.out.write(line[:WIDTH] + "\n")
            self.said = now
        self.out.flush()

    def end(self):
        if self.out.isatty():
            self.out.write("\r\033[K")
            self.out.flush()


def run(command, progress, env):
    """Runs a command and shows its last line; raises PeersMissing with the end of what it printed."""
    with tempfile.TemporaryFile("w+") as log:
        p = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                             env={**os.environ, **env})
        try:
            while True:
                try:
                    status = p.wait(1)
                    break
                except subprocess.TimeoutExpired:
                    log.seek(0)
                    lines = log.read().splitlines()
                    progress.say(lines[-1].strip() if lines else "begins")
        finally:
            if p.poll() is None:
                p.kill()
                p.wait()
        if status:
            log.seek(0)
            end = "\n".join(log.read().splitlines()[-15:])
            raise PeersMissing(f"{' '.join(map(str, command))} ended with status {status} (can PyPI be reached? "
                               f"MANTA_OFFLINE=1 skips this):\n{end}")


def install(folder, requirements, progress):
    """A new virtual environment with what the list names. Downloads go to the folder too, and are removed."""
    downloads = folder / "downloads"
    run([sys.executable, "-m", "venv", "--clear", folder], progress, {})
    downloads.mkdir()
    run([folder / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir",
         "--progress-bar", "off", "-r", requirements], progress, {"TMPDIR": str(downloads)})
    shutil.rmtree(downloads)


def name_anew(folder, name):
    """Makes the scripts of an environment at `folder`, which name it, right for the place `name`."""
    for script in (folder / "bin").iterdir():
        if script.is_symlink() or not script.is_file():
            continue
        text = script.read_bytes()
        if os.fsencode(folder) in text:
            script.write_bytes(text.replace(os.fsencode(folder), os.fsencode(name)))


def remove_unused(cache, kept):
    for folder in cache.glob("peers-*"):
        if folder != kept and folder.is_dir() and time.time() - folder.stat().st_mtime > UNUSED_S:
            shutil.rmtree(folder)


def make(folder, requirements, progress, installer, room):
    free = shutil.disk_usage(folder.parent).free
    if free < room:
        raise PeersMissing(f"{folder.parent} has {free / 1e9:.1f} GB free, and installing TensorFlow, PyTorch and Ray takes "
                           f"{room / 1e9:.0f} GB; XDG_CACHE_HOME names another folder")
    aside = folder.with_name(folder.name + ".aside")
    shutil.rmtree(aside, ignore_errors=True)        # of one that was killed
    try:
        installer(aside, requirements, progress)
        name_anew(aside, folder)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def environment(requirements=REQUIREMENTS, cache=None, out=sys.stdout, installer=install, room=ROOM):
    """The folder of the environment, installed first where it is not there; raises PeersMissing."""
    cache = cache or cache_folder()
    folder = folder_of(requirements, cache)
    if not folder.is_dir():
        if os.environ.get("MANTA_OFFLINE") == "1":
            raise PeersMissing(f"MANTA_OFFLINE=1, and {folder} is not there yet")
        cache.mkdir(parents=True, exist_ok=True)
        with open(cache / "peers.lock", "w") as lock:
            progress = Progress(out)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress.say(f"another process installs into {cache}: waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                progress.say(f"installing TensorFlow, PyTorch and Ray into {folder} (once; minutes)")
                make(folder, requirements, progress, installer, room)
                remove_unused(cache, folder)
            progress.end()
    os.utime(folder)        # somebody has asked for it
    return folder


if __name__ == "__main__":
    try:
        print(environment(out=sys.stderr))
    except PeersMissing as e:
        sys.exit(f"peers: {e}")
