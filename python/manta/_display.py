"""What a notebook shows: tables, progress bars and curves that are drawn while something trains.

Nothing is imported for it: who runs in a notebook has IPython loaded. All texts of programs and files are escaped.
"""
from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from manta._plot import Series, svg, text

EVERY_S = 0.25          # between two pictures: each is a message to a browser


def in_notebook() -> bool:
    """Whether the program is a notebook's: its shell has a kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def number(value: Any) -> str:
    """A metric for people; what is no number is its text, cut off where it is long."""
    if isinstance(value, float) or getattr(value, "ndim", None) == 0:
        try:
            v = float(value)
            return f"{v:.4f}" if v == 0 or 1e-3 <= abs(v) < 1e6 else f"{v:.4e}" if math.isfinite(v) else str(v)
        except (TypeError, ValueError):
            pass
    try:
        told = str(value)
    except Exception:  # noqa: BLE001  of the value's own
        told = f"<{type(value).__name__}>"
    return told if len(told) <= 200 else told[:199] + "…"


def table(rows: Iterable[Sequence[Any]], head: Sequence[str] = (), title: str = "") -> str:
    """A table of texts."""
    cell = "style='text-align:left;padding:2px 12px 2px 0'"
    out = [f"<b>{text(title)}</b>" if title else "", "<table>"]
    if head:
        out.append("<tr>" + "".join(f"<th {cell}>{text(h)}</th>" for h in head) + "</tr>")
    out += ["<tr>" + "".join(f"<td {cell}>{text(c)}</td>" for c in row) + "</tr>" for row in rows]
    return "<div>" + "".join([*out, "</table>"]) + "</div>"


def bar(done: float, of: float | None, words: str) -> str:
    """A progress bar and what stands beside it; of: None where nobody knows how much there is."""
    drawn = "" if of is None else f"<progress value='{min(done, of):g}' max='{of or 1:g}' style='width:20em'></progress> "
    return f"<div style='font-family:monospace'>{drawn}{text(words)}</div>"


class _Shown:
    """What is sent to the notebook: HTML, and words for whoever shows no HTML."""

    def __init__(self, source: str, words: str):
        self._source, self._words = source, words

    def _repr_html_(self) -> str:
        return self._source

    def __repr__(self) -> str:
        return self._words


class Live:
    """A place below a cell that is drawn again and again, not more often than one can see."""

    def __init__(self) -> None:
        self._place: Any = None
        self._drawn = 0.0

    def show(self, make: Callable[[], tuple[str, str]], at_once: bool = False) -> None:
        """make() gives the HTML and the words; at_once: whatever the last picture's time was."""
        now = time.monotonic()
        if not at_once and self._place is not None and now - self._drawn < EVERY_S:
            return
        shown = _Shown(*make())
        if self._place is None:
            from IPython.display import display
            self._place = display(shown, display_id=True)       # type: ignore[no-untyped-call]
        else:
            self._place.update(shown)
        self._drawn = now


def curves(reports: Sequence[Mapping[Any, Any]]) -> Series:
    """The metrics of reports that are numbers, over the number of the report."""
    out: dict[str, list[tuple[float, float]]] = {}
    for i, report in enumerate(reports):
        for name, value in report.items():
            if isinstance(value, (int, float)) or getattr(value, "ndim", None) == 0:
                try:
                    out.setdefault(str(name), []).append((float(i + 1), float(value)))
                except (TypeError, ValueError, OverflowError):
                    pass
    return out


class TrainingView:
    """A trainer's run while it goes on: how long, how many reports, the last one's metrics, curves."""

    def __init__(self, name: str, workers: int):
        self._name, self._workers = name, workers
        self._live, self._began = Live(), time.monotonic()

    def show(self, reports: Sequence[Mapping[Any, Any]], failed: int, state: str = "running") -> None:
        """reports: rank 0's; failed: how often the ranks have begun again."""
        def make() -> tuple[str, str]:
            seen = list(reports)
            last = "".join(f" - {k}: {number(v)}" for k, v in (seen[-1].items() if seen else ()))
            again = f", {failed} failure{'' if failed == 1 else 's'}" if failed else ""
            words = (f"{self._name}: {state}, {self._workers} workers, {time.monotonic() - self._began:.0f}s, "
                     f"{len(seen)} reports{again}{last}")
            series = curves(seen)
            return bar(0, None, words) + (svg(series, "report") if series else ""), words
        self._live.show(make, state != "running")


def training_view(name: str, workers: int) -> TrainingView | None:
    """In a notebook a view, elsewhere None."""
    return TrainingView(name, workers) if in_notebook() else None
