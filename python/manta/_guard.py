"""How the processes of `manta launch` end: what is told of a failure, and that nothing outlives the launcher.

A rank is killed by the kernel when the launcher dies (PR_SET_PDEATHSIG). What the rank has started is not, and is killed, as
the rest of the rank's process group, by the guard: a process that does nothing but wait for the end of a pipe from the launcher.
"""
from __future__ import annotations

import ctypes
import dataclasses
import os
import shutil
import signal
from typing import Iterable, Optional

PR_SET_PDEATHSIG = 1
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)     # what the launcher passes on, and ends by

_prctl = ctypes.CDLL(None).prctl


class Guard:
    """A process that kills the groups of ranks when the launcher is gone, however that came about. folder: it is removed then."""

    def __init__(self, folder: Optional[str] = None) -> None:
        reading, self._writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._writing)
                self._wait(reading)
                if folder is not None:
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os._exit(0)
        os.close(reading)

    @staticmethod
    def _wait(reading: int) -> None:
        os.setsid()
        os.chdir("/")
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(nothing, fd)
        groups = set()
        with open(reading, "rb") as lines:
            for line in lines:
                group = int(line)
                if group > 0:
                    groups.add(group)
                else:
                    groups.discard(-group)
        for group in groups:
            signal_group(group, signal.SIGKILL)

    def tell(self, number: int) -> None:
        """A group begins, or, with a minus, has ended."""
        try:
            os.write(self._writing, b"%d\n" % number)
        except BrokenPipeError:
            pass                # somebody has killed it; ranks still end with the launcher, by PR_SET_PDEATHSIG

    def end(self) -> None:
        """No rank is left. The guard may stand still, and is not waited for."""
        os.close(self._writing)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def become_rank(launcher: int, mask: Iterable[int]) -> None:
    """Run in the new process, before the program: it ends with the launcher, and gets the signals that were held back."""
    signal.set_wakeup_fd(-1)
    _prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != launcher:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@dataclasses.dataclass
class Failure:
    """How a rank ended. code: its status, or a signal's number below zero."""
    rank: int
    pid: int
    code: int

    @property
    def status(self) -> int:
        return self.code if self.code > 0 else 128 - self.code

    def __str__(self) -> str:
        if self.code > 0:
            return f"process {self.pid} ended with status {self.code}"
        try:
            name = f" ({signal.Signals(-self.code).name})"
        except ValueError:
            name = ""
        return f"process {self.pid} was killed by signal {-self.code}{name}"


def first_failure(ended: Iterable[Failure]) -> Optional[Failure]:
    """The first of those that were seen at once: a rank whose peer was killed raises, hardly ever the other way round."""
    failed = [f for f in ended if f.code]
    return min(failed, key=lambda f: (f.code > 0, f.rank), default=None)
