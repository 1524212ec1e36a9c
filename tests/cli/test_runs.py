"""Runs: folders, checkpoints, resume after kill -9, callbacks, and the commands that look at them."""
import contextlib
import json
import os
import signal
import sqlite3
import subprocess

import numpy as np
import pytest

from conftest import PROGRAM
from samples import digits
from waits import checkpoints, kill_with_backup, read_event, wait_until

TRAIN = ("--global-batch", 16, "--shards", 2, "--seed", 7, "--json")
# Steps without number and next to nothing printed, so that no pipe fills while nobody reads.
ENDLESS = ("--epochs", 2, "--steps-per-epoch", 100000000, "--checkpoint-every", "1step")


def test_a_run_is_a_folder(manta, storage, tmp_path):
    data = digits(tmp_path)
    done = manta("train", "mlp", "--data", data, "--epochs", 3, *TRAIN, "--name", "a", "--keep", 2)
    run = storage / "a"
    assert done.event("result")["checkpoint"] == str(run / "checkpoints" / "checkpoint-000003")
    assert checkpoints(run) == ["checkpoint-000002", "checkpoint-000003"]
    result = json.loads((run / "result.json").read_text())
    assert result["status"] == "done" and np.isfinite(result["metrics"]["loss"])
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert list(run.glob("events.out.tfevents.*"))
    # The configuration can be given back, and makes the same weights.
    manta("train", "--config", run / "config.json", "--json", "--save", "again.npz")
    manta("train", "mlp", "--data", data, "--epochs", 3, *TRAIN, "--save", "first.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "first.npz").read_bytes()


def test_a_run_is_for_its_user_alone(manta, storage, tmp_path):
    """Whatever the umask says; a folder that was there keeps its mode, and so does one that its user has opened."""
    data = digits(tmp_path)
    before = os.umask(0)
    try:
        manta("train", "mlp", "--data", data, *TRAIN, "--name", "a")
        manta("train", "mlp", "--data", data, *TRAIN, "--run-dir", "made/by/it")
        (tmp_path / "mine").mkdir(mode=0o755)
        manta("train", "mlp", "--data", data, *TRAIN, "--run-dir", "mine")
        manta("runs")
    finally:
        os.umask(before)
    for folder, mode in ((storage / "a", 0o700), (tmp_path / "made" / "by" / "it", 0o700), (tmp_path / "mine", 0o755),
                         (storage / ".index.sqlite", 0o600)):
        assert folder.stat().st_mode & 0o777 == mode, folder
    (storage / "a").chmod(0o755)
    manta("train", "--resume", "a", "--epochs", 2, "--json")
    assert (storage / "a").stat().st_mode & 0o777 == 0o755


def test_the_checkpoint_opens_with_safetensors_alone(manta, storage, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    manta("train", "mlp", "--data", digits(tmp_path), *TRAIN, "--name", "a")
    state = safetensors.load_file(storage / "a" / "checkpoints" / "checkpoint-000001" / "state.safetensors")
    assert state["dense/kernel"].dtype == np.float32 and int(state["optimizer/iterations"]) > 0
    assert int(state["run/epoch"]) == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_kill_9_then_resume_ends_with_the_same_bytes(manta, start, storage, tmp_path, workers):
    data = digits(tmp_path)
    run = ("train", "mlp", "--data", data, "--validation-split", 0.25, "--epochs", 3, "--workers", workers,
           *TRAIN, "--early-stop", "val_loss:patience=50")
    manta(*run, "--save", "calm.npz")
    for cut in (2, 7):
        running = start(*run, "--name", f"k{cut}", "--checkpoint-every", "2steps", "--save", "cut.npz")
        wait_until(lambda: checkpoints(storage / f"k{cut}")[-1:] >= [f"checkpoint-{cut:06}"])
        running.process.kill()
        running.process.wait(240)
        done = manta(*run, "--name", f"k{cut}", "--checkpoint-every", "2steps", "--resume", "--save", "cut.npz")
        assert done.event("resumed")["checkpoint"].startswith(str(storage))
        assert (tmp_path / "cut.npz").read_bytes() == (tmp_path / "calm.npz").read_bytes()
        lines = [json.loads(line) for line in (storage / f"k{cut}" / "metrics.jsonl").read_text().splitlines()]
        assert [line["epoch"] for line in lines] == [1, 2, 3]
        os.remove(tmp_path / "cut.npz")


def test_backup_and_restore(manta, start, storage, tmp_path):
    run = ("train", "mlp", "--data", digits(tmp_path), "--epochs", 40, *TRAIN)
    manta(*run, "--save", "calm.npz")
    kill_with_backup(start, storage / "backup", *run, "--backup-dir", storage / "backup", "--checkpoint-every", "3steps")
    manta(*run, "--backup-dir", storage / "backup", "--checkpoint-every", "3steps", "--save", "cut.npz")
    assert (tmp_path / "cut.npz").read_bytes() == (tmp_path / "calm.npz").read_bytes()
    assert not (storage / "backup").exists()


def test_sigterm_leaves_a_checkpoint_and_says_resumable(start, manta, storage, tmp_path):
    data = digits(tmp_path)
    running = start("train", "mlp", "--data", data, *ENDLESS, *TRAIN, "--name", "a")
    wait_until(lambda: checkpoints(storage / "a"))
    running.signal(signal.SIGTERM)
    done = running.wait()
    assert done.status == 75
    assert done.event("result")["status"] == "interrupted" and done.event("result")["checkpoint"]
    assert done.stderr.splitlines() == ["manta: interrupted; this goes on from here: manta train --resume a"]
    listed = json.loads(manta("runs", "--json").stdout)
    assert listed["status"] == "interrupted"


def test_stop_ends_a_run(start, manta, storage, tmp_path):
    running = start("train", "mlp", "--data", digits(tmp_path), *ENDLESS, *TRAIN, "--name", "a")
    wait_until(lambda: checkpoints(storage / "a"))
    assert json.loads(manta("runs", "--json").stdout)["status"] == "running"
    assert manta("stop", "a").stdout.startswith("a: interrupted, epoch 1, after step ")
    assert running.wait().status == 75
    again = manta("stop", "a", status=1)
    assert "is not running" in again.stderr


def test_one_name_one_run(start, manta, storage, tmp_path):
    data = digits(tmp_path)
    running = start("train", "mlp", "--data", data, *ENDLESS, *TRAIN, "--name", "a")
    wait_until(lambda: checkpoints(storage / "a"))
    busy = manta("train", "mlp", "--data", data, "--json", "--name", "a", "--resume", status=1)
    assert "is running now, as process" in busy.stderr
    running.process.kill()
    running.process.wait(240)
    taken = manta("train", "mlp", "--data", data, "--json", "--name", "a", status=1)
    assert "is there already" in taken.stderr and "resume" in taken.stderr
    for number in (1, 2):  # without a name runs are numbered
        manta("train", "mlp", "--data", data, "--json", "--checkpoint-every", "1epoch")
        assert (storage / f"mlp-{number}" / "result.json").is_file()


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "x" * 300])
def test_names_that_cannot_be(manta, storage, tmp_path, name):
    done = manta("train", "mlp", "--data", digits(tmp_path), "--name", name, status=2 if name == "" else 1)
    assert ("nothing was given" if name == "" else "cannot be the name of a run") in done.stderr


def test_a_flipped_bit_is_named_and_the_one_before_used(manta, storage, tmp_path):
    run = ("train", "mlp", "--data", digits(tmp_path), *TRAIN, "--name", "a")
    manta(*run, "--epochs", 3)
    damaged = storage / "a" / "checkpoints" / "checkpoint-000003" / "state.safetensors"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    done = manta(*run, "--epochs", 4, "--resume", "--save", "cut.npz")
    assert "checkpoint-000003/state.safetensors is damaged" in done.stderr
    assert "the one before it is used" in done.stderr
    assert done.event("resumed")["epoch"] == 3
    manta("train", "mlp", "--data", digits(tmp_path), *TRAIN, "--epochs", 4, "--save", "calm.npz")
    assert (tmp_path / "cut.npz").read_bytes() == (tmp_path / "calm.npz").read_bytes()


def test_a_finished_run_is_not_done_again(manta, storage, tmp_path):
    run = ("train", "mlp", "--data", digits(tmp_path), "--epochs", 2, *TRAIN, "--name", "a")
    first = manta(*run, "--save", "a.npz")
    again = manta(*run, "--resume", "--save", "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert again.event("result")["metrics"] == first.event("result")["metrics"]
    assert not [e for e in again.events if e["event"] == "epoch"]
    assert "Nothing is left to do" in manta("train", "--resume", "a").stdout
    fewer = manta("train", "mlp", "--data", digits(tmp_path), "--epochs", 1, *TRAIN, "--name", "a", "--resume",
                  status=1)
    assert "stands behind epoch 2" in fewer.stderr


def test_storage_that_cannot_be_written(manta, environment, tmp_path):
    (tmp_path / "file").write_text("")
    done = manta("train", "mlp", "--data", digits(tmp_path), "--storage", "file", "--name", "a", status=1)
    assert "file" in done.stderr and len(done.stderr.splitlines()) == 1


def test_nobody_reads_and_the_work_is_saved(tmp_path, environment):
    """What was trained until then, whole."""
    process = subprocess.Popen([str(PROGRAM), "train", "mlp", "--data", digits(tmp_path), "--epochs", "1000000", "--save",
                                "w.npz"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(240) == -signal.SIGPIPE
    assert process.stderr.read() == b"manta: nobody reads the output any more; saved to w.npz\n"
    process.stderr.close()
    with np.load(tmp_path / "w.npz") as f:
        assert int(f["optimizer/iterations"]) > 0


# ---- callbacks ----

def test_early_stopping_and_best_weights(manta, tmp_path):
    data = digits(tmp_path)
    done = manta("train", "mlp", "--data", data, "--epochs", 50, "--learning-rate", 0, *TRAIN, "--early-stop",
                 "loss:patience=3,restore-best", "--save-best", "best-{epoch:02d}.npz", "--csv-log", "log.csv")
    epochs = [e for e in done.events if e["event"] == "epoch"]
    assert 4 <= len(epochs) < 50
    rows = (tmp_path / "log.csv").read_text().splitlines()
    assert rows[0] == "epoch,accuracy,loss" and len(rows) == len(epochs) + 1
    assert (tmp_path / "best-01.npz").is_file()


def test_nan_ends_the_training_when_asked(manta, tmp_path):
    done = manta("train", "mlp", "--data", digits(tmp_path), "--epochs", 50, "--optimizer", "sgd", "--learning-rate",
                 "1e30", "--terminate-on-nan", "--seed", 1)
    assert "Ended early: the loss is" in done.stdout


def test_usage(manta, tmp_path):
    for args, said in [(("--resume",), "--resume needs to know which run"),
                       (("--run-dir", "a", "--name", "b"), "--run-dir is the folder itself"),
                       (("--checkpoint-every", "often"), "expected such as 20steps or 1epoch"),
                       (("--validation-split", 2), "expected between 0 and 1"),
                       (("--early-stop", "loss:patiense=3"), "patiense"),
                       (("--early-stop", "loss:patience=2.5"), "'2.5' is not a whole number"),
                       (("--early-stop", "loss:from=-1"), "from is -1, expected 0 or more"),
                       (("--keep-best", "acuracy"), "no metric is called 'acuracy'; there are loss, accuracy; "
                                                    "did you mean accuracy?"),
                       (("--reduce-lr", "los:factor=0.5"), "did you mean loss?"),
                       (("--early-stop", "val_loss:patience=3"), "there is no validation"),
                       (("--early-stop", "val_auc", "--validation-split", 0.5), "and the same with val_"),
                       (("--save-best", "best.docx"), "best.docx: the name must end in one of"),
                       (("--validation-steps", 3), "needs --validation or --validation-split")]:
        done = manta("train", "mlp", "--data", digits(tmp_path), *args, status=1 if "--save-best" in args else 2)
        assert said in done.stderr


# ---- looking at them ----

def test_commands(manta, storage, tmp_path):
    data = digits(tmp_path)
    for name, rate in (("slow", 0.001), ("fast", 0.01)):
        manta("train", "mlp", "--data", data, "--epochs", 3, "--workers", 2, "--learning-rate", rate, *TRAIN, "--name",
              name)
    listed = [json.loads(line)["name"] for line in manta("runs", "--json").stdout.splitlines()]
    assert listed == ["fast", "slow"]
    (storage / ".index.sqlite").write_text("this is no database")
    assert [json.loads(line)["name"] for line in manta("runs", "--json").stdout.splitlines()] == listed
    (storage / ".index.sqlite").unlink()
    assert "fast  done" in manta("runs").stdout
    shown = manta("runs", "show", "slow").stdout
    assert "checkpoint-000003: after epoch 3" in shown
    assert "\nlearning-rate  0.001\n" in shown and '"' not in shown
    compared = manta("runs", "compare", "slow", "fast").stdout
    assert "learning-rate  0.001  0.01" in " ".join(compared.split(" ")) and "BEST OF B" in compared
    assert "has no 'lsos'; there are loss, accuracy" in manta("runs", "plot", "slow", "--metrics", "lsos",
                                                              status=2).stderr
    assert manta("runs", "plot", "slow", "--metrics", "loss").stdout.count("*") >= 3
    manta("runs", "plot", "slow", "-o", "curves.svg")
    assert (tmp_path / "curves.svg").read_text().count("<path") == 2
    assert "started as process" in manta("logs", "slow", "--rank", 1).stdout
    assert "did you mean slow" in manta("runs", "show", "slwo", status=1).stderr
    assert "no command is called 'runs shwo'; did you mean runs show?" in manta("runs", "shwo", "slow",
                                                                                 status=2).stderr


def make_run(folder, **result):
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "metrics.jsonl").write_text(json.dumps({"epoch": 2, "step": 4, "metrics": {"loss": 0.5}}) + "\n")
    (folder / "result.json").write_text(json.dumps({"status": "done", "began": 10, "ended": 20, **result}))


def test_folders_of_any_kind_are_listed(manta, storage, tmp_path):
    make_run(storage / os.fsdecode(b"caf\xe9"))
    make_run(storage / "old", began=1e300, ended=-1e300)
    listed = {run["name"]: run for run in map(json.loads, manta("runs", "--json").stdout.splitlines())}
    assert listed["caf?"]["began"] == 10 and listed["old"]["began"] == listed["old"]["ended"] == 0
    assert json.loads(manta("runs", "show", os.fsdecode(b"caf\xe9"), "--json").stdout)["status"] == "done"
    done = manta("train", "mlp", "--data", digits(tmp_path), "--csv-log", os.fsdecode(b"caf\xe9"), "--name", "kept",
                 status=2)
    assert "--csv-log is not UTF-8" in done.stderr and not (storage / "kept").exists()


def test_an_index_may_hold_anything(manta, storage, tmp_path):
    make_run(storage / "a")
    before = manta("runs", "--json").stdout
    with contextlib.closing(sqlite3.connect(storage / ".index.sqlite")) as index:
        row, = index.execute("SELECT info FROM runs").fetchone()
        for blob in (row[:256] + b"\xff" * (len(row) - 256), row[:1280] + b"\xff" * 16 + row[1296:],
                     row.replace(b"loss".ljust(64, b"\0"), b"l" * 64)):
            index.execute("UPDATE runs SET info = ?", [blob])
            index.execute("INSERT OR REPLACE INTO runs VALUES (NULL, 1, 1, x'00')")
            index.commit()
            assert manta("runs", "--json").stdout == before
        index.execute("BEGIN EXCLUSIVE")
        assert manta("runs", "--json").stdout == before  # without waiting for it, and it stays
    assert (storage / ".index.sqlite").stat().st_size > 0


def test_times_are_of_the_whole_run(manta, start, storage, tmp_path):
    """Killed, resumed and resumed: it began when it began, and took what all of them took together."""
    data = digits(tmp_path)
    running = start("train", "mlp", "--data", data, *ENDLESS, "--name", "a", *TRAIN)
    wait_until(lambda: checkpoints(storage / "a"))
    running.signal(signal.SIGTERM)
    assert running.wait().status == 75
    first, = [json.loads(line) for line in manta("runs", "--json").stdout.splitlines()]
    result = json.loads((storage / "a" / "result.json").read_text())
    assert first["began"] == int(result["began"]) and first["resumed"] == 0
    assert first["spent"] == pytest.approx(result["ended"] - result["began"], abs=1e-3)
    assert first["spent"] == pytest.approx(result["spent"], abs=1e-3)
    had = checkpoints(storage / "a")[-1]
    again = start("train", "--resume", "a", "--json")
    read_event(again, "resumed")
    wait_until(lambda: checkpoints(storage / "a")[-1:] > [had])
    shown = json.loads(manta("runs", "show", "a", "--json").stdout)
    assert shown["status"] == "running" and shown["began"] == first["began"] and shown["resumed"] == 1
    assert shown["spent"] >= first["spent"]
    again.process.kill()
    again.process.wait(240)
    shown = json.loads(manta("runs", "show", "a", "--json").stdout)  # it has left no line of metrics
    assert shown["status"] == "ended" and shown["began"] == first["began"]
    assert shown["spent"] == pytest.approx(first["spent"], abs=1e-3)
    last = start("train", "--resume", "a", "--json")
    read_event(last, "resumed")
    last.signal(signal.SIGTERM)
    last.wait()
    result = json.loads((storage / "a" / "result.json").read_text())
    assert result["resumed"] == 2 and result["first_began"] < result["began"]
    assert result["spent"] == pytest.approx(first["spent"] + result["ended"] - result["began"], abs=1e-3)
    assert "; resumed 2 times\n" in manta("runs", "show", "a").stdout


def test_a_checkpoint_is_a_file_of_weights(manta, storage, tmp_path):
    """Its folder, its run's folder and its run's name mean the same as the file in it."""
    data = digits(tmp_path)
    manta("train", "mlp", "--data", data, "--epochs", 2, *TRAIN, "--name", "a", "--save", "w.npz")
    folder = storage / "a" / "checkpoints" / "checkpoint-000002"
    judged = manta("evaluate", "mlp", "--weights", "w.npz", "--data", data, "--json").event("result")["metrics"]
    for weights in (folder, storage / "a", "a"):
        assert manta("evaluate", "mlp", "--weights", weights, "--data", data,
                     "--json").event("result")["metrics"] == judged
    for source in (folder, "a"):
        manta("convert", source, "out.npz", "--like", "mlp")
        with np.load(tmp_path / "out.npz") as out, np.load(tmp_path / "w.npz") as w:
            assert np.array_equal(out["dense/kernel"], w["dense/kernel"])
    shown = manta("inspect", folder).stdout
    assert "after epoch 2" in shown and "dense/kernel" in shown
    told = json.loads(manta("inspect", folder, "--json").stdout)
    assert told["kind"] == "checkpoint" and told["epoch"] == 2 and told["files"] == ["state.safetensors"]
    assert "no run is called 'b'" in manta("evaluate", "mlp", "--weights", "b", "--data", data, status=1).stderr
    state = bytearray((folder / "state.safetensors").read_bytes())
    state[-1] ^= 1
    (folder / "state.safetensors").write_bytes(state)
    for command in (("evaluate", "mlp", "--data", data, "--weights"), ("inspect",)):
        assert "is damaged" in manta(*command, folder, status=1).stderr


# ---- disks ----

def test_a_disk_that_is_full_ends_no_training(manta, storage, tmp_path):
    """A limit on the size of files stands for the full disk: weights fit, checkpoints (three times that) do not."""
    data = digits(tmp_path)
    limited = subprocess.run(["bash", "-c", 'ulimit -f 900; exec "$@"', "-", str(PROGRAM), "train", "mlp", "--data",
                              data, "--epochs", "2", "--seed", "7", "--json", "--run-dir", str(storage / "a"),
                              "--save", "w.weights.h5"], cwd=tmp_path, env={"PATH": os.environ["PATH"]},
                             capture_output=True, text=True, timeout=240)
    events = [json.loads(line) for line in limited.stdout.splitlines()]
    assert limited.returncode == 1 and events[-1]["status"] == "failed"
    assert len([e for e in events if e["event"] == "epoch"]) == 2
    assert "File too large" in events[-1]["error"] and "checkpoint" in events[-1]["error"]
    assert checkpoints(storage / "a") == []
    assert not list((storage / "a" / "checkpoints").glob(".*manta-tmp"))
    assert (tmp_path / "w.weights.h5").is_file()
    for metrics in (events[-1]["metrics"], json.loads((storage / "a" / "result.json").read_text())["metrics"]):
        assert metrics == pytest.approx({name: events[-2][name] for name in ("loss", "accuracy")})


def test_a_record_that_is_cut_off_has_a_result(manta, storage, tmp_path):
    """No line of metrics can be written any more, the result can: it has the last ones all the same."""
    data = digits(tmp_path)
    limited = subprocess.run(["bash", "-c", 'ulimit -f 1; exec "$@"', "-", str(PROGRAM), "train", "mlp", "--data",
                              data, "--epochs", "20", "--seed", "7", "--json", "--run-dir", str(storage / "a")],
                             cwd=tmp_path, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=240)
    events = [json.loads(line) for line in limited.stdout.splitlines()]
    assert limited.returncode == 1 and events[-1]["status"] == "failed" and "File too large" in events[-1]["error"]
    last = {name: events[-2][name] for name in ("loss", "accuracy")}
    assert events[-2]["epoch"] == 20 and events[-1]["metrics"] == pytest.approx(last)
    assert 0 < len((storage / "a" / "metrics.jsonl").read_text().splitlines()) < 20
    shown = json.loads(manta("runs", "show", "a", "--json").stdout)
    assert (shown["status"], shown["epoch"], shown["metrics"]) == ("failed", 20, pytest.approx(last))
