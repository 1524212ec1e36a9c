"""fit(): starts the ranks, waits for them, and begins again when one fails.

    attempt ── all loops return ──▶ done
       │
       └── a rank fails ── the others are killed ──▶ next attempt, from the last checkpoint that is whole
                                       └── none is left ──▶ WorkerGroupError

The ranks are actors, placed together once for all attempts. Who failed first is told: when a loop raises, the deaths of
other processes are waited for a moment, because a loop whose peer was killed often knows it before the node does.
"""
from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

from manta import _core as _plain_core
from manta import _display
from manta import _failures as _plain_failures
from manta import _groups as _plain_groups
from manta import _manta
from manta.train import _channel, _rank, _record, _session, _shard
from manta.train._backend import Backend, WorkerGroup
from manta.train.callback import TrainRunContext
from manta.train.checkpoint import Checkpoint
from manta.train.config import DataConfig, FailureConfig, RunConfig, ScalingConfig
from manta.train.context import Place
from manta.train.errors import ControllerError, TrainingFailedError, UnequalReportsError, WorkerGroupError
from manta.train.result import Result
from manta.train.validation import ValidationConfig

_core: Any = _plain_core            # which have no types
_failures: Any = _plain_failures
_groups: Any = _plain_groups

DEATHS_S = 1.0          # how long deaths are looked for when a loop has raised
Task = tuple[Callable[..., Any], Any, bool]


class Failure:
    """How a rank failed."""

    def __init__(self, rank: int, ref: Any, has_begun: bool) -> None:
        known = _manta.failure(ref) or {}
        self.rank, self.pid, self.has_begun = rank, known.get("pid", 0), has_begun
        self.is_death = known.get("kind") in ("unknown", "actor", "unavailable", "worker", "memory", "node")
        try:
            _core.get(ref)
            self.error: BaseException = RuntimeError("it has not failed")
        except Exception as e:  # noqa: BLE001  whatever it is
            self.error = e
        cause = getattr(self.error, "cause", None)
        self.cause: BaseException = cause if isinstance(cause, BaseException) else self.error
        trace = getattr(self.error, "traceback", None) or getattr(self.error, "traceback_str", None)
        self.traceback = trace if isinstance(trace, str) and not self.is_death else ""
        if self.is_death:
            self.what = _failures._readable(known.get("text") or str(self.error))
        else:
            self.what = f"{type(self.cause).__name__}: {self.cause} (process {self.pid})"

    def block(self, where: str, now: str, log: str) -> str:
        """What is said on standard error."""
        lines = [f"manta: worker {self.rank} failed", f"  what   {self.what}", f"  where  {where}", f"  now    {now}",
                 f"  log    {log}"]
        return "\n".join(lines + ["  " + line for line in self.traceback.rstrip().splitlines()])


class _Remote:
    """A rank as a WorkerGroup has it."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def execute_async(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._actor.execute.remote(function, args, kwargs)

    def value_of(self, ref: Any) -> Any:
        return _core.get(ref)


class _Here:
    """The rank of a loop that runs in the program itself."""

    def execute_async(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def value_of(self, ref: Any) -> Any:
        return ref


class Attempt:
    """The ranks of one attempt, from their start to the end of the last one."""

    def __init__(self, controller: Controller, number: int) -> None:
        self._c = controller
        self._record = controller.record
        self._n = controller.scaling.total_workers
        self._listener = _channel.Listener(self._record.heard)
        try:
            self._parts = self._record.begin_attempt(self._n, number, self._listener.tell)
            self._folder = tempfile.mkdtemp(prefix="manta-train-")
        except BaseException:
            self._listener.close()
            raise
        self._backend = controller.backend
        self._number = number
        self._actors: list[Any] = []
        self._starts: list[Any] = []
        self._runs: list[Any] = []
        self._workers: Optional[WorkerGroup] = None         # of a backend that asks ranks to do something
        self.value: Any = None

    def run(self) -> list[Failure]:
        """Runs all loops; the failures, whoever is to blame first. [] when all have returned."""
        try:
            self._backend.attempt(self._n, self._folder, self._c.scaling)
            self._start()
            failures = self._wait()
            if not failures:
                self.value = _core.get(self._runs[0])
        finally:
            self._end()
        self._look_for_problems()           # with what was written since
        return failures

    def _start(self) -> None:
        c = self._c
        scaling = c.scaling
        environment = {**(self._backend.environment() or {}), **((c.run_config.worker_runtime_env or {}).get("env_vars") or {})}
        options: dict[str, Any] = {"num_cpus": scaling.num_cpus_per_worker, "num_gpus": scaling.num_gpus_per_worker,
                                   "resources": scaling.additional_resources_per_worker or None,
                                   "placement_group": c.room, "max_restarts": 0, "env_vars": environment or None}
        cls = _core.actor_class(_rank.Rank)
        task = _core.put(c.task)
        for rank in range(self._n):
            actor = cls.options(**options, bundle=rank + 1).remote()
            self._actors.append(actor)
            self._starts.append(actor.start.remote(c.place(rank, self._number, self._folder), self._backend, self._listener.path,
                                                   self._listener.token, self._parts, self._record.start or c.first))
            if not self._backend.has_hooks:
                self._run(actor, rank, task)
        if self._backend.has_hooks:
            self._workers = WorkerGroup([_Remote(actor) for actor in self._actors])
            _core.wait(self._starts, num_returns=self._n, timeout=None)
            if not any(_manta.failure(ref) for ref in self._starts):
                _call_hooks(self._backend.begin, self._workers)
            for rank, actor in enumerate(self._actors):
                self._run(actor, rank, task)
        del task

    def _run(self, actor: Any, rank: int, task: Any) -> None:
        shards = {name: parts[rank] for name, parts in self._c.shards.items()}
        self._runs.append(actor.run.remote(task, shards, self._c.data_context))

    def _wait(self) -> list[Failure]:
        pending = dict(zip(self._runs, range(self._n)))
        failures: list[Failure] = []
        while pending and not failures:
            ready, _ = _core.wait(list(pending), num_returns=1, timeout=1.0)
            failures += self._take(ready, pending)
            if self._c.view is not None:
                self._c.view.show(self._record.history, self._number)
            self._look_for_problems()
        end = time.monotonic() + DEATHS_S
        while failures and pending and not any(f.is_death for f in failures) and \
                (time.monotonic() < end or any(map(self._is_gone, pending.values()))):
            ready, _ = _core.wait(list(pending), num_returns=1, timeout=max(end - time.monotonic(), 0.05))
            failures += self._take(ready, pending)
        failures.sort(key=lambda f: not f.is_death)         # those that died first; sort() keeps the order of the others
        return failures

    def _is_gone(self, rank: int) -> bool:
        """Whether the rank's process has ended, although the node has not said so yet."""
        try:
            pid = _core.get(self._starts[rank], timeout=0)
        except Exception:  # noqa: BLE001  it has not begun
            return False
        try:
            with open(f"/proc/{pid}/stat") as f:
                return f.read().rsplit(")", 1)[1].split()[0] in "ZX"
        except OSError:
            return True

    def _take(self, ready: Sequence[Any], pending: dict[Any, int]) -> list[Failure]:
        out = []
        self._listener.settle()             # what they have reported before they ended
        for ref in ready:
            rank = pending.pop(ref)
            if _manta.failure(ref) is None:
                self._record.ended(rank)
            elif _manta.failure(self._starts[rank]) is not None:
                out.append(Failure(rank, self._starts[rank], False))
            else:
                out.append(Failure(rank, ref, True))
        return out

    def _look_for_problems(self) -> None:
        _raise_problem(self._listener.problem or self._record.problem)

    def _end(self) -> None:
        """Nothing of the attempt is left."""
        try:
            if self._workers is not None:
                self._end_loops()
                _call_last_hook(self._backend, self._workers)
        finally:
            self._end_ranks()

    def _end_loops(self) -> None:
        """Kills the ranks whose loops still run: what a hook asks of such a rank would wait for its loop."""
        for actor, run in zip(self._actors, self._runs):
            if not _core.wait([run], num_returns=1, timeout=0)[0]:
                _core.kill(actor)

    def _end_ranks(self) -> None:
        try:
            for actor in self._actors:
                _core.kill(actor)
            if self._runs:
                _core.wait(self._runs, num_returns=len(self._runs), timeout=None)
            self._listener.settle()
            self._record.end_attempt()
        finally:
            self._listener.close()
            self._backend.end_attempt()
            shutil.rmtree(self._folder, ignore_errors=True)


def _call_hooks(hooks: Callable[[WorkerGroup], None], workers: WorkerGroup) -> None:
    try:
        hooks(workers)
    except Exception as e:
        raise ControllerError(f"on_start() or on_training_start() of the backend failed: {type(e).__name__}: {e}") from e


def _call_last_hook(backend: Backend, workers: WorkerGroup) -> None:
    try:
        backend.finish(workers)
    except Exception as e:  # noqa: BLE001  what the loops came to is known
        print(f"manta: on_shutdown() of the backend failed: {type(e).__name__}: {e}", file=sys.stderr)


def _raise_problem(problem: Optional[BaseException]) -> None:
    if isinstance(problem, ControllerError):
        raise problem
    if problem is not None:
        raise ControllerError(f"a report could not be kept: {type(problem).__name__}: {problem}") from problem


class Controller:
    """One call of fit()."""

    def __init__(self, *, kind: str, task: Task, scaling: ScalingConfig, run_config: RunConfig, backend: Backend,
                 datasets: Mapping[str, Any], data_config: DataConfig, first: Optional[Checkpoint],
                 metadata: Mapping[str, Any], folder: Optional[str], validation: Optional[ValidationConfig] = None) -> None:
        self.task, self.scaling, self.run_config, self.backend = task, scaling, run_config, backend
        self.first, self.metadata, self.validation = first, metadata, validation
        n, most = scaling.total_workers, _manta.group_most()  # the workers are placed as one group
        if n > most:
            raise ValueError(f"num_workers is {n}, expected at most {most}")
        self.shards = _shard.divide(datasets, n, data_config, ["node"] * n)
        self.data_context = sys.modules["manta.data.context"].DataContext.get_current() if "manta.data.context" in sys.modules else None
        config = task[1] if isinstance(task[1], Mapping) else {}
        settings = {"workers": n, "backend": type(backend).__name__, "loop": getattr(task[0], "__qualname__", "loop"),
                    "loop_config": {str(k): v for k, v in config.items()}}
        self.room: Any = None
        if scaling.num_workers:
            self.room = self._reserve()
        try:
            self.record = _record.open_record(run_config, kind, settings, folder, validation is not None)
        except BaseException:
            self._give_back()
            raise
        self._callbacks = list(run_config.callbacks or ())
        self._told = TrainRunContext(self.record.name, self.record.path, run_config, scaling, task[1], datasets)
        if self._callbacks:
            self.record.after_round = self._after_round
        if validation is not None:
            self.record.begin_validations(validation)
        self._value: Any = None
        self._failed = 0            # attempts
        self.view = _display.training_view(self.record.name, n)

    # ---- room ----

    def _reserve(self) -> Any:
        _core._ensure()
        s = self.scaling
        if s.use_gpu and s.num_gpus_per_worker and not _core.node_info()["total"].get("gpu"):
            raise ValueError("ScalingConfig(use_gpu=True): this node has no GPU; set use_gpu=False to train on processors")
        bundle = {"num_cpus": s.num_cpus_per_worker, "num_gpus": s.num_gpus_per_worker,
                  "resources": s.additional_resources_per_worker}
        # One host: what is to be spread can be spread over its one node alone.
        room = _groups.placement_group_new([bundle] * s.total_workers, "PACK")
        try:
            said = False
            while not _groups.placement_group_wait(room, 5.0):
                if not said:
                    print(f"manta: {s.total_workers} workers wait for room: each asks for {s.num_cpus_per_worker:g} processors, "
                          f"{_core.node_info()['available'].get('cpu', 0):g} are free", file=sys.stderr)
                said = True
        except BaseException:
            _groups.placement_group_remove(room)
            raise
        return room

    def _give_back(self) -> None:
        room, self.room = self.room, None
        if room is not None and _manta.is_initialized():
            _groups.placement_group_remove(room)

    def place(self, rank: int, attempt: int, folder: Optional[str] = None) -> Place:
        s = self.scaling
        resources = {"CPU": s.num_cpus_per_worker, "GPU": s.num_gpus_per_worker, **s.additional_resources_per_worker}
        return Place(rank=rank, world_size=s.total_workers, run_name=self.record.name, run_path=self.record.path,
                     storage=self.record.path.rpartition("/")[0], attempt=attempt, resources=resources,
                     metadata=self.metadata, address=f"unix:{folder}/ranks" if folder else None,
                     is_local=not s.num_workers, can_validate=self.validation is not None)

    # ---- callbacks ----

    def _after_round(self, metrics: list[dict[str, Any]], checkpoint: Optional[Checkpoint]) -> None:
        for callback in self._callbacks:
            try:
                callback.after_report(self._told, metrics, checkpoint)
            except BaseException as e:      # of the callback's own: this is a thread that no signal interrupts
                raise ControllerError(f"{type(callback).__name__}.after_report() failed: {type(e).__name__}: {e}") from e

    def _after_failures(self, failures: Mapping[int, BaseException]) -> None:
        for callback in self._callbacks:
            try:
                callback.after_exception(self._told, failures)
            except Exception as e:
                raise ControllerError(f"{type(callback).__name__}.after_exception() failed: {type(e).__name__}: {e}") from e

    # ---- the run ----

    def run(self, keep: Callable[[str], None]) -> Result:
        """keep(folder): leaves in the run's folder what restore() needs."""
        error: Optional[TrainingFailedError] = None
        status = "interrupted"
        try:
            with _stoppable():
                keep(self.record.path)
                try:
                    error = self._attempts() if self.scaling.num_workers else self._here()
                except ControllerError as e:
                    error = e
                self._give_back()           # validations may need the room
                self.record.end_validations(waits=True)
            status = "failed" if error else "done"
        finally:
            self._give_back()
            self.record.end_validations(waits=False)        # of a run that was interrupted: else none is left
            wrong = self._finish(status, error)
            if self.view is not None:
                self.view.show(self.record.history, self._failed, status)
        error = error or wrong
        result = self._result(error)
        if error is not None:
            error.result = result
            raise error
        return result

    def _finish(self, status: str, error: Optional[BaseException]) -> Optional[ControllerError]:
        """Ends the record; what was wrong with that, which hides nothing that went wrong before."""
        told = str(error).split("\n\n")[0] if error else None
        try:
            self.record.finish(status, told or (str(sys.exc_info()[1]) if sys.exc_info()[1] else None))
        except Exception as e:  # noqa: BLE001  a disk that is full, a folder that is gone
            wrong = ControllerError(f"the end of the run could not be kept: {type(e).__name__}: {e}")
            wrong.__cause__ = e
            return wrong
        finally:
            self.record.close()
            self._give_back()
        return None

    def _attempts(self) -> Optional[TrainingFailedError]:
        limit = (self.run_config.failure_config or FailureConfig()).max_failures
        while True:
            try:
                attempt = Attempt(self, self._failed)
            except OSError as e:
                raise ControllerError(f"the ranks could not be started: {e}") from e
            failures = attempt.run()
            if not failures:
                self._value = attempt.value
                wrong = self.record.unequal()
                return UnequalReportsError(wrong) if wrong else None
            self._failed += 1
            error = self._say(failures, self._failed, limit)
            if error is not None:
                return error

    def _say(self, failures: list[Failure], failed: int, limit: int) -> Optional[WorkerGroupError]:
        """Tells of a failure, in one block; the error when no attempt is left."""
        self._after_failures({f.rank: f.cause for f in failures})
        first = failures[0]
        goes_on = limit < 0 or failed <= limit
        start = self.record.start or self.first
        place = f"from {start.path.rpartition('/')[2]}" if start is not None and start._path else "from the beginning"
        now = (f"all ranks begin again {place}; failure {failed}" + (f" of {limit}" if limit > 0 else "") if goes_on
               else "the run ends; max_failures of FailureConfig has it begin again" if not limit
               else f"the run ends: it has failed {failed} times")
        n = self.record._made.get(first.rank, 0)
        where = f"in the loop, after {n} report{'' if n == 1 else 's'}" if first.has_begun else "before its loop began"
        block = first.block(where, now, f"manta logs {self.record.name} --rank {first.rank}")
        with contextlib.suppress(OSError):          # nobody reads it any more, and the training goes on
            print(block, file=sys.stderr, flush=True)
        for failure in failures:
            self.record.log(failure.rank, failure.what)
        if goes_on:
            return None
        error = WorkerGroupError(block, {f.rank: f.cause for f in failures})
        error.__cause__ = first.error
        return error

    def _here(self) -> Optional[TrainingFailedError]:
        """The loop in this process, where breakpoints stop in it: what it raises is raised as it is."""
        listener = _channel.Listener(self.record.heard)
        folder = tempfile.mkdtemp(prefix="manta-train-")
        parts = self.record.begin_attempt(1, 0, listener.tell)
        place = self.place(0, 0)
        workers = WorkerGroup([_Here()])
        try:
            self.backend.attempt(1, folder, self.scaling)
            session = _session.Session(place, _channel.connect(listener.path, 0, listener.token), parts,
                                       self.record.start or self.first)
            self.backend.start(place)
            _call_hooks(self.backend.begin, workers)
            self._value = _rank.run_loop(session, self.backend, self.task, {k: v[0] for k, v in self.shards.items()})
        except BaseException:
            with contextlib.suppress(Exception):
                self.backend.end(place)         # the process goes on, and may train again
            _raise_problem(listener.problem)
            raise
        finally:
            _call_last_hook(self.backend, workers)
            listener.settle()
            self.record.ended(0)
            self.record.end_attempt()
            listener.close()
            self.backend.end_attempt()
            shutil.rmtree(folder, ignore_errors=True)
        _raise_problem(listener.problem or self.record.problem)
        return None

    def _result(self, error: Optional[TrainingFailedError]) -> Result:
        kept = self.record.kept()
        return Result(metrics=self.record.history[-1] if self.record.history else None,
                      checkpoint=kept[-1][0] if kept else self.record.start, error=error, path=self.record.path,
                      best_checkpoints=kept, return_value=self._value, history=self.record.history,
                      config={"train_loop_config": self.task[1]})


class _Stopped(BaseException):
    """SIGTERM came."""


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Has SIGTERM (`manta stop`) end the training in order, unless the program handles it itself."""
    def stop(number: int, frame: Any) -> None:
        raise _Stopped("it was asked to end (SIGTERM)")

    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except _Stopped as e:
        raise SystemExit(75) from e
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
