"""What happens around a training: Keras's callbacks.

    class Loss(manta.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            print(epoch, logs["loss"])

    model.fit(x, y, epochs=10, callbacks=[Loss(), manta.callbacks.EarlyStopping("loss", patience=2)])

A callback is any object with some of Keras's on_... methods. An exception in one ends the fit with it, and the model has
the weights of the last step. EarlyStopping, ReduceLROnPlateau, CSVLogger, TensorBoard, TerminateOnNaN, ModelCheckpoint
and BackupAndRestore are the library's own: they see no call of Python.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manta.models import Model

_ZERO = -2147483648.0       # MANTA_ZERO: the number 0, where 0 stands for a default
Logs = dict[str, float]


class Callback:
    """What a callback of one's own is made of: override what you need. `self.model` and `self.params` are set.

        class Stop(manta.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if logs["loss"] < 0.1:
                    self.model.stop_training = True
    """

    model: Model
    params: dict[str, Any]

    def set_model(self, model: Model) -> None:
        self.model = model

    def set_params(self, params: dict[str, Any]) -> None:
        self.params = params

    def on_train_begin(self, logs: Logs | None = None) -> None: ...
    def on_train_end(self, logs: Logs | None = None) -> None: ...
    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None: ...
    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None: ...
    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None: ...
    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None: ...
    def on_test_begin(self, logs: Logs | None = None) -> None: ...
    def on_test_end(self, logs: Logs | None = None) -> None: ...
    def on_test_batch_begin(self, batch: int, logs: Logs | None = None) -> None: ...
    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None: ...
    def on_predict_begin(self, logs: Logs | None = None) -> None: ...
    def on_predict_end(self, logs: Logs | None = None) -> None: ...
    def on_predict_batch_begin(self, batch: int, logs: Logs | None = None) -> None: ...
    def on_predict_batch_end(self, batch: int, logs: Logs | None = None) -> None: ...


class History(Callback):
    """What fit() returns: `fit(...).history["loss"]` has a number for each epoch."""

    def __init__(self) -> None:
        self.history: dict[str, list[float]] = {}
        self.epoch: list[int] = []
        self.params = {}

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value)

    def plot(self, *metrics: str) -> Any:
        """Draws these metrics, or all: `history.plot("loss")` has loss and val_loss. The Axes of matplotlib where that is
        installed (an array of them for several), else a picture whose save("loss.svg") writes it."""
        from manta import _plot

        series = {name: [(float(e + 1), v) for e, v in zip(self.epoch[-len(values):], values)]
                  for name, values in self.history.items()}
        return _plot.plot(series, metrics, "epoch")

    def _repr_html_(self) -> str:
        from manta import _display

        names, n, most = list(self.history), len(self.epoch), 20
        shown = [*range(min(n, most // 2)), *range(max(n - most // 2, most // 2), n)]
        rows = [[self.epoch[i] + 1, *(_display.number(v[i]) if i < len(v) else "" for v in self.history.values())] for i in shown]
        if n > len(shown):
            rows.insert(most // 2, ["…"] * (1 + len(names)))
        return _display.table(rows, ["epoch", *names])


class LearningRateScheduler(Callback):
    """Sets the rate of each epoch: LearningRateScheduler(lambda epoch, rate: rate * 0.9)."""

    def __init__(self, schedule: Callable[[int, float], float], verbose: int = 0):
        self.schedule, self.verbose = schedule, verbose

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        rate = float(self.schedule(epoch, self.model.optimizer.learning_rate))
        self.model.optimizer.learning_rate = rate
        if self.verbose:
            print(f"\nEpoch {epoch + 1}: LearningRateScheduler setting learning rate to {rate}.")


class LambdaCallback(Callback):
    """Functions as hooks: LambdaCallback(on_epoch_end=lambda epoch, logs: print(logs))."""

    def __init__(self, **hooks: Callable[..., Any]):
        for name, hook in hooks.items():
            if not hasattr(Callback, name) or not name.startswith("on_"):
                raise TypeError(f"LambdaCallback: there is no hook {name!r}")
            setattr(self, name, hook)


class LibraryCallback:
    """A callback of the library's, by name."""

    def described(self) -> tuple[Any, ...]:
        """What the C module makes it of."""
        raise NotImplementedError


def _mode(name: str, mode: str) -> str | None:
    if mode not in ("auto", "min", "max"):
        raise ValueError(f"{name}: mode is {mode!r}, expected \"auto\", \"min\" or \"max\"")
    return None if mode == "auto" else mode


def _count(name: str, key: str, value: int, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}: {key} is {value!r}, expected a whole number from {least} on")
    return value


class EarlyStopping(LibraryCallback):
    """Ends when a metric no longer improves: EarlyStopping("val_loss", patience=3, restore_best_weights=True)."""

    def __init__(self, monitor: str = "val_loss", min_delta: float = 0, patience: int = 0, verbose: int = 0, mode: str = "auto",
                 baseline: float | None = None, restore_best_weights: bool = False, start_from_epoch: int = 0):
        self.options = ("EarlyStopping", monitor, float(min_delta), _count("EarlyStopping", "patience", patience),
                        _mode("EarlyStopping", mode), 0.0 if baseline is None else float(baseline) or _ZERO,
                        bool(restore_best_weights), _count("EarlyStopping", "start_from_epoch", start_from_epoch))

    def described(self) -> tuple[Any, ...]:
        return self.options


class ReduceLROnPlateau(LibraryCallback):
    """Lowers the rate when a metric no longer improves: ReduceLROnPlateau("val_loss", factor=0.5, patience=2)."""

    def __init__(self, monitor: str = "val_loss", factor: float = 0.1, patience: int = 10, verbose: int = 0, mode: str = "auto",
                 min_delta: float = 1e-4, cooldown: int = 0, min_lr: float = 0.0):
        self.options = ("ReduceLROnPlateau", monitor, float(factor), _count("ReduceLROnPlateau", "patience", patience, 1),
                        _mode("ReduceLROnPlateau", mode), float(min_delta) or _ZERO,
                        _count("ReduceLROnPlateau", "cooldown", cooldown), float(min_lr))

    def described(self) -> tuple[Any, ...]:
        return self.options


class CSVLogger(LibraryCallback):
    """A line for each epoch: CSVLogger("log.csv")."""

    def __init__(self, filename: str, separator: str = ",", append: bool = False):
        if len(separator) != 1:
            raise ValueError(f"CSVLogger: separator is {separator!r}, expected one character")
        self.options = ("CSVLogger", str(filename), separator, bool(append))

    def described(self) -> tuple[Any, ...]:
        return self.options


class TensorBoard(LibraryCallback):
    """Event files, under the tags that Keras uses: TensorBoard("logs")."""

    def __init__(self, log_dir: str = "logs", histogram_freq: int = 0, write_graph: bool = True,
                 update_freq: str | int = "epoch"):
        freq = {"epoch": 0, "batch": 1}.get(update_freq, update_freq) if isinstance(update_freq, str) else update_freq
        self.options = ("TensorBoard", str(log_dir), _count("TensorBoard", "update_freq", freq),  # type: ignore[arg-type]
                        _count("TensorBoard", "histogram_freq", histogram_freq), bool(write_graph))

    def described(self) -> tuple[Any, ...]:
        return self.options


class TerminateOnNaN(LibraryCallback):
    """Ends when the loss is no number: TerminateOnNaN()."""

    def described(self) -> tuple[Any, ...]:
        return ("TerminateOnNaN",)


class ModelCheckpoint(LibraryCallback):
    """Saves the model while it trains: ModelCheckpoint("best.keras", save_best_only=True)."""

    def __init__(self, filepath: str, monitor: str = "val_loss", verbose: int = 0, save_best_only: bool = False,
                 mode: str = "auto", save_freq: str | int = "epoch", initial_value_threshold: float | None = None):
        if isinstance(save_freq, str) and save_freq != "epoch":
            raise ValueError(f"ModelCheckpoint: save_freq is {save_freq!r}, expected \"epoch\" or a number of batches")
        every = 0 if isinstance(save_freq, str) else _count("ModelCheckpoint", "save_freq", save_freq, 1)
        threshold = 0.0 if initial_value_threshold is None else float(initial_value_threshold) or _ZERO
        self.options = ("ModelCheckpoint", str(filepath), monitor, _mode("ModelCheckpoint", mode), bool(save_best_only), every,
                        threshold)

    def described(self) -> tuple[Any, ...]:
        return self.options


class BackupAndRestore(LibraryCallback):
    """Takes up a training that was cut off: BackupAndRestore("backup")."""

    def __init__(self, backup_dir: str, save_freq: str | int = "epoch", delete_checkpoint: bool = True):
        every = 0 if isinstance(save_freq, str) else _count("BackupAndRestore", "save_freq", save_freq, 1)
        self.options = ("BackupAndRestore", str(backup_dir), every, not delete_checkpoint)

    def described(self) -> tuple[Any, ...]:
        return self.options
