"""Validations: remote calls of the driver, which try checkpoints while the ranks train.

One runs at a time, in the order of the reports, from a thread of the driver's. What is under way, and what each came to, is
a line of the run's validations.jsonl, so that a run that is taken up goes on with those that it has not finished.
"""
from __future__ import annotations

import base64
import json
import os
import pickle
import queue
import sys
import threading
import time
from typing import Any, Callable, Mapping, Optional

from manta import _core as _plain_core
from manta.train.checkpoint import Checkpoint
from manta.train.validation import ReportedCheckpointStatus, ValidationConfig, ValidationTaskConfig

_core: Any = _plain_core            # which has no types

VALIDATIONS = "validations.jsonl"
_LOOK_S = 0.5                       # between two looks at whether the training is being ended

Done = Callable[[Checkpoint, ReportedCheckpointStatus, Mapping[str, Any]], None]


class Validations:
    """The thread that tries checkpoints; done(checkpoint, status, metrics) is called there for each."""

    def __init__(self, config: ValidationConfig, done: Done) -> None:
        self._config, self._done = config, done
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="manta-validate", daemon=True)
        self._thread.start()

    def add(self, checkpoint: Checkpoint, task: ValidationTaskConfig) -> None:
        """Has a checkpoint tried, after those before it."""
        self._queue.put((checkpoint, task.over(self._config.task_config)))

    def end(self, waits: bool) -> None:
        """Returns when all are done; waits=False: what is under way is cancelled, and what is not begun left."""
        if not waits:
            self._stopped.set()
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (one := self._queue.get()) is not None:
            if not self._stopped.is_set():
                out = self._try(*one)
                if out is not None:
                    self._done(one[0], *out)

    def _try(self, checkpoint: Checkpoint, task: ValidationTaskConfig) -> Optional[tuple[ReportedCheckpointStatus, dict[str, Any]]]:
        """What a validation came to; None: it was cancelled."""
        try:
            _core._ensure()
            # No processor is reserved unless it is asked for: a training that holds all of them would wait for itself.
            call = _core.remote_function(self._config.fn, **{"num_cpus": 0, **(self._config.ray_remote_kwargs or {})})
            ref = call.remote(checkpoint, **(task.fn_kwargs or {}))
            end = None if task.timeout_s is None else time.monotonic() + task.timeout_s
            while not _core.wait([ref], num_returns=1, timeout=_LOOK_S if end is None else
                                 max(0.0, min(_LOOK_S, end - time.monotonic())))[0]:
                if self._stopped.is_set() or end is not None and time.monotonic() >= end:
                    _core.cancel(ref, force=True)
                    if self._stopped.is_set():
                        return None
                    _say(f"the validation of {checkpoint.path} took longer than {task.timeout_s:g} s, and was cancelled")
                    return ReportedCheckpointStatus.VALIDATION_TIMEOUT, {}
            out = _core.get(ref)
            if out is not None and not isinstance(out, Mapping):
                raise TypeError(f"it has returned {type(out).__name__}, expected a dictionary of metrics")
            return ReportedCheckpointStatus.VALIDATED, dict(out or {})
        except Exception as e:  # noqa: BLE001  whatever the function raises
            cause = getattr(e, "cause", None)
            told = cause if isinstance(cause, BaseException) else e
            _say(f"the validation of {checkpoint.path} failed: {type(told).__name__}: {told}")
            return ReportedCheckpointStatus.VALIDATION_FAILED, {}


def _say(text: str) -> None:
    try:
        print(f"manta: {text}", file=sys.stderr, flush=True)
    except OSError:
        pass            # nobody reads it any more, and the training goes on


# ---- the file ----

def line_of(checkpoint: str, status: ReportedCheckpointStatus, metrics: str, task: Optional[ValidationTaskConfig]) -> str:
    """A line of the file. checkpoint: the name of its folder in checkpoints/; metrics: as JSON."""
    given = None if task is None else base64.b64encode(pickled_task(task)).decode()
    return (f'{{"checkpoint": {json.dumps(checkpoint)}, "status": "{status.value}", "task": {json.dumps(given)}, '
            f'"metrics": {metrics}}}')


def pickled_task(task: ValidationTaskConfig) -> bytes:
    import cloudpickle
    return bytes(cloudpickle.dumps(task))


def read(folder: str) -> dict[str, tuple[ReportedCheckpointStatus, dict[str, Any], Optional[str]]]:
    """What the file of a run says of each checkpoint: status, metrics, and what it is to be tried with, as the file has it."""
    out: dict[str, tuple[ReportedCheckpointStatus, dict[str, Any], Optional[str]]] = {}
    try:
        with open(os.path.join(folder, VALIDATIONS), encoding="utf-8", errors="replace") as f:
            for line in f:
                try:
                    one = json.loads(line)
                    before = out.get(one["checkpoint"])
                    out[one["checkpoint"]] = (ReportedCheckpointStatus(one["status"]), dict(one["metrics"]),
                                              one["task"] or (before[2] if before else None))
                except (ValueError, KeyError, TypeError):
                    continue        # a line that a kill has cut off
    except FileNotFoundError:
        pass
    return out


def task_of(text: Optional[str]) -> ValidationTaskConfig:
    """What a checkpoint is to be tried with; as the trainer says, if that cannot be read."""
    try:
        task = pickle.loads(base64.b64decode(text or ""))
        return task if isinstance(task, ValidationTaskConfig) else ValidationTaskConfig()
    except Exception:  # noqa: BLE001  whatever bytes that are none of a pickle's lead to
        return ValidationTaskConfig()
