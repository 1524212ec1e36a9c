"""manta runs plot: curves as PNG, read back point by point; as SVG; as PDF; in the terminal."""
import json
import os
import resource
import signal
import struct
import subprocess
import xml.etree.ElementTree
import zlib

import numpy as np
import pytest

from conftest import PROGRAM
from samples import digits
from waits import read_event


def read_png(path):
    """(height, width, 3) bytes of a PNG of colours; every length and sum is checked."""
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
    assert [name for name, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, bits, kind, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (bits, kind, rest) == (8, 2, [0, 0, 0])
    rows = np.frombuffer(zlib.decompress(chunks[1][1]), np.uint8).reshape(height, 3 * width + 1)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


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
    assert manta("runs", "plot", "two", "-o", "two.png").stdout == "Saved to two.png\n"
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


def test_letters_have_shades(manta, storage, tmp_path):
    """A font, not a raster of points: ink of many shades, letters of their own widths, more than ASCII."""
    make_run(storage, "WWWW", points(loss=[1.0, 2.0]))
    make_run(storage, "iiii", points(loss=[1.0, 2.0]))
    make_run(storage, "Größe", points(loss=[1.0, 2.0]))
    width = {}
    for name in ("WWWW", "iiii", "Größe"):
        manta("runs", "plot", name, "-o", "a.png")
        head = read_png(tmp_path / "a.png")[:70].astype(int)
        assert len(np.unique(head.reshape(-1, 3), axis=0)) > (4 if name == "iiii" else 20)
        columns = np.flatnonzero((head < 128).all(axis=2).any(axis=0))
        width[name] = columns[-1] - columns[0]
    assert width["WWWW"] > 2 * width["iiii"] and width["Größe"] > 40


def test_numbers_of_the_axes_stay_on_the_paper(manta, storage, tmp_path):
    """The last number of the x axis is not cut off, and numbers do not run into each other."""
    make_run(storage, "far", [{"epoch": 1, "step": s, "rank": 0, "metrics": {"loss": 1.0}} for s in (0, 4000000000, 8000000000)])
    manta("runs", "plot", "far", "-o", "far.png")
    image = read_png(tmp_path / "far.png").astype(int)
    below = (image[440:475] < 200).any(axis=2)
    assert below.any() and not below[:, -6:].any()
    manta("runs", "plot", "far", "-o", "far.svg")
    root = xml.etree.ElementTree.parse(tmp_path / "far.svg").getroot()
    last = [t for t in root.iter("{http://www.w3.org/2000/svg}text") if t.text == "8000000000"]
    assert last and float(last[0].get("x")) < 880 - 4 - 3.5 * 10


def test_as_pdf(manta, storage, tmp_path):
    make_timed(storage, "a", [4.0, 3.0, 1.0], deaths=(2,))
    assert manta("runs", "plot", "a", "-o", "a.pdf").stdout == "Saved to a.pdf\n"
    data = (tmp_path / "a.pdf").read_bytes()
    assert data.startswith(b"%PDF-") and data.rstrip().endswith(b"%%EOF") and b"/FontDescriptor" in data
    assert b"/MediaBox [ 0 0 640 245 ]" in data


def test_a_full_disk_leaves_the_old_picture(manta, storage, tmp_path):
    """What cannot be written whole is not written at all."""
    make_run(storage, "a", points(loss=[float(i % 7) for i in range(2000)]))
    for ending in ("svg", "png", "pdf"):
        path = tmp_path / f"a.{ending}"
        path.write_text("old")
        done = subprocess.run([PROGRAM, "runs", "plot", "a", "--storage", storage, "-o", path], capture_output=True, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
        assert done.returncode == 1 and str(path) in done.stderr and done.stdout == ""
        assert path.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("a")) == ["a.pdf", "a.png", "a.svg"]


def test_a_machine_without_cairo(manta, storage, tmp_path):
    """An .svg needs nothing; another picture says what is missing."""
    make_run(storage, "a", points(loss=[1.0, 2.0]))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libcairo.so.2").write_text("no library")
    none = {"LD_LIBRARY_PATH": str(tmp_path / "lib")}
    manta("runs", "plot", "a", "-o", "a.svg", env=none)
    for ending in ("png", "pdf"):
        said = manta("runs", "plot", "a", "-o", f"a.{ending}", env=none, status=1).stderr
        assert "cairo" in said and "libcairo2" in said and said.count("\n") == 1
        assert not (tmp_path / f"a.{ending}").exists()


def test_what_cannot_be_written(manta, storage, tmp_path):
    make_run(storage, "a", points(loss=[1.0, 2.0]))
    assert "must end in one of: .svg .png .pdf" in manta("runs", "plot", "a", "-o", "a.gif", status=1).stderr
    assert "no/such" in manta("runs", "plot", "a", "-o", "no/such/a.png", status=1).stderr
    make_run(storage, "many", points(**{f"m{i}": [1.0, 2.0] for i in range(33)}))
    assert "choose up to 32" in manta("runs", "plot", "many", "-o", "a.png", status=1).stderr
    assert not (tmp_path / "a.png").exists()


# ---- time, rate, deaths, another run ----

BEGAN = 1700000000.0  # 2023-11-14T22:13:20Z


def timed(losses, every=2.0, steps=10):
    """Lines of a run that reported so many steps every so many seconds."""
    return [{"epoch": i + 1, "step": steps * (i + 1), "rank": 0, "time": BEGAN + every * (i + 1), "metrics": {"loss": v}}
            for i, v in enumerate(losses)]


def make_timed(storage, name, losses, every=2.0, deaths=()):
    run = make_run(storage, name, timed(losses, every))
    (run / "result.json").write_text(json.dumps({"status": "done", "began": BEGAN, "ended": BEGAN + 100, "first_began": BEGAN}))
    (run / "log").mkdir()
    (run / "log" / "rank-0.txt").write_text("".join(
        f"2023-11-14T22:13:{20 + s:06.3f}Z process {7 + i} killed by signal 9 (Killed); made up for in 500.0 ms, in epoch 1 at step 2\n"
        for i, s in enumerate(deaths)) + "2023-11-14T22:13:21.000Z process 9 left: on request; made up for in a hurry\n" + "x" * 2000 + "\n")
    return run


def drawn(path):
    """Of each curve of an SVG its places, and the places of the marks."""
    root = xml.etree.ElementTree.parse(path).getroot()
    svg = "{http://www.w3.org/2000/svg}"
    curves = [[tuple(map(float, place.split())) for place in p.get("d").replace("M", "L").split("L")[1:]]
              for p in root.iter(svg + "path")]
    marks = sorted({float(m.get("points").split()[-1].split(",")[0]) for m in root.iter(svg + "polygon")})
    return curves, marks, [t.text for t in root.iter(svg + "text")]


def test_over_time(manta, storage, tmp_path):
    make_timed(storage, "a", [4.0, 3.0, 1.0], every=2.0)
    manta("runs", "plot", "a", "--x", "time", "-o", "a.svg")
    (curve_,), marks, _ = drawn(tmp_path / "a.svg")
    x = [p[0] for p in curve_]
    assert x == pytest.approx([76 + 784 * s / 6 for s in (2, 4, 6)], abs=0.1) and not marks  # the axis begins with the run
    assert "0.0 to 6.0 s" in manta("runs", "plot", "a", "--x", "time").stdout
    assert "step 10 to 30" in manta("runs", "plot", "a").stdout


def test_the_rate(manta, storage, tmp_path):
    make_timed(storage, "a", [4.0, 3.0, 1.0], every=2.0)
    shown = manta("runs", "plot", "a", "--metrics", "rate").stdout
    assert "steps per second" in shown and "loss" not in shown
    rows = [line.split()[0] for line in shown.splitlines() if "|" in line and line.split("|")[0].strip()]
    assert [float(rows[0]), float(rows[-1])] == [5.0, 0.0]  # 10 steps in 2 s, and the axis begins at 0
    assert "steps per second" not in manta("runs", "plot", "a").stdout
    make_run(storage, "own", points(rate=[1.0, 2.0]))  # a metric of that name is the run's own
    assert "steps per second" not in manta("runs", "plot", "own", "--metrics", "rate").stdout


def test_a_scale_of_powers_of_ten(manta, storage, tmp_path):
    make_timed(storage, "a", [1.0, 0.1, 0.01, 0.0, 0.01, 0.1])
    manta("runs", "plot", "a", "--log", "-o", "a.svg")
    (curve_,), _, texts = drawn(tmp_path / "a.svg")
    y = [p[1] for p in curve_]
    assert len(y) == 5 and y[1] - y[0] == pytest.approx(y[2] - y[1], abs=0.2)  # 0 is a gap
    assert {"1", "0.1", "0.01"} <= set(texts)
    manta("runs", "plot", "a", "--log", "-o", "a.png")
    assert curve(read_png(tmp_path / "a.png")[70:])


@pytest.mark.parametrize("axis,places", [("time", (1.5, 3.5)), ("step", (7.5, 17.5))])
def test_deaths_are_marked(manta, storage, tmp_path, axis, places):
    """Where the run was when a worker died: half a second, made up for, before its log says so."""
    make_timed(storage, "a", [4.0, 3.0, 1.0], deaths=(2, 4))
    manta("runs", "plot", "a", "--x", axis, "-o", "a.svg")
    _, marks, texts = drawn(tmp_path / "a.svg")
    first, last = (0, 6) if axis == "time" else (7.5, 30)
    at = [76 + 784 * (x - first) / (last - first) for x in places]
    assert [m for m in marks if m != 81.0] == pytest.approx([x for x in at if x != 81.0], abs=0.1)  # 81: the legend's
    assert "a worker died (2)" in texts
    assert "x: a worker died (2)" in manta("runs", "plot", "a", "--x", axis).stdout
    manta("runs", "plot", "a", "--x", axis, "-o", "a.png")
    assert (read_png(tmp_path / "a.png") == (0xC6, 0x28, 0x28)).all(axis=2).any()


def test_a_worker_that_was_killed_is_marked(manta, start, storage, tmp_path):
    running = start("train", "mnist-cnn", "--data", digits(tmp_path), "--workers", 2, "--epochs", 1000000, "--json", "--name", "k")
    worker = read_event(running, "worker")
    read_event(running, "epoch")
    os.kill(worker["pid"], signal.SIGKILL)
    read_event(running, "recovered")
    assert "x: a worker died (1)" in manta("runs", "plot", "k", "--x", "time").stdout  # of a run that goes on


def test_one_run_against_another(manta, storage, tmp_path):
    make_timed(storage, "a", [4.0, 3.0, 1.0])
    make_timed(storage, "b", [4.0, 2.0, 2.0], every=4.0)
    manta("runs", "plot", "a", "--against", "b", "--metrics", "loss,rate", "-o", "both.svg")
    (behind, own, behind_rate, own_rate), _, texts = drawn(tmp_path / "both.svg")
    assert [p[0] for p in behind] == [p[0] for p in own] and behind[0] == own[0] and behind[1] != own[1]
    assert own_rate[0][1] < behind_rate[0][1]  # twice as fast
    assert {"a", "b"} <= set(texts)
    shown = manta("runs", "plot", "a", "--against", "b").stdout
    assert "* loss   . loss of b\n" in shown
    manta("runs", "plot", "a", "--against", "b", "-o", "both.png")
    assert curve(read_png(tmp_path / "both.png")[70:]) and curve(read_png(tmp_path / "both.png")[70:], (0xB6, 0xCD, 0xEA))


def test_on_dark_ground(manta, storage, tmp_path):
    make_timed(storage, "a", [4.0, 3.0, 1.0], deaths=(2,))
    for ending in ("svg", "png"):
        manta("runs", "plot", "a", "-o", f"light.{ending}")
        manta("runs", "plot", "a", "--dark", "-o", f"dark.{ending}")
    assert drawn(tmp_path / "light.svg") == drawn(tmp_path / "dark.svg")
    assert "#0d1117" in (tmp_path / "dark.svg").read_text() and "#0d1117" not in (tmp_path / "light.svg").read_text()
    assert tuple(read_png(tmp_path / "dark.png")[0, 0]) == (0x0D, 0x11, 0x17)


def test_a_record_without_times(manta, storage, tmp_path):
    lines = [{"epoch": 1, "step": s, "rank": 0, "metrics": {"loss": 1.0 / s}} for s in (1, 2, 3)]
    make_run(storage, "old", lines)
    assert "step 1 to 3" in manta("runs", "plot", "old").stdout
    assert "has no times" in manta("runs", "plot", "old", "--x", "time", status=1).stderr
    assert "needs two reports with their times" in manta("runs", "plot", "old", "--metrics", "rate", status=1).stderr


@pytest.mark.parametrize("words,say", [(("--x", "epoch"), "expected step or time"), (("--dark",), "--output"),
                                       (("--metrics", "rat"), "has no 'rat'")])
def test_what_a_plot_refuses(manta, storage, words, say):
    make_timed(storage, "a", [4.0, 3.0, 1.0])
    assert say in manta("runs", "plot", "a", *words, status=2).stderr
