"""What a loop calls: report(), get_checkpoint(), get_context(), get_dataset_shard().

A report copies the folder of its checkpoint, if it has one, into the run's folder and sends one message; no other
rank is waited for. The driver makes a checkpoint of the copies of all ranks. Two of a rank may be on their way;
with the third, report() waits until the first is written, because room for more is not taken.
"""
from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import pickle
import shutil
import sys
import threading
import time
from typing import Any, Callable, Mapping, Optional

from manta.train import _copy, _shard
from manta.train._channel import Connection
from manta.train.checkpoint import Checkpoint
from manta.train.config import CheckpointConsistencyMode, CheckpointUploadMode
from manta.train.context import RUNS_OWN, LocalTrainContext, Place, Storage, TrainContext
from manta.train.validation import ReportedCheckpoint, ReportedCheckpointStatus, Validation, ValidationTaskConfig

IN_FLIGHT = 2
_FILE_CLOCK = 5         # CLOCK_REALTIME_COARSE, by which files are stamped: a little behind time.time()


@dataclasses.dataclass(frozen=True)
class Handing:
    """How a report's checkpoint is handed over."""
    name: Optional[str] = None
    mode: CheckpointUploadMode = CheckpointUploadMode.SYNC
    upload: Optional[Callable[..., Any]] = None
    deletes: bool = False
    validation: Optional[bytes] = None

    def is_placeholder(self, checkpoint: Checkpoint) -> bool:
        """Of one that is said to lie in the run's folder: whether it does not. Programs name one where they mean the metrics alone."""
        return self.upload is None and self.validation is None and not os.path.lexists(checkpoint.path)


class Session:
    """A rank, from its start to the end of its loop."""

    def __init__(self, place: Place, connection: Connection, parts: str, start: Optional[Checkpoint]) -> None:
        self.place = place
        self.storage = Storage(place.storage, place.run_path)
        self.shards: Mapping[str, Any] = {}
        self.mixed: Any = None              # of PyTorch: what computes in mixed precision
        self._connection = connection
        self._parts = parts
        self._first = start                 # what there was before anything was reported
        self._began = time.clock_gettime(_FILE_CLOCK)
        self._n = 0                         # reports
        self._in_flight = 0
        self._asked = 0                     # questions, meetings
        self._answers: dict[int, tuple[Any, ...]] = {}
        self._handing = threading.Lock()    # reports go one after the other
        self._heard = threading.Condition()
        self._is_reading = False
        self._later: Optional[concurrent.futures.ThreadPoolExecutor] = None
        self._jobs: list[concurrent.futures.Future[None]] = []

    def begin(self, shards: Mapping[str, Any]) -> None:
        """The loop begins."""
        self.shards = shards
        self._began = time.clock_gettime(_FILE_CLOCK)

    # ---- reports ----

    def report(self, metrics: Mapping[str, Any], checkpoint: Optional[Checkpoint], how: Handing) -> None:
        data = _pickled(metrics)
        is_later = checkpoint is not None and how.upload is not None and how.mode is CheckpointUploadMode.ASYNC
        self._jobs = [job for job in self._jobs if not job.done() or job.result() is not None]      # raises what went wrong
        if not is_later and not self._jobs:
            self._hand(data, checkpoint, how)
            return
        if self._later is None:
            self._later = concurrent.futures.ThreadPoolExecutor(1, "manta-report")
        job = self._later.submit(self._hand, data, checkpoint, how)         # behind those that are under way
        if is_later:
            self._jobs.append(job)
        else:
            job.result()

    def _hand(self, data: bytes, checkpoint: Optional[Checkpoint], how: Handing) -> None:
        with self._handing:
            part, own = None, None
            if checkpoint is not None:
                self._await(lambda: self._in_flight < IN_FLIGHT)
                if how.upload is not None:
                    checkpoint = _checked(how.upload(checkpoint, how.name or f"report_{self._n}"))
                if how.upload is not None or how.mode is CheckpointUploadMode.NO_UPLOAD:
                    own = self._own(checkpoint, how)
                if own is not None and how.is_placeholder(checkpoint):
                    print(f"manta: report(): {checkpoint}: there is no such folder, so the metrics are kept without a checkpoint",
                          file=sys.stderr)
                    own = None
                else:
                    part = self._copy(checkpoint)
                    with self._heard:
                        self._in_flight += 1
            self._n += 1
            self._connection.send("report", data, part, how.name, own, how.validation)
        is_copy = how.upload is None and how.mode is not CheckpointUploadMode.NO_UPLOAD
        if how.deletes and is_copy and checkpoint is not None and not _copy.is_temporary_root(checkpoint.path):
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def _own(self, checkpoint: Checkpoint, how: Handing) -> Optional[str]:
        """The folder of a checkpoint that lies in the run's: it becomes the run's own. None: it stays where it is, since it is one
        of the run's checkpoints already, or, in a loop of the program itself, that of another."""
        here, run = os.path.realpath(checkpoint.path), os.path.realpath(self.place.run_path)
        part = here[len(run) + 1:].split("/")[0] if here.startswith(run + "/") else ""
        if part == "checkpoints":
            return None
        if not part or part in RUNS_OWN or part.startswith("."):
            if self.place.is_local and not part:
                return None
            who = "report(): the checkpoint" if how.upload is None else "checkpoint_upload_fn: the checkpoint that it has returned"
            raise ValueError(f"{who} lies in {checkpoint.path}, expected a folder in {self.place.run_path}: "
                             "get_context().get_storage().build_checkpoint_path_from_name(name)")
        return here

    def _copy(self, checkpoint: Checkpoint) -> str:
        part = os.path.join(self._parts, f"round-{self._n}.rank-{self.place.rank}")
        try:
            if checkpoint._values is not None:
                os.makedirs(part)
                checkpoint.write_to(part)
            elif not os.path.isdir(checkpoint.path):
                raise FileNotFoundError(f"report(): {checkpoint}: there is no such folder")
            else:
                _copy.copy_folder(checkpoint.path, part, self._began)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)         # the loop may report again
            raise
        return part

    # ---- what the driver says ----

    def _await(self, is_there: Callable[[], bool], timeout: Optional[float] = None) -> bool:
        """Waits until the driver has said what is waited for; False: the seconds are over. One thread reads at a time."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._heard:
            while True:
                left = None if end is None else max(end - time.monotonic(), 0.0)
                if not self._is_reading:
                    self._read(None if is_there() else left, wait=not is_there())
                elif not is_there():
                    self._heard.wait(left)
                if is_there():
                    return True
                if self._connection.ended:
                    raise RuntimeError("the program that drives this training is gone")
                if end is not None and time.monotonic() >= end:
                    return False

    def _read(self, timeout: Optional[float], wait: bool) -> None:
        """Takes what has come. The condition is given back while nothing comes."""
        self._is_reading = True
        self._heard.release()
        try:
            messages = self._connection.received(wait, timeout)
        finally:
            self._heard.acquire()
            self._is_reading = False
            self._heard.notify_all()
        for message in messages:
            if message[0] == "written":
                self._in_flight -= 1
            else:
                self._answers[message[1]] = message[2:]

    def _ask(self, what: str, *message: Any, timeout: Optional[float] = None) -> Optional[tuple[Any, ...]]:
        """Sends a question, and waits for its answer; None: the seconds are over, and the driver is not to answer any more:
        nobody might read it."""
        with self._heard:
            number = self._asked = self._asked + 1
        self._connection.send(what, number, *message)
        if self._await(lambda: number in self._answers, timeout):
            return self._answers.pop(number)
        self._connection.send("forget", number)
        return None

    def checkpoint(self) -> Optional[Checkpoint]:
        answer = self._ask("latest")
        assert answer is not None
        return Checkpoint(answer[0]) if answer[0] is not None else self._first

    def reported(self, mode: CheckpointConsistencyMode, timeout: Optional[float]) -> list[ReportedCheckpoint]:
        end = None if timeout is None else time.monotonic() + timeout
        done = concurrent.futures.wait(self._jobs, timeout)
        answer = None
        if not done.not_done:
            answer = self._ask("reported", mode.value, timeout=None if end is None else end - time.monotonic())
        if answer is None:
            answer = self._ask("reported", None)        # as it is now
        assert answer is not None
        return [ReportedCheckpoint(Checkpoint(path), metrics, ReportedCheckpointStatus(status))
                for path, metrics, status in unpickled(answer[0])]

    def meet(self, kind: str, data: bytes) -> bytes:
        """Waits for the other ranks, in something that all do; what rank 0 has brought."""
        answer = self._ask("meet", kind, data)
        assert answer is not None
        if answer[1] is not None:
            raise RuntimeError(answer[1])
        return bytes(answer[0])

    # ---- the end ----

    def settle(self) -> None:
        """The loop has returned: waits for reports that are under way, and raises what went wrong with one."""
        for job in self._jobs:
            job.result()

    def close(self) -> None:
        if self._later is not None:
            self._later.shutdown(wait=False, cancel_futures=True)
        self._connection.end()


def _checked(checkpoint: Any) -> Checkpoint:
    if not isinstance(checkpoint, Checkpoint):
        raise ValueError(f"checkpoint_upload_fn has returned {type(checkpoint).__name__}, expected a Checkpoint")
    return checkpoint


def pickled_value(value: Any) -> bytes:
    """A value as bytes, functions of the program's own too."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:  # noqa: BLE001  whatever a value's own code raises
        import cloudpickle
        return bytes(cloudpickle.dumps(value))


def unpickled(data: bytes) -> Any:
    return pickle.loads(data)


def _pickled(metrics: object) -> bytes:
    if not isinstance(metrics, Mapping):
        raise TypeError(f"report(): metrics are {type(metrics).__name__}, expected a dictionary")
    plain = {k: _plain(v) for k, v in metrics.items()}
    try:
        return pickle.dumps(plain, protocol=5)
    except Exception:
        import cloudpickle
        try:
            return bytes(cloudpickle.dumps(plain))
        except Exception as e:
            raise TypeError(f"report(): the metrics cannot be sent ({type(e).__name__}: {e})") from e


def _plain(value: Any) -> Any:
    """A tensor of one number as that number: who reads metrics needs no framework."""
    if type(value).__module__.split(".")[0] in ("torch", "tensorflow") and getattr(value, "shape", None) is not None:
        if len(value.shape) == 0:
            return value.item() if hasattr(value, "item") else value.numpy().item()
    return value


_current: Optional[Session] = None


def set_current(session: Optional[Session]) -> Optional[Session]:
    """Says which loop runs in this process, and returns which one did."""
    global _current
    before, _current = _current, session
    return before


def current(what: str) -> Session:
    if _current is None:
        raise RuntimeError(f"{what} is for the loop of a trainer: no loop runs in this process")
    return _current


def report(metrics: Mapping[str, Any], checkpoint: Optional[Checkpoint] = None, *,
           checkpoint_dir_name: Optional[str] = None, checkpoint_upload_mode: Optional[CheckpointUploadMode] = None,
           delete_local_checkpoint_after_upload: Optional[bool] = None,
           checkpoint_upload_fn: Optional[Callable[..., Any]] = None, validation: Validation = False) -> None:
    """Tells the driver how it goes, and hands it a checkpoint.

        manta.train.report({"loss": loss}, checkpoint=Checkpoint.from_directory(folder))

    Every rank is to report equally often; none waits for another. Rank 0's metrics are the result's; files of
    checkpoints that several ranks report together are put together. The folder is copied before report() returns, and stays,
    unless it is to be deleted. validation: the trainer's function tries the checkpoint, True or with arguments of its own.
    """
    session = current("report()")
    if checkpoint_dir_name is not None and not _can_be_name(checkpoint_dir_name):
        raise ValueError(f"report(): checkpoint_dir_name is {checkpoint_dir_name!r}, expected the name of a folder")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"report(): checkpoint is {type(checkpoint).__name__}, expected manta.train.Checkpoint")
    task = None
    if validation:
        if checkpoint is None:
            raise ValueError("report(): validation is asked for without a checkpoint: expected checkpoint=...")
        if not session.place.can_validate:
            raise ValueError("report(): validation is asked for, and the trainer has no validation_config")
        task = _pickled_task(validation)
    session.report(metrics, checkpoint, Handing(checkpoint_dir_name, checkpoint_upload_mode or CheckpointUploadMode.SYNC,
                                                checkpoint_upload_fn, bool(delete_local_checkpoint_after_upload), task))


def _pickled_task(validation: Validation) -> bytes:
    if validation in (True,):
        validation = ValidationTaskConfig()
    if not isinstance(validation, ValidationTaskConfig):
        raise TypeError(f"report(): validation is {type(validation).__name__}, expected True, False or ValidationTaskConfig")
    try:
        return pickled_value(validation)
    except Exception as e:
        raise TypeError(f"report(): fn_kwargs of the validation cannot be sent ({type(e).__name__}: {e})") from e


def _can_be_name(name: object) -> bool:
    """Whether a folder in a checkpoint may be called so."""
    try:
        return (isinstance(name, str) and 0 < len(name.encode()) < 256 and not set("/\0") & set(name) and
                name not in (".", "..", "manifest.json"))
    except UnicodeEncodeError:
        return False


def get_checkpoint() -> Optional[Checkpoint]:
    """The last checkpoint that was written whole: of this attempt, of the one before it, or the one that the trainer was
    given to begin from. None: there is none.

        checkpoint = manta.train.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as folder: ...
    """
    return current("get_checkpoint()").checkpoint()


def get_context() -> TrainContext:
    """Where the loop runs.

        manta.train.get_context().get_world_size()
    """
    place = current("get_context()").place
    return LocalTrainContext(place) if place.is_local else TrainContext(place)


def get_all_reported_checkpoints(consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
                                 timeout_s: Optional[float] = None) -> list[ReportedCheckpoint]:
    """The checkpoints that are kept, oldest first, of this attempt and those before it, with their metrics.

        best = max(manta.train.get_all_reported_checkpoints(), key=lambda one: one.metrics["accuracy"])

    Waits until what this rank has reported is on the disk, and unless consistency_mode is COMMITTED for validations, too; at
    most timeout_s seconds: what is there by then is returned.
    """
    return current("get_all_reported_checkpoints()").reported(CheckpointConsistencyMode(consistency_mode), timeout_s)


def get_dataset_shard(dataset_name: str = "train") -> Any:
    """This rank's part of a dataset that the trainer was given.

        for batch in manta.train.get_dataset_shard("train").iter_batches(batch_size=32): ...
    """
    session = current("get_dataset_shard()")
    if dataset_name not in session.shards:
        known = ", ".join(sorted(session.shards)) or "none"
        raise KeyError(f"the trainer has no dataset {dataset_name!r}; it was given: {known}")
    return _shard.open_shard(session.shards[dataset_name], session.place.attempt)
