#!/usr/bin/env python3
"""TensorFlow and Manta exchange checkpoints: what tf.train says of ours, and we of its.

    VENV/bin/python bench/clients/tf_client.py --manta build/release/manta

VENV has tensorflow. It is too large for ./check, which tests the same on recorded files (tests/golden/files); this
runs the live library. Exit status 1 when a check fails.
"""
import argparse
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy  # noqa: E402  (the log level must be set first)
import tensorflow as tf  # noqa: E402

CHECKS = []
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


def check(f):
    CHECKS.append(f)
    return f


class Manta:
    def __init__(self, program):
        self.program = os.path.abspath(program)

    def run(self, *args):
        return subprocess.run([self.program, *args], capture_output=True, text=True, timeout=120)

    def __call__(self, *args):
        done = self.run(*args)
        assert done.returncode == 0, f"manta {' '.join(args)}: {done.stdout}{done.stderr}"

    def refuses(self, *args):
        done = self.run(*args)
        assert done.returncode == 1, f"manta {' '.join(args)}: status {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


def arrays():
    random = numpy.random.default_rng(3)
    return {"conv2d/kernel": random.normal(size=(3, 3, 2, 4)).astype("float32"),
            "conv2d/bias": random.normal(size=4).astype("float32"),
            "optimizer/momentum/conv2d/bias": random.normal(size=4).astype("float32"),
            "optimizer/iterations": numpy.array(12, "int64"), "optimizer/learning_rate": numpy.array(0.25),
            "half": numpy.arange(3, dtype="float16"), "flags": numpy.array([True, False]),
            "bytes": numpy.arange(5, dtype="uint8"), "none": numpy.zeros((0, 3), "float32")}


def tree(values, fill):
    """Modules nested as the names say; variables with the values, or with zeros."""
    root = {}
    for name, value in values.items():
        variable = tf.Variable(value if fill else numpy.zeros_like(value))
        first, *rest = name.split("/")
        if not rest:
            root[first] = variable
            continue
        at = root.setdefault(first, tf.Module())
        for part in rest[:-1]:
            if not hasattr(at, part):
                setattr(at, part, tf.Module())
            at = getattr(at, part)
        setattr(at, rest[-1], variable)
    return root


def find(root, name):
    first, *rest = name.split("/")
    at = root[first]
    for part in rest:
        at = getattr(at, part)
    return at.numpy()


def write_ours(manta):
    want = arrays()
    numpy.savez("w.npz", **want)
    manta("convert", "w.npz", "ckpt-1.index")
    return want


@check
def ours_by_key(manta):
    want = write_ours(manta)
    newest = tf.train.latest_checkpoint(".")
    assert os.path.basename(newest) == "ckpt-1", newest
    reader = tf.train.load_checkpoint(newest)
    for name, value in want.items():
        got = numpy.asarray(reader.get_tensor(name + SUFFIX))
        assert got.dtype == value.dtype and got.shape == value.shape and numpy.array_equal(got, value), name
    assert len(tf.train.list_variables(newest)) == len(want) + 1     # and the object graph


@check
def ours_by_objects(manta):
    want = write_ours(manta)
    for way in ("read", "restore"):
        root = tree(want, fill=False)
        getattr(tf.train.Checkpoint(**root), way)("./ckpt-1").assert_consumed()
        for name, value in want.items():
            assert numpy.array_equal(find(root, name), value), (way, name)


@check
def theirs(manta):
    want = arrays()
    for way in ("write", "save"):
        getattr(tf.train.Checkpoint(**tree(want, fill=True)), way)("./theirs-" + way)
    for path in ("theirs-write.index", "theirs-save-1"):
        manta("convert", path, "o.npz")
        with numpy.load("o.npz") as got:
            assert sorted(got.files) == sorted(want), got.files
            for name, value in want.items():
                assert got[name].dtype == value.dtype and numpy.array_equal(got[name], value), name


@check
def saved_model(manta):
    module = tf.Module()
    module.w = tf.Variable(numpy.arange(6, dtype="float32").reshape(2, 3))
    tf.saved_model.save(module, "sm")
    manta("convert", "sm", "o.npz")
    with numpy.load("o.npz") as got:
        assert numpy.array_equal(got["w"], module.w.numpy())


@check
def damage_is_found_by_both(manta):
    write_ours(manta)
    with open("ckpt-1.data-00000-of-00001", "r+b") as f:
        f.seek(-1, os.SEEK_END)
        last = f.read(1)[0]
        f.seek(-1, os.SEEK_END)
        f.write(bytes([last ^ 1]))
    failed = 0
    for name, _ in tf.train.list_variables("./ckpt-1"):
        try:
            tf.train.load_variable("./ckpt-1", name)
        except tf.errors.OpError as why:
            assert "Checksum does not match" in why.message, why
            failed += 1
    assert failed == 1, failed
    assert "checksum" in manta.refuses("convert", "ckpt-1.index", "o.npz")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manta", default="build/release/manta", help="the program")
    manta = Manta(parser.parse_args().manta)
    failed = 0
    for f in CHECKS:
        with tempfile.TemporaryDirectory() as folder:
            here = os.getcwd()
            os.chdir(folder)
            print(f.__name__ + ":", end=" ", flush=True)
            try:
                f(manta)
                print("ok")
            except Exception as why:  # every check is to be run, whatever an earlier one met
                failed += 1
                print(f"FAILED: {type(why).__name__}: {why}")
            finally:
                os.chdir(here)
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} checks hold (tensorflow {tf.__version__})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
