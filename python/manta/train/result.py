"""What a training came to.

    result = trainer.fit()
    print(result.metrics["loss"], result.checkpoint)

    result = Result.from_path("/data/runs/first")
"""
from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Optional, Union

from manta.train import _record, _validate
from manta.train.checkpoint import Checkpoint, _local_filesystem
from manta.train.config import _is_local

__all__ = ["Result"]


@dataclasses.dataclass
class Result:
    """metrics: rank 0's last. checkpoint: the latest. error: what ended the training, None if it ended well.
    path: the run's folder. best_checkpoints: those that are kept, each with the metrics of its report.
    """
    metrics: Optional[dict[str, Any]]
    checkpoint: Optional[Checkpoint]
    error: Optional[Exception]
    path: str
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] = dataclasses.field(default_factory=list)
    return_value: Any = None
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list, repr=False)
    config: Optional[Any] = dataclasses.field(default=None, repr=False)

    @property
    def filesystem(self) -> Any:
        """This host's file system as pyarrow has it, which must be installed."""
        return _local_filesystem("Result.filesystem")

    @property
    def metrics_dataframe(self) -> Any:
        """All of rank 0's reports as a table of pandas, which must be installed; None: there were none.

            result.metrics_dataframe["loss"].plot()
        """
        if not self.history:
            return None
        import pandas
        return pandas.DataFrame(self.history)

    def get_best_checkpoint(self, metric: str, mode: str) -> Optional[Checkpoint]:
        """The one of the kept checkpoints whose report had the best value of a metric.

            result.get_best_checkpoint("accuracy", "max")

        "test/accuracy" is "accuracy" of the dictionary "test", if no metric is called so itself.
        """
        if mode not in ("max", "min"):
            raise ValueError(f"mode is {mode!r}, expected \"max\" or \"min\"")
        if not self.best_checkpoints:
            raise RuntimeError("no checkpoint was reported")
        values = [(_found(m, metric), c) for c, m in self.best_checkpoints]
        scored = [(value, c) for value, c in values if value is not None and value == value]     # no NaN
        if not scored:
            known = sorted({str(k) for _, m in self.best_checkpoints for k in m})
            raise RuntimeError(f"no checkpoint was reported with a value of {metric!r}; their metrics are {', '.join(known) or 'none'}")
        best = max if mode == "max" else min
        return best(scored, key=lambda one: one[0])[1]

    def plot(self, *metrics: str) -> Any:
        """Draws these metrics of rank 0's reports, or all that are numbers: `result.plot("loss")`. The Axes of matplotlib
        where that is installed (an array of them for several), else a picture whose save("loss.svg") writes it."""
        from manta import _display, _plot
        return _plot.plot(_display.curves(self.history), metrics, "report")

    def _repr_html_(self) -> str:
        from manta import _display
        rows: list[list[Any]] = [["run", self.path], ["ended", "well" if self.error is None else f"with {_told(self.error)}"],
                                 ["reports", len(self.history)],
                                 ["checkpoint", self.checkpoint.path if self.checkpoint is not None else "none"]]
        rows += [[name, _display.number(value)] for name, value in (self.metrics or {}).items()]
        return _display.table(rows, title="Result")

    @classmethod
    def from_path(cls, path: Union[str, os.PathLike[str]], storage_filesystem: Optional[Any] = None) -> Result:
        """The result of the run in a folder, as its files have it: numbers, texts, lists.

            Result.from_path("/data/runs/first")
        """
        if storage_filesystem is not None and not _is_local(storage_filesystem):
            raise NotImplementedError("Result.from_path: the filesystem is another than this host's; the path is one of this host")
        folder = os.path.abspath(os.path.expanduser(os.fspath(path)))
        if not os.path.isdir(folder):
            raise RuntimeError(f"{folder}: there is no such folder, expected that of a run")
        if not os.path.isfile(os.path.join(folder, "config.json")):
            raise RuntimeError(f"{folder}: there is no run: it has no config.json")
        history = _read_history(folder)
        checkpoints = _read_checkpoints(folder, history)
        error: Optional[Exception] = None
        told = _read_json(os.path.join(folder, "result.json")).get("error")
        if told:
            from manta.train.errors import TrainingFailedError
            error = TrainingFailedError(told)
        return cls(metrics=history[-1][1] if history else None, checkpoint=checkpoints[-1][0] if checkpoints else None,
                   error=error, path=folder, best_checkpoints=checkpoints, history=[m for _, m in history])


def _found(metrics: dict[str, Any], name: str) -> Any:
    """A metric by its name, or by the names that lead to it; None: there is none."""
    if name in metrics:
        return metrics[name]
    value: Any = metrics
    for part in name.split("/"):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _told(error: Exception) -> str:
    """An exception's type and first line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _read_json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as f:
            out = json.load(f)
            return out if isinstance(out, dict) else {}
    except (OSError, ValueError):
        return {}


def _read_history(folder: str) -> list[tuple[int, dict[str, Any]]]:
    """(number, metrics) of rank 0's reports; a line that a kill has cut off, or that is damaged, is none."""
    out = []
    try:
        with open(os.path.join(folder, _record.REPORTS), encoding="utf-8", errors="replace") as f:
            for line in f:
                try:
                    one = json.loads(line)
                    if one["rank"] == 0:
                        out.append((int(one["report"]), dict(one["metrics"])))
                except (ValueError, KeyError, TypeError):
                    continue
    except FileNotFoundError:
        pass
    return out


def _read_checkpoints(folder: str, history: list[tuple[int, dict[str, Any]]]) -> list[tuple[Checkpoint, dict[str, Any]]]:
    """Those with a manifest, which is written last, oldest first."""
    at = os.path.join(folder, "checkpoints")
    out = []
    by_number = dict(history)
    tried = _validate.read(folder)
    for name in sorted(os.listdir(at)) if os.path.isdir(at) else []:
        manifest = _read_json(os.path.join(at, name, "manifest.json"))
        files = _record._start_of(os.path.join(at, name)) if manifest and not name.startswith(".") else None
        if files is not None:
            metrics = by_number.get(manifest.get("epoch", 0))
            metrics = manifest.get("metrics", {}) if metrics is None else metrics
            metrics.update(tried.get(name, (None, {}, None))[1])
            out.append((files, metrics))
    return out
