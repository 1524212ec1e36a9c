"""A callback for Keras's fit() that reports.

    model.fit(dataset, callbacks=[ReportCheckpointCallback()])

It is a callback by its methods alone, so that it serves tf_keras and Keras 3, and importing it imports neither.
"""
from __future__ import annotations

import os
import tempfile
from typing import Any, Mapping, Optional, Sequence, Union

from manta.train import _session
from manta.train.checkpoint import Checkpoint

__all__ = ["ReportCheckpointCallback"]

Events = Union[str, Sequence[str], None]
_EVENTS = ("epoch_begin", "epoch_end", "train_batch_begin", "train_batch_end", "train_begin", "train_end",
           "test_begin", "test_end", "test_batch_begin", "test_batch_end", "predict_begin", "predict_end",
           "predict_batch_begin", "predict_batch_end")


def _events(name: str, value: Events) -> tuple[str, ...]:
    out = () if value is None else (value,) if isinstance(value, str) else tuple(value)
    for event in out:
        if event not in _EVENTS:
            raise ValueError(f"{name} is {event!r}, expected one of {', '.join(_EVENTS)}")
    return out


class ReportCheckpointCallback:
    """Reports the metrics of fit(), and the model as model.keras, at the events that are named.

        ReportCheckpointCallback(checkpoint_on="epoch_end", report_metrics_on="epoch_end", metrics=["loss"])

    metrics: names, or a dictionary of the names to report under; None: all. Every rank saves, because saving under a
    strategy may need all of them, and rank 0's is the checkpoint.
    """
    params: Any = None
    model: Any = None
    _supports_tf_logs = False
    async_safe = False

    def __init__(self, checkpoint_on: Events = "epoch_end", report_metrics_on: Events = "epoch_end",
                 metrics: Union[Sequence[str], Mapping[str, str], str, None] = None) -> None:
        self._checkpoint_on = _events("checkpoint_on", checkpoint_on)
        self._report_on = _events("report_metrics_on", report_metrics_on)
        self._metrics = [metrics] if isinstance(metrics, str) else metrics

    def set_params(self, params: Any) -> None:
        self.params = params

    def set_model(self, model: Any) -> None:
        self.model = model

    def _chosen(self, logs: Optional[Mapping[str, Any]]) -> dict[str, Any]:
        logs = dict(logs or {})
        if self._metrics is None:
            return logs
        names = self._metrics.items() if isinstance(self._metrics, Mapping) else zip(self._metrics, self._metrics)
        return {to: logs[name] for to, name in names if name in logs}

    def _handle(self, event: str, logs: Optional[Mapping[str, Any]]) -> None:
        if event in self._checkpoint_on:
            with tempfile.TemporaryDirectory() as folder:
                self.model.save(os.path.join(folder, "model.keras"))
                is_first = _session.get_context().get_world_rank() == 0
                _session.report(self._chosen(logs), checkpoint=Checkpoint.from_directory(folder) if is_first else None)
        elif event in self._report_on:
            _session.report(self._chosen(logs))

    # What Keras asks of a callback.

    def on_epoch_begin(self, epoch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._handle("epoch_begin", logs)

    def on_epoch_end(self, epoch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._handle("epoch_end", logs)

    def on_train_begin(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._handle("train_begin", logs)

    def on_train_end(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._handle("train_end", logs)

    def on_train_batch_begin(self, batch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._handle("train_batch_begin", logs)

    def on_train_batch_end(self, batch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._handle("train_batch_end", logs)

    def on_test_begin(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._handle("test_begin", logs)

    def on_test_end(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._handle("test_end", logs)

    def on_test_batch_begin(self, batch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._handle("test_batch_begin", logs)

    def on_test_batch_end(self, batch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._handle("test_batch_end", logs)

    def on_predict_begin(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._handle("predict_begin", logs)

    def on_predict_end(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._handle("predict_end", logs)

    def on_predict_batch_begin(self, batch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._handle("predict_batch_begin", logs)

    def on_predict_batch_end(self, batch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._handle("predict_batch_end", logs)

    on_batch_begin = on_train_batch_begin
    on_batch_end = on_train_batch_end

    def _implements_train_batch_hooks(self) -> bool:
        return any(e.startswith("train_batch") for e in self._checkpoint_on + self._report_on)

    def _implements_test_batch_hooks(self) -> bool:
        return any(e.startswith("test_batch") for e in self._checkpoint_on + self._report_on)

    def _implements_predict_batch_hooks(self) -> bool:
        return any(e.startswith("predict_batch") for e in self._checkpoint_on + self._report_on)
