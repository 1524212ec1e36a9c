"""manta inspect: every kind of file, for people and for programs, whole and damaged.

The golden files were written by the libraries whose formats they are; the
others here by the program itself (manta convert) or by hand."""
import io
import json
import pathlib
import shutil
import tarfile

import numpy as np
import pytest

import records

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "files"
PARAMS = 20282          # of resnet.keras
TRAINED = 19994


@pytest.fixture
def inspect(manta):
    """inspect(FILE): what --json says, after a look at the table: it must be one, with every name in it."""
    def both(path):
        said = manta("inspect", path, "--json").stdout
        assert len(said.splitlines()) == 1
        table = manta("inspect", path)
        assert table.stdout.count("\n") > 2 and table.stderr == ""
        assert not any(line.endswith(" ") for line in table.stdout.splitlines())
        return json.loads(said), table.stdout

    return both


@pytest.fixture
def convert(manta, tmp_path):
    """convert(ENDING): resnet.keras in another format."""
    def to(ending):
        manta("convert", GOLDEN / "resnet.keras", f"r{ending}")
        return tmp_path / f"r{ending}"

    return to


def shapes(about):
    return {a["name"]: (a["shape"], a["dtype"]) for a in about["arrays"]}


# ---- models ----

def check_resnet(about, table, weights=True):
    assert about["kind"] == "model" and about["params"] == PARAMS and about["trainable_params"] == TRAINED
    assert sum(l["params"] for l in about["layers"]) == PARAMS
    assert about["inputs"] == [{"name": "input_1", "dtype": "float32", "shape": [None, 32, 32, 3]}]
    assert [o["shape"] for o in about["outputs"]] == [[None, 10]]
    dense = about["layers"][-1]
    assert dense == {"name": "dense", "class": "Dense", "shape": [None, 10], "params": 330, "frozen": False}
    assert {v["dtype"] for v in about["variables"]} == {"float32" if weights else None}
    assert f"{PARAMS:,} parameters, {TRAINED:,} of them trained (81.13 kB)" in table
    assert all(l["name"] in table and l["class"] in table for l in about["layers"])


def check_compiled(about, table):
    o = about["optimizer"]
    assert o["name"] == "sgd" and o["learning_rate"] == pytest.approx(0.1) and o["momentum"] == 0.9
    assert o["weight_decay"] == 1e-4 and o["iterations"] == 2 and o["schedule"] is None and not o["nesterov"]
    assert about["losses"] == [{"name": "sparse_categorical_crossentropy", "from_logits": False}]
    assert about["metrics"] == ["accuracy"] and about["problems"] == {}
    assert "sgd: learning_rate 0.1, momentum 0.9, weight_decay 0.0001; 2 steps done" in table
    assert "sparse_categorical_crossentropy" in table and "accuracy" in table


def test_keras(inspect):
    about, table = inspect(GOLDEN / "resnet.keras")
    check_resnet(about, table)
    check_compiled(about, table)
    assert about["format"] == "keras" and about["keras_version"] == "3.15.1" and "Keras 3.15.1" in table


@pytest.mark.parametrize("version", ["3.0.5", "3.6.0"])
def test_old_keras(inspect, version):
    about, _ = inspect(GOLDEN / f"old_{version}.keras")
    assert about["keras_version"] == version and about["params"] == 1574
    assert about["optimizer"]["name"] == "adam" and about["optimizer"]["beta_2"] == 0.999


@pytest.mark.parametrize("ending", [".keras", ".h5"])
def test_models_of_ours(inspect, convert, ending):
    about, table = inspect(convert(ending))
    check_resnet(about, table)
    check_compiled(about, table)
    if ending == ".keras":
        assert about["written_by"].startswith("Manta ") and f"written by {about['written_by']}" in table
    assert "written by Keras" not in table


def test_legacy_h5(inspect):
    about, table = inspect(GOLDEN / "resnet_legacy.h5")
    assert about["format"] == "h5"
    check_resnet(about, table)
    check_compiled(about, table)


def test_config(inspect):
    about, table = inspect(GOLDEN / "mnist_config_portable.json")
    assert about["format"] == "config" and about["params"] == 2770634
    assert {v["dtype"] for v in about["variables"]} == {None} and "none in this file" in table
    assert about["optimizer"]["iterations"] is None
    assert about["losses"] == [{"name": "sparse_categorical_crossentropy", "from_logits": True}]


def test_a_model_that_cannot_be_made(manta, tmp_path):
    """Two layers that Manta has not: all others are shown, and both are said at once."""
    config = json.loads((GOLDEN / "mnist_config_portable.json").read_text())
    layers = config["config"]["layers"]
    layers += [{"class_name": "LSTM", "config": {"name": "memory"}},
               {"class_name": "Dense", "config": {"name": "late\x1b[31m", "units": 2, "activation": "mish"}}]
    (tmp_path / "c.json").write_text(json.dumps(config))
    done = manta("inspect", "c.json", status=1)
    for layer in layers[:-1]:
        assert any(layer["config"]["name"] in line and layer["class_name"] in line for line in done.stdout.splitlines())
    assert "is a LSTM, which Manta does not have" in done.stdout and "\x1b" not in done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "'memory' is a LSTM; " in done.stderr and 'has activation = "mish"' in done.stderr
    done = manta("inspect", "c.json", "--json", status=1)
    about = json.loads(done.stdout)
    assert about["kind"] == "outline" and len(about["layers"]) == len(layers)
    assert [bool(layer["problem"]) for layer in about["layers"]] == [False] * (len(layers) - 2) + [True, True]


def edited(tmp_path, edit):
    config = json.loads((GOLDEN / "mnist_config_portable.json").read_text())
    edit(config["compile_config"])
    (tmp_path / "c.json").write_text(json.dumps(config))
    return "c.json"


def test_schedule(inspect, tmp_path):
    decay = {"module": "keras.optimizers.schedules", "class_name": "ExponentialDecay", "registered_name": None,
             "config": {"initial_learning_rate": 0.25, "decay_steps": 100, "decay_rate": 0.5, "staircase": True,
                        "name": "ExponentialDecay"}}

    def edit(c):
        c["optimizer"]["config"]["learning_rate"] = decay
    about, table = inspect(edited(tmp_path, edit))
    assert about["optimizer"]["schedule"] == {"name": "ExponentialDecay", "initial_learning_rate": 0.25,
                                              "decay_steps": 100, "decay_rate": 0.5, "staircase": True}
    assert "learning_rate" not in about["optimizer"]
    assert "ExponentialDecay of initial_learning_rate 0.25, decay_steps 100, decay_rate 0.5, staircase" in table


def test_what_manta_has_not_hides_nothing_else(inspect, tmp_path):
    def edit(c):
        c["optimizer"]["class_name"] = "Lion"
    about, table = inspect(edited(tmp_path, edit))
    assert about["optimizer"] is None and "Lion" in about["problems"]["optimizer"]
    assert about["losses"] and about["layers"] and about["params"] == 2770634
    assert "unusable" in table and "Lion" in table


def test_zoo_still_works(inspect):
    about, table = inspect("mlp")
    assert about["kind"] == "model" and about["params"] == 101770 and "path" not in about


# ---- arrays ----

def test_safetensors(inspect):
    about, table = inspect(GOLDEN / "st.safetensors")
    assert about["kind"] == "arrays" and about["format"] == "safetensors"
    assert shapes(about) == {"a": ([3], "int64"), "b": ([2, 3], "float32"), "e": ([0, 4], "float32"),
                             "s": ([], "float32"), "h": ([2], "float16"), "c": ([1], "bool")}
    assert about["elements"] == 13 and about["bytes"] == 57
    assert "6 arrays, 13 elements, 57 bytes" in table


def test_pt(inspect):
    about, _ = inspect(GOLDEN / "sd.pt")
    assert about["format"] == "pt" and shapes(about)["0.weight"] == ([2, 1, 3, 3], "float32")
    assert shapes(about)["1.num_batches_tracked"] == ([], "int64") and len(about["arrays"]) == 9


@pytest.mark.parametrize("name", ["tf_checkpoint/ckpt-1", "tf_checkpoint/ckpt-1.index", "tf_checkpoint"])
def test_tf_checkpoint(inspect, name):
    about, _ = inspect(GOLDEN / name)
    assert about["kind"] == "arrays" and about["format"] == "tf"
    assert shapes(about)["sequential/dense/kernel"] == ([4, 3], "float32")
    assert shapes(about)["step"] == ([], "int64") and len(about["arrays"]) == 15


def test_numpy(inspect, tmp_path):
    np.savez(tmp_path / "f.npz", **{"optimizer/iterations": np.int64(7), "dense/kernel": np.zeros((300, 4))})
    np.save(tmp_path / "f.npy", np.zeros((4, 5), np.uint8))
    (tmp_path / "nameless").write_bytes((tmp_path / "f.npy").read_bytes())
    about, table = inspect("f.npz")
    assert shapes(about) == {"optimizer/iterations": ([], "int64"), "dense/kernel": ([300, 4], "float64")}
    assert about["iterations"] == 7
    assert "2 arrays, 1,201 elements, 9.61 kB; 1 of the arrays are state of a training run, 7 steps done" in table
    for name in ("f.npy", "nameless"):
        about, table = inspect(name)
        assert shapes(about) == {"": ([4, 5], "uint8")} and "(array)" in table


@pytest.mark.parametrize("ending,arrays,elements", [(".weights.h5", None, PARAMS), (".npz", 54, 40278),
                                                    (".safetensors", 54, 40278), (".pt", None, PARAMS + 6),
                                                    (".ckpt.index", 54, 40278)])
def test_weights_of_ours(inspect, convert, ending, arrays, elements):
    """40278: the weights, a velocity for each that is trained, and two numbers of the optimizer. PyTorch counts
    the batches of each of the six normalizations."""
    path = convert(ending)
    for name in [path] + ([path.with_suffix("")] if ending == ".ckpt.index" else []):
        about, table = inspect(name)
        assert about["kind"] == "arrays" and about["elements"] == elements
        assert arrays is None or len(about["arrays"]) == arrays
        assert about["iterations"] == (2 if arrays else None)
        assert about["bytes"] == sum(a["bytes"] for a in about["arrays"])
        assert all(a["name"] in table for a in about["arrays"])


def test_onnx(inspect, convert):
    about, table = inspect(convert(".onnx"))
    assert about["kind"] == "onnx" and about["ir_version"] == 8 and about["opset"] == 17
    assert about["inputs"] == [{"name": "input_1", "shape": [None, 32, 32, 3], "dtype": "float32"}]
    assert [o["shape"] for o in about["outputs"]] == [[None, 10]]
    counts = {o["name"]: o["count"] for o in about["operators"]}
    assert counts["Conv"] == 6 and counts["Gemm"] == 1 and counts["Softmax"] == 1
    assert {w["dtype"] for w in about["weights"]} >= {"float32"} and about["params"] >= TRAINED
    assert "opset 17" in table and "Conv" in table


# ---- events ----

def tags(run):
    return {t["name"]: (t["kind"], t["points"], t["last_step"], t["last"]) for t in run["tags"]}


def test_event_file(inspect):
    path = next((GOLDEN / "tensorboard" / "torch").glob("events*"))
    about, table = inspect(path)
    assert about["kind"] == "events" and len(about["runs"]) == 1
    run = about["runs"][0]
    assert tags(run) == {"loss": ("scalar", 1, 1, 0.5), "loss2": ("scalar", 1, 1, 0.5),
                         "h": ("histogram", 1, 1, None), "note/text_summary": ("text", 1, 1, "hi"),
                         "im": ("image", 1, 1, None)}
    assert run["records"] == 6 and run["purged"] == 0 and run["damage"] is None
    assert "5 tags, 6 records" in table


def test_folder_of_runs(inspect):
    about, table = inspect(GOLDEN / "tensorboard")
    runs = [str(pathlib.Path(r["path"]).relative_to(GOLDEN / "tensorboard")) for r in about["runs"]]
    assert runs == ["keras/train", "keras/validation", "root", "tf", "torch", "torch/hp"]
    assert all(r["path"] in table for r in about["runs"])
    assert about["runs"][0]["tags"] and tags(about["runs"][-1])["_hparams_/experiment"][0] == "hparams"


def test_events_by_contents_and_to_the_last_whole_record(inspect, tmp_path):
    data = b"".join(records.record(e) for e in [records.event(), records.event(1, loss=2.0), records.event(2, loss=1.5)])
    (tmp_path / "log").write_bytes(data)
    about, table = inspect("log")
    assert tags(about["runs"][0]) == {"loss": ("scalar", 2, 2, 1.5)} and "1.5" in table
    (tmp_path / "log").write_bytes(data[:-3])
    about, table = inspect("log")
    assert tags(about["runs"][0]) == {"loss": ("scalar", 1, 1, 2.0)}
    assert "log" in about["runs"][0]["damage"] and "reading ended early" in table


# ---- datasets ----

def columns(about):
    assert about["kind"] == "dataset"
    return {c["name"]: (c["shape"], c["dtype"]) for c in about["columns"]}


def test_tfrecord(inspect, tmp_path):
    about, table = inspect(GOLDEN / "t.tfrecord")
    assert about["samples"] == 3 and "3 samples" in table
    assert columns(about) == {"image": ([2], "uint8"), "label": ([], "int64"), "x": ([2], "float32")}
    for packing in records.PACKINGS:
        records.write(tmp_path / "f.tfrecord", [records.example(a=[1.0, 2.0, 3.0, 4.0])] * 5, packing)
        about, _ = inspect("f.tfrecord:x=a@2x2")
        assert about["samples"] == 5 and columns(about) == {"x": ([2, 2], "float32")}


def test_tar(inspect, tmp_path):
    about, _ = inspect(f"{GOLDEN}/shard-000000.tar:x.bin,cls")
    assert about["samples"] == 5 and columns(about) == {"x": ([8], "uint8"), "y": ([], "int64")}
    about, table = inspect(GOLDEN / "shard-000000.tar")       # nobody says which member is x
    assert about["kind"] == "samples" and about["format"] == "tar" and about["samples"] == 5
    assert [(f["name"], f["samples"], f["bytes"]) for f in about["fields"]] == [
        ("cls", 5, 5), ("json", 5, 40), ("x.bin", 5, 40)]
    assert "say which is x" in about["as_data"] and "say which is x" in table and "x.bin" in table
    with tarfile.open(tmp_path / "text.tar.gz", "w:gz") as t:
        for name, data in (("a/0.TXT", b"one"), ("a/0.en.txt", b"two"), ("a/1.txt", b"three"), ("readme", b"no")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            t.addfile(member, io.BytesIO(data))
    about, _ = inspect("text.tar.gz")
    assert about["samples"] == 2
    assert [(f["name"], f["samples"], f["bytes"]) for f in about["fields"]] == [("en.txt", 1, 3), ("txt", 2, 8)]


def test_parquet(inspect, manta, tmp_path):
    about, _ = inspect(f"{GOLDEN}/t.parquet:x=x,label=label")
    assert about["samples"] == 3 and columns(about)["y"] == ([], "int64")
    about, table = inspect(GOLDEN / "t.parquet")              # a column of text, and none chosen
    assert about["kind"] == "samples" and about["format"] == "parquet" and about["samples"] == 3
    assert [(f["name"], f["type"]) for f in about["fields"]] == [
        ("x", "FLOAT"), ("label", "int64"), ("s", "text (BYTE_ARRAY)"), ("img", "list of uint8")]
    assert all(f["bytes"] > 0 for f in about["fields"])
    assert "'s' is text" in about["as_data"] and "choose columns" in table and "list of uint8" in table
    shutil.copy(GOLDEN / "t.parquet", tmp_path / "cut.parquet")
    with open(tmp_path / "cut.parquet", "r+b") as f:
        f.truncate(100)
    assert "cut.parquet" in said_once(manta, "cut.parquet")


def test_csv(inspect, tmp_path):
    (tmp_path / "f.csv").write_text("a,b,c\n" + "1,2.5,3\n" * 1200)
    about, table = inspect("f.csv:label=c")
    assert about["samples"] == 1200 and columns(about) == {"x": ([2], "float32"), "y": ([], "int64")}
    assert "1,200 samples" in table
    about, _ = inspect("f.csv")
    assert columns(about) == {"x": ([3], "float32")}


def test_named_data_and_arrays(inspect, tmp_path):
    about, table = inspect("mnist:test")
    assert about["samples"] == 10000 and columns(about) == {"x": ([28, 28], "uint8"), "y": ([], "int64")}
    np.save(tmp_path / "x.npy", np.zeros((6, 2), np.float32))
    np.save(tmp_path / "y.npy", np.zeros(6, np.int64))
    assert inspect("x.npy,y.npy")[0]["samples"] == 6


# ---- what is wrong ----

def said_once(manta, path, name=None):
    done = manta("inspect", path, status=1)
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("manta: ") and (name or str(path)) in done.stderr
    asked = manta("inspect", path, "--json", status=1)
    assert asked.stdout == "" and asked.stderr == done.stderr
    return done.stderr


def whole_files(folder, convert):
    """A whole file of every kind, as (file, argument of inspect)."""
    for name in ("resnet.keras", "resnet_legacy.h5", "mnist_config_portable.json", "st.safetensors", "sd.pt",
                 "t.tfrecord"):
        shutil.copy(GOLDEN / name, folder)
        yield folder / name, folder / name
    for name, columns_ in (("t.parquet", ":x=x,label=label"), ("shard-000000.tar", ":x.bin,cls")):
        shutil.copy(GOLDEN / name, folder)
        yield folder / name, f"{folder / name}{columns_}"
    for ending in (".weights.h5", ".npz", ".onnx", ".ckpt.index"):
        path = convert(ending)
        yield path, path
    np.save(folder / "f.npy", np.zeros((40, 50)))
    yield folder / "f.npy", folder / "f.npy"
    (folder / "f.csv").write_text("a,b\n" + "1,2\n" * 50)
    yield folder / "f.csv", folder / "f.csv"
    records.write(folder / "f.tfevents", [records.event(), records.event(1, loss=1.0)])
    yield folder / "f.tfevents", folder / "f.tfevents"


def test_cut_files(manta, tmp_path, convert):
    """The beginning of a file of each kind: half of it, where that can be no file of its kind, and a few bytes."""
    for path, argument in whole_files(tmp_path, convert):
        manta("inspect", argument)
        data = path.read_bytes()
        few = 5 if path.suffix == ".csv" else 9             # a,b and half a row
        for keep in [few] if path.suffix in (".csv", ".tar", ".tfevents") else [len(data) // 2, few]:
            path.write_bytes(data[:keep])
            said_once(manta, argument, path.name)
        path.write_bytes(data)


def test_nothing_in_it(manta, tmp_path, convert):
    """An event file alone may be empty: its writer has only just begun."""
    for path, argument in whole_files(tmp_path, convert):
        path.write_bytes(b"")
        if path.suffix == ".tfevents":
            assert "0 tags, 0 records" in manta("inspect", argument).stdout
        else:
            said_once(manta, argument, path.name)


def test_noise_in_it(manta, tmp_path, convert):
    noise = np.random.default_rng(3).bytes(3000)
    for path, argument in whole_files(tmp_path, convert):
        path.write_bytes(noise)
        said_once(manta, argument, path.name)


def test_damage_inside(manta, tmp_path):
    """What opening does not look at is found by the sample that is read."""
    path = records.write(tmp_path / "f.tfrecord", [records.example(a=[1.0])] * 3)
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    said_once(manta, "f.tfrecord")
    (tmp_path / "f.csv").write_text("a,b\n1,2\n3\n")
    assert "3" in said_once(manta, "f.csv")
    data = bytearray(next((GOLDEN / "tensorboard" / "tf").iterdir()).read_bytes())
    data[14] ^= 1
    (tmp_path / "f.tfevents").write_bytes(data)
    said_once(manta, "f.tfevents")


def test_a_checkpoint_without_its_data(manta, tmp_path):
    shutil.copy(GOLDEN / "tf_checkpoint" / "ckpt-1.index", tmp_path)
    assert "ckpt-1.data" in said_once(manta, "ckpt-1")


def test_unknown_file(manta, tmp_path):
    (tmp_path / "f.target").write_text("nothing anybody knows\n")
    said = said_once(manta, "f.target")
    for known in (".keras", ".weights.h5", ".safetensors", ".pt", ".onnx", "event files", ".tfrecord", ".csv"):
        assert known in said


def test_nothing_there(manta, tmp_path):
    for name in ("m.keras", "w.safetensors", "f.tfrecord", "f.csv", "f.onnx", "f.npy", "events.out.tfevents.1"):
        said_once(manta, name)
    assert "did you mean resnet18" in said_once(manta, "resnet81")
    (tmp_path / "empty").mkdir()
    said_once(manta, "empty")


def test_names_cannot_move_the_cursor(manta, tmp_path):
    np.savez(tmp_path / "f.npz", **{"a\x1b[2Jb": np.zeros(3)})
    assert "\x1b" not in manta("inspect", "f.npz").stdout
    np.savez(tmp_path / "g.npz", **{"naïve": np.zeros(3)})
    assert json.loads(manta("inspect", "g.npz", "--json").stdout)["arrays"][0]["name"] == "naïve"
