"""The record of a run: what its ranks report, and the checkpoints that are made of it.

    RUN/                                  manta/run.h has the others
      reports.jsonl                       every report whole, a JSON object a line
      .parts.PID.ATTEMPT/round-K.rank-R/  copies of folders that ranks have reported
      validations.jsonl                   what became of checkpoints that a function has tried (_validate)
      checkpoints/checkpoint-000003/      manifest.json, and
        checkpoint_000002/                the files, under the name that programs see

Report number k of each rank belongs to report number k of the others: a round. A round is complete when every rank
whose loop still runs has made it. Complete rounds with files become checkpoints, in their order, by a thread: until the
files are renamed to their place by manta_checkpoints_add(), nothing of them can be taken up.

A rank hears that its files are written when they are part of a checkpoint, or, if others have not come
that far, at once: then nothing is being written, and it must not wait for them.
"""
from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import pickle
import queue
import re
import shutil
import threading
import time
from typing import Any, Callable, Mapping, Optional

from manta import _manta
from manta.train import _validate
from manta.train.checkpoint import Checkpoint
from manta.train.config import CheckpointConfig, CheckpointConsistencyMode, RunConfig
from manta.train.validation import ReportedCheckpointStatus, ValidationConfig, ValidationTaskConfig

REPORTS = "reports.jsonl"


@dataclasses.dataclass
class Part:
    """One rank's report in a round."""
    metrics: dict[str, Any]
    folder: Optional[str]
    name: Optional[str]
    own: Optional[str] = None       # the folder that it wrote into the run's: it goes when the checkpoint is there
    validation: Optional[bytes] = None
    waits: bool = False             # to hear that its files are written


@dataclasses.dataclass
class Keeping:
    """Which checkpoints are kept, where the library cannot know: it would remove one that is still to be tried."""
    number: int
    score: Optional[str]
    order: str

    def goes(self, checkpoints: list[tuple[Checkpoint, dict[str, Any]]], is_pending: Callable[[Checkpoint], bool]) -> list[Checkpoint]:
        """Those that are too many: the best stay, as many as are to be kept, the latest beside them, as with the library, and what
        is to be tried, which is no rival to others before."""
        worst = -math.inf if self.order == "max" else math.inf

        def value(one: tuple[int, tuple[Checkpoint, dict[str, Any]]]) -> tuple[float, int]:
            if self.score is None:
                return 0.0, one[0]
            known = dict(numbers(one[1][1], self.score)).get(_curve_name(self.score), math.nan)
            known = worst if known != known else known
            return (known if self.order == "max" else -known), one[0]
        settled = [c for _, (c, _) in sorted(enumerate(checkpoints), key=value) if not is_pending(c)]
        return [c for c in settled[:-self.number] if c is not checkpoints[-1][0]]


def _curve_name(name: object) -> str:
    """A metric's name as the record of curves takes it: 1 to 63 bytes of UTF-8 without a NUL."""
    return str(name).encode(errors="replace").replace(b"\0", b"?")[:63].decode(errors="ignore") or "?"


def numbers(metrics: Mapping[str, Any], first: Optional[str] = None) -> list[tuple[str, float]]:
    """The metrics that are numbers, for curves. first: the one that must be among those for which the record has room."""
    out = []
    for name, value in sorted(metrics.items(), key=lambda one: one[0] != first):
        try:
            if isinstance(value, (int, float)) or getattr(value, "ndim", None) == 0:
                out.append((_curve_name(name), float(value)))
        except (TypeError, ValueError, OverflowError):
            pass
    return out


def _json_of(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return _told(value)


def _told(value: Any) -> str:
    """A value in words, whatever it is: a report is kept although one of its values cannot say what it is."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  of the value's own, or a number of thousands of digits
        return f"<{type(value).__name__}>"


def to_json(metrics: Mapping[Any, Any]) -> str:
    try:
        return json.dumps(metrics, default=_json_of)
    except Exception:  # noqa: BLE001  names that are no texts, values that hold themselves or cannot be read
        pass
    out = {}
    for name, value in metrics.items():
        try:
            out[name if isinstance(name, str) else _told(name)] = json.loads(json.dumps(value, default=_json_of))
        except Exception:  # noqa: BLE001  this value alone
            out[name if isinstance(name, str) else _told(name)] = _told(value)
    return json.dumps(out)


def _pickled(value: Any) -> bytes:
    from manta.train import _session
    return _session.pickled_value(value)


class Record:
    """A run's folder, as its driver writes it. Any thread may call."""

    def __init__(self, run: _manta.Run, score: Optional[str] = None, keeping: Optional[Keeping] = None) -> None:
        self._run = run
        self._score = score             # the metric by which checkpoints are kept
        self._keeping = keeping
        self.name, self.path = run.name, run.path
        self._lock = threading.RLock()
        self._reports = _open_reports(os.path.join(self.path, REPORTS))
        self.history: list[dict[str, Any]] = []             # rank 0's
        self.checkpoints: list[tuple[Checkpoint, dict[str, Any]]] = []
        self._index = _next_index(self.path)
        self._before = _reported(self.path)                 # reports of each rank before this attempt
        self._tell: Callable[..., None] = lambda rank, *message: None
        self.after_round: Optional[Callable[[list[dict[str, Any]], Optional[Checkpoint]], None]] = None
        self._validations: Optional[_validate.Validations] = None
        self.statuses: dict[str, ReportedCheckpointStatus] = {}         # of checkpoints, by their path
        self._pending: dict[str, ValidationTaskConfig] = {}
        self._work: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.problem: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._write, name="manta-record", daemon=True)
        self._thread.start()
        self.start = _start_of(run.start)
        self._take_up(run.start)
        self._sweep()
        self._ranks = 0
        self._rounds: dict[int, dict[int, Part]] = {}
        self._made: dict[int, int] = {}
        self._ended: set[int] = set()
        self._next = 0
        self._unwritten: set[int] = set()                               # rounds
        self._questions: list[tuple[int, int, int, str]] = []           # rank, number, reports that it has made, what it waits for
        self._meeting: dict[int, tuple[int, str, bytes]] = {}           # of each rank that is there: number, what for, what it brings

    def _take_up(self, start: Optional[str]) -> None:
        """What programs before this one have reported in this run; start: the checkpoint that it goes on from."""
        from manta.train import result
        history = result._read_history(self.path)
        self.history = [metrics for _, metrics in history]
        if start is not None:
            self.checkpoints = [(c, m) for c, m in result._read_checkpoints(self.path, history)
                                if os.path.basename(os.path.dirname(c.path)) <= os.path.basename(start)]
        known = _validate.read(self.path)
        for checkpoint, _ in self.checkpoints:
            told = known.get(_place_of(checkpoint))
            if told is not None:
                self.statuses[checkpoint.path] = told[0]
                if told[0] is ReportedCheckpointStatus.PENDING_VALIDATION:
                    self._pending[checkpoint.path] = _validate.task_of(told[2])

    # ---- attempts ----

    def begin_attempt(self, ranks: int, attempt: int, tell: Callable[..., None]) -> str:
        """Forgets what was not complete, and returns the folder for the copies of this attempt."""
        with self._lock:
            self._tell = tell
            self._ranks = ranks
            self._rounds, self._next, self._ended = {}, 0, set()
            self._unwritten, self._questions, self._meeting = set(), [], {}
            self._made = dict.fromkeys(range(ranks), 0)
            self._sweep()
            parts = os.path.join(self.path, f".parts.{os.getpid()}.{attempt}")
            os.mkdir(parts)
            return parts

    def end_attempt(self) -> None:
        """Waits until what is complete is written, and drops the rest."""
        self.flush()
        with self._lock:
            for rank, n in self._made.items():
                self._before[rank] = self._before.get(rank, 0) + n
            self._sweep()

    def _sweep(self) -> None:
        with contextlib.suppress(FileNotFoundError):        # somebody has removed the run's folder
            for name in os.listdir(self.path):
                if name.startswith(".parts."):
                    shutil.rmtree(os.path.join(self.path, name), ignore_errors=True)

    def heard(self, rank: int, message: tuple[Any, ...]) -> None:
        """A message of a rank: the listener's thread calls."""
        if message[0] == "report":
            self._report(rank, Part(pickle.loads(message[1]), *message[2:]))
        elif message[0] == "latest":
            latest = self.start
            self._tell(rank, "latest", message[1], latest.path if latest is not None else None)
        elif message[0] == "reported":
            with self._lock:
                self._questions.append((rank, message[1], self._made[rank], message[2]))
                self._answer()
        elif message[0] == "forget":
            with self._lock:
                self._questions = [q for q in self._questions if q[:2] != (rank, message[1])]
        elif message[0] == "meet":
            with self._lock:
                self._meeting[rank] = message[1:]
                self._meet()

    # ---- what ranks ask, and do together ----

    def _answer(self) -> None:
        """Answers the questions for which everything is there."""
        for question in list(self._questions):
            rank, number, made, mode = question
            is_committed = self._next >= made and not any(k < made for k in self._unwritten)
            # What a program before this one has left is tried by none when the trainer has no function for it.
            is_validated = mode != CheckpointConsistencyMode.VALIDATED.value or not self._pending or self._validations is None
            if mode is None or is_committed and is_validated:
                self._questions.remove(question)
                out = [(c.path, m, self.status_of(c).value) for c, m in self.kept()]
                self._tell(rank, "reported", number, _pickled(out))

    def status_of(self, checkpoint: Checkpoint) -> ReportedCheckpointStatus:
        """How far a checkpoint is."""
        return self.statuses.get(checkpoint.path, ReportedCheckpointStatus.COMMITTED)

    def _meet(self) -> None:
        """Lets the ranks go on when all have come, or when one cannot come any more."""
        gone = sorted(self._ended - self._meeting.keys())
        if not self._meeting or len(self._meeting) < self._ranks and not gone:
            return
        kinds = {kind for _, kind, _ in self._meeting.values()}
        wrong = None
        if gone:
            wrong = f"the ranks cannot meet: the loop of rank {gone[0]} has returned without {sorted(kinds)[0]}"
        elif len(kinds) > 1:
            wrong = f"the ranks cannot meet: some are in {' and others in '.join(sorted(kinds))}"
        brought = b"" if wrong else self._meeting[0][2]
        for rank, (number, _, _) in self._meeting.items():
            self._tell(rank, "met", number, brought if rank else b"", wrong)
        self._meeting = {}

    def _report(self, rank: int, part: Part) -> None:
        with self._lock:
            k = self._made[rank]
            self._made[rank] = k + 1
            total = self._before.get(rank, 0) + k + 1
            if rank == 0:
                self.history.append(part.metrics)
            _add_line(self._reports, f'{{"rank": {rank}, "report": {total}, "time": {time.time():.6f}, '
                                     f'"metrics": {to_json(part.metrics)}}}')
            self._run.report(total, total, rank, numbers(part.metrics))
            self._rounds.setdefault(k, {})[rank] = part
            part.waits = part.folder is not None
            self._settle()
            if part.waits and k in self._rounds:        # others have not come so far
                part.waits = False
                self._tell(rank, "written")

    def ended(self, rank: int) -> None:
        """A rank's loop has returned: it reports no more."""
        with self._lock:
            self._ended.add(rank)
            self._settle()
            self._meet()

    def _settle(self) -> None:
        """Hands complete rounds over to be written, in their order."""
        while self._next in self._rounds:
            parts = self._rounds[self._next]
            if len(parts) + len(self._ended - parts.keys()) < self._ranks:
                break
            del self._rounds[self._next]
            self._next += 1
            if self.after_round is not None or any(p.folder for p in parts.values()):
                counts = ",".join(str(self._before.get(r, 0) + min(self._made[r], self._next)) for r in range(self._ranks))
                self._unwritten.add(self._next - 1)
                self._work.put((self._next - 1, parts, self._before.get(0, 0) + self._next, counts))
        self._answer()

    def unequal(self) -> Optional[str]:
        """What is wrong with the numbers of reports; None: all ranks have made equally many."""
        most = max(self._made.values(), default=0)
        fewer = {r: n for r, n in self._made.items() if n < most}
        if not fewer:
            return None
        told = ", ".join(f"rank {r} {n}" for r, n in sorted(fewer.items())[:8])
        by = min(r for r, n in self._made.items() if n == most)
        return (f"the loops have called report() a different number of times: rank {by} {most}, {told}. "
                "Every rank is to report equally often, with or without a checkpoint")

    # ---- the writer ----

    def _write(self) -> None:
        while (work := self._work.get()) is not None:
            if isinstance(work, threading.Event):
                work.set()
                continue
            number, parts, epoch, counts = work
            try:
                checkpoint = self._commit(parts, epoch, counts) if any(p.folder for p in parts.values()) else None
                if self.after_round is not None:
                    self.after_round([parts[r].metrics for r in sorted(parts)], checkpoint)
            except BaseException as e:  # noqa: BLE001  the thread that waits for the ranks raises it
                self.problem = self.problem or e
            with self._lock:
                self._unwritten.discard(number)
                self._answer()
            for rank, part in parts.items():
                if part.waits:
                    self._tell(rank, "written")

    def _commit(self, parts: dict[int, Part], epoch: int, counts: str) -> Checkpoint:
        ranks = sorted(parts)
        name = next((parts[r].name for r in ranks if parts[r].name), None)
        own = sorted({p.own for p in parts.values() if p.own})
        if name is None:
            name = os.path.basename(own[0]) if own else f"checkpoint_{self._index:06d}"
        folder = _merge([p.folder for p in (parts[r] for r in ranks) if p.folder], name)
        metrics = parts[ranks[0]].metrics
        task = next((p.validation for p in (parts[r] for r in ranks) if p.validation), None)
        with self._lock:
            path = self._run.checkpoint(folder, epoch, numbers(metrics, self._score), counts)
            assert path is not None
            checkpoint = Checkpoint(os.path.join(path, name))
            self._index += 1
            self.checkpoints.append((checkpoint, metrics))
            self.start = checkpoint
            if task is not None:
                self._validate(checkpoint, pickle.loads(task))
            self._prune()
        for one in own:
            shutil.rmtree(one, ignore_errors=True)
        return checkpoint

    # ---- validations ----

    def begin_validations(self, config: ValidationConfig) -> None:
        """Has checkpoints tried that ask for it, and those of this run that wait for it since another program."""
        self._validations = _validate.Validations(config, self._validated)
        with self._lock:
            for checkpoint, _ in self.checkpoints:
                if checkpoint.path in self._pending:
                    self._validations.add(checkpoint, self._pending[checkpoint.path])

    def end_validations(self, waits: bool) -> None:
        """Returns when all are done, or, waits=False, cancelled."""
        if self._validations is not None:
            self._validations.end(waits)        # an interrupt leaves it to be ended once more
            self._validations = None

    def _validate(self, checkpoint: Checkpoint, task: ValidationTaskConfig) -> None:
        assert self._validations is not None
        pending = ReportedCheckpointStatus.PENDING_VALIDATION
        self.statuses[checkpoint.path], self._pending[checkpoint.path] = pending, task
        self._note(_validate.line_of(_place_of(checkpoint), pending, "{}", task))
        self._validations.add(checkpoint, task)

    def _validated(self, checkpoint: Checkpoint, status: ReportedCheckpointStatus, metrics: Mapping[str, Any]) -> None:
        try:
            with self._lock:
                for known, of_report in self.checkpoints:
                    if known == checkpoint:
                        of_report.update(metrics)           # the same dictionary is in the history
                self.statuses[checkpoint.path] = status
                self._pending.pop(checkpoint.path, None)
                self._note(_validate.line_of(_place_of(checkpoint), status, to_json(metrics), None))
                self._prune()
                self._answer()
        except BaseException as e:  # noqa: BLE001  the thread that waits for the ranks raises it
            self.problem = self.problem or e

    def _note(self, line: str) -> None:
        file = _open_reports(os.path.join(self.path, _validate.VALIDATIONS))
        try:
            _add_line(file, line)
        finally:
            os.close(file)

    def _prune(self) -> None:
        if self._keeping is None:
            return
        kept = self.kept()
        for checkpoint in self._keeping.goes(kept, lambda c: c.path in self._pending):
            folder = os.path.dirname(checkpoint.path)
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, "manifest.json"))        # which makes it a checkpoint
            shutil.rmtree(folder, ignore_errors=True)
        self.checkpoints = self.kept()

    def flush(self) -> None:
        """Waits until all that is complete is written."""
        done = threading.Event()
        self._work.put(done)
        while not done.wait(1) and self._thread.is_alive():
            pass

    # ---- the end ----

    def log(self, rank: int, text: str) -> None:
        with self._lock:
            for line in text.splitlines():
                self._run.log(rank, line)

    def kept(self) -> list[tuple[Checkpoint, dict[str, Any]]]:
        """The checkpoints that are there, oldest first."""
        return [(c, m) for c, m in self.checkpoints if os.path.isdir(c.path)]

    def finish(self, status: str, error: Optional[str]) -> None:
        with self._lock:
            last = numbers(self.history[-1]) if self.history else None
            self._run.finish(status, last, error)

    def close(self) -> None:
        self._work.put(None)
        self._thread.join()
        with self._lock:
            self._sweep()
            os.close(self._reports)
            self._run.close()


def _open_reports(path: str) -> int:
    """The file of reports, to be added to: behind a line that a program which was killed has not ended, a new one begins."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            os.write(file, b"\n")
    except BaseException:
        os.close(file)
        raise
    return file


def _add_line(file: int, line: str) -> None:
    """Adds a line whole, or nothing of it."""
    data = line.encode() + b"\n"
    before = os.fstat(file).st_size
    try:
        while data:
            data = data[os.write(file, data):]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(file, before)
        raise


def _merge(folders: list[str], name: str) -> str:
    """One folder with the others' files in a folder of that name; of two files of one name the lower rank's counts."""
    out = folders[0] + ".merged"
    os.mkdir(out)
    target = os.path.join(out, name)
    os.rename(folders[0], target)
    for folder in folders[1:]:
        _add_folder(folder, target)
        shutil.rmtree(folder)
    return out


def _add_folder(folder: str, target: str) -> None:
    """Moves what another folder does not have of this one there; where one has a file and the other a folder, nothing."""
    for entry in os.scandir(folder):
        to = os.path.join(target, entry.name)
        if not os.path.exists(to):
            os.rename(entry.path, to)
        elif entry.is_dir() and os.path.isdir(to):
            _add_folder(entry.path, to)


def _place_of(checkpoint: Checkpoint) -> str:
    """The name of a checkpoint's folder in checkpoints/."""
    return os.path.basename(os.path.dirname(checkpoint.path))


def _start_of(path: Optional[str]) -> Optional[Checkpoint]:
    """The files of a checkpoint of a run."""
    if path is None:
        return None
    inner = [e.path for e in os.scandir(path) if e.is_dir()]
    return Checkpoint(inner[0] if inner else path)


def _reported(path: str) -> dict[int, int]:
    """How many reports of each rank a run that is taken up goes on from: those that its record has kept."""
    out: dict[int, int] = {}
    try:
        with open(os.path.join(path, "metrics.jsonl"), encoding="utf-8", errors="replace") as f:
            lines = f.readlines()
    except FileNotFoundError:
        return out
    for line in lines:
        try:
            one = json.loads(line)
            out[one["rank"]] = max(out.get(one["rank"], 0), one["step"])
        except (ValueError, KeyError, TypeError):
            pass        # a line that a program which was killed has not ended
    return out


def _next_index(path: str) -> int:
    """The number of the next checkpoint, from 0."""
    folder = os.path.join(path, "checkpoints")
    taken = [int(m[1]) for m in map(re.compile(r"checkpoint-(\d+)$").match,
                                    os.listdir(folder) if os.path.isdir(folder) else []) if m]
    return max(taken, default=0)


def open_record(run_config: RunConfig, kind: str, settings: Mapping[str, Any], folder: Optional[str],
                is_validated: bool = False) -> Record:
    """Opens the folder of a run. folder: one to go on with. is_validated: checkpoints are tried while it goes on.

    A name whose run has not ended well goes on; one that is done stays as it is, and the new one gets a number.
    """
    keeping = run_config.checkpoint_config or CheckpointConfig()
    score = keeping.checkpoint_score_attribute
    keep = (keeping.num_to_keep or 0, _curve_name(score) if score else None, keeping.checkpoint_score_order if score else None)
    by_us = None
    if is_validated and keeping.num_to_keep:
        by_us, keep = Keeping(keeping.num_to_keep, score, keeping.checkpoint_score_order or "max"), (0, None, None)
    config = to_json({"trainer": kind, **settings})
    if folder is not None:
        return Record(_manta.Run(folder, None, None, None, True, config, *keep), score, by_us)
    storage = None if run_config.storage_path is None else os.fspath(run_config.storage_path)
    storage = storage or _manta.run_storage()
    if "://" in storage:
        raise NotImplementedError(f"MANTA_STORAGE is {storage}, and runs of manta.train lie in folders of this host: expected "
                                  "RunConfig(storage_path=...) with one")
    os.makedirs(storage, exist_ok=True)
    name = run_config.name
    if name is None:
        return Record(_manta.Run(None, storage, None, kind, False, config, *keep), score, by_us)
    if "/" not in name and is_done(os.path.join(storage, name)):
        return Record(_manta.Run(None, storage, None, name, False, config, *keep), score, by_us)
    return Record(_manta.Run(None, storage, name, None, True, config, *keep), score, by_us)


def is_done(path: str) -> bool:
    """Whether a run has ended well."""
    try:
        with open(os.path.join(path, "result.json"), encoding="utf-8") as f:
            told = json.load(f)
            return isinstance(told, dict) and told.get("status") == "done"
    except (OSError, ValueError):
        return False
