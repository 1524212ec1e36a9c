"""manta launch: runs a plain program of TensorFlow or PyTorch in several processes of this host.

    launcher ─┬─ rank 0 ── what it starts       a rank leads a process group of its own; its input is empty,
              ├─ rank 1 ── what it starts       its two outputs are pipes to the launcher
              └─ guard                          kills the groups when the launcher is gone

The launcher is one loop around poll(): signals, the ends of ranks, their output, its own outputs. What other code relies on:

1. A group is signalled only before its leader has been waited for: until then its number cannot be another's.
2. When a rank has ended, what it left of its group is killed, and its pipes are read once more and closed: nobody waits
   for the end of a pipe that some process may hold open.
3. An output is written to when poll() says so, and not more than it then takes: a reader that stands still stops
   the ranks, and neither signals nor deadlines.
4. What is to end has a deadline: after the grace it is killed.
"""
from __future__ import annotations

import dataclasses
import errno
import functools
import importlib.util
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Callable, Mapping, Optional

from manta._guard import ENDING, Failure, Guard, become_rank, first_failure, signal_group
from manta._outputs import Log, Sink, Stream, open_missing
from manta._ports import reserve_port

USAGE = """\
usage: python -m manta launch -n N [OPTION...] [-m MODULE | SCRIPT] [ARGUMENT...]

Runs a program of TensorFlow (TF_CONFIG) or PyTorch (env://) in N processes of this host.

  -n N                so many processes
  --max-restarts K    after a failure all processes are started again, K times (0)
  --grace SECONDS     from SIGTERM to SIGKILL for processes that have to end (10)
  --logs FOLDER       the output of each process is also kept in FOLDER/rank-N.txt
  --no-prefix         lines of output do not begin with [rank N]
  --keras 3           tf.keras stays what TensorFlow brings; else it is tf_keras, if that is installed
  -h, --help          shows this

With --on (ssh:FILE, slurm, mpi:FILE, k8s) it starts a program on many hosts: manta launch --on ssh:FILE --help
"""
AGAIN_S = 0.5               # timeout(1) sends its signal twice, a terminal that goes does, too; a person takes longer
FULL = 1 << 20              # bytes that wait for a reader, at which no more is read from the ranks


class LaunchError(Exception):
    """Why nothing, or not everything, could be started, in one sentence."""

    def __init__(self, text: str, status: int = 2) -> None:
        super().__init__(text)
        self.status = status


@dataclasses.dataclass
class Options:
    """What the command line says. command: what follows the interpreter."""
    help: bool = False
    n: int = 0
    command: list[str] = dataclasses.field(default_factory=list)
    max_restarts: int = 0
    grace_s: float = 10.0
    logs: Optional[str] = None
    prefix: bool = True
    keras: Optional[int] = None


def _number(name: str, text: str, least: int, kind: Callable[[str], float] = int) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = least - 1
    if not least <= value < 1e9:
        raise LaunchError(f"{name} {text}: expected a {'whole ' if kind is int else ''}number from {least} on")
    return value


def parse_options(arguments: list[str]) -> Options:
    """Reads options up to the script or -m MODULE; what follows is the program's."""
    out, rest = Options(), list(arguments)
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--", "-m"):
        name, equals, value = rest.pop(0).partition("=")
        if name.startswith("-n") and name != "-n":                  # -n2
            name, equals, value = "-n", "=", name[2:]
        if name in ("-h", "--help"):
            return Options(help=True)
        if name == "--no-prefix" and not equals:
            out.prefix = False
            continue
        if name not in ("-n", "--max-restarts", "--grace", "--logs", "--keras"):
            raise LaunchError(f"no option is called {name}; --help lists them")
        if not equals:
            if not rest:
                raise LaunchError(f"{name} is the last word; expected its value behind it")
            value = rest.pop(0)
        if name == "-n":
            out.n = int(_number(name, value, 1))
        elif name == "--max-restarts":
            out.max_restarts = int(_number(name, value, 0))
        elif name == "--grace":
            out.grace_s = _number(name, value, 0, float)
        elif name == "--logs":
            out.logs = value
        elif value == "3":
            out.keras = 3
        else:
            raise LaunchError(f"--keras {value}: expected 3")
    if rest[:1] == ["--"]:
        del rest[0]
    if not out.n:
        raise LaunchError("-n is missing: the number of processes")
    if not rest or rest == ["-m"]:
        raise LaunchError("expected a script, or -m and a module, behind the options")
    out.command = rest
    return out


def check_command(command: list[str]) -> None:
    """Refuses a script that cannot be read and a module that is not there, once and not once for each rank."""
    if command[0] == "-m":
        top = command[1].partition(".")[0]
        sys.path.insert(0, os.getcwd())
        try:
            found = top in sys.modules or importlib.util.find_spec(top) is not None
        except (ImportError, ValueError):
            found = False
        finally:
            del sys.path[0]
        if not found:
            raise LaunchError(f"no module is called {command[1]}")
        return
    try:
        os.stat(command[0])
    except OSError as e:
        raise LaunchError(f"{command[0]}: {e.strerror}") from None
    if not os.access(command[0], os.R_OK):
        raise LaunchError(f"{command[0]}: it cannot be read")


def rank_variables(options: Options, rank: int, attempt: int, ports: list[int]) -> dict[str, str]:
    """The variables that a rank is told its place by; the last port is the one of torch's store, the others are TensorFlow's."""
    n, k = str(options.n), str(rank)
    workers = [f"127.0.0.1:{port}" for port in ports[:-1]]
    return {
        "RANK": k, "LOCAL_RANK": k, "ROLE_RANK": k, "WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n, "ROLE_WORLD_SIZE": n,
        "NODE_RANK": "0", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports[-1]), "TORCHELASTIC_RUN_ID": f"manta-{os.getpid()}",
        "TORCHELASTIC_RESTART_COUNT": str(attempt), "TORCHELASTIC_MAX_RESTARTS": str(options.max_restarts),
        "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}),
    }


def default_variables(options: Options, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables for all ranks that the environment does not have: whoever set one has chosen it."""
    out = {"TF_GRPC_REUSE_PORT": "1", "PYTHONUNBUFFERED": "1",
           "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // options.n))}
    if options.keras != 3 and importlib.util.find_spec("tf_keras"):
        out["TF_USE_LEGACY_KERAS"] = "1"
    return {name: value for name, value in out.items() if name not in environment}


@dataclasses.dataclass
class Rank:
    """A process of the program. killed: it did not end when it was told to."""
    number: int
    process: subprocess.Popen[bytes]
    streams: list[Stream]
    killed: bool = False


class Launcher:
    """The ranks of one launch, from the first attempt to the last."""

    def __init__(self, options: Options) -> None:
        self._options = options
        open_missing()
        try:
            self._logs = [Log(options.logs, rank) for rank in range(options.n)] if options.logs is not None else []
        except OSError as e:
            raise LaunchError(str(e.strerror)) from None
        # Of one file there is one sink, or the two would tear each other's lines.
        self._out = Sink(1)
        self._err = self._out if os.path.sameopenfile(1, 2) else Sink(2)
        self._ranks: list[Rank] = []                    # those that have not ended
        self._killed: list[int] = []
        self._failure: Optional[Failure] = None         # the attempt's first
        self._signal = 0                                # what the whole launch ends by
        self._told_at: Optional[float] = None           # when the ranks were told to end
        self._deadline: Optional[float] = None          # when they, or what is written last, will have had their time
        self._hurry = False                             # it is past, or somebody has asked twice
        self._is_full = False                           # an output could not be written
        self._held: list[socket.socket] = []            # the ports of the attempt that runs
        try:
            self._folder: Optional[str] = tempfile.mkdtemp(prefix="manta-launch-")     # where ranks of keras_strategy() meet
        except OSError:
            self._folder = None             # most programs need none
        self._guard = Guard(self._folder)
        self._wake, self._writing = socket.socketpair()
        self._wake.setblocking(False)
        self._writing.setblocking(False)
        signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:      # nohup
                signal.signal(number, lambda number, frame: None)

    def run(self) -> int:
        """Runs all attempts; the status to end with."""
        environment = dict(os.environ)
        names = [n for n in rank_variables(self._options, 0, 0, [0, 0]) if n in environment]
        if names:
            self._say(f"manta launch: {', '.join(names)} of the environment: replaced in the ranks by their own")
        environment.update(default_variables(self._options, environment))
        environment.pop("MANTA_RANKS", None)
        try:
            for attempt in range(self._options.max_restarts + 1):
                self._attempt(attempt, environment)
                if self._failure is not None:
                    self._tell(self._failure, attempt)
                if self._failure is None or self._signal:
                    break
        finally:
            self._kill()
            while self._ranks:
                self._step()
            for log in self._logs:
                if log.error is not None:
                    self._say(f"manta launch: {log.path} is not whole: {log.error}")
            self._flush()
            for s in self._held:
                s.close()
            self._guard.end()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            for number in ENDING:           # the status is decided, while the interpreter takes its time to end
                signal.signal(number, signal.SIG_IGN)
        if self._signal:
            return 1 if self._is_full and self._signal == signal.SIGPIPE else 128 + self._signal
        return self._failure.status if self._failure else 0

    def _attempt(self, attempt: int, environment: Mapping[str, str]) -> None:
        self._failure, self._told_at, self._deadline, self._hurry, self._killed = None, None, None, False, []
        self._hold_ports()
        ports = [s.getsockname()[1] for s in self._held]
        if self._folder is not None:
            environment = {**environment, "MANTA_RANKS": f"unix:{self._folder}/{attempt}"}
        for rank in range(self._options.n):
            self._start(rank, {**environment, **rank_variables(self._options, rank, attempt, ports)})
        while self._ranks:
            self._step()

    def _hold_ports(self) -> None:
        """Ports for an attempt, none of which was of the one before."""
        before, self._held = self._held, []
        try:
            self._held += [reserve_port() for _ in range(self._options.n + 1)]
        except OSError as e:
            raise LaunchError(f"no port can be had: {e.strerror}", 1) from None
        finally:
            for s in before:
                s.close()

    def _start(self, number: int, environment: Mapping[str, str]) -> None:
        # A Ctrl-C that comes now is the launcher's: the new process is in its group for a moment.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            process = subprocess.Popen([sys.executable, *self._options.command], bufsize=0, env=environment, process_group=0,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       preexec_fn=functools.partial(become_rank, os.getpid(), mask))
        except (OSError, subprocess.SubprocessError) as e:
            raise LaunchError(f"rank {number} could not be started: {getattr(e, 'strerror', None) or e}", 1) from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._guard.tell(process.pid)
        assert process.stdout is not None and process.stderr is not None
        many = self._options.n > 1
        prefix = b"[rank %d] " % number if many and self._options.prefix else b""
        log = self._logs[number] if self._logs else None
        self._ranks.append(Rank(number, process, [Stream(process.stdout.fileno(), self._out, prefix, many, log),
                                                  Stream(process.stderr.fileno(), self._err, prefix, many, log)]))

    def _step(self) -> None:
        """Waits until something happens, and does what is to be done then."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for sink in {self._out, self._err}:
            if sink.waiting:
                poll.register(sink.fd, select.POLLOUT)
        for rank in self._ranks:
            for stream in rank.streams:
                if len(stream.sink.waiting) < FULL:
                    poll.register(stream.fd, select.POLLIN)
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic()) * 1000
        ready = {fd for fd, _ in poll.poll(left)}
        for rank in self._ranks:
            rank.streams = [s for s in rank.streams if s.fd not in ready or s.read()]
        if self._wake.fileno() in ready:
            signals = self._wake.recv(512)
            self._reap()
            now = time.monotonic()
            for number in set(ENDING).intersection(signals):
                self._interrupt(number, now)
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._kill()
        for sink in {self._out, self._err}:
            try:
                sink.write()
            except OSError as e:
                self._lose_reader(sink, e)

    def _reap(self) -> None:
        """Takes leave of the ranks that have ended; the first that failed ends the others."""
        looks = os.WEXITED | os.WNOWAIT | os.WNOHANG
        ended = [r for r in self._ranks if os.waitid(os.P_PID, r.process.pid, looks) is not None]
        failures = []
        for rank in ended:
            signal_group(rank.process.pid, signal.SIGKILL)
            self._guard.tell(-rank.process.pid)
            failures.append(Failure(rank.number, rank.process.pid, rank.process.wait()))
            for stream in rank.streams:
                stream.end()
            for pipe in (rank.process.stdout, rank.process.stderr):
                if pipe is not None:
                    pipe.close()
            self._ranks.remove(rank)
            if rank.killed:
                self._killed.append(rank.number)
        if self._failure is None and not self._signal:
            self._failure = first_failure(failures)
            if self._failure is not None:
                self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        self._told_at = time.monotonic()
        self._deadline = self._told_at + self._options.grace_s
        for rank in self._ranks:
            signal_group(rank.process.pid, number)

    def _kill(self) -> None:
        self._deadline, self._hurry = None, True
        for rank in self._ranks:
            rank.killed = True
            signal_group(rank.process.pid, signal.SIGKILL)

    def _interrupt(self, number: int, now: float) -> None:
        """A signal to the launcher: the ranks get it, too; when it comes again nobody is waited for."""
        self._signal = self._signal or number
        if not self._ranks or (self._told_at is not None and now >= self._told_at + AGAIN_S):
            self._kill()
        elif self._told_at is None:
            self._end(number)

    def _lose_reader(self, sink: Sink, error: OSError) -> None:
        """`manta launch ... | head`: the ranks end, and the launch as by SIGPIPE. A disk that is full is told of."""
        sink.discard()
        if error.errno != errno.EPIPE:
            self._is_full = True
            if sink is not self._err:
                self._say(f"manta launch: the output cannot be written: {error.strerror}")
        if not self._signal and self._failure is None:
            self._signal = signal.SIGPIPE
        if self._told_at is None:
            self._end(signal.SIGTERM)

    def _flush(self) -> None:
        """Writes what waits; after a signal no longer than the grace."""
        self._hurry = False
        self._deadline = time.monotonic() + self._options.grace_s if self._signal else None
        while (self._out.waiting or self._err.waiting) and not self._hurry:
            self._step()

    def _say(self, text: str) -> None:
        self._err.waiting += os.fsencode(text + "\n")

    def _tell(self, failure: Failure, attempt: int) -> None:
        restarts = self._options.max_restarts
        lines = [f"manta: rank {failure.rank} failed", f"  what   {failure}"]
        if self._killed:
            who = f"rank {self._killed[0]}" if len(self._killed) == 1 else "ranks " + ", ".join(map(str, sorted(self._killed)))
            lines.append(f"  also   {who} did not end within {self._options.grace_s:g} s of SIGTERM: killed")
        if self._signal or attempt == restarts:
            lines.append(f"  now    all ranks have ended; status {128 + self._signal if self._signal else failure.status}")
        else:
            lines.append(f"  now    all ranks begin again; restart {attempt + 1} of {restarts}")
        if self._logs:
            lines.append(f"  log    {self._logs[failure.rank].path}")
        self._say("\n".join(lines))


def launch(arguments: list[str]) -> int:
    """`manta launch`: the status to end with."""
    try:
        options = parse_options(arguments)
        if options.help:
            print(USAGE, end="")
            return 0
        check_command(options.command)
        return Launcher(options).run()
    except LaunchError as e:
        print(f"manta launch: {e}", file=sys.stderr)
        return e.status
