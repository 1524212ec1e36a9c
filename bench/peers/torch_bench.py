#!/usr/bin/env python3
"""PyTorch's side of bench/compare: one process, one JSON line with the median step."""
import argparse
import socket
import subprocess
import sys

from measure import batches, options, report, timed


def start_others(args):
    """The processes of the other ranks; they meet at a port that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        args.port = s.getsockname()[1]
    return [subprocess.Popen([sys.executable, *sys.argv, "--rank", str(r), "--port", str(args.port)], stdout=subprocess.DEVNULL)
            for r in range(1, args.ddp)]


def main():
    p = options(("mnist-cnn", "resnet18"))
    p.add_argument("--channels-last", action="store_true")
    p.add_argument("--ddp", type=int, default=1, metavar="N", help="DistributedDataParallel over gloo, N processes of this batch each")
    p.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    p.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    args = p.parse_args()
    others = start_others(args) if args.ddp > 1 and args.rank == 0 else []

    import torch
    from torch import nn

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if args.model == "resnet18":
        import torchvision

        model = torchvision.models.resnet18(num_classes=10)
        model.conv1 = nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    else:
        model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(21632, 128), nn.ReLU(), nn.Linear(128, 10))
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    if args.ddp > 1:
        torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=args.rank, world_size=args.ddp)
        model = nn.parallel.DistributedDataParallel(model)
    opt = torch.optim.SGD(model.parameters(), 0.001) if args.model == "mnist-cnn" else torch.optim.Adam(model.parameters(), 0.001)
    loss = nn.CrossEntropyLoss()
    ready = []
    for x, y in batches(args.batch, 1 if args.mode == "startup" else 16):
        t = torch.from_numpy(x).unsqueeze(1)
        ready.append((t.contiguous(memory_format=torch.channels_last) if args.channels_last else t, torch.from_numpy(y)))

    def train(x, y):
        value = loss(model(x), y)
        opt.zero_grad()
        value.backward()
        opt.step()
        return value.item()

    def forward(x, y):
        with torch.no_grad():
            return model(x)[0, 0].item()

    if args.mode == "startup":
        print(train(*ready[0]), flush=True)
        return
    model.train(args.mode == "train")
    seconds = timed(train if args.mode == "train" else forward, ready, args)
    if args.ddp > 1:
        torch.distributed.destroy_process_group()
        args.batch *= args.ddp
    if args.rank == 0:
        report("pytorch channels_last" if args.channels_last else "pytorch", args, seconds, version=torch.__version__)
    return max([o.wait() for o in others], default=0)


if __name__ == "__main__":
    sys.exit(main())
