"""TorchTrainer with real PyTorch: the backend "manta", DistributedDataParallel, loaders, failures."""
import os
import pathlib
import signal

import pytest

torch = pytest.importorskip("torch")

import manta  # noqa: E402
from manta import train  # noqa: E402
from manta.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, WorkerGroupError  # noqa: E402
from manta.train.torch import TorchConfig, TorchTrainer, prepare_data_loader, prepare_model  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def shared_node():
    manta.init(num_cpus=2)
    yield
    manta.shutdown()


@pytest.fixture
def fit(tmp_path):
    def run(loop, config=None, failures=0, backend=None):
        return TorchTrainer(loop, train_loop_config=config, torch_config=TorchConfig(backend=backend, timeout_s=240),
                            scaling_config=ScalingConfig(num_workers=2),
                            run_config=RunConfig(name="a", storage_path=tmp_path / "runs",
                                                 failure_config=FailureConfig(max_failures=failures))).fit()
    return run


def test_collectives(fit):
    """Every collective, of types that are reduced and of those that are only moved."""
    def loop():
        import torch
        import torch.distributed as d
        rank, n = d.get_rank(), d.get_world_size()
        assert d.get_backend() == "manta"
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8):
            t = torch.ones(5, dtype=dtype) * (rank + 1)
            d.all_reduce(t)
            assert t.tolist() == [3] * 5, dtype
        t = torch.arange(16.).view(4, 4).t()[:, :2] * (rank + 1)          # not in one row
        d.all_reduce(t, op=d.ReduceOp.MAX)
        assert t.tolist() == (torch.arange(16.).view(4, 4).t()[:, :2] * 2).tolist()
        t = torch.tensor([rank == 0, False])
        d.all_reduce(t, op=d.ReduceOp.MAX)
        assert t.tolist() == [True, False]
        t = torch.tensor([1. + rank])
        d.all_reduce(t, op=d.ReduceOp.AVG)
        assert t.item() == 1.5
        t = torch.tensor([rank], dtype=torch.int16)
        d.broadcast(t, 1)
        assert t.item() == 1
        parts = [torch.zeros(2) for _ in range(n)]
        d.all_gather(parts, torch.full((2,), float(rank)))
        assert [p.tolist() for p in parts] == [[0, 0], [1, 1]]
        out = torch.zeros(4)
        d.all_gather_into_tensor(out, torch.full((2,), float(rank)))
        assert out.tolist() == [0, 0, 1, 1]
        out = torch.zeros(2)
        d.reduce_scatter_tensor(out, torch.arange(4.))
        assert out.tolist() == [4 * rank, 4 * rank + 2]
        d.reduce_scatter(out, [torch.ones(2), torch.ones(2) * 2])
        assert out.tolist() == [2 * (rank + 1)] * 2
        d.all_to_all_single(out, torch.tensor([rank * 10., rank * 10 + 1]))
        assert out.tolist() == [rank, 10 + rank]
        out, splits = torch.zeros(3), [1, 2] if rank == 0 else [2, 1]
        d.all_to_all_single(out, torch.arange(3.) + 10 * rank, splits, splits)
        assert out.tolist() == ([0, 10, 11] if rank == 0 else [1, 2, 12])
        parts = [torch.zeros(1) for _ in range(n)] if rank == 0 else None
        d.gather(torch.tensor([float(rank)]), parts, dst=0)
        assert rank or [p.item() for p in parts] == [0, 1]
        out = torch.zeros(1)
        d.scatter(out, [torch.tensor([5.]), torch.tensor([6.])] if rank == 0 else None, src=0)
        assert out.item() == 5 + rank
        t = torch.tensor([float(rank + 1)])
        d.reduce(t, 0)
        assert rank or t.item() == 3
        things = [None] * n
        d.all_gather_object(things, {"r": rank})
        assert things == [{"r": 0}, {"r": 1}]
        big, got = torch.full((1 << 20,), float(rank)), torch.zeros(1 << 20)
        for w in d.batch_isend_irecv([d.P2POp(d.irecv, got, 1 - rank), d.P2POp(d.isend, big, 1 - rank)]):
            w.wait()
        assert got[0] == 1 - rank
        group = d.new_group([0, 1])
        t = torch.ones(1)
        d.all_reduce(t, group=group)
        assert t.item() == 2
        d.barrier()
        with pytest.raises(TypeError, match="gloo"):
            d.all_reduce(torch.ones(2, dtype=torch.int16))
        for call in (lambda: d.all_gather_into_tensor(torch.zeros(2), torch.zeros(2)),
                     lambda: d.all_gather_into_tensor(torch.zeros(4, dtype=torch.float16), torch.zeros(2)),
                     lambda: d.reduce_scatter_tensor(torch.zeros(4), torch.zeros(4)),
                     lambda: d.all_to_all_single(torch.zeros(2), torch.zeros(4))):
            with pytest.raises((ValueError, RuntimeError), match="expected"):
                call()
        train.report({"fine": 1})
    assert fit(loop).metrics == {"fine": 1}


def trained(config):
    """A model whose ranks begin with different weights and see different samples; the sums of its weights."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(train.get_context().get_world_rank())
    model = prepare_model(torch.nn.Linear(4, 1))
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    loader = prepare_data_loader(DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    seen = []
    for epoch in range(3):
        rows = []
        for a, b in loader:
            optimizer.zero_grad()
            loss = (model(a) - b).square().mean()
            loss.backward()
            optimizer.step()
            rows += a[:, 0].tolist()
        seen.append(rows)
    train.report({"weights": [p.detach().double().sum().item() for p in model.parameters()], "seen": seen,
                  "loss": loss})


def test_ddp_is_the_same_in_all_ranks_and_over_gloo(fit, tmp_path):
    """Weights agree between ranks; over gloo they are those over manta up to rounding."""
    import json
    got = {}
    for backend in ("manta", "gloo"):
        result = fit(trained, backend=backend)
        lines = (pathlib.Path(result.path) / "reports.jsonl").read_text().splitlines()
        one, other = (json.loads(x)["metrics"] for x in lines)
        assert one["weights"] == other["weights"]
        # Each pass has all samples, half of them in each rank, in another order.
        for epoch in range(3):
            assert len(one["seen"][epoch]) == len(other["seen"][epoch]) == 32
            assert not set(one["seen"][epoch]) & set(other["seen"][epoch])
        assert one["seen"][0] != one["seen"][1]
        got[backend] = one["weights"]
    assert got["manta"] == pytest.approx(got["gloo"], rel=1e-2)


def test_a_killed_rank_is_named_and_all_begin_again(fit, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("manta.train._controller.DEATHS_S", 240)    # rank 0 hears of it from its collective, perhaps long before

    def loop(config):
        import torch
        import torch.distributed as d
        checkpoint = train.get_checkpoint()
        start = checkpoint.to_dict()["epoch"] + 1 if checkpoint else 0
        for epoch in range(start, 4):
            if epoch == 2 and start == 0:
                while train.get_checkpoint() is None or train.get_checkpoint().to_dict()["epoch"] != 1:
                    pass
                if d.get_rank() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
            t = torch.ones(1)
            d.all_reduce(t)
            train.report({"epoch": epoch, "start": start}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))
    result = fit(loop, {}, failures=1)
    assert result.metrics == {"epoch": 3, "start": 2}
    told = capfd.readouterr().err
    assert told.count("manta: worker 1 failed") == 1 and "killed by signal 9" in told
    assert "manta: worker 0 failed" not in told


def test_different_numbers_of_batches_do_not_hang(fit):
    """Rank 1 takes a step less, ends its loop, and rank 0 is told that it has left."""
    def loop():
        import torch
        import torch.distributed as d
        for _ in range(3 - d.get_rank()):
            d.all_reduce(torch.ones(1))
    with pytest.raises(WorkerGroupError, match="worker 0 failed") as e:
        fit(loop)
    assert "RuntimeError: rank 1 has left the group" in str(e.value)


def test_a_rank_that_leaves_is_an_error_of_backward(fit):
    """The gradients are waited for by torch's own code, not by Python's."""
    def loop():
        import torch
        model = prepare_model(torch.nn.Linear(4, 4))
        for _ in range(3 - train.get_context().get_world_rank()):
            model(torch.ones(2, 4)).sum().backward()
    with pytest.raises(WorkerGroupError, match="worker 0 failed") as e:
        fit(loop)
    assert isinstance(e.value.worker_failures[0], RuntimeError) and "rank 1 has left the group" in str(e.value)


def test_a_message_that_never_came_does_not_outlive_its_group(fit):
    """Who waits for it in another thread is told when the group ends."""
    def loop():
        import threading
        import torch
        import torch.distributed as d
        told = []

        def wait(work):
            try:
                work.wait()
            except Exception as e:  # noqa: BLE001  it is looked at
                told.append(str(e))
        if d.get_rank() == 0:
            waits = threading.Thread(target=wait, args=(d.irecv(torch.zeros(1), 1),))
            waits.start()
        d.barrier()
        d.destroy_process_group()
        if train.get_context().get_world_rank() == 0:
            waits.join()
        train.report({"told": told})
    assert len(fit(loop).metrics["told"]) == 1


def test_workers_of_loaders(fit):
    """A DataLoader's own processes have no part in the group, and nothing of them is left."""
    def loop():
        import torch
        from torch.utils.data import DataLoader
        loader = prepare_data_loader(DataLoader(torch.arange(32.), batch_size=4, num_workers=2))
        total = sum(b.sum() for b in loader)
        torch.distributed.all_reduce(total)
        train.report({"total": total, "batches": len(loader)})
    assert fit(loop).metrics == {"total": sum(range(32)), "batches": 4}


def small_net():
    import torch
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def steps_of(model, parameters, rank, size):
    """Five steps with this rank's rows of one batch."""
    import torch
    x = torch.randn(16, 6, generator=torch.Generator().manual_seed(1))
    x, y = x[rank::size], x.sum(1, keepdim=True)[rank::size]
    optimizer = torch.optim.SGD(parameters, 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()


def test_fsdp2_and_compiled_models(fit):
    """fully_shard() over a DeviceMesh, and torch.compile() of a model in DistributedDataParallel, train as one process does."""
    def loop():
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        rank, mesh = train.get_context().get_world_rank(), init_device_mesh("cpu", (2,))
        alone = small_net()
        steps_of(alone, alone.parameters(), 0, 1)
        sharded = small_net()
        for layer in (sharded[0], sharded[2], sharded):
            fully_shard(layer, mesh=mesh)
        steps_of(sharded, sharded.parameters(), rank, 2)
        for mine, whole in zip(sharded.parameters(), alone.parameters()):
            assert mine.to_local().shape[0] <= (whole.shape[0] + 1) // 2
            torch.testing.assert_close(mine.full_tensor(), whole.data)
        model = prepare_model(small_net())
        # Inductor, torch's default, would also need a C++ compiler on the machine.
        steps_of(torch.compile(model, backend="aot_eager"), model.parameters(), rank, 2)
        for mine, whole in zip(model.parameters(), alone.parameters()):
            torch.testing.assert_close(mine.data, whole.data)
        train.report({"fine": 1})
    assert fit(loop).metrics == {"fine": 1}
