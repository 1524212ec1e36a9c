"""Callbacks as the C module takes them: functions that call the on_... methods of an object."""
from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from manta import _display, _plot
from manta.callbacks import Callback, LibraryCallback

_BATCHES = ("train_batch_begin", "train_batch_end", "test_batch_begin", "test_batch_end", "predict_batch_begin",
            "predict_batch_end")
_EPOCHS = ("epoch_begin", "epoch_end")


def _method(callback: Any, hook: str) -> Callable[..., Any] | None:
    """What the object has for a hook, if it is more than Callback has."""
    found = getattr(callback, f"on_{hook}", None)
    if found is None or getattr(found, "__func__", None) is getattr(Callback, f"on_{hook}"):
        return None
    return found  # type: ignore[no-any-return]


def listener(callback: Any, model: Any, params: dict[str, Any]) -> tuple[Any, ...]:
    """A callback of Python's, or one of the library's. params["steps"] is set when the number is known."""
    if isinstance(callback, LibraryCallback):
        return callback.described()
    hooks = {h: m for h in (*_BATCHES, *_EPOCHS, "train_begin", "train_end", "test_begin", "test_end", "predict_begin",
                            "predict_end") if (m := _method(callback, h))}
    if not hooks and not any(hasattr(callback, f"on_{h}") for h in (*_BATCHES, *_EPOCHS, "train_begin")):
        raise TypeError(f"callbacks: {callback!r} has no on_... method; expected a callback such as manta.callbacks.Callback")

    def call(hook: str, epoch: int, batch: int, steps: int, logs: dict[str, float]) -> str | None:
        method = hooks.get(hook)
        if steps >= 0:
            params["steps"] = steps
        if method:
            if hook in _EPOCHS:
                method(epoch, logs)
            elif hook in _BATCHES:
                method(batch, logs)
            else:
                method(logs)
        return "stop_training was set" if model.stop_training else None

    return call, any(h in hooks for h in _BATCHES)


def prepare(callbacks: Any, model: Any, params: dict[str, Any]) -> list[Any]:
    """The callbacks that fit() was given, told whom they serve."""
    if callbacks is None:
        return []
    many = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
    for one in many:
        if isinstance(one, type):
            raise TypeError(f"callbacks: the class {one.__name__} is given, expected an object: {one.__name__}()")
        for method, value in (("set_params", params), ("set_model", model)):
            if hasattr(one, method):
                getattr(one, method)(value)
    return many


def printers(verbose: str | int) -> list[Callback]:
    """What prints for verbose: with 1 a bar, on a terminal and in a notebook, and otherwise lines, with 0 nothing; "auto" is 1."""
    if verbose in (0, False):
        return []
    if verbose in (1, True, "auto") and _display.in_notebook():
        return [NotebookBar()]
    return [Bar() if verbose in (1, True, "auto") and _can_draw(sys.stdout) else Printer()]


def _can_draw(stream: Any) -> bool:
    """Whether it is a terminal that has the letter of a bar; a program without standard output has None."""
    try:
        "━".encode(getattr(stream, "encoding", None) or "utf-8")
        return bool(stream.isatty())
    except (AttributeError, LookupError, UnicodeError, ValueError):
        return False


def _numbers(logs: Mapping[str, float] | None) -> str:
    return "".join(f" - {name}: {value:.4f}" if abs(value) > 1e-3 else f" - {name}: {value:.4e}"
                   for name, value in (logs or {}).items())


def _pace(seconds: float, steps: int) -> str:
    """As Keras writes it: 8ms/step, or 2s/step."""
    each = seconds / max(steps, 1)
    return f"{each:.0f}s/step" if each >= 1 else f"{1e3 * each:.0f}ms/step" if each >= 1e-3 else f"{1e6 * each:.0f}us/step"


class Printer(Callback):
    """Two lines for each epoch, as Keras prints them with verbose=2."""

    def __init__(self) -> None:
        self.began = 0.0

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.began = time.monotonic()
        print(f"Epoch {epoch + 1}/{self.params['epochs']}", flush=True)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        seconds, steps = time.monotonic() - self.began, self.params.get("steps")
        pace = f"{steps}/{steps} - {seconds:.0f}s - {_pace(seconds, steps)}" if steps else f"{seconds:.0f}s"
        print(f"{pace}{_numbers(logs)}", flush=True)


class Bar(Callback):
    """A line for each epoch that is drawn again as it goes on, as Keras draws it with verbose=1.

        12/938 ━━━━━━━━━━━━━━━━━━━━ 7s 8ms/step - accuracy: 0.9544 - loss: 0.1553
    """
    WIDTH = 20
    EVERY_S = 0.05          # a terminal is slower than a step

    def __init__(self) -> None:
        self._began = self._drawn = 0.0
        self._length = 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self._began = time.monotonic()
        self._drawn, self._length = 0.0, 0
        print(f"Epoch {epoch + 1}/{self.params['epochs']}", flush=True)

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        now = time.monotonic()
        if now - self._drawn >= self.EVERY_S:
            self._drawn = now
            self._draw(batch + 1, now - self._began, logs, False)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self._draw(self.params.get("steps") or 0, time.monotonic() - self._began, logs, True)

    def _draw(self, done: int, seconds: float, logs: dict[str, float] | None, is_last: bool) -> None:
        steps = self.params.get("steps") or 0
        full = self.WIDTH if is_last or not steps else self.WIDTH * min(done, steps) // steps
        left = seconds if is_last or not steps else seconds / max(done, 1) * (steps - done)     # while it runs: what is to come
        text = (f"{done}/{steps or '?'} \x1b[32m{'━' * full}\x1b[90m{'━' * (self.WIDTH - full)}\x1b[0m {left:.0f}s "
                f"{_pace(seconds, done)}{_numbers(logs)}")
        print(f"\r{text}{' ' * max(self._length - len(text), 0)}", end="\n" if is_last else "", flush=True)
        self._length = len(text)


class NotebookBar(Callback):
    """A bar over all epochs, the numbers of the one that runs, and curves of those that are over."""

    def __init__(self) -> None:
        self._live = _display.Live()
        self._began = 0.0
        self._epoch = self._first = -1
        self._curves: dict[str, list[tuple[float, float]]] = {}

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self._began, self._epoch = time.monotonic(), epoch
        self._first = epoch if self._first < 0 else self._first
        self._live.show(lambda: self._draw(0, {}))

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self._live.show(lambda: self._draw(batch + 1, logs))

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        for name, value in (logs or {}).items():
            self._curves.setdefault(name, []).append((epoch + 1.0, value))
        self._live.show(lambda: self._draw(self.params.get("steps") or 0, logs, True), epoch + 1 >= self.params["epochs"])
        self._last = logs

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        if self._epoch >= 0:            # which one was the last a callback may have decided
            self._live.show(lambda: self._draw(self.params.get("steps") or 0, getattr(self, "_last", logs), True), True)

    def _draw(self, done: int, logs: Mapping[str, float] | None, is_over: bool = False) -> tuple[str, str]:
        steps, epochs, seconds = self.params.get("steps") or 0, self.params["epochs"], time.monotonic() - self._began
        share = 1.0 if is_over else min(done / steps, 1.0) if steps else 0.0
        words = (f"Epoch {self._epoch + 1}/{epochs} {done}/{steps or '?'} {seconds:.0f}s {_pace(seconds, done)}{_numbers(logs)}")
        drawn = _display.bar(self._epoch + share - self._first, epochs - self._first, words)
        return drawn + (_plot.svg(self._curves) if self._curves else ""), words
