"""Full trainings, to the accuracies we promise. Run by ./check --long."""
import os
import pathlib

import pytest

pytestmark = pytest.mark.long


def trained(manta, tmp_path, model, data, test, epochs, *more):
    """Trains as a user would, then evaluates the saved weights on the test set."""
    weights = tmp_path / "weights.npz"
    env = {"MANTA_DATA": os.environ.get("MANTA_DATA", "")}
    manta("train", model, "--data", data, "--epochs", epochs, "--batch", 64, "--save", weights, "--json", *more,
          timeout_s=7200, env=env)
    done = manta("evaluate", model, "--weights", weights, "--data", test, "--json", timeout_s=600, env=env)
    return done.event("result")["metrics"]["accuracy"]


def test_mnist_cnn_reaches_98_5_percent(manta, tmp_path):
    # A constant rate ends between 98.2 and 98.5 % by the seed (Keras: 98.0 to 98.2); a cosine to zero
    # over the three epochs (3 x 938 steps) at 98.6.
    accuracy = trained(manta, tmp_path, "mnist-cnn", "mnist", "mnist:test", 3, "--optimizer", "adam", "--learning-rate",
                       "0.001", "--lr-schedule", "cosine:steps=2814")
    assert accuracy >= 0.985


def test_resnet18_reaches_90_percent_on_fashion_mnist(manta, tmp_path):
    folder = os.environ.get("MANTA_DATA", "")
    if not (pathlib.Path(folder) / "fashion-mnist").is_dir():
        pytest.fail("MANTA_DATA must name a folder that holds fashion-mnist for the long tests")
    # A constant rate ends near the bar (89.9 % after four epochs); a cosine to zero well above it.
    accuracy = trained(manta, tmp_path, "resnet18", "fashion-mnist", "fashion-mnist:test", 5, "--optimizer", "adam",
                       "--learning-rate", "0.001", "--lr-schedule", "cosine:steps=4690")
    assert accuracy >= 0.90


def test_mixed_bfloat16_is_as_accurate_as_float32_on_fashion_mnist(manta, tmp_path):
    folder = os.environ.get("MANTA_DATA", "")
    if not (pathlib.Path(folder) / "fashion-mnist").is_dir():
        pytest.fail("MANTA_DATA must name a folder that holds fashion-mnist for the long tests")
    mean = {}
    for precision in ("exact", "mixed_bfloat16"):
        found = [trained(manta, tmp_path, "mnist-cnn", "fashion-mnist", "fashion-mnist:test", 3, "--optimizer", "adam",
                         "--learning-rate", "0.001", "--lr-schedule", "cosine:steps=2814", "--precision", precision,
                         "--seed", seed) for seed in (1, 2, 3)]
        mean[precision] = sum(found) / len(found)
        print(precision, found)
    assert abs(mean["mixed_bfloat16"] - mean["exact"]) <= 0.003 and mean["exact"] > 0.88
