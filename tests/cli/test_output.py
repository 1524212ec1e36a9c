"""Where output goes when it cannot go there: closed pipes, full disks, terminals."""
import contextlib
import fcntl
import json
import os
import pty
import re
import resource
import signal
import struct
import subprocess
import termios

import numpy as np
import pytest

from conftest import PROGRAM, heed_signals
from samples import digits
from waits import checkpoints

ESCAPES = re.compile(r"\033\[[0-9;]*[A-Za-z]")


def run_in_terminal(args, cwd, env, columns=100, interrupt_on=None):
    """Runs the program in a terminal of that width; (status, all that it wrote). Sends Ctrl-C, as the
    terminal does, once interrupt_on has been seen."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))

    def take_terminal():
        heed_signals()
        fcntl.ioctl(follower, termios.TIOCSCTTY, 0)

    process = subprocess.Popen([str(PROGRAM), *map(str, args)], cwd=cwd, env={**env, "TERM": "xterm"},
                               stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
                               preexec_fn=take_terminal)
    os.close(follower)
    seen = b""
    while True:
        try:
            more = os.read(leader, 65536)
        except OSError:             # what Linux answers when the last writer is gone
            break
        if not more:
            break
        seen += more
        if interrupt_on and interrupt_on in seen:
            os.write(leader, b"\x03")
            interrupt_on = None
    os.close(leader)
    # The terminal's echo of ^C may stand between two bytes of one character.
    return process.wait(240), seen.decode(errors="replace" if b"^C" in seen else "strict")


def parse_lines(text):
    return [json.loads(line) for line in text.splitlines()]


def rows(text):
    """What each line showed last, without colours."""
    return [ESCAPES.sub("", l).split("\r")[-1] for l in text.replace("\r\n", "\n").strip("\n").split("\n")]


def frames(text):
    return [ESCAPES.sub("", f) for f in re.split(r"[\r\n]+", text)]


# ---- terminals ----

def test_progress_bar_as_keras_draws_it(tmp_path, environment):
    status, text = run_in_terminal(["train", "mlp", "--data", digits(tmp_path), "--validation", "x.npy,y.npy",
                                    "--epochs", 2, "--batch", 8], tmp_path, environment, columns=120)
    assert status == 0
    shown = rows(text)
    assert shown[1] == "Epoch 1/2" and shown[3] == "Epoch 2/2"
    bar = re.compile(r"^32/32 ━{20} \d+s \d+(s|ms|us)/step - accuracy: \d\.\d{4} - loss: \S+ "
                     r"- val_accuracy: \d\.\d{4} - val_loss: \S+$")
    assert bar.match(shown[2]) and bar.match(shown[4])
    assert "\033[32m" in text and "\r" in text


def test_no_color(tmp_path, environment):
    status, text = run_in_terminal(["train", "mlp", "--data", digits(tmp_path)], tmp_path,
                                   {**environment, "NO_COLOR": "1"})
    assert status == 0
    assert set(ESCAPES.findall(text)) == {"\033[K"}     # clearing a line is no colour
    assert "━" * 20 in text


def check_width(text, columns):
    """Every row of the screen, from the first epoch on, is narrower than the terminal: nothing was wrapped."""
    shown = [f for f in frames(text[text.index("Epoch "):]) if f]
    assert max(map(len, shown)) < columns, [f for f in shown if len(f) >= columns]
    return shown


@pytest.mark.parametrize("columns", [12, 40, 60, 79, 100])
def test_a_line_that_is_drawn_over_never_wraps(tmp_path, environment, columns):
    status, text = run_in_terminal(["train", "mlp", "--data", digits(tmp_path, n=4096), "--batch", 4,
                                    "--validation", "x.npy,y.npy"], tmp_path, environment, columns=columns)
    assert status == 0
    drawn = [f for f in check_width(text, columns) if re.match(r"^ *\d+/1024", f)]
    assert len(drawn) >= 2
    last = "".join(ESCAPES.sub("", text[text.rindex("1024/1024"):]).split())
    assert re.search(r"-val_(accurac|loss)", last)       # the last one tells all, if need be on lines of its own
    assert columns < 40 or re.search(r"-accuracy:[\d.]+-loss:\S+-val_accuracy:[\d.]+-val_loss:\S+$", last)


@pytest.mark.parametrize("columns", [60, 100])
def test_metrics_that_do_not_fit_follow_below(tmp_path, environment, columns):
    metrics = "accuracy,mean_squared_error,mean_absolute_error,categorical_crossentropy"
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.random((64, 28, 28), dtype=np.float32))
    np.save(tmp_path / "y.npy", np.eye(10, dtype=np.float32)[rng.integers(0, 10, 64)])
    status, text = run_in_terminal(["train", "mlp", "--data", "x.npy,y.npy", "--validation", "x.npy,y.npy", "--loss",
                                    "categorical_crossentropy:from-logits", "--metrics", metrics, "--epochs", 2],
                                   tmp_path, environment, columns=columns)
    assert status == 0, text
    shown = check_width(text, columns)
    for name in (*metrics.split(","), "loss"):
        assert sum(f" - {name}: " in f for f in shown) >= 2 and sum(f" - val_{name}: " in f for f in shown) == 2, shown
    below = [f for f in shown if f.startswith("  ")]
    assert below and all(f.lstrip().startswith("- ") for f in below)


def test_no_unicode_where_the_locale_has_none(tmp_path, environment):
    status, text = run_in_terminal(["train", "mlp", "--data", digits(tmp_path)], tmp_path,
                                   {**environment, "LC_ALL": "C"})
    assert status == 0 and text.isascii() and "=" * 20 in text


def test_dumb_terminal_gets_plain_lines(tmp_path, environment):
    leader, follower = pty.openpty()
    done = subprocess.run([str(PROGRAM), "train", "mlp", "--data", digits(tmp_path)], cwd=tmp_path, env=environment,
                          stdout=follower, stderr=subprocess.PIPE, timeout=240)
    os.close(follower)
    text = b""
    with contextlib.suppress(OSError):      # what Linux answers when all has been read
        while more := os.read(leader, 65536):
            text += more
    text = text.decode()
    os.close(leader)
    assert done.returncode == 0 and "\033" not in text and "Epoch 1/1 - " in text


def test_control_c_at_the_terminal(tmp_path, environment):
    status, text = run_in_terminal(["train", "mlp", "--data", digits(tmp_path), "--epochs", 1000000, "--save", "w.npz"],
                                   tmp_path, environment, interrupt_on=b"Epoch 2/")
    assert status == 130
    assert rows(text)[-1] == "Interrupted; saved to w.npz"
    assert (tmp_path / "w.npz").is_file()


# ---- pipes ----

@pytest.mark.parametrize("json_lines", [False, True])
@pytest.mark.parametrize("kept, said", [
    ([], ""),
    (["--save", "w.npz"], "manta: nobody reads the output any more; saved to w.npz\n"),
    (["--name", "a"], "manta: nobody reads the output any more; this goes on from here: manta train --resume a\n")])
def test_a_reader_that_leaves_ends_the_run(start, manta, tmp_path, storage, json_lines, kept, said):
    """As SIGPIPE ends any program, whatever the run leaves behind; what it has is put away first."""
    running = start("train", "mlp", "--data", digits(tmp_path), "--epochs", 1000000, *kept,
                    *["--json"] * json_lines)
    running.process.stdout.readline()
    running.process.stdout.close()
    assert running.process.wait(240) == -signal.SIGPIPE
    assert running.process.stderr.read() == said
    assert (tmp_path / "w.npz").is_file() == ("--save" in kept)
    if "--name" in kept:
        assert [r["status"] for r in parse_lines(manta("runs", "--json").stdout)] == ["interrupted"]
        assert checkpoints(storage / "a")


def test_a_reader_that_leaves_where_sigpipe_is_ignored(tmp_path, environment):
    """The status is the one that a shell gives to a program that SIGPIPE has ended."""
    process = subprocess.Popen([str(PROGRAM), "train", "mlp", "--data", digits(tmp_path), "--epochs", "1000000"],
                               cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN), restore_signals=False)
    process.stdout.readline()
    process.stdout.close()
    try:
        assert process.wait(240) == 128 + signal.SIGPIPE
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_control_c_is_what_ends_a_run_whose_reader_it_ends_too(start, tmp_path):
    """As at a terminal, where Ctrl-C reaches the whole pipeline: the signal was first."""
    running = start("train", "mlp", "--data", digits(tmp_path), "--epochs", 2, "--steps-per-epoch", 100000000)
    running.process.stdout.readline()
    running.signal(signal.SIGINT)
    running.process.stdout.close()
    assert running.process.wait(240) == 130
    assert "interrupted" in running.process.stderr.read()


@pytest.mark.parametrize("args", [["--help"], ["model"], ["inspect", "mlp"], ["inspect", "mlp", "--json"]])
def test_commands_that_nobody_reads(tmp_path, environment, args):
    ours, theirs = os.pipe()
    os.close(ours)
    for restored, status in ((True, -signal.SIGPIPE), (False, 128 + signal.SIGPIPE)):
        before = None if restored else lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        done = subprocess.run([str(PROGRAM), *args], cwd=tmp_path, env=environment, stdout=theirs,
                              stderr=subprocess.PIPE, timeout=240, preexec_fn=before, restore_signals=restored)
        assert (done.returncode, done.stderr) == (status, b"")
    os.close(theirs)


# ---- full disks ----

def run_with(args, cwd, env, stdout=subprocess.PIPE, before=None):
    return subprocess.run([str(PROGRAM), *map(str, args)], cwd=cwd, env=env, stdout=stdout, stderr=subprocess.PIPE,
                          text=True, timeout=240, preexec_fn=before)


@pytest.mark.parametrize("args", [["inspect", "mlp"], ["model"], ["--help"], ["inspect", "mlp", "--json"]])
def test_full_disk_under_stdout(tmp_path, environment, args):
    with open("/dev/full", "w") as full:
        done = run_with(args, tmp_path, environment, stdout=full)
    assert done.returncode == 1
    assert done.stderr == "manta: cannot write to standard output: No space left on device\n"


def test_full_disk_under_stdout_does_not_cost_the_training(tmp_path, environment):
    with open("/dev/full", "w") as full:
        done = run_with(["train", "mlp", "--data", digits(tmp_path), "--save", "w.npz"], tmp_path, environment,
                        stdout=full)
    assert done.returncode == 1 and "No space left" in done.stderr
    assert (tmp_path / "w.npz").is_file()


def test_no_room_for_the_weights(tmp_path, environment):
    """A limit on file sizes stands for the disk: the old file stays, and nothing half-written."""
    data = digits(tmp_path, n=16)
    (tmp_path / "w.npz").write_bytes(b"what was there before")
    before = sorted(p.name for p in tmp_path.iterdir())
    done = run_with(["train", "mlp", "--data", data, "--save", "w.npz"], tmp_path, environment,
                    before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)))
    assert done.returncode == 1
    assert "w.npz" in done.stderr and len(done.stderr.splitlines()) == 1
    assert (tmp_path / "w.npz").read_bytes() == b"what was there before"
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_real_disk_that_is_full(tmp_path, environment):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "manta-test", str(small)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if mounted.returncode:
        pytest.skip("may not mount a small file system here")
    try:
        done = run_with(["model", "mlp", "-o", "small/w.npz"], tmp_path, environment)
        assert done.returncode == 1
        assert "small/w.npz" in done.stderr and "No space left" in done.stderr
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)
