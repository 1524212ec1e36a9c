"""What people read, and find in the logs, when a worker fails: on a terminal and in a pipe."""
import contextlib
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import threading

import numpy as np
import pytest

from conftest import PROGRAM, heed_signals
from samples import digits
from waits import checkpoints, is_gone, read_event, wait_until

ENDLESS = ("--epochs", 2, "--steps-per-epoch", 100000000, "--checkpoint-every", "1step")


def children(pid):
    """The processes that a program has started; [] once it is gone."""
    try:
        return [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def test_a_worker_that_is_killed(start, tmp_path, storage):
    running = start("train", "mlp", "--data", digits(tmp_path), "--workers", 2, *ENDLESS, "--name", "a", "--json")
    workers = [read_event(running, "worker") for _ in range(2)]
    wait_until(lambda: checkpoints(storage / "a"))
    os.kill(workers[1]["pid"], signal.SIGKILL)
    successor = read_event(running, "worker")["pid"]
    lines = [running.process.stderr.readline() for _ in range(5)]
    assert lines[0] == "manta: worker 1 failed\n"
    assert lines[1] == f"  what   process {workers[1]['pid']}, killed by signal 9 (Killed)\n"
    assert re.fullmatch(r"  where  epoch 1, step \d+\n", lines[2])
    assert re.fullmatch(rf"  now    process {successor} is in its place and the step was done again, "
                        r"[0-9.]+ ms late; the result is the same\n", lines[3])
    assert lines[4] == "  log    manta logs a --rank 1\n"
    running.signal(signal.SIGTERM)
    done = running.wait()
    assert done.status == 75
    assert done.stderr == "manta: interrupted; this goes on from here: manta train --resume a\n"


def test_a_run_in_another_place_is_called_by_its_folder(start, tmp_path, storage):
    running = start("train", "mlp", "--data", digits(tmp_path), "--workers", 2, *ENDLESS, "--run-dir",
                    storage / "it's mine", "--json")
    worker = read_event(running, "worker")
    wait_until(lambda: checkpoints(storage / "it's mine"))
    os.kill(worker["pid"], signal.SIGKILL)
    lines = [running.process.stderr.readline() for _ in range(5)]
    assert lines[4] == f"  log    manta logs '{storage}/it'\\''s mine' --rank 0\n"
    running.signal(signal.SIGTERM)
    done = running.wait()
    command = done.stderr.partition("this goes on from here: manta ")[2]
    again = subprocess.run(["sh", "-c", f'"{PROGRAM}" {command.strip()} --steps-per-epoch 3'], capture_output=True,
                           text=True, timeout=240, cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    assert "--steps-per-epoch 3 (it was begun with 100000000)" in again.stderr


def test_on_a_terminal(tmp_path, environment):
    """The block begins on a line of its own, behind the bar."""
    data = digits(tmp_path)
    ours, theirs = pty.openpty()
    with subprocess.Popen([str(PROGRAM), "train", "mlp", "--data", data, "--workers", "2", "--epochs", "1",
                           "--steps-per-epoch", "100000000"], cwd=tmp_path, env={**environment, "TERM": "xterm"},
                          stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, start_new_session=True,
                          preexec_fn=heed_signals) as p:
        os.close(theirs)
        with open(ours, "rb", buffering=0) as screen:
            seen = b""
            while b"s/step" not in seen:
                seen += screen.read(4096)
            os.kill(children(p.pid)[0], signal.SIGKILL)
            while b"the result is the same\r\n" not in seen:
                seen += screen.read(4096)
            p.send_signal(signal.SIGINT)
            try:
                while more := screen.read(4096):
                    seen += more
            except OSError:  # the other side is closed
                pass
        assert p.wait(240) == 130
    text = seen.decode()
    assert re.search(r"\n\x1b\[1;31mmanta: worker 0 failed\x1b\[0m\r\n  what   process \d+, killed by signal 9 \(Killed\)\r\n"
                     r"  where  epoch 1, step \d+\r\n  now    process \d+ is in its place", text), text[-3000:]
    assert "  log " not in text  # the run keeps none


def test_a_worker_that_is_given_up(tmp_path, environment, storage):
    """One that dies again and again ends the run: which, how often, how, where, and what happens now."""
    ours, theirs = pty.openpty()
    seen = []

    def read(screen):
        try:
            while more := screen.read(4096):
                seen.append(more)
        except OSError:  # the other side is closed
            pass

    with subprocess.Popen([str(PROGRAM), "train", "mlp", "--data", digits(tmp_path), "--workers", "2", "--name", "a",
                           "--max-failures", "2", *map(str, ENDLESS)], cwd=tmp_path,
                          env={**environment, "TERM": "xterm", "COLUMNS": "200"}, stdin=subprocess.DEVNULL,
                          stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=heed_signals) as p, \
            open(ours, "rb", buffering=0) as screen:
        os.close(theirs)
        reader = threading.Thread(target=read, args=[screen])
        reader.start()
        try:
            wait_until(lambda: len(checkpoints(storage / "a")) > 1)
            held, killed = set(), set()

            def kill_the_rest():
                """Holds one, so that no step is finished; a machine so slow that it is replaced for that has another."""
                workers = children(p.pid)
                for i, worker in enumerate(workers):
                    with contextlib.suppress(ProcessLookupError):  # gone since it was listed
                        if worker in held or (i == 0 and not held.intersection(workers)):
                            os.kill(worker, signal.SIGSTOP)
                            held.add(worker)
                        else:
                            os.kill(worker, signal.SIGKILL)
                            killed.add(worker)
                return p.poll() is not None

            wait_until(kill_the_rest)
            reader.join(240)
            assert p.returncode == 1
        finally:
            p.kill()
    text = b"".join(seen).decode()
    block = re.search(r"\n\x1b\[1;31mmanta: (worker [01]) died 3 times in a row without finishing a step, at step \d+ of "
                      r"epoch 1; the last one \(process (\d+)\) killed by signal 9 \(Killed\)\x1b\[0m\r\n"
                      r"  now    the run ends; this goes on from (checkpoint-\d+): manta train --resume a\r\n"
                      r"  log    manta logs a\r\n$", text)
    assert block, text[-3000:]
    assert int(block[2]) in killed
    assert block[3] == checkpoints(storage / "a")[-1]
    result = json.loads((storage / "a" / "result.json").read_text())
    assert result["status"] == "failed" and f"{block[1]} died 3 times" in result["error"]
    wait_until(lambda: all(is_gone(pid) for pid in held | killed))


def test_a_run_that_ends_says_how_to_go_on(manta, storage, tmp_path):
    """A label that cannot be, found by a worker in the middle of the second epoch's data."""
    data = digits(tmp_path)
    manta("train", "mlp", "--data", data, "--workers", 2, "--name", "a", "--json")
    y = np.load(tmp_path / "y.npy")
    y[77] = 10
    np.save(tmp_path / "y.npy", y)
    done = manta("train", "--resume", "a", "--epochs", 2, "--json", status=1)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("manta: worker ") and "77" in lines[0] and "10" in lines[0] and "epoch 2" in lines[0]
    assert lines[1] == "  now    the run ends; this goes on from checkpoint-000001: manta train --resume a"
    assert lines[2] == "  log    manta logs a" and len(lines) == 3
    assert done.event("result")["error"] in lines[0]
    assert json.loads((storage / "a" / "result.json").read_text())["status"] == "failed"
    # Mended, it goes on.
    digits(tmp_path)
    manta("train", "--resume", "a", "--epochs", 2, "--json")


def test_logs(start, manta, storage, tmp_path):
    """Of the dead and of the one in its place; what is not a whole line is shown when it can be no more."""
    running = start("train", "mlp", "--data", digits(tmp_path), "--workers", 2, *ENDLESS, "--name", "a", "--json")
    workers = [read_event(running, "worker") for _ in range(2)]
    wait_until(lambda: checkpoints(storage / "a"))
    os.kill(workers[1]["pid"], signal.SIGKILL)
    successor = read_event(running, "worker")["pid"]
    log = storage / "a" / "log" / "rank-1.txt"
    wait_until(lambda: "made up for" in log.read_text())
    # The worker's own standard output and error are that file.
    for stream in (1, 2):
        wait_until(lambda: os.path.samefile(f"/proc/{successor}/fd/{stream}", log))
    with open(f"/proc/{successor}/fd/1", "a") as out:
        out.write("said by the worker\n")
        out.write("not a whole li")
    shown = start("logs", "a", "--rank", 1, "-f")
    said = [shown.process.stdout.readline().rstrip("\n") for _ in range(4)]
    assert said[0].endswith(f"started as process {workers[1]['pid']}")
    assert said[1].endswith(f"started as process {successor}")
    assert f"process {workers[1]['pid']} killed by signal 9 (Killed); made up for in" in said[2]
    assert said[3] == "said by the worker"
    with open(log, "a") as out:
        out.write("ne\nand the last one")
    assert shown.process.stdout.readline() == "not a whole line\n"
    running.signal(signal.SIGTERM)
    assert running.wait().status == 75
    assert shown.wait().stdout == "and the last one\n"
    both = manta("logs", "a").stdout.splitlines()
    assert both[0].startswith("rank 0 | ") and both[-1] == "rank 1 | and the last one"
    assert "has no log of rank 7" in manta("logs", "a", "--rank", 7, status=1).stderr
    assert "expected 0 to 255" in manta("logs", "a", "--rank", 256, status=2).stderr
    assert is_gone(successor)


def test_logs_in_parts(manta, start, storage, tmp_path):
    """Parts are shown in their order, and -f goes on when the file it reads becomes one."""
    running = start("train", "mlp", "--data", digits(tmp_path), "--workers", 2, *ENDLESS, "--name", "a", "--json")
    wait_until(lambda: checkpoints(storage / "a"))
    folder = storage / "a" / "log"
    (folder / "rank-1.000009.txt").write_text("first\n")
    (folder / "rank-1.000010.txt").write_text("second\nhalf")
    shown = start("logs", "a", "--rank", 1, "-f")
    assert [shown.process.stdout.readline() for _ in range(2)] == ["first\n", "second\n"]
    assert "started as process" in shown.process.stdout.readline()
    with open(folder / "rank-1.txt", "a") as out:
        out.write("third\n")
    os.rename(folder / "rank-1.txt", folder / "rank-1.000011.txt")
    (folder / "rank-1.txt").write_text("fourth\n")
    assert [shown.process.stdout.readline() for _ in range(2)] == ["third\n", "fourth\n"]
    running.signal(signal.SIGTERM)
    assert running.wait().status == 75
    assert shown.wait().status == 0
    lines = [line for line in manta("logs", "a", "--rank", 1).stdout.splitlines() if "process" not in line]
    assert lines == ["first", "second", "third", "fourth"]


def test_logging_of_a_run(manta, storage, tmp_path, environment):
    """The level is of this run and its workers; lines can be stamped, and shown."""
    run = ("train", "mlp", "--data", digits(tmp_path), "--workers", 2, "--json")
    done = manta(*run, "--name", "a", "--log-to", "both", "--log-stamp", "--log-level", "debug", "--log-size", "1M")
    lines = (storage / "a" / "log" / "rank-0.txt").read_text().splitlines()
    assert lines and all(re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}Z rank 0 \| .*", line) for line in lines)
    config = json.loads((storage / "a" / "config.json").read_text())
    assert config["log-to"] == "both" and config["log-level"] == "debug"
    manta("train", "--resume", "a", "--epochs", 2, "--log-level", "error", "--json")  # it changes no result
    for word, why in (("loud", "expected debug, info, warn, error or off"),):
        assert why in manta(*run, "--log-level", word, status=2).stderr
    for word in ("1", "0", "x", "5T", "-1", "1kk", "99999999999999999999"):
        done = manta(*run, "--name", "b", "--log-size", word, status=1 if word == "1" else 2)
        assert ("4096 bytes a part" if word == "1" else "expected such as 500k, 64M or all") in done.stderr
    assert "expected file, output or both" in manta(*run, "--name", "b", "--log-to", "tape", status=2).stderr
    assert "give it a --name" in manta(*run, "--log-stamp", status=2).stderr


@pytest.mark.parametrize("servers", [1, 2])
def test_parameter_servers_have_logs_too(manta, storage, tmp_path, servers):
    manta("train", "mlp", "--data", digits(tmp_path), "--workers", 2, "--strategy", "parameter-server", "--servers",
          servers, "--name", "a", "--json")
    logs = sorted(p.name for p in (storage / "a" / "log").iterdir())
    assert logs == ["rank-0.txt", "rank-1.txt"] + [f"server-{i}.txt" for i in range(servers)]


def test_a_parameter_server_that_is_killed(start, storage, tmp_path):
    """It is called what it is, in the block, in the events and in its log; the workers' have nothing of it."""
    running = start("train", "mlp", "--data", digits(tmp_path), "--workers", 2, "--strategy", "parameter-server",
                    *ENDLESS, "--name", "a", "--json")
    workers = [read_event(running, "worker")["pid"] for _ in range(2)]
    wait_until(lambda: checkpoints(storage / "a"))
    server, = set(children(running.process.pid)) - set(workers)
    os.kill(server, signal.SIGKILL)
    event = read_event(running, "recovered")
    assert (event["role"], event["rank"], event["pid"], event["cause"]) == ("server", 0, server, "killed by signal 9 (Killed)")
    lines = [running.process.stderr.readline() for _ in range(5)]
    assert lines[0] == "manta: parameter server 0 failed\n"
    assert lines[1] == f"  what   process {server}, killed by signal 9 (Killed)\n"
    assert re.fullmatch(r"  where  epoch 1, step \d+\n", lines[2])
    assert lines[3] == "  now    another begins with the last copy of its weights; updates since then are lost\n"
    assert lines[4] == "  log    manta logs a\n"
    running.signal(signal.SIGTERM)
    assert running.wait().status == 75
    assert f"process {server} killed by signal 9 (Killed); another took its place" in \
        (storage / "a" / "log" / "server-0.txt").read_text()
    assert f"process {server} " not in (storage / "a" / "log" / "rank-0.txt").read_text()
