"""TFRecord files as data: plain and packed, one and several, whole and damaged."""
import numpy as np
import pytest

import records
import samples


@pytest.fixture
def digits(tmp_path):
    """256 images and labels, in x.npy and y.npy and in memory."""
    samples.digits(tmp_path)
    return np.load(tmp_path / "x.npy"), np.load(tmp_path / "y.npy")


def examples(x, y):
    """Images as lists of floats."""
    return [records.example(image=i.ravel().tolist(), label=[int(l)]) for i, l in zip(x, y)]


def metrics(manta, data, *more):
    done = manta("train", "mlp", "--data", data, "--epochs", 3, "--batch", 32, "--seed", 5, "--json", *more,
                 timeout_s=120)
    return done.event("result")["metrics"]


@pytest.mark.parametrize("packing", records.PACKINGS)
def test_trains_as_from_arrays(manta, tmp_path, digits, packing):
    """The same samples in the same order: the same numbers to the last bit."""
    name = "f.tfrecord" + {"gzip": ".gz", "zlib": ".zlib"}.get(packing, "")
    records.write(tmp_path / name, examples(*digits), packing)
    ours = metrics(manta, f"{name}:x=image@28x28,y=label")
    assert ours == metrics(manta, "x.npy,y.npy")
    assert ours["accuracy"] > 0.9


def test_several_files_are_one_set(manta, tmp_path, digits):
    all_of_them = examples(*digits)
    for i in range(4):
        records.write(tmp_path / f"part-{i}.tfrecord", all_of_them[i * 64:i * 64 + 64], ["plain", "gzip"][i % 2])
    assert metrics(manta, "part-*.tfrecord:x=image@28x28,y=label") == metrics(manta, "x.npy,y.npy")


def test_bytes_are_pixels(manta, tmp_path, digits):
    x, y = digits
    pixels = np.clip(x * 200, 0, 255).astype(np.uint8)
    records.write(tmp_path / "f.tfrecord",
                  [records.example(image=p.tobytes(), label=[int(l)]) for p, l in zip(pixels, y)])
    np.save(tmp_path / "p.npy", pixels)
    ours = metrics(manta, "f.tfrecord:x=image@28x28,y=label", "--raw", "--scale", 255)
    assert ours == metrics(manta, "p.npy,y.npy", "--raw", "--scale", 255)


def test_evaluates_and_predicts(manta, tmp_path, digits):
    records.write(tmp_path / "f.tfrecord", examples(*digits))
    data = "f.tfrecord:x=image@28x28,y=label"
    manta("train", "mlp", "--data", data, "--epochs", 1, "--save", "m.keras", timeout_s=120)
    ours = manta("evaluate", "m.keras", "--data", data, "--json").event("result")["metrics"]
    assert ours == manta("evaluate", "m.keras", "--data", "x.npy,y.npy", "--json").event("result")["metrics"]
    manta("predict", "m.keras", "--input", data, "-o", "a.npy")
    manta("predict", "m.keras", "--input", "x.npy", "-o", "b.npy")
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", ["length", "data", "cut", "cut in a head", "gzip"])
def test_damage_is_told(manta, tmp_path, digits, damage):
    one = examples(digits[0][:1], digits[1][:1])[0]
    path = records.write(tmp_path / "f.tfrecord", [one] * 8, "gzip" if damage == "gzip" else "plain")
    size, each = path.stat().st_size, len(records.record(one))
    if damage == "length":
        flip(path, 3 * each)
    elif damage == "data":
        flip(path, 3 * each + 100)
    else:
        path.write_bytes(path.read_bytes()[:size - 7 if damage != "cut in a head" else 7 * each + 5])
    said = manta("train", "mlp", "--data", "f.tfrecord:x=image@28x28,y=label", "--batch", 8, status=1).stderr
    assert "f.tfrecord" in said and len(said.splitlines()) == 1


@pytest.mark.parametrize("spec,say", [("x=nope,y=label", "nope"), ("x=image@28x29,y=label", "image"),
                                      ("x=image@28x28,y=image", "y")])
def test_wrong_columns_are_told(manta, tmp_path, digits, spec, say):
    records.write(tmp_path / "f.tfrecord", examples(*(d[:8] for d in digits)))
    said = manta("train", "mlp", "--data", f"f.tfrecord:{spec}", status=1).stderr
    assert say in said and len(said.splitlines()) == 1


def test_a_sample_of_another_shape_is_told(manta, tmp_path, digits):
    x, y = digits
    short = records.example(image=x[0].ravel().tolist()[:-1], label=[1])
    records.write(tmp_path / "f.tfrecord", examples(x[:5], y[:5]) + [short])
    said = manta("train", "mlp", "--data", "f.tfrecord:x=image@28x28,y=label", status=1).stderr
    assert "f.tfrecord" in said and "image" in said and "783" in said and len(said.splitlines()) == 1
