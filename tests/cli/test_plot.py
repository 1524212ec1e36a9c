"""manta runs plot: curves as PNG, read back point by point; as SVG; in the terminal."""
import json
import struct
import xml.etree.ElementTree
import zlib

import numpy as np
import pytest

from samples import digits


def read_png(path):
    """(height, width, 3) bytes of a PNG with a palette; every length and sum is checked."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, []
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at:at + 8])
        content = data[at + 8:at + 8 + size]
        assert len(content) == size
        assert struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0] == zlib.crc32(name + content)
        chunks.append((name, content))
        at += 12 + size
    assert [name for name, _ in chunks] == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height, bits, kind, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (bits, kind, rest) == (8, 3, [0, 0, 0])
    palette = np.frombuffer(chunks[1][1], np.uint8).reshape(-1, 3)
    rows = np.frombuffer(zlib.decompress(chunks[2][1]), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any() and rows.max() < len(palette)
    return palette[rows[:, 1:]]


def make_run(storage, name, lines):
    run = storage / name
    run.mkdir()
    (run / "config.json").write_text("{}")
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def points(**metrics):
    """Lines of metrics.jsonl from lists of values, one a step."""
    n = max(len(v) for v in metrics.values())
    return [{"epoch": i + 1, "step": 10 * (i + 1), "rank": 0, "time": 1.0,
             "metrics": {k: v[i] for k, v in metrics.items() if i < len(v)}} for i in range(n)]


BLUE, ORANGE = (0x15, 0x65, 0xC0), (0xE6, 0x51, 0x00)


def curve(image, colour=BLUE):
    """Where a picture of one panel has the curve's full colour: column -> mean row."""
    drawn = (image == colour).all(axis=2)
    drawn[:40] = False  # its name
    columns = np.flatnonzero(drawn.any(axis=0))
    return {int(x): float(np.flatnonzero(drawn[:, x]).mean()) for x in columns}


def test_a_real_run(manta, storage, tmp_path):
    """A metric and the validation's share a panel."""
    manta("train", "mlp", "--data", digits(tmp_path), "--validation", "x.npy,y.npy", "--epochs", 3, "--json", "--name", "a")
    manta("runs", "plot", "a", "-o", "all.png")
    manta("runs", "plot", "a", "--metrics", "loss", "-o", "loss.png")
    two, one = read_png(tmp_path / "all.png"), read_png(tmp_path / "loss.png")
    assert two.shape[1] == one.shape[1] == 1280 and two.shape[0] - 70 == 2 * (one.shape[0] - 70)
    panel = (two.shape[0] - 70) // 2
    for i in range(2):
        part = two[70 + i * panel:70 + (i + 1) * panel]
        assert curve(part) and curve(part, ORANGE)
    assert curve(one[70:]) and not curve(one[70:], ORANGE)
    for output in ("all.png", "loss.png"):
        image = pytest.importorskip("PIL.Image").open(tmp_path / output)
        assert np.array_equal(np.asarray(image.convert("RGB")), read_png(tmp_path / output))


def test_two_curves_of_one_panel(manta, storage, tmp_path):
    """One scale for both: the validation's lies where its numbers are among the other's."""
    make_run(storage, "two", points(val_loss=[2.0, 2.0, 2.0], loss=[4.0, 3.0, 0.0], rest=[1.0, 2.0, 3.0]))
    manta("runs", "plot", "two", "-o", "two.png")
    image = read_png(tmp_path / "two.png")[70:490]
    level, fall = curve(image, ORANGE), curve(image)
    rows = list(level.values())
    assert max(rows) - min(rows) < 1.5 and min(fall.values()) < rows[0] < max(fall.values())
    middle = (min(fall.values()) + max(fall.values())) / 2  # 2 is half way between 0 and 4
    assert abs(rows[0] - middle) < 3
    manta("runs", "plot", "two", "-o", "two.svg")
    assert (tmp_path / "two.svg").read_text().count("<path") == 3
    shown = manta("runs", "plot", "two").stdout
    assert "* loss   o val_loss\n" in shown and "\nrest\n" in shown
    first = shown.split("\n\n")[0].splitlines()
    assert sum("o" in line.split("|")[1] for line in first if "|" in line) == 1
    # Between points the line goes on: every column of the curve has a mark.
    rest = [line.split("|")[1] for line in shown.split("\nrest\n")[1].splitlines() if "|" in line]
    assert all(any(row[c] == "*" for row in rest) for c in range(66))


def test_the_curve_is_where_the_numbers_are(manta, storage, tmp_path):
    """A straight line is one, and a step up is where it is."""
    make_run(storage, "line", points(loss=[4.0, 3.0, 2.0, 1.0, 0.0]))
    manta("runs", "plot", "line", "-o", "line.png")
    at = curve(read_png(tmp_path / "line.png"))
    x = np.array(sorted(at))
    assert 148 <= x[0] <= 152 and 1246 <= x[-1] <= 1252 and np.all(np.diff(x) == 1)
    y = np.array([at[i] for i in x])
    slope, begin = np.polyfit(x, y, 1)
    assert slope > 0 and np.abs(slope * x + begin - y).max() < 1.5
    make_run(storage, "stairs", points(loss=[0.0] * 5 + [1.0] * 5))
    manta("runs", "plot", "stairs", "-o", "stairs.png")
    at = curve(read_png(tmp_path / "stairs.png"))
    assert at[200] - at[1200] > 300 and abs(at[160] - at[500]) < 1


def test_what_is_no_number_is_a_gap(manta, storage, tmp_path):
    make_run(storage, "gap", points(loss=[1.0, 1.0, None, 1.0, 1.0], nothing=[None, None]))
    manta("runs", "plot", "gap", "--metrics", "loss", "-o", "gap.png")
    columns = sorted(curve(read_png(tmp_path / "gap.png")))
    assert 400 < columns[0] + np.diff(columns).max() < 1100 and np.diff(columns).max() > 400
    manta("runs", "plot", "gap", "-o", "both.png")
    panel = (read_png(tmp_path / "both.png").shape[0] - 70) // 2
    assert not curve(read_png(tmp_path / "both.png")[70 + panel:])
    assert "no number in 2 points" in manta("runs", "plot", "gap").stdout


@pytest.mark.parametrize("lines", [
    points(loss=[1.0]),
    points(loss=[1e308, -1e308, 0.0]),
    points(loss=[1e-320, 2e-320]),
    points(flops=[1e18] * 3, loss=[-1e300] * 2, top=[1.7e308] * 2),
    [{"epoch": 1, "step": 2 ** 62, "rank": 0, "metrics": {"loss": float(i)}} for i in range(2)],
    [{"epoch": 1, "step": s, "rank": 0, "metrics": {"loss": float(s % 7)}} for s in (5, 2 ** 62, -2 ** 62, 3)],
    [{"epoch": 1, "step": 7, "rank": 0, "metrics": {"a\x1b[31m\n<é&": 1.0, "x" * 63: 2.0}}] * 3,
    points(loss=[float(i * i % 97) for i in range(30000)]),
])
def test_numbers_of_all_kinds(manta, storage, tmp_path, lines):
    make_run(storage, "odd", lines)
    manta("runs", "plot", "odd", "-o", "odd.png")
    manta("runs", "plot", "odd", "-o", "odd.svg")
    assert "\033" not in manta("runs", "plot", "odd").stdout
    assert read_png(tmp_path / "odd.png").shape[1] == 1280
    for path in xml.etree.ElementTree.parse(tmp_path / "odd.svg").iter("{http://www.w3.org/2000/svg}path"):
        assert "nan" not in path.get("d") and "inf" not in path.get("d")


def test_what_cannot_be_written(manta, storage, tmp_path):
    make_run(storage, "a", points(loss=[1.0, 2.0]))
    assert "must end in one of: .svg .png" in manta("runs", "plot", "a", "-o", "a.gif", status=1).stderr
    assert "no/such" in manta("runs", "plot", "a", "-o", "no/such/a.png", status=1).stderr
    make_run(storage, "many", points(**{f"m{i}": [1.0, 2.0] for i in range(33)}))
    assert "choose up to 32" in manta("runs", "plot", "many", "-o", "a.png", status=1).stderr
    assert not (tmp_path / "a.png").exists()
