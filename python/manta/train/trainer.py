"""Trainers: a loop, run once in each of N workers.

    def loop(config):
        for epoch in range(config["epochs"]):
            ...
            manta.train.report({"loss": loss})

    trainer = DataParallelTrainer(loop, train_loop_config={"epochs": 3}, scaling_config=ScalingConfig(num_workers=2))
    result = trainer.fit()
"""
from __future__ import annotations

import inspect
import os
import pickle
from typing import Any, Callable, ClassVar, Mapping, Optional, Union

from manta.train import _record, _shard
from manta.train._backend import BackendConfig
from manta.train.checkpoint import Checkpoint
from manta.train.config import DataConfig, RunConfig, ScalingConfig, check_class, check_version
from manta.train.errors import TrainingFailedError
from manta.train.result import Result
from manta.train.validation import ValidationConfig

__all__ = ["BaseTrainer", "DataParallelTrainer", "TrainingFailedError"]

TRAINER = "trainer.pkl"         # in a run's folder: what restore() makes the trainer of
_KEPT = ("__class__", "run_config", "scaling_config", "train_loop_config", "backend_config", "dataset_config", "metadata",
         "train_loop_per_worker", "starting_checkpoint", "validation_config")
_RUN_LATER = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def _takes_config(loop: Callable[..., Any]) -> bool:
    """Whether a loop takes the configuration: it has no argument, or one."""
    try:
        parameters = inspect.signature(loop).parameters.values()
    except (TypeError, ValueError):
        return True
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    taken = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
    if len(needed) > 1:
        raise ValueError(f"train_loop_per_worker takes {len(needed)} arguments ({', '.join(p.name for p in needed)}), "
                         "expected none or one, the configuration")
    return bool(taken)


class BaseTrainer:
    """What all trainers have: a scaling and a run configuration, datasets, fit(), restore()."""
    _kind: ClassVar[str] = "train"

    def __init__(self, *, scaling_config: Optional[ScalingConfig] = None, run_config: Optional[RunConfig] = None,
                 datasets: Optional[Mapping[str, Any]] = None, metadata: Optional[Mapping[str, Any]] = None,
                 resume_from_checkpoint: Optional[Checkpoint] = None) -> None:
        for name, value, kind in (("scaling_config", scaling_config, ScalingConfig), ("run_config", run_config, RunConfig),
                                  ("resume_from_checkpoint", resume_from_checkpoint, Checkpoint)):
            if value is not None and not isinstance(value, kind):
                raise ValueError(f"{name} is {type(value).__name__}, expected {kind.__name__}")
            check_class(name, value)
        if datasets is not None and not isinstance(datasets, Mapping):
            raise ValueError(f"datasets is {type(datasets).__name__}, expected a dictionary of datasets by name")
        if resume_from_checkpoint is not None:
            check_version("resume_from_checkpoint")
        if metadata is not None:
            check_version("metadata")
        self.scaling_config = scaling_config or ScalingConfig()
        self.run_config = run_config or RunConfig()
        self.scaling_config.check()
        self.run_config.check()
        self.datasets = dict(datasets or {})
        self.metadata = dict(metadata or {})
        self.starting_checkpoint = resume_from_checkpoint
        self._folder: Optional[str] = None          # of a run that is to go on
        for name, dataset in self.datasets.items():
            _shard.check(name, dataset)

    def fit(self) -> Result:
        """Trains, and returns what came of it. TrainingFailedError: it ended without success."""
        raise NotImplementedError


class DataParallelTrainer(BaseTrainer):
    """Runs a loop in each of N workers.

        DataParallelTrainer(loop, train_loop_config={"lr": 0.1}, scaling_config=ScalingConfig(num_workers=2)).fit()

    train_loop_per_worker: a function of nothing, or of the configuration. resume_from_checkpoint: what
    get_checkpoint() gives before anything was reported. validation_config: the function that tries checkpoints.
    """

    def __init__(self, train_loop_per_worker: Callable[..., Any], *, train_loop_config: Optional[Mapping[str, Any]] = None,
                 backend_config: Optional[BackendConfig] = None, scaling_config: Optional[ScalingConfig] = None,
                 run_config: Optional[RunConfig] = None, datasets: Optional[Mapping[str, Any]] = None,
                 dataset_config: Optional[DataConfig] = None, metadata: Optional[Mapping[str, Any]] = None,
                 resume_from_checkpoint: Optional[Checkpoint] = None, validation_config: Optional[ValidationConfig] = None) -> None:
        super().__init__(scaling_config=scaling_config, run_config=run_config, datasets=datasets, metadata=metadata,
                         resume_from_checkpoint=resume_from_checkpoint)
        if validation_config is not None and not isinstance(validation_config, ValidationConfig):
            raise ValueError(f"validation_config is {type(validation_config).__name__}, expected ValidationConfig")
        if not callable(train_loop_per_worker):
            raise ValueError(f"train_loop_per_worker is {type(train_loop_per_worker).__name__}, expected a function")
        if any(runs_later(train_loop_per_worker) for runs_later in _RUN_LATER):
            raise ValueError("train_loop_per_worker is async or a generator, of which a call runs nothing: expected a function without "
                             "async and yield")
        self.train_loop_per_worker = train_loop_per_worker
        self.train_loop_config = train_loop_config
        self.backend_config = backend_config or BackendConfig()
        self.dataset_config = dataset_config or DataConfig()
        self.validation_config = validation_config
        self._takes_config = _takes_config(train_loop_per_worker)

    def fit(self) -> Result:
        """Trains, and returns what came of it. TrainingFailedError: it ended without success.

            result = trainer.fit()
        """
        from manta.train._controller import Controller

        assert self.run_config.checkpoint_config is not None
        self.run_config.checkpoint_config.check()
        config = self.train_loop_config if self.train_loop_config is not None else {}
        controller = Controller(
            kind=self._kind, task=(self.train_loop_per_worker, config, self._takes_config), scaling=self.scaling_config,
            run_config=self.run_config, backend=self.backend_config.make_backend(), datasets=self.datasets,
            data_config=self.dataset_config, first=self.starting_checkpoint, metadata=self.metadata, folder=self._folder,
            validation=self.validation_config)
        return controller.run(self._keep)

    # ---- restoring ----

    def _keep(self, folder: str) -> None:
        """Leaves in the run's folder what restore() needs; a loop that cannot be pickled is then to be given again."""
        known: dict[str, Any] = {}
        for name in _KEPT:
            try:
                known[name] = _dump(getattr(self, name))
            except Exception:  # noqa: BLE001  restore() says that it is missing
                known[name] = None
        at = os.path.join(folder, TRAINER)
        with open(at + ".manta-tmp", "wb") as f:
            pickle.dump(known, f)
        os.replace(at + ".manta-tmp", at)

    @classmethod
    def can_restore(cls, path: Union[str, os.PathLike[str]], storage_filesystem: Optional[Any] = None) -> bool:
        """Whether a run in this folder can be taken up.

            TorchTrainer.can_restore("/data/runs/first")
        """
        check_version(f"{cls.__name__}.can_restore()")
        return os.path.isfile(os.path.join(os.path.expanduser(os.fspath(path)), TRAINER))

    @classmethod
    def restore(cls, path: Union[str, os.PathLike[str]], train_loop_per_worker: Optional[Callable[..., Any]] = None,
                train_loop_config: Optional[Mapping[str, Any]] = None, datasets: Optional[Mapping[str, Any]] = None,
                scaling_config: Optional[ScalingConfig] = None, run_config: Optional[RunConfig] = None,
                storage_filesystem: Optional[Any] = None) -> Any:
        """The trainer of a run that was cut off: fit() goes on in the same folder from its last checkpoint that is whole.

            TorchTrainer.restore("/data/runs/first").fit()

        Datasets, and a loop that could not be kept, are given again.
        """
        check_version(f"{cls.__name__}.restore()")
        folder = os.path.abspath(os.path.expanduser(os.fspath(path)))
        if not cls.can_restore(folder):
            raise ValueError(f"{folder}: there is no run of a trainer that could be taken up")
        if _record.is_done(folder):
            raise ValueError(f"{folder}: the run has ended well; resume_from_checkpoint begins another one from its checkpoint")
        known = _read_kept(os.path.join(folder, TRAINER))
        given: dict[str, Any] = {"train_loop_per_worker": train_loop_per_worker, "train_loop_config": train_loop_config,
                                 "scaling_config": scaling_config, "run_config": run_config}
        known["__class__"] = known["__class__"] or _dump(cls)
        missing = [name for name, data in known.items() if data is None and given.get(name) is None]
        if missing:
            raise ValueError(f"restore(): {', '.join(missing)} of this run could not be kept; give it to restore() again")
        kept: dict[str, Any] = {name: _load(name, data) if given.get(name) is None else given[name]
                                for name, data in known.items()}
        kind: Any = kept.pop("__class__")
        kind = kind if issubclass(kind, cls) else cls
        out = kind.__new__(kind)
        DataParallelTrainer.__init__(out, kept.pop("train_loop_per_worker"), datasets=datasets,
                                     resume_from_checkpoint=kept.pop("starting_checkpoint"), **kept)
        out._folder = folder
        return out


def _read_kept(path: str) -> dict[str, Optional[bytes]]:
    """What _keep() has left. ValueError: it is damaged."""
    try:
        with open(path, "rb") as f:
            known = pickle.load(f)
        if set(known) == set(_KEPT) and all(data is None or isinstance(data, bytes) for data in known.values()):
            return dict(known)
    except Exception:  # noqa: BLE001  whatever bytes that are none of a pickle's lead to
        pass
    raise ValueError(f"{path} is damaged: make the trainer again, with the name of the run, which then goes on")


def _load(name: str, data: Optional[bytes]) -> Any:
    try:
        return pickle.loads(data or b"")
    except Exception as e:
        raise ValueError(f"restore(): {name} of this run cannot be read ({type(e).__name__}: {e}); give it to restore() again") from e


def _dump(value: Any) -> bytes:
    import cloudpickle
    return bytes(cloudpickle.dumps(value))
