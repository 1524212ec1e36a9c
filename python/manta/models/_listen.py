"""Callbacks as the C module takes them: functions that call the on_... methods of an object."""
from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

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


class Printer(Callback):
    """Two lines for each epoch, as Keras prints them with verbose=2."""

    def __init__(self) -> None:
        self.began = 0.0

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.began = time.monotonic()
        print(f"Epoch {epoch + 1}/{self.params['epochs']}", flush=True)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        seconds, steps = time.monotonic() - self.began, self.params.get("steps")
        numbers = "".join(f" - {name}: {value:.4f}" if abs(value) > 1e-3 else f" - {name}: {value:.4e}"
                          for name, value in (logs or {}).items())
        pace = f"{steps}/{steps} - {seconds:.0f}s - {1000 * seconds / steps:.0f}ms/step" if steps else f"{seconds:.0f}s"
        print(f"{pace}{numbers}", flush=True)
