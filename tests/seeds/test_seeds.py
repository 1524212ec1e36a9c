"""The programs of the seeds, each to its stated result (README.md says what was mended in them)."""
import ast
import json

from conftest import need, write_fashion_mnist


def test_000_checkpoints_of_keras_in_two_workers(run_seed):
    need("tensorflow", "tf_keras")
    assert json.loads(run_seed("seed_000_tensorflow.py")) == {
        "files": ["checkpoint.json", "model.keras"], "reports": 5, "epoch": 4}


def test_001_session_and_dictionaries_of_older_programs(run_seed):
    need("tensorflow", "tf_keras")
    assert ast.literal_eval(run_seed("seed_001_air.py")) == {"epoch": 4, "shapes": [(4, 1), (1,)], "reports": 3}


def test_004_resnet18_in_two_workers(run_seed, tmp_path):
    """The program reports the folder of all temporary files: TMPDIR has another one, where files of others lie too."""
    need("torch", "torchvision")
    write_fashion_mnist(tmp_path / "data")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "others").write_text("stays")
    assert ast.literal_eval(run_seed("seed_004_torch.py", TMPDIR=str(tmp_path / "tmp"))) == {
        "reports": 10, "arrays": 122, "loss": True}
    assert (tmp_path / "tmp" / "others").read_text() == "stays"
