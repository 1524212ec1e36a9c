"""fit(workers=2): the bits of one process, deaths of workers and of the process between, callbacks."""
import os
import pathlib
import signal
import threading

import pytest

import manta
from manta import callbacks, layers

numpy = pytest.importorskip("numpy")
pytestmark = pytest.mark.sanitized
X = numpy.random.default_rng(0).random((64, 4), dtype=numpy.float32)
Y = (X.sum(1) > 2).astype(numpy.int64)


def classifier(shards=0):
    model = manta.Sequential([manta.Input((4,)), layers.Dense(8, "relu"), layers.Dropout(0.2), layers.Dense(2, activation="softmax")],
                             seed=3)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], threads=1, shards=shards)
    return model


def same(a, b):
    return all((p == q).all() for p, q in zip(a.get_weights(), b.get_weights()))


def children(pid):
    """Processes whose parent that is."""
    out = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                out.append(int(folder.name))
        except (OSError, IndexError):
            pass            # it has ended meanwhile
    return out


def helpers():
    """The processes that train for this one."""
    out = []
    for pid in children(os.getpid()):
        try:
            if b"_helper" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                out.append(pid)
        except OSError:
            pass            # it has ended meanwhile
    return out


def helper():
    """The one that there is during a fit."""
    return helpers()[0]


def on_epoch_end(do):
    return callbacks.LambdaCallback(on_epoch_end=do)


def test_the_bits_are_those_of_one_process():
    one, two, staged = classifier(2), classifier(), classifier()
    history = one.fit(X, Y, batch_size=16, epochs=2, verbose=0, validation_split=0.25, class_weight={1: 2.0})
    other = two.fit(X, Y, batch_size=16, epochs=2, verbose=0, validation_split=0.25, class_weight={1: 2.0}, workers=2)
    assert same(one, two) and two.optimizer.iterations == 6
    assert history.history == other.history and history.epoch == other.epoch
    data = manta.Dataset({"a": X}).zip(manta.Dataset({"b": Y})).rename("a", "x").rename("b", "y")
    staged.fit(data.take(48), batch_size=16, epochs=2, verbose=0, validation_data=data.skip(48), class_weight={1: 2.0}, workers=2)
    assert same(one, staged)
    one.fit(X, Y, batch_size=16, verbose=0)
    two.fit(X, Y, batch_size=16, verbose=0, workers=2)       # it goes on where it was
    assert same(one, two)


def test_a_worker_that_is_killed_changes_nothing():
    killed = []

    def kill(epoch, logs):
        if epoch == 0:
            workers = children(helper())
            assert len(workers) == 2
            killed.append(workers[0])
            os.kill(workers[0], signal.SIGKILL)

    one, two = classifier(2), classifier()
    one.fit(X, Y, batch_size=16, epochs=3, verbose=0)
    two.fit(X, Y, batch_size=16, epochs=3, verbose=0, workers=2, callbacks=[on_epoch_end(kill)])
    assert killed and same(one, two)
    assert not helpers()


def test_callbacks_look_and_write():
    seen = []

    def do(epoch, logs, model=None):
        kernel = model.get_weights()[0]
        seen.append((model.optimizer.iterations, float(abs(kernel).sum()), model.predict(X).shape))
        model.set_weights([w * 0 for w in model.get_weights()])
        model.optimizer.learning_rate = 0.25
        model.stop_training = epoch == 1

    def trained(**how):
        seen.clear()
        model = classifier(2)
        history = model.fit(X, Y, batch_size=16, epochs=5, verbose=0, **how, callbacks=[
            on_epoch_end(lambda e, logs: do(e, logs, model)), callbacks.EarlyStopping("loss", patience=4)])
        assert history.epoch == [0, 1] and not any(w.any() for w in model.get_weights())
        assert model.optimizer.learning_rate == pytest.approx(0.25)
        return list(seen)

    assert trained() == trained(workers=2)


def test_an_exception_ends_it_with_whole_weights():
    class Own(Exception):
        pass

    def fail(batch, logs):
        if batch == 1:
            raise Own

    model = classifier()
    with pytest.raises(Own):
        model.fit(X, Y, batch_size=16, epochs=3, verbose=0, workers=2, callbacks=[callbacks.LambdaCallback(on_train_batch_end=fail)])
    assert model.optimizer.iterations == 2 and all(numpy.isfinite(w).all() for w in model.get_weights())
    with pytest.raises(RuntimeError, match="a callback cannot train"):
        model.fit(X, Y, verbose=0, workers=2, callbacks=[on_epoch_end(lambda e, logs: model.fit(X, Y, verbose=0))])
    model.fit(X, Y, verbose=0, workers=2)


def test_the_process_between_may_die():
    model = classifier()
    before = model.get_weights()
    with pytest.raises(RuntimeError, match="was killed by signal 9; the model is as it was"):
        model.fit(X, Y, epochs=3, verbose=0, workers=2, callbacks=[on_epoch_end(lambda e, logs: os.kill(helper(), signal.SIGKILL))])
    assert all((a == b).all() for a, b in zip(before, model.get_weights()))
    model.fit(X, Y, verbose=0, workers=2)


def test_what_is_wrong_is_said_as_without_workers():
    said = []
    for how in ({}, {"workers": 2}):
        with pytest.raises(ValueError) as e:
            classifier().fit(X, Y + 5, verbose=0, **how)
        said.append(str(e.value))
    assert all("6" in text or "5" in text for text in said)
    with pytest.raises(ValueError, match="workers is 0"):
        classifier().fit(X, Y, workers=0)


def test_another_thread_is_refused_meanwhile():
    model, said = classifier(), []

    def ask():
        try:
            model.get_weights()
        except RuntimeError as e:
            said.append(str(e))

    def other(epoch, logs):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()

    model.fit(X, Y, verbose=0, workers=2, callbacks=[on_epoch_end(other)])
    assert said == ["the model is computing in another thread; expected one thread at a time"]
