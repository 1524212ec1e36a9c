"""The table that summary() prints, as Keras draws it."""
from __future__ import annotations

import textwrap
from typing import Any


def size_text(n: int) -> str:
    """Bytes for people: "60.00 B", "1.23 MB"."""
    size, unit = float(n), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.2f} {unit}"


def _row(cells: list[str], widths: list[int], right: int) -> list[str]:
    """The lines of a row, whose texts are broken where they are too long."""
    parts = [textwrap.wrap(c, w - 2) or [""] for c, w in zip(cells, widths)]
    lines = []
    for i in range(max(map(len, parts))):
        texts = [p[i] if i < len(p) else "" for p in parts]
        lines.append([f" {t:>{w - 2}} " if k == right else f" {t:<{w - 2}} " for k, (t, w) in enumerate(zip(texts, widths))])
    return ["\0".join(line) for line in lines]


def table(name: str, head: list[str], rows: list[list[str]], widths: list[int]) -> str:
    """A title and a table; the third column is numbers."""
    out = [f'Model: "{name}"', "┏" + "┳".join("━" * w for w in widths) + "┓"]
    out += ["┃" + line.replace("\0", "┃") + "┃" for line in _row(head, widths, 2)]
    out.append("┡" + "╇".join("━" * w for w in widths) + "┩")
    for i, row in enumerate(rows):
        if i:
            out.append("├" + "┼".join("─" * w for w in widths) + "┤")
        out += ["│" + line.replace("\0", "│") + "│" for line in _row(row, widths, 2)]
    out.append("└" + "┴".join("─" * w for w in widths) + "┘")
    return "\n".join(out)


def shape_text(shape: tuple[Any, ...]) -> str:
    return "(" + ", ".join(["None", *map(str, shape)]) + ")"
