"""Copies of what a loop reports: its folder stays as it is, whatever becomes of the copy.

A file is copied by the kernel, as a second name for the same blocks where the file system can do that (FICLONE),
else by copy_file_range(). Hard links would be no copies: the loop may write the same file again.

Of the temporary root itself (some programs report `tempfile.gettempdir()`) only files that this user has changed
since the loop began are taken, and none of the folders in it, which are other programs'. All ranks write there, often a file of
one name: it is copied under a lease of the kernel's, which is had when nobody has the file open to write, and which
whoever opens it then waits for.
"""
from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import tempfile
import time
import warnings

_FICLONE = 0x40049409
_TRIES = 64         # of a file that another process writes meanwhile
_WRITTEN_S = 5.0    # for files of the temporary root that are being written
_warned = False     # of the temporary root: once in a process, and whenever a file is left out


class Unsteady(OSError):
    """A file was being written while it was copied, each time."""


def copy_folder(source: str, to: str, began: float) -> None:
    """Copies what is in `source` into the folder `to`, which is made.

    began: when the loop began, in seconds since 1970; it counts for the temporary root alone.
    """
    if is_temporary_root(source):
        os.makedirs(to)
        _copy_changed(source, to, began)
        return
    if os.path.realpath(to).startswith(os.path.realpath(source).rstrip("/") + "/"):
        raise ValueError(f"{source} has the folder of this run in it, and cannot be a checkpoint of it; expected a folder of "
                         "the checkpoint's own")
    os.makedirs(to)
    _copy_all(source, to, [os.stat(to), os.stat(source)])


def is_temporary_root(folder: str) -> bool:
    """Whether it is the folder in which all programs put what is temporary, or one above it."""
    here = os.path.realpath(folder)
    roots = {os.path.realpath(p) for p in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")}
    return any(here == r or r.startswith(here.rstrip("/") + "/") for r in roots)


def _copy_all(source: str, to: str, above: list[os.stat_result]) -> None:
    """above: the folders in which this one lies, the copy's own among them; a link that leads back to one has no end."""
    for entry in os.scandir(source):
        target = os.path.join(to, entry.name)
        if not _is_text(entry.name):
            raise ValueError(f"{entry.path!r} cannot be part of a checkpoint: expected a name in UTF-8")
        if entry.is_dir():
            here = entry.stat()
            if any(os.path.samestat(here, folder) for folder in above):
                raise ValueError(f"{entry.path} is a link to a folder that it lies in itself, and cannot be part of a checkpoint")
            os.makedirs(target, exist_ok=True)
            _copy_all(entry.path, target, [*above, here])
        elif entry.is_file():
            copy_file(entry.path, target)
        elif entry.is_symlink():
            raise FileNotFoundError(errno.ENOENT, "a checkpoint has a link to what is not there", entry.path)
        else:
            raise ValueError(f"{entry.path} is neither a file nor a folder, and cannot be part of a checkpoint")


def _is_text(name: str) -> bool:
    """Whether a file's name is UTF-8, as names in a checkpoint's list are."""
    return name == name.encode(errors="replace").decode()


def _copy_changed(source: str, to: str, began: float) -> None:
    global _warned
    names = _changed(source, began)
    left = [n for n in names if not _copy_leased(os.path.join(source, n), os.path.join(to, n))]
    end = time.monotonic() + _WRITTEN_S
    while left and time.monotonic() < end:
        time.sleep(0.002)           # for processes that are writing them: nothing tells of their end
        left = [n for n in left if not _copy_leased(os.path.join(source, n), os.path.join(to, n))]
    if _warned and not left:
        return
    _warned = True
    taken = sorted(set(names) - set(left))
    told = f"; being written, and left out: {', '.join(sorted(left)[:8])}" if left else ""
    warnings.warn(f"{source} is the folder of everybody's temporary files: of the checkpoint that was reported there, the "
                  f"files that changed since the loop began were copied ({', '.join(taken[:8]) or 'none'}){told}. "
                  "Write checkpoints to a folder of their own (tempfile.TemporaryDirectory)", stacklevel=2)


def _changed(source: str, began: float) -> list[str]:
    """The files of this user in a folder that have changed since then."""
    out = []
    for entry in os.scandir(source):
        try:
            s = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISREG(s.st_mode) and s.st_uid == os.getuid() and s.st_mtime >= began and _is_text(entry.name):
            out.append(entry.name)
    return out


def _copy_leased(source: str, to: str) -> bool:
    """Copies a file that nobody has open to write, and that nobody can open so meanwhile; False: somebody has. One that
    is gone or may not be read is none that was reported."""
    import fcntl
    try:
        f = open(source, "rb")
    except (FileNotFoundError, PermissionError):
        return True
    with f:
        try:
            fcntl.fcntl(f, fcntl.F_SETSIG, signal.SIGURG)       # that another opens it is told by this, which is ignored
            fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            return False
        except OSError:
            copy_file(source, to)                               # a file system without leases
            return True
        _copy_bytes(f.fileno(), to, os.fstat(f.fileno()))
        fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


def copy_file(source: str, to: str) -> None:
    """Copies one file as it was at one moment: when it changes meanwhile, once more."""
    for _ in range(_TRIES):
        with open(source, "rb") as f:
            before = os.fstat(f.fileno())
            _copy_bytes(f.fileno(), to, before)
            after = os.stat(source)
        if (before.st_size, before.st_mtime_ns, before.st_ino) == (after.st_size, after.st_mtime_ns, after.st_ino):
            return
    os.unlink(to)
    raise Unsteady(errno.EBUSY, "another process keeps writing this file of a checkpoint; each rank is to write its own",
                   source)


def _copy_bytes(source: int, to: str, s: os.stat_result) -> None:
    out = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, stat.S_IMODE(s.st_mode) | stat.S_IWUSR)
    try:
        if not _clone(source, out) and not _copy_range(source, out):
            with open(source, "rb", closefd=False) as a, open(out, "wb", closefd=False) as b:
                shutil.copyfileobj(a, b, 1 << 20)
    except OSError as e:
        raise OSError(e.errno, e.strerror, to) from None         # the kernel names no file of these calls
    finally:
        os.close(out)


def _clone(source: int, out: int) -> bool:
    import fcntl
    try:
        fcntl.ioctl(out, _FICLONE, source)
        return True
    except OSError:
        return False


def _copy_range(source: int, out: int) -> bool:
    """False: the kernel cannot, as between file systems before Linux 5.19; nothing was copied then."""
    done = 0
    try:
        while n := os.copy_file_range(source, out, 1 << 30):
            done += n
    except OSError:
        if done:
            raise
        return False
    return True
