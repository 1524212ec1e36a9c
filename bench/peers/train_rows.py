#!/usr/bin/env python3
"""Rows of training from Python, for bench/compare_python --train: train_rows.py API ROW prints one JSON line a row.

API is manta or ray. A row that only Manta has (DistributedDataParallel over its backend beside gloo) takes the backend in the place
of the API. Loops tell times by CLOCK_MONOTONIC, which all processes of a host share.
"""
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

WORKERS = 2


@functools.lru_cache
def parts(api):
    """(train, TorchTrainer, TorchConfig) of an API that is started, once."""
    if api == "ray":
        import ray
        ray.init(num_cpus=4, log_to_driver=False, include_dashboard=False, logging_level="ERROR")
        from ray import train
        from ray.train.torch import TorchConfig, TorchTrainer
    else:
        import manta
        manta.init(num_cpus=4)
        from manta import train
        from manta.train.torch import TorchConfig, TorchTrainer
    return train, TorchTrainer, TorchConfig


def fit(api, loop, config, **how):
    """Runs a loop in two workers; seconds from fit() to its end."""
    train, trainer, _ = parts(api)
    with tempfile.TemporaryDirectory() as folder:
        job = trainer(loop, train_loop_config={**config, "folder": folder, "api": api},
                      scaling_config=train.ScalingConfig(num_workers=WORKERS),
                      run_config=train.RunConfig(name="row", storage_path=folder, failure_config=train.FailureConfig(max_failures=1)), **how)
        begun = time.monotonic()
        job.fit()
        return begun, {name: open(os.path.join(folder, name), encoding="utf-8").read() for name in os.listdir(folder)
                       if os.path.isfile(os.path.join(folder, name))}


def leave(config, name, value):
    with open(os.path.join(config["folder"], name), "w", encoding="utf-8") as f:
        f.write(repr(value))


def report(config, metrics):
    if config["api"] == "ray":
        from ray import train
    else:
        from manta import train
    train.report(metrics)
    return train.get_context().get_world_rank()


def begins(config):
    """Says when it has begun; if asked, rank 1 is killed the first time."""
    now = time.monotonic()
    rank = report(config, {"begun": 1})         # Ray gives up when a worker dies before its first report
    killed = os.path.join(config["folder"], "killed")
    leave(config, f"again-{rank}" if os.path.exists(killed) else f"loop-{rank}", now)
    if config.get("kill") and rank == 1 and not os.path.exists(killed):
        leave(config, "killed", time.monotonic())
        os.kill(os.getpid(), signal.SIGKILL)


def imports(config):
    import torch  # noqa: F401
    import torch.distributed  # noqa: F401
    report(config, {"begun": 1})


class Probe:
    def has_torch(self):
        return "torch" in sys.modules


def warm_up(api):
    """A run before the one that is timed, by a driver that has torch, until new workers of Manta are forks of a process that has it."""
    import torch  # noqa: F401
    import torch.distributed  # noqa: F401
    fit(api, imports, {})
    if api == "ray":
        return
    import manta
    end = time.monotonic() + 60
    while not manta.get(manta.remote(num_cpus=0)(Probe).remote().has_torch.remote()):
        if time.monotonic() > end:
            sys.exit("new workers have no torch after 60 s")
        time.sleep(0.1)


def import_takes():
    """Seconds in which a process of its own imports torch."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch, torch.distributed"], check=True)
    return time.monotonic() - begun


def fit_to_loop(api, warm):
    less = 0.0 if warm else import_takes()
    if warm:
        warm_up(api)
    begun, files = fit(api, begins, {})
    return max(float(files[f"loop-{k}"]) for k in range(WORKERS)) - begun - less


def recovery(api):
    warm_up(api)
    _, files = fit(api, begins, {"kill": True})
    return max(float(files[f"again-{k}"]) for k in range(WORKERS)) - float(files["killed"])


def trains(config):
    """Images per second of all ranks, over DistributedDataParallel."""
    import torch
    from manta import train
    from manta.train.torch import prepare_model
    torch.manual_seed(0)
    if config["net"] == "resnet18":
        import torchvision
        net = torchvision.models.resnet18(num_classes=10)
        net.conv1 = torch.nn.Conv2d(1, 64, 3, padding=1, bias=False)
    else:
        net = torch.nn.Sequential(torch.nn.Conv2d(1, 32, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
                                  torch.nn.Linear(32 * 13 * 13, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    model, x, y = prepare_model(net), torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
    optimizer, loss = torch.optim.SGD(model.parameters(), 0.01), torch.nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    for _ in range(config["steps"] // 4 + 1):
        step()
    torch.distributed.barrier()
    begun = time.monotonic()
    for _ in range(config["steps"]):
        step()
    torch.distributed.barrier()
    rate = WORKERS * 64 * config["steps"] / (time.monotonic() - begun)
    train.report({"rate": rate})
    if train.get_context().get_world_rank() == 0:
        leave(config, "rate", rate)


def ddp(backend, net, steps):
    from manta.train.torch import TorchConfig
    _, files = fit("manta", trains, {"net": net, "steps": steps}, torch_config=TorchConfig(backend=backend))
    return float(files["rate"])


ROWS = {
    "fit to loop, torch warm, s": lambda api: fit_to_loop(api, True),
    "fit to loop, beyond the import of torch, s": lambda api: fit_to_loop(api, False),
    "kill -9 of a rank to its loop again, s": recovery,
    "DDP mnist-cnn, images/s": lambda backend: ddp(backend, "mnist-cnn", 60),
    "DDP resnet18, images/s": lambda backend: ddp(backend, "resnet18", 6),
}

if __name__ == "__main__":
    api, row = sys.argv[1:]
    print(json.dumps({"row": row, "value": ROWS[row](api)}), flush=True)
