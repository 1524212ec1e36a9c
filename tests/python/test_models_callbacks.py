"""Callbacks of a fit, in Python and of the library; Ctrl-C; exceptions."""
import csv
import io
import re

import pytest

import manta
from manta import callbacks, layers

numpy = pytest.importorskip("numpy")
pytestmark = pytest.mark.sanitized
X = numpy.random.default_rng(0).random((64, 4), dtype=numpy.float32)
Y = X.sum(1, keepdims=True)


def regression(rate=0.01):
    model = manta.Sequential([manta.Input((4,)), layers.Dense(1)])
    model.compile(manta.optimizers.SGD(rate), "mse", threads=1)
    return model


def test_the_order_of_hooks():
    seen = []

    class All(callbacks.Callback):
        pass

    for name in [n for n in dir(callbacks.Callback) if n.startswith("on_")]:
        setattr(All, name, lambda self, *a, name=name: seen.append((name[3:], a[0] if len(a) == 2 else None)))
    model = regression()
    model.fit(X, Y, batch_size=32, epochs=2, verbose=0, validation_data=(X, Y), validation_batch_size=64, callbacks=[All()])
    epoch = [("train_batch_begin", 0), ("train_batch_end", 0), ("train_batch_begin", 1), ("train_batch_end", 1),
             ("test_begin", None), ("test_batch_begin", 0), ("test_batch_end", 0), ("test_end", None)]
    assert seen == [("train_begin", None), ("epoch_begin", 0), *epoch, ("epoch_end", 0),
                    ("epoch_begin", 1), *epoch, ("epoch_end", 1), ("train_end", None)]
    seen.clear()
    model.predict(X, callbacks=[All()])
    assert [s[0] for s in seen] == ["predict_begin", *["predict_batch_begin", "predict_batch_end"] * 2, "predict_end"]


def test_logs_and_what_is_added_to_them():
    class Add(callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            assert self.params["steps"] == 2 and self.params["epochs"] == 3
            logs["twice"] = 2 * logs["loss"]

    history = regression().fit(X, Y, epochs=3, verbose=0, callbacks=[Add()])
    assert history.history["twice"] == [2 * v for v in history.history["loss"]]


def test_a_callback_may_stop_look_and_write():
    class Do(callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            kernel, bias = self.model.get_weights()
            assert self.model.predict(X).shape == (64, 1)
            assert self.model.evaluate(X, Y, verbose=0) >= 0
            self.model.set_weights([kernel * 0, bias * 0])
            self.model.optimizer.learning_rate = 0.5
            if epoch == 1:
                self.model.stop_training = True

    model = regression()
    history = model.fit(X, Y, epochs=5, verbose=0, callbacks=[Do()])
    assert history.epoch == [0, 1] and model.optimizer.learning_rate == pytest.approx(0.5)
    assert not model.get_weights()[0].any()
    with pytest.raises(RuntimeError, match="a callback cannot train"):
        model.fit(X, Y, verbose=0, callbacks=[callbacks.LambdaCallback(on_epoch_end=lambda e, logs: model.fit(X, Y, verbose=0))])
    model.fit(X, Y, verbose=0)


def test_an_exception_ends_the_fit():
    class Own(Exception):
        pass

    def fail(batch, logs):
        if batch == 1:
            raise Own("at batch 1")

    model = regression()
    with pytest.raises(Own, match="at batch 1") as e:
        model.fit(X, Y, batch_size=16, epochs=3, verbose=0, callbacks=[callbacks.LambdaCallback(on_train_batch_end=fail)])
    assert e.traceback[-1].name == "fail"
    assert model.optimizer.iterations == 2 and numpy.isfinite(model.get_weights()[0]).all()
    model.fit(X, Y, verbose=0)


def test_any_object_with_hooks_will_do():
    class Plain:
        def on_epoch_end(self, epoch, logs):
            self.last = epoch

    plain = Plain()
    regression().fit(X, Y, epochs=2, verbose=0, callbacks=plain)
    assert plain.last == 1
    for bad, text in ((object(), "has no on_... method"), (callbacks.History, "the class History is given")):
        with pytest.raises(TypeError, match=text):
            regression().fit(X, Y, verbose=0, callbacks=[bad])


# Interrupts itself, from another thread, when the training is under way; the arguments of fit come from outside.
INTERRUPTED = """
import os, signal, sys, threading, numpy, manta
from manta import callbacks, layers
signal.signal(signal.SIGINT, signal.default_int_handler)
x = numpy.ones((64, 4), numpy.float32)
model = manta.Sequential([manta.Input((4,)), layers.Dense(1)])
model.compile(manta.optimizers.SGD(1e-6), "mse", threads=1)
began = threading.Event()
def interrupt():
    began.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    model.fit(x, x[:, :1], batch_size=8, epochs=100_000_000, verbose=0, workers=int(sys.argv[1]),
              callbacks=[callbacks.LambdaCallback(on_epoch_end=lambda e, logs: began.set())])
except KeyboardInterrupt:
    print("interrupted", model.optimizer.iterations >= 8, numpy.isfinite(model.get_weights()[0]).all())
model.fit(x, x[:, :1], verbose=0)
print("and again")
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_control_c_ends_after_a_step(python, workers):
    done = python("-c", INTERRUPTED, workers)
    assert done.stdout.splitlines() == ["interrupted True True", "and again"], done.stdout + done.stderr


# ---- the library's ----

def test_early_stopping_and_its_weights():
    best, model = [], regression(10.0)       # it gets worse and worse
    history = model.fit(X, Y, epochs=9, verbose=0, callbacks=[
        callbacks.LambdaCallback(on_epoch_end=lambda e, logs: best.append(model.get_weights())),
        callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True)])
    assert history.epoch == [0, 1, 2]
    assert all((a == b).all() for a, b in zip(model.get_weights(), best[0]))


def test_a_table_of_epochs_and_the_best_model(tmp_path):
    model = regression()
    history = model.fit(X, Y, epochs=3, verbose=0, validation_split=0.25, callbacks=[
        callbacks.CSVLogger(tmp_path / "log.csv"), callbacks.ModelCheckpoint(f"{tmp_path}/best.keras", save_best_only=True),
        callbacks.TerminateOnNaN(), callbacks.TensorBoard(str(tmp_path / "tb")), callbacks.ReduceLROnPlateau("loss", patience=5)])
    with open(tmp_path / "log.csv") as f:
        rows = list(csv.DictReader(f))
    assert [r["epoch"] for r in rows] == ["0", "1", "2"]
    assert [float(r["val_loss"]) for r in rows] == pytest.approx(history.history["val_loss"], rel=1e-6)
    best = manta.load_model(tmp_path / "best.keras")
    assert best.evaluate(X[48:], Y[48:], verbose=0) == pytest.approx(min(history.history["val_loss"]))
    assert (tmp_path / "tb" / "train").is_dir()


def test_a_schedule_of_epochs():
    rates, model = [], regression(0.1)
    model.fit(X, Y, epochs=3, verbose=0, callbacks=[
        callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2),
        callbacks.LambdaCallback(on_epoch_end=lambda e, logs: rates.append(model.optimizer.learning_rate))])
    assert rates == pytest.approx([0.05, 0.025, 0.0125])


def test_what_is_said_of_options():
    for call, text in ((lambda: callbacks.EarlyStopping(mode="mni"), "mode is 'mni'"),
                       (lambda: callbacks.EarlyStopping(patience=-1), "patience is -1"),
                       (lambda: callbacks.CSVLogger("f", separator=", "), "one character"),
                       (lambda: callbacks.ModelCheckpoint("m.keras", save_freq="never"), "save_freq is 'never'")):
        with pytest.raises(ValueError, match=text):
            call()


def test_what_is_printed(capsys):
    regression().fit(X, Y, epochs=2, callbacks=[])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Epoch 1/2" and re.match(r"2/2 - \d+s - ", lines[1]) and " - loss: " in lines[1] and len(lines) == 4


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Latin(Terminal):
    encoding = "latin-1"


class Plain:
    """A stream that has what print() needs, and no more."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def test_where_no_bar_can_be_drawn_are_lines(monkeypatch):
    """On a terminal without the letter, on a stream that does not know what it is, and nowhere, where there is no stream."""
    from manta.models._listen import Printer, printers
    for stream in (Latin(), Plain(), None):
        monkeypatch.setattr("sys.stdout", stream)
        assert type(printers("auto")[0]) is Printer
        regression().fit(X, Y, epochs=1)
    monkeypatch.undo()


@pytest.mark.parametrize("verbose, where, is_bar, is_silent", [
    (1, Terminal, True, False), ("auto", Terminal, True, False), (True, Terminal, True, False), (2, Terminal, False, False),
    (0, Terminal, False, True), (1, io.StringIO, False, False), ("auto", io.StringIO, False, False)])
def test_a_bar_is_drawn_on_a_terminal(monkeypatch, verbose, where, is_bar, is_silent):
    """Of each epoch one line, drawn again after batches; elsewhere, and with verbose=2, a line at its end."""
    from manta.models import _listen
    monkeypatch.setattr(_listen.Bar, "EVERY_S", 0.0)            # after every batch, however fast they are
    x = numpy.ones((40, 3), numpy.float32)
    model = manta.Sequential([manta.Input((3,)), manta.layers.Dense(1)])
    model.compile("sgd", "mse")
    out = where()
    monkeypatch.setattr("sys.stdout", out)
    model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=verbose, validation_data=(x, x[:, :1]))
    monkeypatch.undo()
    lines = out.getvalue().split("\n")
    if is_silent:
        assert lines == [""]
        return
    assert lines[0] == "Epoch 1/2" and lines[2] == "Epoch 2/2" and len(lines) == 5
    drawn = lines[1].split("\r")
    assert "loss: " in drawn[-1] and " - val_loss: " in drawn[-1] and "/step" in drawn[-1]
    if not is_bar:
        assert len(drawn) == 1 and drawn[0].startswith("5/5 - ")
        return
    assert [text.split()[0] for text in drawn[1:]] == ["1/5", "2/5", "3/5", "4/5", "5/5", "5/5"]
    assert drawn[1].count("━") == drawn[-1].count("━") == 20 and "val_loss" not in drawn[1]
