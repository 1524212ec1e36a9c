"""manta.train with PyTorch and TensorFlow: checkpoints of models, mixed precision, process groups that end early."""
import json
import os

import pytest

import manta
from manta import train
from manta.train import RunConfig, ScalingConfig

pytestmark = pytest.mark.usefixtures("module_node")


@pytest.fixture
def fit(tmp_path):
    """Trains a loop in two ranks of torch."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from manta.train.torch import TorchTrainer

    def run(loop, **more):
        return TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2),
                            run_config=RunConfig(storage_path=tmp_path / "runs"), **more).fit()
    return run


# ---- PyTorch ----

def test_a_checkpoint_of_a_model_in_parallel_is_the_model(fit):
    import torch
    from manta.train.torch import TorchCheckpoint, prepare_model

    def loop():
        model = prepare_model(torch.nn.Linear(2, 1))
        train.report({}, checkpoint=TorchCheckpoint.from_model(model))
        return {name: value.tolist() for name, value in model.module.state_dict().items()}
    result = fit(loop)
    model = TorchCheckpoint(result.checkpoint.path).get_model()
    assert {name: value.tolist() for name, value in model.state_dict().items()} == result.return_value


def test_a_checkpoint_of_weights_wants_the_model():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from manta.train.torch import TorchCheckpoint
    model = torch.nn.Linear(2, 1)
    checkpoint = TorchCheckpoint.from_state_dict({f"module.{name}": value for name, value in model.state_dict().items()},
                                                 preprocessor=[1, 2])
    with pytest.raises(ValueError, match="give the model"):
        checkpoint.get_model()
    assert torch.equal(checkpoint.get_model(torch.nn.Linear(2, 1)).weight, model.weight)
    assert checkpoint.get_preprocessor() == [1, 2]
    with pytest.raises(ValueError, match="of a whole model"):
        TorchCheckpoint.from_model(model).get_model(model)


def test_mixed_precision_of_a_model_that_is_kept(fit):
    import torch
    from manta.train.torch import TorchCheckpoint, accelerate, backward, prepare_model, prepare_optimizer

    def loop():
        inside = []

        class Net(torch.nn.Linear):
            def forward(self, x):
                out = super().forward(x)
                inside.append(str(out.dtype))
                return out
        accelerate(amp=True)
        model = prepare_model(Net(4, 4))
        optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), 0.1))
        out = model(torch.ones(2, 4))
        backward(out.sum())
        optimizer.step()
        with pytest.raises(RuntimeError):
            model(torch.ones(2, 5))
        assert not torch.is_autocast_enabled("cpu")             # also after an error
        train.report({}, checkpoint=TorchCheckpoint.from_state_dict(model.module.state_dict()))
        return inside[0], str(out.dtype), str(model.module.weight.dtype)
    assert fit(loop).return_value == ("torch.bfloat16", "torch.float32", "torch.float32")


def test_results_in_mixed_precision_keep_their_classes():
    import collections
    import torch
    from manta.train.torch import prepare

    class Output(collections.OrderedDict):
        __getattr__ = collections.OrderedDict.__getitem__
    Pair = collections.namedtuple("Pair", "logits n")

    class Net(torch.nn.Linear):
        def forward(self, x):
            logits = super().forward(x)
            return Output(logits=logits, n=1), Pair(logits, 1), {"logits": [logits]}
    net = Net(2, 2)
    prepare.Mixed(torch.device("cpu")).prepare(net)
    output, pair, plain = net(torch.ones(1, 2))
    assert {t.dtype for t in (output.logits, pair.logits, plain["logits"][0])} == {torch.float32}
    assert type(output) is Output and type(pair) is Pair and type(plain) is dict and output.n == pair.n == 1


@pytest.mark.parametrize("time", range(3))
def test_a_loop_that_is_over_at_once_leaves_no_rank_behind_that_still_connects(fit, time):
    from manta.train.torch import TorchConfig
    assert fit(lambda: 1, torch_config=TorchConfig(backend="gloo")).return_value == 1


def test_the_device_of_a_rank_is_in_its_environment(fit):
    assert fit(lambda: os.environ["ACCELERATE_TORCH_DEVICE"]).return_value == "cpu"
    from manta.train.torch import TorchConfig
    with pytest.raises(ValueError, match="is of GPUs"):
        fit(lambda: 1, torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl"))


@pytest.mark.parametrize("variables", [{}, {"GREETING": "hello"}])
def test_ranks_of_torch_draw_different_numbers(tmp_path, variables):
    """Those that are forks of one with torch in it, and those that have imported it by themselves, as with variables of their own."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from manta.train.torch import TorchTrainer, enable_reproducibility

    def loop():
        import torch
        drawn = [torch.rand(()).item()]
        enable_reproducibility(3)
        drawn.append(torch.rand(()).item())
        train.report({"drawn": drawn})

    result = TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2),
                          run_config=RunConfig(storage_path=tmp_path / "runs", worker_runtime_env={"env_vars": variables})).fit()
    lines = (tmp_path / "runs" / os.path.basename(result.path) / "reports.jsonl").read_text().splitlines()
    (one, one_again), (other, other_again) = (json.loads(line)["metrics"]["drawn"] for line in lines)
    assert one != other and one_again == other_again


# ---- TensorFlow ----

def test_a_checkpoint_of_a_keras_model(tmp_path):
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    from manta.train.tensorflow import TensorflowCheckpoint
    model = tensorflow.keras.Sequential([tensorflow.keras.layers.Input((3,)), tensorflow.keras.layers.Dense(2)])
    kept = TensorflowCheckpoint.from_model(model, preprocessor="scale")
    assert (kept.get_model().get_weights()[0] == model.get_weights()[0]).all() and kept.get_preprocessor() == "scale"
    model.save(tmp_path / "model.h5")
    kept = TensorflowCheckpoint(TensorflowCheckpoint.from_h5(tmp_path / "model.h5").to_directory(tmp_path / "copy"))
    assert (kept.get_model().get_weights()[0] == model.get_weights()[0]).all()
    for make in (TensorflowCheckpoint.from_h5, TensorflowCheckpoint.from_saved_model):
        with pytest.raises(ValueError, match="there is no"):
            make(tmp_path / "nothing")
