#!/usr/bin/env python3
"""The picture of a training whose workers are killed: kills-light.svg and kills-dark.svg.

    docs/pictures/kills.py train [--manta build/release/manta] [--epochs 30] [--every 2]
    docs/pictures/kills.py draw [--manta build/release/manta]

`train` trains mnist-cnn on two workers twice, the second time with kill -9 for one of
them, in turn, every few seconds. It demands that both runs end with the same weights,
byte for byte, and keeps the record of each in kills/: metrics.jsonl, log/, and what
result.json says of times. `draw` has `manta runs plot` make both pictures of these runs,
and `train` ends with it.
"""
import argparse
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STEPS, BATCH, WORKERS = 50, 64, 2       # of an epoch; of a worker
CALM, KILLED = "undisturbed", "killed"
TIMES = ("status", "began", "ended", "first_began", "spent", "resumed", "epoch", "step")


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


# ---- the record ----

def keep(run, to):
    """What the picture is drawn of, without what was set and saved where."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(run / "log", to / "log")
    shutil.copy(run / "metrics.jsonl", to)
    result = json.loads((run / "result.json").read_text())
    (to / "result.json").write_text(json.dumps({k: result[k] for k in TIMES}, indent=1) + "\n")
    (to / "config.json").write_text("{}\n")


def record(a):
    with tempfile.TemporaryDirectory() as storage:
        train(a, storage, CALM)
        train(a, storage, KILLED, a.every)
        files = [pathlib.Path(storage, f"{name}.safetensors").read_bytes() for name in (CALM, KILLED)]
        if files[0] != files[1]:
            sys.exit("kills: the weights of the run with kills are not those of the undisturbed one")
        for name in (CALM, KILLED):
            keep(pathlib.Path(storage, name), HERE / "kills" / name)


# ---- drawing ----

def draw(manta, folder):
    """Both pictures, into a folder."""
    for name, more in (("light", ()), ("dark", ("--dark",))):
        subprocess.run([manta, "runs", "plot", HERE / "kills" / KILLED, "--against", HERE / "kills" / CALM, "--x", "time",
                        "--metrics", "loss,rate", "--log", *more, "-o", pathlib.Path(folder, f"kills-{name}.svg")], check=True)


def main():
    p = argparse.ArgumentParser(description="The picture of a training whose workers are killed.")
    p.add_argument("what", choices=("train", "draw"))
    p.add_argument("--manta", default=str(ROOT / "build" / "release" / "manta"))
    p.add_argument("--epochs", type=int, default=30, help=f"of {STEPS} steps each (30)")
    p.add_argument("--every", type=float, default=2, help="seconds between kills (2)")
    a = p.parse_args()
    os.environ.setdefault("MANTA_DATA", str(ROOT / "data"))
    if a.what == "train":
        record(a)
    draw(a.manta, HERE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
