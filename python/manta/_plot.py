"""Curves of metrics: through matplotlib where it is installed, as SVG of our own otherwise.

The SVG has the look of `manta runs plot`: a metric and that of the validation share a panel. That command's own plotter
belongs to the program, which a wheel does not bring, and a curve that is drawn while a model trains needs no file.
"""
from __future__ import annotations

import html
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH, PANEL, LEFT, RIGHT, ABOVE, BELOW = 640, 180, 64, 16, 30, 28
_INK, _SOFT, _GRID, _CURVES = "#1f2328", "#59636e", "#d1d9e0", ("#1565c0", "#e65100")
_TICKS = 12
Series = Mapping[str, Sequence[tuple[float, float]]]        # points by the name of a metric


def text(value: object) -> str:
    """A text of anybody's as HTML and XML have it: characters that XML does not allow become question marks."""
    allowed = "".join(c if c in "\t\n" or " " <= c < "\x7f" or "\xa0" <= c < "\ud800" or "\ue000" <= c < "\ufffe"
                      or c >= "\U00010000" else "?" for c in str(value))
    return html.escape(allowed)


def panels(series: Series) -> list[list[str]]:
    """Which metrics are drawn together: each with that of the validation behind it."""
    return [[name, *([f"val_{name}"] if f"val_{name}" in series else [])] for name in series
            if not (name.startswith("val_") and name[4:] in series)]


def ticks(low: float, high: float, wish: int) -> list[float]:
    """About so many round numbers from low to high: 1, 2 or 5 times a power of ten apart."""
    raw = (high - low) / wish
    if not raw > 0 or not math.isfinite(raw):
        return []
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((k * power for k in (1, 2, 5) if raw <= k * power), 10 * power)
    if not step > 0:
        return []
    first = math.ceil(low / step - 1e-9)
    return [(first + i) * step for i in range(_TICKS) if (first + i) * step <= high + step * 1e-9]


def _range(values: Sequence[float]) -> tuple[float, float] | None:
    """The finite range, widened when it is a point."""
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return None
    low, high = min(finite), max(finite)
    if high - low > abs(high) * 1e-12:
        return low, high
    return low - (abs(low) * 0.5 or 1.0), high + (abs(high) * 0.5 or 1.0)


def _panel(names: Sequence[str], series: Series, x_name: str, top: float) -> list[str]:
    head = "".join(f'<tspan fill="{_CURVES[i]}"{" dx=" + chr(34) + "14" + chr(34) if i else ""}>{text(n)}</tspan>'
                   for i, n in enumerate(names))
    out = [f'<text x="{LEFT}" y="{top + 18}" font-weight="bold">{head}</text>',
           f'<text x="{WIDTH - RIGHT}" y="{top + 18}" fill="{_SOFT}" text-anchor="end">{text(x_name)}</text>']
    xs = [x for n in names for x, _ in series[n]]
    reach = _range([y for n in names for _, y in series[n]])
    if reach is None:
        return [*out, f'<text x="{LEFT}" y="{top + ABOVE + 24}" fill="{_SOFT}">no number</text>']
    (y0, y1), x0, x1 = reach, min(xs), max(xs)
    x1 = x1 if x1 > x0 else x0 + 1.0

    def across(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (x - x0) / (x1 - x0)

    def down(y: float) -> float:
        return top + ABOVE + (PANEL - ABOVE - BELOW) * (y1 - y) / (y1 - y0)

    for t in ticks(y0, y1, 4):
        y = down(t)
        out += [f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{_GRID}"/>',
                f'<text x="{LEFT - 8}" y="{y + 4.5:.1f}" fill="{_SOFT}" text-anchor="end">'
                f'{0 if abs(t) < (y1 - y0) * 1e-9 else t:.4g}</text>']
    for t in ticks(x0, x1, 7):
        if t == math.floor(t):          # there is no half an epoch
            out.append(f'<text x="{across(t):.1f}" y="{top + PANEL - BELOW + 17:.1f}" fill="{_SOFT}" '
                       f'text-anchor="middle">{t:.10g}</text>')
    return out + [_curve(series[n], _CURVES[i], across, down) for i, n in enumerate(names)]


def _seen(points: Sequence[tuple[float, float]], across: Any) -> Sequence[tuple[float, float]]:
    """Of more points than the picture is wide the first, the least, the greatest and the last of each column: the others lie on
    these, and a picture that goes to a browser each second has to be small."""
    if len(points) <= 2 * WIDTH:
        return points
    out: list[tuple[float, float]] = []
    for (_, is_number), column in itertools.groupby(points, lambda p: (int(across(p[0])), math.isfinite(p[1]))):
        all_of_it = list(column)
        order = sorted(range(len(all_of_it)), key=lambda i: all_of_it[i][1]) if is_number else [0]
        out += [all_of_it[i] for i in sorted({0, order[0], order[-1], len(all_of_it) - 1 if is_number else 0})]
    return out


def _curve(points: Sequence[tuple[float, float]], colour: str, across: Any, down: Any) -> str:
    """The lines between points; what is no number is a gap, and a point between two gaps a dot."""
    path, dots, run = [], [], 0
    points = _seen(points, across)
    for i, (x, y) in enumerate(points):
        if not math.isfinite(y):
            run = 0
            continue
        path.append(f"{'L' if run else 'M'}{across(x):.1f} {down(y):.1f}")
        if not run and (i + 1 == len(points) or not math.isfinite(points[i + 1][1])):
            dots.append(f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="2.5" fill="{colour}"/>')
        run += 1
    return (f'<path fill="none" stroke="{colour}" stroke-width="1.8" stroke-linejoin="round" d="{"".join(path)}"/>'
            + "".join(dots))


def svg(series: Series, x_name: str = "epoch") -> str:
    """All curves as one picture."""
    shown = panels(series)
    height = max(len(shown), 1) * PANEL
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
             f'font-family="sans-serif" font-size="12" fill="{_INK}">', '<rect width="100%" height="100%" rx="6" fill="#ffffff"/>']
    for i, names in enumerate(shown):
        lines += _panel(names, series, x_name, i * PANEL)
    if not shown:
        lines.append(f'<text x="{LEFT}" y="{ABOVE + 24}" fill="{_SOFT}">nothing was reported</text>')
    return "\n".join([*lines, "</svg>\n"])


class Picture:
    """Curves as SVG: a notebook shows it, save() writes it."""

    def __init__(self, source: str):
        self.source = source

    def _repr_svg_(self) -> str:
        return self.source

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture: `history.plot().save("loss.svg")`."""
        name = os.fspath(path)
        if not name.endswith(".svg"):
            raise ValueError(f"{name}: without matplotlib a plot is SVG, expected a name that ends with .svg")
        with open(name, "w", encoding="utf-8") as f:
            f.write(self.source)

    def __repr__(self) -> str:
        return f"<Picture of {len(self.source)} bytes of SVG; save(path) writes it>"


def plot(series: Series, wanted: Sequence[str], x_name: str) -> Any:
    """Draws these metrics, or all: the Axes of matplotlib, an array of them for several panels; without it a Picture."""
    unknown = [n for n in wanted if n not in series]
    if unknown:
        raise ValueError(f"plot: there is no metric {unknown[0]!r}, expected {' or '.join(map(repr, series)) or 'none: nothing was reported'}")
    chosen = {n: v for n, v in series.items() if not wanted or n in wanted or (n.startswith("val_") and n[4:] in wanted)}
    try:
        import matplotlib.pyplot as pyplot
    except ImportError:
        return Picture(svg(chosen, x_name))
    shown = panels(chosen)
    _, axes = pyplot.subplots(max(len(shown), 1), 1, squeeze=False, sharex=True, layout="constrained",
                              figsize=(6.4, 2.2 * max(len(shown), 1)))
    for ax, names in zip(axes[:, 0], shown):
        for i, name in enumerate(names):
            # A "$" or a leading "_" would mean something to matplotlib.
            ax.plot([x for x, _ in chosen[name]], [y for _, y in chosen[name]], color=_CURVES[i],
                    label=name.replace("$", r"\$").lstrip("_") or "?")
        ax.legend()
        ax.grid(color=_GRID)
    axes[-1, 0].set_xlabel(x_name)
    return axes[0, 0] if len(shown) <= 1 else axes[:, 0]
