"""--data for models of several inputs and outputs; images resized, cut and augmented."""
import json
import struct
import zlib

import numpy as np
import pytest

import records
from samples import digits


def layer(kind, name, config, *inputs):
    tensors = [{"class_name": "__keras_tensor__", "config": {"shape": shape, "dtype": "float32", "keras_history": [n, 0, 0]}}
               for n, shape in inputs]
    nodes = [{"args": [tensors if kind == "Concatenate" else tensors[0]], "kwargs": {}}] if tensors else []
    return {"module": "keras.layers", "class_name": kind, "name": name, "inbound_nodes": nodes,
            "config": {"name": name, **config}}


@pytest.fixture
def wide(tmp_path):
    """m.json: inputs age (2) and size (3), outputs price (1) and rent (1); and the same data in all forms."""
    a, b, both = [None, 2], [None, 3], [None, 5]
    layers = [layer("InputLayer", "age", {"batch_shape": a, "dtype": "float32"}),
              layer("InputLayer", "size", {"batch_shape": b, "dtype": "float32"}),
              layer("Concatenate", "join", {"axis": -1}, ("age", a), ("size", b)),
              layer("Dense", "price", {"units": 1}, ("join", both)), layer("Dense", "rent", {"units": 1}, ("join", both))]
    config = {"name": "wide", "trainable": True, "layers": layers, "input_layers": [["age", 0, 0], ["size", 0, 0]],
              "output_layers": [["price", 0, 0], ["rent", 0, 0]]}
    (tmp_path / "m.json").write_text(json.dumps({"module": "keras", "class_name": "Functional", "registered_name": "Functional",
                                                 "config": config}))
    rng = np.random.default_rng(3)
    age, size = rng.random((24, 2), dtype=np.float32), rng.random((24, 3), dtype=np.float32)
    price, rent = age.sum(1, keepdims=True), size.sum(1, keepdims=True)
    for name, value in (("age", age), ("size", size), ("price", price), ("rent", rent)):
        np.save(tmp_path / f"{name}.npy", value)
    np.savez(tmp_path / "f.npz", a=age, b=size, c=price, d=rent)
    rows = np.concatenate([age, size, price, rent], axis=1)
    names = ["a1", "a2", "s1", "s2", "s3", "p", "r"]
    (tmp_path / "f.csv").write_text("\n".join([",".join(names), *(",".join(repr(float(v)) for v in row) for row in rows)]))
    records.write(tmp_path / "f.tfrecord", [records.example(age=list(map(float, p)), size=list(map(float, q)),
                                                            price=list(map(float, r)), rent=list(map(float, s)))
                                            for p, q, r, s in zip(age, size, price, rent)])
    np.save(tmp_path / "short.npy", size[:3])
    (tmp_path / "texts.csv").write_text("a,b\n" + "x,1\ny,2\n" * 12)
    return tmp_path


TRAIN = ("--epochs", 2, "--batch", 8, "--loss", "mse", "--optimizer", "sgd", "--seed", 4, "--json")


def test_every_form_trains_alike(manta, wide):
    """Several inputs and outputs, by name, from any files."""
    forms = ["age=age.npy,size=size.npy,price=price.npy,rent=rent.npy",
             "rent=rent.npy,age=age.npy,price=price.npy,size=size.npy",
             "f.npz:age=a,size=b,price=c,rent=d",
             "age=f.npz:a,size=f.npz:x=b,price=price.npy,rent=f.npz:d",
             "age=f.csv:x=a1+a2,size=f.csv:x=s1+s2+s3,price=f.csv:x=p,rent=rent.npy",
             "f.tfrecord:age=age,size=size,price=price@1,rent=rent@1"]
    for i, form in enumerate(forms):
        manta("train", "m.json", "--data", form, *TRAIN, "--save", f"{i}.npz")
        assert (wide / f"{i}.npz").read_bytes() == (wide / "0.npz").read_bytes(), form
    two = manta("train", "m.json", "--data", forms[2], *TRAIN, "--shards", 2, "--save", "a.npz")
    manta("train", "m.json", "--data", forms[2], *TRAIN, "--workers", 2, "--batch", 4, "--save", "b.npz")
    assert (wide / "a.npz").read_bytes() == (wide / "b.npz").read_bytes()
    assert two.event("result")["status"] == "done"
    manta("evaluate", "m.json", "--weights", "0.npz", "--data", forms[4], "--loss", "mse")


@pytest.mark.parametrize("form, say", [
    ("age=age.npy,size=short.npy,price=price.npy,rent=rent.npy", "'size' has 3 samples, and those before it have 24"),
    ("age=age.npy,price=price.npy,rent=rent.npy", "for the model's input 'size'; there are: age, price, rent"),
    ("age=age.npy,age=age.npy,price=price.npy,rent=rent.npy", "'age'"),
    ("age=,size=size.npy", "nothing stands behind 'age='"),
    ("age=size=size.npy,price=price.npy", "a name within a name"),
    ("age=none.npy,size=size.npy", "none.npy"),
    ("age=texts.csv:x=a,size=size.npy", "expected columns of numbers"),
    ("f.npz:age=a,size=z,price=c,rent=d", "no member 'z'"),
    ("f.npz:age=a,age=b", "asked for twice"),
    ("f.npz:age=a,=b", "COLUMN=MEMBER"),
    ("f.npz:age=a,b", "COLUMN=MEMBER"),
    ("f.npz:age=a,,size=b", "COLUMN=MEMBER"),
    ("f.npz:" + ",".join(f"c{i}=a" for i in range(17)), "more than 16"),
    ("x" * 70 + "=age.npy", "at most 63"),
])
def test_what_cannot_be_joined(manta, wide, form, say):
    done = manta("train", "m.json", "--data", form, *TRAIN, "--save", "no.npz", status=1)
    assert say in done.stderr and not (wide / "no.npz").exists()


def test_a_file_whose_name_has_an_equals_sign(manta, tmp_path):
    digits(tmp_path)
    (tmp_path / "x.npy").rename(tmp_path / "a=b.npy")
    manta("train", "mlp", "--data", "a=b.npy,y.npy", "--json")


# ---- images ----

def write_png(path, image):
    """Grey (H, W) or colours (H, W, 3), as any program would write them."""
    kind, (height, width) = (0, image.shape[:2]) if image.ndim == 2 else (2, image.shape[:2])
    rows = b"".join(b"\0" + row.tobytes() for row in image)

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


@pytest.fixture
def photos(tmp_path):
    """A folder of images of all sizes, one of them in colours; class 1 is bright."""
    rng = np.random.default_rng(5)
    for label in range(2):
        folder = tmp_path / "photos" / f"class{label}"
        folder.mkdir(parents=True)
        for i in range(8):
            shape = (30 + i, 40 - i) if i else (30, 40, 3)
            write_png(folder / f"{i}.png", (rng.integers(0, 100, shape) + 140 * label).astype(np.uint8))
    return tmp_path


def test_images_of_all_sizes_are_resized(manta, photos):
    args = ("train", "mlp", "--data", "photos", "--epochs", 3, "--batch", 4, "--loss", "sparse_categorical_crossentropy", "--json")
    assert "resize" in manta(*args, status=1).stderr
    done = manta(*args, "--resize", "28x28", "--channels", 1, "--save", "m.keras")
    assert done.event("result")["status"] == "done"
    manta("evaluate", "m.keras", "--data", "photos", "--resize", "28", "--channels", 1)
    manta("predict", "m.keras", "--input", "photos", "--resize", "32x32", "--crop", "28x28", "--channels", 1, "-o", "y.npy")
    assert np.load(photos / "y.npy").shape == (16, 10)


def test_arrays_are_resized_as_images_are(manta, tmp_path):
    """Twice as large and half as large again: points that are equal stay what they are."""
    digits(tmp_path, n=32)
    x = np.load(tmp_path / "x.npy")
    np.save(tmp_path / "large.npy", np.repeat(np.repeat(x, 2, axis=1), 2, axis=2))
    train = ("train", "mlp", "--seed", 3, "--json")
    manta(*train, "--data", "x.npy,y.npy", "--save", "a.npz")
    manta(*train, "--data", "large.npy,y.npy", "--resize", "28x28", "--save", "b.npz")
    a, b = np.load(tmp_path / "a.npz"), np.load(tmp_path / "b.npz")
    for name in a.files:
        assert np.allclose(a[name], b[name], atol=1e-6), name
    np.save(tmp_path / "framed.npy", np.pad(x, ((0, 0), (2, 3), (1, 2))))
    manta(*train, "--data", "framed.npy,y.npy", "--crop", "28x28", "--save", "c.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "c.npz").read_bytes()


ALL = "flip,crop=2,rotation=10,brightness=0.2,contrast=0.2,saturation=0.1"


def test_augmentation_is_keyed(manta, tmp_path, storage):
    """The same for any number of workers and after a resume; another one for another seed, and none for validation."""
    data = digits(tmp_path, n=64)
    train = ("train", "mlp", "--data", data, "--validation", data, "--epochs", 2, "--global-batch", 16, "--shards", 2, "--json")
    plain = manta(*train, "--save", "plain.npz")
    one = manta(*train, "--augment", ALL, "--save", "one.npz")
    manta(*train, "--augment", ALL, "--workers", 2, "--save", "two.npz")
    manta(*train, "--augment", ALL, "--seed", 1, "--save", "other.npz")
    read = {n: (tmp_path / f"{n}.npz").read_bytes() for n in ("plain", "one", "two", "other")}
    assert read["one"] == read["two"] and len(set(read.values())) == 3
    assert plain.event("result")["metrics"] != one.event("result")["metrics"]
    manta(*train[:7], 1, *train[8:], "--augment", ALL, "--name", "a")
    manta("train", "--resume", "a", "--epochs", 2, "--json", "--save", "resumed.npz")
    assert (tmp_path / "resumed.npz").read_bytes() == read["one"]


def test_a_part_that_is_kept_back_is_not_augmented(manta, tmp_path):
    """No learning: the loss of the validation is that of the images as they are."""
    data = digits(tmp_path, n=64)
    train = ("train", "mlp", "--data", data, "--validation-split", 0.25, "--learning-rate", 0, "--optimizer", "sgd", "--json")
    a = manta(*train).event("result")["metrics"]
    b = manta(*train, "--augment", ALL).event("result")["metrics"]
    assert a["val_loss"] == b["val_loss"] and a["loss"] != b["loss"]


@pytest.mark.parametrize("args, say", [
    (["--resize", "0x4"], "--resize: '0x4', expected HEIGHTxWIDTH"), (["--resize", "4x"], "HEIGHTxWIDTH"),
    (["--resize", "4x4x4"], "HEIGHTxWIDTH"), (["--resize", "-4"], "HEIGHTxWIDTH"), (["--resize", "99999x4"], "HEIGHTxWIDTH"),
    (["--crop", "x"], "HEIGHTxWIDTH"), (["--channels", "2"], "1 for grey or 3"), (["--channels", "4"], "--channels"),
    (["--augment", "flop"], "did you mean flip?"), (["--augment", "crop=-1"], "crop is -1, expected 0 or more"),
    (["--augment", "rotation=x"], "--augment"), (["--augment", ""], "--augment")])
def test_wrong_words_about_images(manta, tmp_path, args, say):
    assert say in manta("train", "mlp", "--data", digits(tmp_path), *args, status=2).stderr


@pytest.mark.parametrize("args, say", [
    (["--augment", "rotation=200"], "0 to 180"), (["--augment", "flip=2"], "probability"),
    (["--augment", "brightness=-1"], "0 to 100"), (["--crop", "29x28"], "29 x 28 does not lie in images of 28 x 28")])
def test_images_that_cannot_be_made(manta, tmp_path, args, say):
    assert say in manta("train", "mlp", "--data", digits(tmp_path), *args, status=1).stderr


# ---- which column is which ----

def test_records_without_a_mapping_suggest_one(manta, tmp_path):
    """What is called so is y; nothing is guessed among several columns."""
    records.write(tmp_path / "f.tfrecord", [records.example(height=[28], image=bytes(784), label=[i % 3], width=[28])
                                            for i in range(6)])
    assert manta("inspect", "f.tfrecord").stdout.splitlines()[-1] == "To train on it: --data f.tfrecord:x=image,y=label"
    assert "To train" not in manta("inspect", "f.tfrecord:x=image,y=label").stdout
    said = manta("train", "mlp", "--data", "f.tfrecord", status=1).stderr
    assert "there are: height, image, label, width" in said and "expected one of that name, or y" in said
    manta("train", "mlp", "--data", "f.tfrecord:x=image@28x28,y=label", "--scale", 255)


def test_the_column_that_is_left_is_the_target(manta, tmp_path):
    """Also where it stands before the one that is called as the model's input."""
    rng = np.random.default_rng(1)
    images = rng.integers(0, 255, (8, 784), np.uint8)
    for names in (("class", "image"), ("image", "kind")):
        label = names[0] if names[1] == "image" else names[1]
        np.savez(tmp_path / "two.npz", image=images.reshape(8, 28, 28).astype(np.float32), **{label: np.arange(8) % 3})
        manta("train", "mlp", "--data", "two.npz:" + ",".join(f"{n}={n}" for n in names), "--save", f"{label}.npz")
    assert (tmp_path / "class.npz").read_bytes() == (tmp_path / "kind.npz").read_bytes()
