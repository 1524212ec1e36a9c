"""What PyTorch forks, in the driver and in workers: a child has no part in the node, and does not outlive its worker."""
import os

import pytest
import torch
import torch.utils.data

import manta
from conftest import until

pytestmark = pytest.mark.usefixtures("module_node")


class Squares(torch.utils.data.Dataset):
    """Of numbers that hold references, as a program's own dataset may."""

    def __init__(self, n, held=()):
        self.n, self.held = n, list(held)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor([i * i])


def squares(n, method, held=()):
    loader = torch.utils.data.DataLoader(Squares(n, held), batch_size=4, num_workers=2, multiprocessing_context=method)
    return torch.cat(list(loader)).flatten().tolist()


@manta.remote
def in_worker(n, method, held):
    return squares(n, method, held), manta.get(held)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_loader_with_workers(method):
    wanted = [i * i for i in range(18)]
    held = [manta.put([i]) for i in range(20)] if method == "fork" else []
    for _ in range(2):
        assert squares(18, method, held) == wanted
        assert manta.get(in_worker.remote(18, method, held)) == (wanted, [[i] for i in range(len(held))])
        assert manta.get(held) == [[i] for i in range(len(held))]


@manta.remote
class Feeder:
    """Keeps a loader whose processes wait for more to do."""

    def __init__(self):
        loader = torch.utils.data.DataLoader(Squares(1000), num_workers=2, persistent_workers=True, multiprocessing_context="fork")
        self.feed = iter(loader)

    def next(self):
        return int(next(self.feed)), [p.pid for p in self.feed._workers]


def test_the_processes_of_a_loader_end_with_their_worker():
    feeder = Feeder.remote()
    assert [manta.get(feeder.next.remote())[0] for _ in range(3)] == [0, 1, 4]
    pids = manta.get(feeder.next.remote())[1]
    assert len(pids) == 2
    manta.kill(feeder)
    until(lambda: not any(os.path.exists(f"/proc/{p}") for p in pids), "the end of the loader's processes")


def double(queue, t):
    queue.put(float(t.sum()) * 2)


@manta.remote
def spread(method):
    import torch.multiprocessing
    context = torch.multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    p = context.Process(target=double, args=(queue, torch.ones(1000)))
    p.start()
    out = queue.get()
    p.join()
    return out, p.exitcode


def test_a_process_of_multiprocessing_in_a_worker():
    assert manta.get(spread.remote("fork")) == (2000.0, 0)


def test_a_loader_in_a_driver_that_has_computed(python):
    """With threads running: the node was not forked of them, and the loader's children are no part of it."""
    assert python("""
import torch, torch.utils.data, manta
(torch.ones(500, 500) @ torch.ones(500, 500)).sum()
manta.init(num_cpus=1)
@manta.remote
def train():
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(64.0)[:, None]), 16, num_workers=2)
    model = torch.nn.Linear(1, 1)
    for (x,) in loader:
        model(x).sum().backward()
    return model.weight.grad is not None
ref = train.remote()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(64.0)), 16, num_workers=2)
print(sum(float(x.sum()) for (x,) in loader), manta.get(ref))
""") == f"{float(sum(range(64)))} True\n"
