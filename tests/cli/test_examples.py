"""The programs of examples/ in a short form: they do what their READMEs say."""
import json
import os
import re
import signal
import socket
import subprocess

import pytest

from conftest import PROGRAM, heed_signals
from samples import digits, line as points

EXAMPLES = PROGRAM.parent / "examples"


@pytest.fixture
def example(tmp_path, environment):
    """example(NAME, *args, status=0, door=None, env={}): a run to its end; what it printed, line by line.
    With wait=False the process, to be given to finish()."""
    running = []

    def finish(process, status=0):
        try:
            out, err = process.communicate(timeout=180)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"{process.args}: not done after 180 s\n{process.communicate()}")
        assert process.returncode == status, f"{process.args}: {process.returncode}\n{out}\n{err}"
        return out.splitlines() if status == 0 else err

    def runner(name, *args, status=0, door=None, env=None, wait=True):
        program = EXAMPLES / name
        assert program.is_file(), f"{program} is not built"
        env = {**environment, "MANTA_STORAGE": str(tmp_path / "runs"), **(env or {})}
        if door:
            env["MANTA_LISTEN_FD"] = str(door.fileno())
        process = subprocess.Popen([str(program), *map(str, args)], cwd=tmp_path, env=env, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   pass_fds=[door.fileno()] if door else [], start_new_session=True,
                                   preexec_fn=heed_signals)
        running.append(process)
        return finish(process, status) if wait else process

    runner.finish = finish
    yield runner
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()
        process.stderr.close()


def losses(lines):
    return [float(m[1]) for m in (re.search(r"loss ([0-9.]+)", line) for line in lines) if m]


# ---- multi_worker_mnist ----

SMALL = ("--data", "x.npy,y.npy", "--batch", 16)


@pytest.fixture
def two(example):
    """two(*args, crash=None): both workers of a cluster, by TF_CONFIG; what each printed."""
    doors = []
    for _ in range(2):
        door = socket.socket()
        door.bind(("127.0.0.1", 0))
        door.listen()
        doors.append(door)
    addresses = [f"127.0.0.1:{d.getsockname()[1]}" for d in doors]

    def start(rank, *args):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
        return example("multi_worker_mnist", *args, door=doors[rank], env={"TF_CONFIG": json.dumps(config)},
                       wait=False)

    def both(*args, crash=None):
        processes = [start(0, *args)]
        assert processes[0].stderr.readline() == f"waiting for worker/1 ({addresses[1]})\n"
        processes.append(start(1, *args, *(("--crash-after", crash) if crash else ())))
        if crash:
            example.finish(processes[1], -signal.SIGKILL)
            processes[1] = start(1, *args)
        return [example.finish(p) for p in processes]

    yield both
    for door in doors:
        door.close()


def test_one_worker_saves_and_loads(example, tmp_path):
    digits(tmp_path, n=64)                  # an epoch is one pass
    lines = example("multi_worker_mnist", "save", *SMALL, "--steps", 4, "--folder", "m")
    assert [line.split(":")[1] for line in lines[:3]] == [" epoch 1/3", " epoch 2/3", " epoch 3/3"]
    trained = losses(lines)
    assert trained[0] > trained[1] > trained[2]
    went_on = losses(example("multi_worker_mnist", "load", *SMALL, "--steps", 4, "--folder", "m"))
    assert trained[2] > went_on[0] > went_on[1]


def test_two_workers_save_to_places_of_their_own(two, tmp_path):
    digits(tmp_path)
    first, second = two("save", *SMALL, "--steps", 4, "--folder", "m")
    assert losses(first) == losses(second) and len(losses(first)) == 3
    assert first[-1] == "saved m/keras-model.keras" and second[-1] == "saved m/workertemp_1/keras-model.keras"
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["keras-model.keras"]


def test_checkpoint_manager_keeps_one(example, tmp_path):
    digits(tmp_path, n=64)
    for sequence in (1, 2):
        lines = example("multi_worker_mnist", "checkpoint", *SMALL, "--epochs", 1, "--steps", 4, "--folder", "m")
        assert f"checkpoint {sequence} of 1 kept, epoch 1" in lines
        assert losses(lines)[-1] < losses(lines)[0]
    assert [p.name for p in (tmp_path / "m" / "ckpt").glob("checkpoint-*")] == ["checkpoint-000002"]


def test_backup_takes_up_what_was_cut(example, tmp_path):
    # The backup of epoch 3 waits for the first one to be on disk: the crash in epoch 4 finds one.
    backup = ("multi_worker_mnist", "backup", *SMALL, "--epochs", 5, "--steps", 2)
    digits(tmp_path)
    whole = example(*backup, "--folder", "whole")
    example(*backup, "--folder", "cut", "--crash-after", 7, status=-signal.SIGKILL)
    assert list((tmp_path / "cut" / "backup-0").glob("checkpoint-*"))
    rest = example(*backup, "--folder", "cut")
    assert 0 < len(rest) < len(whole) and rest == whole[-len(rest):]
    assert (tmp_path / "cut" / "backed-up.keras").read_bytes() == (tmp_path / "whole" / "backed-up.keras").read_bytes()
    assert [p.name for p in (tmp_path / "cut").iterdir()] == ["backed-up.keras"]


def test_backup_every_steps_with_two_workers(example, two, tmp_path):
    backup = ("backup", *SMALL, "--epochs", 2, "--steps", 6, "--every", 3)
    digits(tmp_path)
    whole, _ = two(*backup, "--folder", "whole")
    cut, back = two(*backup, "--folder", "cut", crash=8)
    assert cut == whole and len(whole) == 2
    assert losses(back)[-1] == losses(whole)[-1]
    assert (tmp_path / "cut" / "backed-up.keras").read_bytes() == (tmp_path / "whole" / "backed-up.keras").read_bytes()


def test_callbacks_leave_their_files(example, tmp_path):
    digits(tmp_path)
    lines = example("multi_worker_mnist", "callbacks", *SMALL, "--epochs", 2, "--steps", 3, "--folder", "m")
    rows = (tmp_path / "m" / "log.csv").read_text().splitlines()
    assert rows[0] == "epoch,accuracy,learning_rate,loss" and len(rows) == 3
    assert [float(r.split(",")[2]) for r in rows[1:]] == [0.001, 0.0005]
    assert [round(float(r.split(",")[3]), 6) for r in rows[1:]] == losses(lines)
    assert (tmp_path / "m" / "epoch-01.keras").is_file()
    assert len(list((tmp_path / "m" / "logs" / "train").glob("events.out.tfevents.*"))) == 1


def test_parameter_servers(example, tmp_path):
    digits(tmp_path, n=64)
    lines = example("multi_worker_mnist", "parameter-server", *SMALL, "--epochs", 3, "--steps", 4)
    assert len(losses(lines)) == 3 and losses(lines)[2] < losses(lines)[0]


def test_workers_validate_together(example, two, tmp_path):
    digits(tmp_path, n=64)
    both = two("validation", *SMALL, "--validation", "x.npy,y.npy", "--epochs", 2, "--steps", 2)
    alone = example("multi_worker_mnist", "validation", "--data", "x.npy,y.npy", "--batch", 32, "--validation",
                    "x.npy,y.npy", "--epochs", 2, "--steps", 2)
    values = [re.findall(r"val_loss ([0-9.]+), val_accuracy ([0-9.]+)", "\n".join(lines)) for lines in (*both, alone)]
    assert values[0] == values[1] and len(values[0]) == 2
    for two_s, one_s in zip(values[0], values[2]):  # the same samples, summed in another order
        assert float(two_s[0]) == pytest.approx(float(one_s[0]), rel=1e-4) and two_s[1] == one_s[1]


def test_what_is_wrong_is_said(example):
    assert "nothing.npy" in example("multi_worker_mnist", "train", "--data", "nothing.npy", status=1)
    assert "usage:" in example("multi_worker_mnist", "dance", status=2)
    assert "usage:" in example("multi_worker_mnist", "train", "--steps", "-1", status=2)


# ---- train_keras_loop ----

def facts(lines, title):
    """What a run printed about its result: {"checkpoint": ..., "loss": ...}."""
    said = [line.removeprefix(title + ": ").split(" ", 1) for line in lines if line.startswith(title + ": ")]
    return dict(pair for pair in said if len(pair) == 2)


@pytest.mark.parametrize("workers", [1, 4])
def test_quickstart(example, tmp_path, workers):
    digits(tmp_path, n=64)
    lines = example("train_keras_loop", "quickstart", "--data", "x.npy,y.npy", "--epochs", 1, "--steps", 2,
                    *(("--workers", workers) if workers != 4 else ()))
    first, second = facts(lines, "first"), facts(lines, "second")
    assert first["1"] in ("reports of accuracy", "reports of loss")
    assert float(second["loss"]) < float(first["loss"])
    assert sorted(p.name for p in (tmp_path / "runs" / "train-1" / "log").iterdir()) == \
        [f"rank-{r}.txt" for r in range(workers)]


def test_checkpoint_of_a_folder(example, tmp_path):
    lines = example("train_keras_loop", "folder")
    first, second = facts(lines, "first"), facts(lines, "second")
    assert first["path"] == str(tmp_path / "runs" / "train-1") and second["path"] == str(tmp_path / "runs" / "train-2")
    assert float(second["loss"]) < float(first["loss"])
    assert first["5"] == "reports of mse"
    folder = tmp_path / "runs" / "train-1" / "checkpoints" / "checkpoint-000005"
    assert first["checkpoint"] == str(folder)
    assert sorted(p.name for p in folder.iterdir()) == ["checkpoint.json", "manifest.json", "model.keras"]
    assert json.loads((folder / "checkpoint.json").read_text()) == {"epoch": 4}
    for rank in (0, 1):
        log = (tmp_path / "runs" / "train-2" / "log" / f"rank-{rank}.txt").read_text()
        assert log == f"begins from {folder}/model.keras\n"


def test_checkpoint_of_arrays(example):
    lines = example("train_keras_loop", "arrays")
    arrays = dict(line[2:].split(": ") for line in lines if line.startswith("  "))
    assert arrays["epoch"] == "4"           # two epochs, then three more
    assert len(arrays["dense/kernel"].split()) == 4 and len(arrays["dense/bias"].split()) == 1


def test_fit_in_a_loop_goes_on_exactly(example, tmp_path):
    cut = example("train_keras_loop", "fit")                        # three epochs, then two more
    whole = example("train_keras_loop", "fit", "--epochs", 5)
    assert facts(cut, "second")["loss"] == facts(whole, "first")["loss"] != facts(cut, "first")["loss"]
    logs = [(tmp_path / "runs" / run / "log" / f"rank-{r}.txt").read_text().splitlines()
            for run in ("train-1", "train-2", "train-3") for r in (0, 1)]
    assert logs[0] == logs[1] and logs[2] == logs[3] and logs[4] == logs[5] == logs[0] + logs[2]
    assert len(logs[4]) == 5


@pytest.mark.parametrize("workers", [1, 2])
def test_autoencoder_on_columns(example, tmp_path, workers):
    digits(tmp_path, n=129)                 # a shard is one sample longer than the other
    lines = example("train_keras_loop", "autoencoder", "--data", "x.npy,y.npy", "--workers", workers)
    assert float(facts(lines, "second")["loss"]) < float(facts(lines, "first")["loss"]) < 0.3
    assert facts(lines, "first")["2"] == "reports of mae" and facts(lines, "second")["1"] == "reports of mae"
    logs = [(tmp_path / "runs" / "train-1" / "log" / f"rank-{r}.txt").read_text() for r in range(workers)]
    samples = [129] if workers == 1 else [65, 64]
    assert logs == [f"rank {r} of {workers} has {samples[r]} samples, {64 * workers} of a step\n"
                    for r in range(workers)]


def test_data_that_is_no_image_is_said(example, tmp_path):
    points(tmp_path)
    assert "images of 1 numbers, expected 784" in \
        example("train_keras_loop", "autoencoder", "--data", "lx.npy,ly.npy", status=1)


# ---- train_torch_loop ----

def test_a_trainer_and_the_command_line_keep_their_runs_apart(example, tmp_path, manta, environment):
    environment["MANTA_STORAGE"] = str(tmp_path / "runs")
    data = digits(tmp_path, n=32)
    manta("train", "mlp", "--data", data, "--json", "--name", "mine")
    example("train_keras_loop", "arrays")
    before = {p: p.read_bytes() for p in (tmp_path / "runs").rglob("*") if p.is_file()}
    said = example("train_torch_loop", "--data", data, "--name", "mine", "--resume", 1, status=1)
    assert "run 'mine' was begun by 'manta train'" in said and len(said.splitlines()) == 1
    for more in (("--resume", "train-1"), ("mlp", "--data", data, "--name", "train-1", "--resume")):
        done = manta("train", *more, status=1)
        assert "a loop of a program's own" in done.stderr and len(done.stderr.splitlines()) == 1
    assert {p: p.read_bytes() for p in (tmp_path / "runs").rglob("*") if p.is_file()} == before


def test_resnet18_without_a_trainer(example, tmp_path):
    digits(tmp_path, n=12)
    lines = example("train_torch_loop", "--alone", 1, "--data", "x.npy,y.npy", "--batch", 6, "--epochs", 2,
                    env={"TMPDIR": str(tmp_path)})
    assert [line.split(":")[0] for line in lines] == ["epoch 1", "epoch 2"]
    assert losses(lines)[1] < losses(lines)[0]
    assert lines[1].endswith(f"saved {tmp_path}/model.pth") and (tmp_path / "model.pth").stat().st_size > 44_000_000


def test_resnet18_reports_and_goes_on(example, tmp_path):
    small = ("train_torch_loop", "--data", "x.npy,y.npy", "--batch", 6, "--name", "fashion")
    digits(tmp_path, n=24)
    begun = dict(line.split(" ", 1) for line in example(*small, "--epochs", 1))
    assert begun["error"] == "none" and begun["path"] == str(tmp_path / "runs" / "fashion")
    assert "is there already" in example(*small, "--epochs", 2, status=1)
    ended = dict(line.split(" ", 1) for line in example(*small, "--epochs", 2, "--resume", 1))
    assert float(ended["loss"]) < float(begun["loss"])
    folder = tmp_path / "runs" / "fashion" / "checkpoints" / "checkpoint-000002"
    assert ended["checkpoint"] == str(folder)
    assert sorted(p.name for p in folder.iterdir()) == ["manifest.json", "model.pth"]
    assert (folder / "model.pth").stat().st_size > 44_000_000
    log = (tmp_path / "runs" / "fashion" / "log" / "rank-1.txt").read_text().splitlines()
    assert log == ["rank 1 of 2: 12 images, 2 steps of 12",
                   f"begins from {folder.parent}/checkpoint-000001/model.pth",
                   "rank 1 of 2: 12 images, 2 steps of 12"]


# ---- train_words ----

def as_options(words):
    """What the command line writes for NAME=VALUE words."""
    options = []
    for word in words:
        name, equals, value = word.partition("=")
        options += ["--" + name.replace("_", "-")] + ([value] if equals else [])
    return options


@pytest.mark.parametrize("model,words", [
    ("mlp", []),
    ("mlp", ["epochs=2", "optimizer=sgd", "momentum=0.9", "nesterov", "learning_rate=0.05", "seed=3"]),
    ("mlp", ["optimizer=torch.adamw", "weight_decay=0.1", "lr-schedule=cosine:steps=12,warmup=3", "clipnorm=1"]),
    ("mlp", ["validation-split=0.25", "epochs=3", "early-stop=val_loss:patience=1,restore-best", "reduce-lr=val_loss:patience=1",
             "ema=0.9", "metrics=accuracy,sparse_top_k_categorical_accuracy:k=2"]),
    ("mlp", ["scale=2", "normalize=0.1,0.5", "class-weight=1,1,1,1,1,2,2,2,2,2", "no-shuffle", "steps-per-epoch=3",
             "loss=sparse_categorical_crossentropy:label-smoothing=0.1", "freeze=dense"]),
    ("mlp", ["workers=2", "global-batch=16", "shards=4"]),
    ("autoencoder", ["steps-per-epoch=2"]),
    ("m.keras", ["learning-rate=0.01"]),
    ("m.keras", ["reset-optimizer", "loss=sparse_categorical_crossentropy:from-logits=yes"]),
])
def test_words_train_what_the_command_line_trains(example, manta, tmp_path, model, words):
    words = ["data=" + digits(tmp_path, n=64), *words]
    if not any(w.startswith("global-batch") for w in words):
        words.append("batch=8")
    if model == "m.keras":
        manta("train", "mlp", "--data", "x.npy,y.npy", "--batch", 32, "--save", "m.keras")
    lines = example("train_words", model, "words.npz", *words)
    done = manta("train", model, "--save", "line.npz", "--json", *as_options(words))
    assert (tmp_path / "words.npz").read_bytes() == (tmp_path / "line.npz").read_bytes()
    assert len(lines) == len([1 for row in done.stdout.splitlines() if json.loads(row)["event"] == "epoch"])
    assert lines[-1].split(" loss ")[1].split()[0] == "%.6f" % done.event("epoch")["loss"]


@pytest.mark.parametrize("words,status,say", [
    (["optimizer=adma"], 2, "optimizer: there is no optimizer"), (["epoch=3"], 2, "did you mean epochs?"),
    (["epochs=many"], 2, "epochs: 'many' is not a whole number"), (["early-stop=los"], 2, "did you mean loss?"),
    (["workers=2", "strategy=one-device"], 2, "leave workers out"), (["weights=none.npz"], 1, "none.npz"),
    (["loss=sadness"], 1, "sadness"), (["validation=mnits"], 1, "did you mean mnist"),
])
def test_wrong_words_are_one_sentence(example, tmp_path, words, status, say):
    said = example("train_words", "mlp", "w.npz", "data=" + digits(tmp_path, n=16), *words, status=status)
    assert say in said and "--" not in said and len(said.splitlines()) == 1
    assert not (tmp_path / "w.npz").exists()


def test_all_words_are_listed(example, manta):
    lines = example("train_words")
    known = manta("train", "--help").stdout
    names = [re.split("=|$", line)[0] for line in lines[2:] if not line.startswith(" ")]
    assert len(names) > 50
    for name in names:
        assert "--" + name in known


def test_a_run_begun_from_words_is_gone_on_with_by_the_command_line(example, manta, tmp_path, environment):
    environment["MANTA_STORAGE"] = str(tmp_path / "runs")
    words = ["data=" + digits(tmp_path, n=64), "batch=8", "optimizer=sgd", "momentum=0.9", "nesterov", "validation-split=0.25",
             "early-stop=val_loss:patience=9", "seed=5", "keep=1"]
    example("train_words", "mlp", "part.npz", "epochs=2", "name=begun", *words)
    manta("train", "mlp", "--epochs", 2, "--name", "typed", "--save", "typed.npz", *as_options(words))
    assert (tmp_path / "part.npz").read_bytes() == (tmp_path / "typed.npz").read_bytes()
    kept = [json.loads((tmp_path / "runs" / name / "config.json").read_text()) for name in ("begun", "typed")]
    for config in kept:
        config.pop("check"), config.pop("save", None)
    assert kept[0] == kept[1]
    manta("train", "--resume", "begun", "--epochs", 4, "--save", "begun.npz")
    manta("train", "mlp", "--epochs", 4, "--save", "whole.npz", *as_options(words))
    assert (tmp_path / "begun.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
