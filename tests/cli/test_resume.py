"""manta train --resume NAME: a run goes on with the options it was begun with."""
import json
import os

import numpy as np
import pytest

from samples import digits
from waits import checkpoints, kill_with_backup, wait_until

# Batch norm's statistics, dropout, momentum and schedule: what a step depends on beyond the weights.
BEGIN = ("--validation-split", 0.25, "--batch", 8, "--workers", 2, "--seed", 7, "--optimizer", "sgd", "--momentum", 0.9,
         "--learning-rate", 0.01, "--early-stop", "val_loss:patience=50", "--checkpoint-every", "2steps", "--json")


def begin(start, storage, tmp_path, name, *more, epochs=3):
    """A run that was killed after a few steps."""
    running = start("train", "mlp", "--data", digits(tmp_path), "--epochs", epochs, *BEGIN, "--name", name, *more)
    wait_until(lambda: checkpoints(storage / name)[-1:] >= ["checkpoint-000003"])
    running.process.kill()
    running.process.wait(240)


def finish(manta, storage, tmp_path, name, *more, epochs=3):
    """The same without anything having happened; its weights."""
    manta("train", "mlp", "--data", digits(tmp_path), "--epochs", epochs, *BEGIN, "--save", f"{name}.npz", *more)
    return (tmp_path / f"{name}.npz").read_bytes()


def epochs_of(run):
    return [json.loads(line)["epoch"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_the_name_is_enough(manta, start, storage, tmp_path):
    calm = finish(manta, storage, tmp_path, "calm")
    begin(start, storage, tmp_path, "a", "--save", "cut.npz")
    done = manta("train", "--resume", "a", "--json")
    assert done.event("resumed")["checkpoint"].startswith(str(storage / "a"))
    assert (tmp_path / "cut.npz").read_bytes() == calm
    assert epochs_of(storage / "a") == [1, 2, 3]
    # The folder does as well as the name, and a run that is done stays as it is.
    again = manta("train", "--resume", storage / "a", "--json")
    assert again.event("result")["metrics"] == done.event("result")["metrics"]
    assert (tmp_path / "cut.npz").read_bytes() == calm


@pytest.mark.parametrize("more", [("--workers", 1), ("--workers", "1:2", "--threads-per-worker", 2),
                                  ("--kernels", "reference"), ("--debug",),
                                  ("--batch", 8, "--workers", 2, "--learning-rate", "1e-2", "--seed", 7, "--optimizer",
                                   "sgd", "--max-failures", 9, "--keep", 1, "--checkpoint-every", "1epoch")])
def test_what_leaves_the_result_may_change(manta, start, storage, tmp_path, more):
    calm = finish(manta, storage, tmp_path, "calm")
    begin(start, storage, tmp_path, "a")
    manta("train", "--resume", "a", *more, "--json", "--save", "cut.npz")
    assert (tmp_path / "cut.npz").read_bytes() == calm
    assert epochs_of(storage / "a") == [1, 2, 3]
    # And once more, from what that command has kept of itself.
    manta("train", "--resume", "a", "--epochs", 4, "--json")
    assert (tmp_path / "cut.npz").read_bytes() == finish(manta, storage, tmp_path, "longer", epochs=4)


def test_what_changes_the_result_is_refused(manta, storage, tmp_path):
    manta("train", "mlp", "--data", digits(tmp_path), *BEGIN, "--name", "a")
    before = {p: p.read_bytes() for p in (storage / "a").rglob("*") if p.is_file()}
    refused = [(("--learning-rate", 0.02), "--learning-rate 0.02 (it was begun with 0.01)"),
               (("--seed", 8), "--seed 8 (it was begun with 7)"),
               (("--clipnorm", 1), "--clipnorm 1 (it was begun without)"),
               (("--no-shuffle",), "--no-shuffle (it was begun without)"),
               (("--data", "z.npy,y.npy"), "--data z.npy,y.npy (it was begun with x.npy,y.npy)"),
               (("--shards", 4), "--shards 4 (it was begun with 2)"),
               (("--batch", 16), "--batch 16 for 32 samples a step (it was begun with 16 samples a step)"),
               (("--batch", 8, "--workers", 1), "--batch 8 for 8 samples a step (it was begun with 16 samples a step)"),
               (("--global-batch", 8), "--global-batch 8 for 8 samples a step"),
               (("--kernels", "onednn"), "--kernels onednn (it was begun with auto)"),
               (("--early-stop", "val_loss:patience=1"), "--early-stop"),
               (("--csv-log", "log.csv"), "--csv-log log.csv (it was begun without)"),
               (("--profile", 3), "--profile 3 (it was begun without)")]
    for more, said in refused:
        done = manta("train", "--resume", "a", *more, status=1)
        assert said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    both = manta("train", "--resume", "a", "--seed", 8, "--momentum", 0, "--json", status=1)
    assert "--seed 8" in both.stderr and "--momentum 0 (it was begun with 0.9)" in both.stderr
    assert both.event("result")["status"] == "failed"
    other = manta("train", "linear", "--name", "a", "--resume", status=1)
    assert "trains mlp: it cannot go on with linear" in other.stderr
    many = manta("train", "--resume", "a", "--workers", 3, status=2)
    assert "--shards 2 for --workers 3" in many.stderr and "config.json" in many.stderr
    assert {p: p.read_bytes() for p in (storage / "a").rglob("*") if p.is_file()} == before


def test_which_run(manta, storage, tmp_path):
    manta("train", "mlp", "--data", digits(tmp_path), "--json", "--name", "mine")
    assert "did you mean mine" in manta("train", "--resume", "mien", status=1).stderr
    assert "which run" in manta("train", "--resume", status=2).stderr
    assert "give one of them" in manta("train", "--resume", "mine", "--name", "mine", status=2).stderr
    assert "MODEL --data D" in manta("train", "--resume", "--name", "other", status=2).stderr
    assert not (storage / "other").exists()
    for model in ("mlp", str(tmp_path / "model.keras")):
        (tmp_path / "model.keras").touch()
        for more in ((), ("--name", "other")):
            done = manta("train", "--resume", model, "--data", digits(tmp_path), *more, status=2)
            assert f"no run is called '{model}'; if it is the model, write it before --resume" in done.stderr
    assert not (storage / "other").exists()


def test_backups_keep_the_options_too(manta, start, storage, tmp_path):
    calm = finish(manta, storage, tmp_path, "calm", epochs=40)
    backup = storage / "backup"
    kill_with_backup(start, backup, "train", "mlp", "--data", digits(tmp_path), "--epochs", 40, *BEGIN, "--backup-dir",
                     backup)
    manta("train", "--resume", "--backup-dir", backup, "--json", "--save", "cut.npz")
    assert (tmp_path / "cut.npz").read_bytes() == calm
    assert not backup.exists()


def test_weights_that_it_began_with_may_be_gone(manta, storage, tmp_path):
    data = digits(tmp_path)
    manta("model", "mlp", "-o", "begin.npz")
    manta("train", "mlp", "--data", data, "--weights", "begin.npz", "--epochs", 2, "--json", "--save", "calm.npz")
    manta("train", "mlp", "--data", data, "--weights", "begin.npz", "--json", "--name", "a")
    os.remove(tmp_path / "begin.npz")
    manta("train", "--resume", "a", "--epochs", 2, "--json", "--save", "on.npz")
    with np.load(tmp_path / "calm.npz") as calm, np.load(tmp_path / "on.npz") as on:
        assert all(np.array_equal(calm[k], on[k]) for k in calm.files)


@pytest.mark.parametrize("text", [
    "", "{", "[]", "nothing", '{"epochs": "2"} tail', '{"model": 3}', '{"model": ""}', '{"epochs": "many"}',
    '{"epochs": 2}', '{"epochs": ["2"]}', '{"epochs": "-1"}', '{"learning-rate": "nan"}', '{"seed": "1", "seed": "2"}',
    '{"no-such": "x"}', '{"run-dir": "/tmp"}', '{"resume": "b"}', '{"config": "c.json"}', '{"no-shuffle": "yes"}',
    '{"data": ""}', '{"data": "a\\u0000b"}', '{"a\\u001b[31m": "x"}', "[" * 100000, '{"data": "' + "x" * 2000000 + '"}'])
def test_a_configuration_that_no_run_wrote(manta, storage, tmp_path, text):
    run = storage / "a"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.json").write_text(text)
    done = manta("train", "--resume", "a", status=1)
    assert str(run) in done.stderr and len(done.stderr.splitlines()) == 1 and "\033" not in done.stderr, done.stderr
    assert (run / "config.json").read_text() == text


def test_a_configuration_that_is_damaged(manta, storage, tmp_path):
    """Whatever bit is flipped: a run goes on with what it was begun with, or says why not."""
    manta("train", "mlp", "--data", digits(tmp_path, n=32), "--seed", 7, "--batch", 16, "--json", "--name", "a")
    config = storage / "a" / "config.json"
    whole = config.read_bytes()
    damaged = whole.replace(b'"seed": "7"', b'"seed": "5"')
    assert damaged != whole
    config.write_bytes(damaged)
    done = manta("train", "--resume", "a", "--epochs", 2, status=1)
    assert done.stderr.startswith(f"manta: {config} is damaged") and len(done.stderr.splitlines()) == 1
    assert "is damaged" in manta("runs", "show", "a").stdout
    # Somebody who means it can have it, and it serves another run.
    config.write_bytes(b"\n".join(line for line in damaged.splitlines() if b"check" not in line).replace(b'",\n}', b'"\n}'))
    manta("train", "--resume", "a", "--epochs", 2, "--json")
    config.write_bytes(whole)
    manta("train", "--config", config, "--json", "--name", "b")
    compared = manta("runs", "compare", "a", "b").stdout
    assert "The settings are the same." in compared and "check" not in compared
    config.unlink()
    assert f"{storage}/a is no run: it has no config.json" in manta("train", "--resume", "a", status=1).stderr


def test_a_configuration_that_is_no_file(manta, storage):
    for name, make in (("pipe", os.mkfifo), ("folder", os.mkdir)):
        (storage / name).mkdir()
        make(storage / name / "config.json")
        done = manta("train", "--resume", name, status=1)
        assert "config.json" in done.stderr and len(done.stderr.splitlines()) == 1
    (storage / "bytes").mkdir()
    (storage / "bytes" / "config.json").write_bytes(b"{}\0\xff")
    assert "config.json" in manta("train", "--resume", "bytes", status=1).stderr


def test_options_of_the_folder_that_make_no_sense_name_it(manta, storage, tmp_path):
    run = storage / "a"
    run.mkdir()
    for config in ({"model": "mlp", "data": "x.npy,y.npy", "workers": "none"},
                   {"model": "mlp", "data": "x.npy,y.npy", "workers": "9999999999999999999999"},
                   {"model": "mlp", "data": "x.npy,y.npy", "batch": "9223372036854775807", "shards": "1", "workers": "2"},
                   {"model": "mlp"}, {"data": "mnist"}):
        (run / "config.json").write_text(json.dumps(config))
        done = manta("train", "--resume", "a", status=2)
        assert str(run / "config.json") in done.stderr, done.stderr
