"""A generator of command lines: every command with every option and a value that nobody thought of.

What each of them must be is known without knowing the command: it ends by itself and by no signal, soon; it says in
one sentence what is wrong, where and what was expected, or it works; nothing of a foreign value reaches the terminal
as an escape; a progress line never wraps.

The options come from `--help`, so that a new one is tried without being listed here. Each is tried once, and then
300 command lines of a fixed seed; MANTA_ODD=N tries N of a new one and says which. A failure prints the command line.
"""
import fcntl
import os
import pty
import random
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import termios
import time

import numpy
import pytest

from conftest import PROGRAM, heed_signals

LIMIT_S = 240
WIDTHS = (40, 80, 200)

# What a command needs to do something small. None reaches another host: data is fetched from a port of this one where
# nobody listens, and variables send whatever else a command line asks for to the same port.
COMMANDS = {
    "train": ["linear", "--data", "d.npz:x,y", "--steps-per-epoch", "2", "--batch", "4"],
    "evaluate": ["m.keras", "--data", "d.npz:x,y"],
    "predict": ["m.keras", "--input", "x.npy", "-o", "y.npy"],
    "model": ["linear", "-o", "new.keras"],
    "convert": ["m.keras", "out.h5"],
    "inspect": ["m.keras"],
    "data list": [],
    "data path": ["mnist"],
    "stop": [],
    "status": [],
    "ps": [],
    "timeline": [],
    "stack": ["1"],
    "runs": [],
    "runs show": ["first"],
    "runs compare": ["first", "first"],
    "runs plot": ["first"],
    "logs": ["first"],
    "key": ["new.key"],
    "where": [],
    "start": ["--num-cpus", "1"],
    "bench train": ["--model", "linear", "--steps", "2", "--batch", "4"],
    "bench core": ["--row", "no such row"],
    "bench comm": ["--row", "no such row"],
    "data fetch": ["http://127.0.0.1:1/x"],
    "launch": ["--dry-run", "--", "true"],
    "agent": [],
}
NOBODY = "http://127.0.0.1:1"

VALUES = ["", " ", "0", "-0", "1", "-1", "2", "007", "1e309", "-1e309", "nan", "inf", "0.5", "1e-320", "4294967296",
          "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e18", "0x10", "1 ", "1,2", ",", ",,",
          ":", "=", "a=b", "none", "auto", "true", "no", "-", "--", "--help", "x" * 300, "y" * 70000, "\x1b[31mred",
          "a\x1b]0;title\x07b", "tab\there", "line\nbreak", "bell\x07", "\x9b31m", "é", "日本語", "a\u202eb", "%s%n%d",
          "$(id)", "~", ".", "..", "/", "/dev/null", "/dev/zero", "/nonexistent/x", "d.npz", "x.npy", "m.keras", "folder",
          "first", "linear", "mnist", "adam", "mse", "d.npz:x,y", "d.npz:x", "d.npz:z", "x.npy,y.npy"]

# What these would do is no question of words: they run until they are ended, or write where nobody looks.
NOT_TRIED = {("logs", "--follow"), ("start", "--foreground")}
# The base's value stays: others take minutes.
TAKES_LONG = {("bench train", "--steps"), ("bench core", "--row"), ("bench comm", "--row")}
WHOLE = ("bench core", "bench comm")     # all of the base stays
OWN_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")      # colours, and moving within a line


def options_of(command):
    """(name, whether it takes a value) of each option that `--help` lists."""
    text = subprocess.run([PROGRAM, *command.split(), "--help"], capture_output=True, text=True, timeout=LIMIT_S).stdout
    found = re.findall(r"^ +(?:-\w, )?(--[a-z0-9-]+)(=?)", text, re.MULTILINE)
    return [(name, takes == "=") for name, takes in found if name not in ("--help", "--usage")]


def with_option(rng, args, name, takes):
    """The arguments and an option, mostly with a value, before a program's own."""
    given = [name]
    if takes and rng.randrange(20):
        given = [f"{name}={rng.choice(VALUES)}"] if rng.randrange(2) else [name, rng.choice(VALUES)]
    return given + args if "--" in args else args + given


def asks_too_much(command, args):
    """It is right, and trains for ever, or with a batch that takes all memory there is."""
    return command in ("train", "bench train") and re.search(r"--(epochs|steps-per-epoch|batch)[ =][0-9e]{5}", " ".join(args))


def lines_with_each(seed, known):
    """Each command with each of its options, once."""
    rng = random.Random(seed)
    for command, options in known.items():
        for name, takes in options:
            if (command, name) in NOT_TRIED | TAKES_LONG:
                continue
            args = with_option(rng, list(COMMANDS[command]), name, takes)
            while asks_too_much(command, args):
                args = with_option(rng, list(COMMANDS[command]), name, takes)
            yield [*command.split(), *args]


def lines_of(seed, number, known):
    """`number` command lines, each a list of arguments: a base, and one to three odd things done to it."""
    rng = random.Random(seed)
    for _ in range(number):
        command = rng.choice(list(COMMANDS))
        args = list(COMMANDS[command])
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            what = rng.randrange(10)
            if what < 7 and known[command]:
                name, takes = rng.choice(known[command])
                if (command, name) in NOT_TRIED | TAKES_LONG:
                    continue
                args = with_option(rng, args, name, takes)
            elif what == 7 and args and command not in WHOLE:
                args[rng.randrange(len(args))] = rng.choice(VALUES)
            elif what == 8 and args and command not in WHOLE:
                del args[rng.randrange(len(args))]
            else:
                args.insert(rng.randrange(len(args) + 1), rng.choice(VALUES))
        if asks_too_much(command, args):
            continue
        yield [*command.split(), *[a.replace("\0", "") for a in args]]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a little of everything: data, a model, a run."""
    folder = tmp_path_factory.mktemp("odd")
    rng = numpy.random.default_rng(1)
    x = rng.standard_normal((12, 1), numpy.float32)
    y = x.sum(1, keepdims=True).astype(numpy.float32)
    numpy.savez(folder / "d.npz", x=x, y=y)
    numpy.save(folder / "x.npy", x)
    numpy.save(folder / "y.npy", y)
    (folder / "folder").mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "LC_ALL": "C.UTF-8",
           "TERM": "xterm", "MANTA_STORAGE": "runs",
           "XDG_RUNTIME_DIR": str(tmp_path_factory.mktemp("node")),    # not the node of whoever runs the tests
           **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), NOBODY),
           **{k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH" or k.endswith("SAN_OPTIONS")}}
    made = subprocess.run([PROGRAM, "train", "linear", "--data", "d.npz:x,y", "--batch", "4", "--name", "first", "--save",
                           "m.keras"], cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    assert made.returncode == 0, made.stderr
    return folder, env


def run_in_pipes(args, folder, env):
    process = subprocess.Popen([PROGRAM, *args], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True, preexec_fn=heed_signals)
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return None, out.decode(errors="replace"), err.decode(errors="replace")
    return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")


def run_in_terminal(args, folder, env, width):
    """Status and all that the terminal was sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    process = subprocess.Popen([PROGRAM, *args], cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs,
                               start_new_session=True, preexec_fn=heed_signals)
    os.close(theirs)
    sent, end = b"", time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        ready, _, _ = select.select([ours], [], [], 1)
        if not ready:
            if process.poll() is not None:
                break
            continue
        try:
            part = os.read(ours, 65536)
        except OSError:         # the other side is closed
            part = b""
        if not part:
            break
        sent += part
    late = process.poll() is None and time.monotonic() >= end
    if late:
        os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    os.close(ours)
    return None if late else status, sent.decode(errors="replace")


def faults_of_text(text):
    """What no output may have, whoever reads it."""
    rest = OWN_ESCAPES.sub("", text)
    if "\x1b" in rest or "\x07" in rest or "\x9b" in rest or "\u202e" in rest:
        yield "a foreign escape reaches the terminal"
    if "runtime error" in text or "Sanitizer" in text or "Assertion" in text:
        yield "an assertion or a sanitizer speaks"


def faults_in_pipes(status, out, err):
    if status is None:
        yield f"not done after {LIMIT_S} s"
        return
    if status < 0:
        yield f"ended by signal {-status}"
    yield from faults_of_text(out + err)
    if "\x1b" in err or "\x1b" in out:
        yield "an escape in a pipe"
    said = [line for line in err.splitlines() if line.strip()]
    if status not in (0, 1, 2, 130) and status > 0:
        yield f"status {status}"
    if status in (1, 2) and not said and not out.strip():
        yield "it fails without a word"
    if status in (1, 2) and len(said) > 6:
        yield f"it fails with {len(said)} lines on standard error"
    if any(len(line) > 2600 for line in said):
        yield "a sentence repeats a value of any length"


def faults_in_terminal(status, sent, width):
    if status is None:
        yield f"not done after {LIMIT_S} s"
        return
    if status < 0:
        yield f"ended by signal {-status}"
    yield from faults_of_text(sent)
    for line in sent.split("\n"):
        for part in line.rstrip("\r").split("\r")[:-1]:         # what was drawn over
            shown = OWN_ESCAPES.sub("", part)
            if len(shown) > width:
                yield f"a progress line of {len(shown)} columns where there are {width}: {shown!r}"


def faults_of_lines(place, lines):
    """What is wrong with these command lines, each fault with its line."""
    folder, env = place
    found = []
    for i, args in enumerate(lines):
        here = folder.parent / "here"       # what one command line writes is not what the next one finds
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(folder, here)
        if i % 4:
            faults = list(faults_in_pipes(*run_in_pipes(args, here, env)))
        else:
            width = WIDTHS[i // 4 % len(WIDTHS)]
            faults = list(faults_in_terminal(*run_in_terminal(args, here, env, width), width))
        if args[0] == "start":
            faults += [f"manta stop after it: {fault}" for fault in faults_in_pipes(*run_in_pipes(["stop"], here, env))]
        found += [f"{fault}:\n    manta {shlex.join(a if len(a) < 100 else a[:50] + '...' for a in args)}"
                  for fault in faults]
    return found


def known_options():
    known = {command: options_of(command) for command in COMMANDS}
    assert all(known[c] for c in ("train", "evaluate", "predict", "runs plot"))
    return known


def test_every_command_is_tried():
    text = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, timeout=LIMIT_S).stdout
    assert set(re.findall(r"^  manta ([a-z]+(?: [a-z]+)?)  ", text, re.MULTILINE)) == set(COMMANDS)


def test_each_option_of_each_command(place):
    seed = 27 if "MANTA_ODD" not in os.environ else random.randrange(1 << 30)
    found = faults_of_lines(place, lines_with_each(seed, known_options()))
    assert not found, f"{len(found)} faults with seed {seed}:\n" + "\n".join(found)


def test_odd_command_lines(place):
    number = int(os.environ.get("MANTA_ODD", "300"))
    seed = 27 if "MANTA_ODD" not in os.environ else random.randrange(1 << 30)
    found = faults_of_lines(place, lines_of(seed, number, known_options()))
    assert not found, f"{len(found)} faults in {number} command lines of seed {seed}:\n" + "\n".join(found)
