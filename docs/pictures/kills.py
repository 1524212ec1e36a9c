#!/usr/bin/env python3
"""The picture of a training whose workers are killed: kills-light.svg and kills-dark.svg.

    docs/pictures/kills.py train [--manta build/release/manta] [--epochs 90] [--every 2]
    docs/pictures/kills.py draw

`train` trains mnist-cnn on two workers twice, the second time with kill -9 for one of
them, in turn, every few seconds. It demands that both runs end with the same weights,
byte for byte, and keeps what is drawn, taken from the runs' own folders, in kills.json:
loss and time of each epoch from metrics.jsonl, the deaths from log/rank-N.txt.
`draw` makes both pictures of kills.json, and `train` ends with it.
"""
import argparse
import json
import math
import os
import pathlib
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STEPS, BATCH, WORKERS = 25, 64, 2       # of an epoch; of a worker
WINDOW = 4      # epochs that a rate is the mean of


# ---- training ----

def command(a, storage, name):
    return [a.manta, "train", "mnist-cnn", "--data", "mnist", "--workers", str(WORKERS), "--threads-per-worker", "1",
            "--batch", str(BATCH), "--epochs", str(a.epochs), "--steps-per-epoch", str(STEPS), "--storage", storage,
            "--name", name, "--checkpoint-every", "1000steps", "--save", f"{storage}/{name}.safetensors", "--json"]


def events_of(child):
    """A queue of the child's events, closed with None."""
    q = queue.Queue()

    def read():
        for line in child.stdout:
            q.put(json.loads(line))
        q.put(None)
    threading.Thread(target=read, daemon=True).start()
    return q


def stand_below(pid):
    """Under chrt -f a controller that wakes up has to stand above its workers (see bench/goodput)."""
    if os.sched_getscheduler(0) == os.SCHED_FIFO:
        try:
            os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(os.sched_getparam(0).sched_priority - 10))
        except ProcessLookupError:
            pass


def train(a, storage, name, every=None):
    """Trains once; with `every`, one of the workers is killed in turn each so many seconds."""
    child = subprocess.Popen(command(a, storage, name), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    q, pids, victim, next_kill = events_of(child), {}, 0, None
    while True:
        try:
            e = q.get(timeout=None if next_kill is None else max(next_kill - time.monotonic(), 0))
        except queue.Empty:
            if victim in pids:      # its pid is gone until its successor is told
                os.kill(pids.pop(victim), signal.SIGKILL)
                victim = (victim + 1) % WORKERS
            next_kill += every
            continue
        if e is None:
            break
        if e["event"] == "worker":
            pids[e["rank"]] = e["pid"]
            stand_below(e["pid"])
        elif e["event"] == "epoch":
            if e["epoch"] == 1 and every:
                next_kill = time.monotonic() + every
            elif e["epoch"] == a.epochs:
                next_kill = None
    if child.wait():
        sys.exit(f"kills: the run {name} ended with status {child.returncode}")


# ---- reading the runs' folders ----

def epochs_of(run):
    """Step, loss and seconds since the record's first line, of each line."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{"step": at["step"], "loss": round(at["metrics"]["loss"], 6), "s": round(at["time"] - lines[0]["time"], 4)}
            for at in lines]


def deaths_of(run):
    """Step, rank and milliseconds until the step was made up for, of each death that the ranks' logs tell."""
    deaths = []
    for log in sorted((run / "log").glob("rank-*.txt")):
        rank = int(re.search(r"rank-(\d+)", log.name)[1])
        for ms, epoch, step in re.findall(r"killed by signal 9 \(Killed\); made up for in ([\d.]+) ms, in epoch (\d+) at step (\d+)",
                                          log.read_text()):
            deaths.append({"step": (int(epoch) - 1) * STEPS + int(step), "rank": rank, "ms": float(ms)})
    return sorted(deaths, key=lambda d: d["step"])


def record(a):
    with tempfile.TemporaryDirectory() as storage:
        train(a, storage, "calm")
        train(a, storage, "killed", a.every)
        files = [pathlib.Path(storage, f"{name}.safetensors").read_bytes() for name in ("calm", "killed")]
        if files[0] != files[1]:
            sys.exit("kills: the weights of the run with kills are not those of the undisturbed one")
        calm, killed = (epochs_of(pathlib.Path(storage, name)) for name in ("calm", "killed"))
        return {"every_s": a.every, "calm": calm, "killed": killed, "deaths": deaths_of(pathlib.Path(storage, "killed"))}


def keep(record):
    """As JSON, a point a line."""
    def rows(points):
        return "[\n" + ",\n".join("  " + json.dumps(p) for p in points) + "\n ]"
    body = ",\n".join(f' "{k}": {rows(v) if isinstance(v, list) else json.dumps(v)}' for k, v in record.items())
    (HERE / "kills.json").write_text("{\n" + body + "\n}\n")


# ---- drawing ----

def rates(points):
    """Images per second over the last WINDOW lines, from the first that has so many before it."""
    return [{"step": now["step"], "rate": (now["step"] - then["step"]) * BATCH * WORKERS / (now["s"] - then["s"])}
            for then, now in zip(points, points[WINDOW:])]


LIGHT = {"paper": "#ffffff", "ink": "#1f2328", "soft": "#59636e", "grid": "#d1d9e0", "calm": "#b6cdea", "killed": "#0b57a4",
         "death": "#c62828"}
DARK = {"paper": "#0d1117", "ink": "#f0f6fc", "soft": "#9198a1", "grid": "#30363d", "calm": "#365880", "killed": "#79b8ff",
        "death": "#ff7b72"}
WIDTH, HEIGHT, LEFT, RIGHT = 880, 504, 76, 20
LOSS, RATE = (96, 220), (342, 100)       # top and height of the two panels


class Scale:
    """From numbers to places: linear, or by the logarithm."""

    def __init__(self, lo, hi, at_lo, at_hi, log=False):
        self.f = math.log10 if log else float
        self.lo, self.span = self.f(lo), self.f(hi) - self.f(lo)
        self.at_lo, self.length = at_lo, at_hi - at_lo

    def __call__(self, v):
        return self.at_lo + self.length * (self.f(v) - self.lo) / self.span


def text(x, y, what, fill, anchor="start", size=13, weight="normal", rest=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" text-anchor="{anchor}" font-size="{size}" '
            f'font-weight="{weight}"{rest}>{what}</text>')


def label(y, what, c):
    """Text of a panel, with paper around the letters so that what lies behind does not cross them."""
    return text(WIDTH - RIGHT - 8, y, what, c["ink"], "end", weight="bold",
                rest=f' stroke="{c["paper"]}" stroke-width="6" stroke-linejoin="round" paint-order="stroke"')


def line(x0, y0, x1, y1, colour, rest=""):
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{colour}"{rest}/>'


def curve(points, key, x, y, colour, width):
    places = " ".join(f"{x(p['step']):.1f},{y(p[key]):.1f}" for p in points)
    return f'<polyline fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round" points="{places}"/>'


def grid(values, y, c, form):
    for v in values:
        yield line(LEFT, y(v), WIDTH - RIGHT, y(v), c["grid"])
        yield text(LEFT - 8, y(v) + 4.5, form(v), c["soft"], "end")


def curves(calm, killed, key, x, y, c):
    yield curve(calm, key, x, y, c["calm"], 6)
    yield curve(killed, key, x, y, c["killed"], 1.6)


def head(r, c):
    """Title, and which line is which."""
    ms = [d["ms"] for d in r["deaths"]]
    yield text(LEFT, 26, "mnist-cnn on two workers, one of them killed by <tspan font-family=\"monospace\">kill -9</tspan> "
               f"every {r['every_s']:g} seconds", c["ink"], size=17, weight="bold")
    yield text(LEFT, 47, f"{len(ms)} kills, each made up for after {statistics.median(ms):.0f} ms (median; at most {max(ms):.0f}); "
               "both runs end with the same weights, byte for byte", c["soft"])
    at = LEFT
    for colour, width, what, room in ((c["calm"], 6, "undisturbed run", 160), (c["killed"], 1.6, "run with kills", 150)):
        yield line(at, 68, at + 28, 68, colour, f' stroke-width="{width}"')
        yield text(at + 36, 72.5, what, c["ink"])
        at += room
    yield f'<path d="M{at} 62h10l-5 10z" fill="{c["death"]}"/>'
    yield text(at + 18, 72.5, "a worker is killed", c["ink"])


def picture(r, c):
    last = r["calm"][-1]["step"]
    x = Scale(0, last, LEFT, WIDTH - RIGHT)
    losses = [p["loss"] for k in ("calm", "killed") for p in r[k]]
    y = Scale(min(losses) / 1.25, max(losses) * 1.25, LOSS[0] + LOSS[1], LOSS[0], log=True)
    calm, killed = rates(r["calm"]), rates(r["killed"])
    top = max(p["rate"] for p in calm + killed)
    z = Scale(0, top * 1.1, RATE[0] + RATE[1], RATE[0])
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
           'font-family="-apple-system, \'Segoe UI\', \'Noto Sans\', \'DejaVu Sans\', Helvetica, Arial, sans-serif">')
    yield "<!-- made by docs/pictures/kills.py from kills.json -->"
    yield f'<rect width="100%" height="100%" rx="6" fill="{c["paper"]}"/>'
    yield from head(r, c)
    for d in r["deaths"]:
        yield line(x(d["step"]), LOSS[0], x(d["step"]), RATE[0] + RATE[1], c["death"], ' stroke-dasharray="2 4"')
        yield f'<path d="M{x(d["step"]) - 5:.1f} {LOSS[0] - 10}h10l-5 10z" fill="{c["death"]}"/>'
    ticks = [v * 10.0 ** k for k in range(-5, 2) for v in (1, 3)]
    yield from grid([v for v in ticks if min(losses) / 1.25 <= v <= max(losses) * 1.25], y, c, "{:g}".format)
    yield from curves(r["calm"], r["killed"], "loss", x, y, c)
    yield label(LOSS[0] + 24, f"loss, mean of {STEPS} steps", c)
    every = 10 ** math.floor(math.log10(top))
    every = next(e for e in (every / 4, every / 2, every, 2.5 * every, 5 * every) if top / e <= 4)
    yield from grid([k * every for k in range(int(top * 1.1 // every) + 1)], z, c, "{:,.0f}".format)
    yield from curves(calm, killed, "rate", x, z, c)
    yield label(RATE[0] + RATE[1] - 12, f"images per second, mean of {WINDOW * STEPS} steps", c)
    for step in range(0, last + 1, 500):
        yield text(x(step), RATE[0] + RATE[1] + 22, f"{step:,}", c["soft"], "middle")
    yield text(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 16, "training steps", c["soft"], "middle")
    yield "</svg>"


def pictures():
    """Name and text of each picture of kills.json."""
    r = json.loads((HERE / "kills.json").read_text())
    return {f"kills-{name}.svg": "\n".join(picture(r, c)) + "\n" for name, c in (("light", LIGHT), ("dark", DARK))}


def main():
    p = argparse.ArgumentParser(description="The picture of a training whose workers are killed.")
    p.add_argument("what", choices=("train", "draw"))
    p.add_argument("--manta", default=str(ROOT / "build" / "release" / "manta"))
    p.add_argument("--epochs", type=int, default=90, help=f"of {STEPS} steps each (90)")
    p.add_argument("--every", type=float, default=2, help="seconds between kills (2)")
    a = p.parse_args()
    os.environ.setdefault("MANTA_DATA", str(ROOT / "data"))
    if a.what == "train":
        keep(record(a))
    for name, drawn in pictures().items():
        (HERE / name).write_text(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
