"""What a loop calls: report(), get_checkpoint(), get_context(), get_dataset_shard().

A report copies the folder of its checkpoint, if it has one, into the run's folder and sends one message; no other
rank is waited for. The driver makes a checkpoint of the copies of all ranks. Two of a rank may be on their way;
with the third, report() waits until the first is written, because room for more is not taken.
"""
from __future__ import annotations

import os
import pickle
import shutil
import threading
import time
from typing import Any, Callable, Mapping, Optional

from manta.train import _copy, _shard
from manta.train._channel import Connection
from manta.train.checkpoint import Checkpoint
from manta.train.context import Place, TrainContext

IN_FLIGHT = 2
_FILE_CLOCK = 5         # CLOCK_REALTIME_COARSE, by which files are stamped: a little behind time.time()


class Session:
    """A rank, from its start to the end of its loop."""

    def __init__(self, place: Place, connection: Connection, parts: str, start: Optional[Checkpoint]) -> None:
        self.place = place
        self.shards: Mapping[str, Any] = {}
        self._connection = connection
        self._parts = parts
        self._checkpoint = start
        self._is_told = False               # which checkpoint is the latest
        self._began = time.clock_gettime(_FILE_CLOCK)
        self._n = 0
        self._in_flight = 0
        self._lock = threading.Lock()

    def begin(self, shards: Mapping[str, Any]) -> None:
        """The loop begins."""
        self.shards = shards
        self._began = time.clock_gettime(_FILE_CLOCK)

    def report(self, metrics: Mapping[str, Any], checkpoint: Optional[Checkpoint], name: Optional[str],
               upload: Optional[Callable[..., Any]]) -> None:
        data = _pickled(metrics)
        with self._lock:
            part = None
            if checkpoint is not None:
                self._wait_for_room()
                if upload is not None:
                    checkpoint = upload(checkpoint, name or f"report_{self._n}")
                part = self._copy(checkpoint)
                self._in_flight += 1
            self._n += 1
            self._connection.send("report", data, part, name)

    def _wait_for_room(self) -> None:
        self._listen(wait=False)
        while self._in_flight >= IN_FLIGHT:
            self._listen(wait=True)

    def _copy(self, checkpoint: Optional[Checkpoint]) -> str:
        if not isinstance(checkpoint, Checkpoint):
            raise TypeError(f"report(): checkpoint is {type(checkpoint).__name__}, expected manta.train.Checkpoint")
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

    def _listen(self, wait: bool) -> None:
        for message in self._connection.received(wait):
            if message[0] == "written":
                self._in_flight -= 1
            elif message[0] == "checkpoint":
                self._is_told = True
                if message[1] is not None:
                    self._checkpoint = Checkpoint(message[1])
        if wait and self._connection.ended:
            raise RuntimeError("the program that drives this training is gone")

    def checkpoint(self) -> Optional[Checkpoint]:
        with self._lock:
            self._is_told = False
            self._connection.send("latest")
            while not self._is_told:
                self._listen(wait=True)
            return self._checkpoint

    def close(self) -> None:
        self._connection.end()


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
           checkpoint_dir_name: Optional[str] = None, checkpoint_upload_mode: Optional[Any] = None,
           delete_local_checkpoint_after_upload: Optional[bool] = None,
           checkpoint_upload_fn: Optional[Callable[..., Any]] = None, validation: Any = False) -> None:
    """Tells the driver how it goes, and hands it a checkpoint.

        manta.train.report({"loss": loss}, checkpoint=Checkpoint.from_directory(folder))

    Every rank is to report equally often; none waits for another. Rank 0's metrics are the result's; files of
    checkpoints that several ranks report together are put together. The folder is copied before report() returns, and stays.
    """
    if validation:
        raise NotImplementedError("report(): validation is not here yet")
    if checkpoint_dir_name is not None and not _can_be_name(checkpoint_dir_name):
        raise ValueError(f"report(): checkpoint_dir_name is {checkpoint_dir_name!r}, expected the name of a folder")
    current("report()").report(metrics, checkpoint, checkpoint_dir_name, checkpoint_upload_fn)
    if delete_local_checkpoint_after_upload and checkpoint is not None:
        if not _copy.is_temporary_root(checkpoint.path):
            shutil.rmtree(checkpoint.path, ignore_errors=True)


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
    return TrainContext(current("get_context()").place)


def get_dataset_shard(dataset_name: str = "train") -> Any:
    """This rank's part of a dataset that the trainer was given.

        for batch in manta.train.get_dataset_shard("train").iter_batches(batch_size=32): ...
    """
    session = current("get_dataset_shard()")
    if dataset_name not in session.shards:
        known = ", ".join(sorted(session.shards)) or "none"
        raise KeyError(f"the trainer has no dataset {dataset_name!r}; it was given: {known}")
    return _shard.open_shard(session.shards[dataset_name], session.place.attempt)
