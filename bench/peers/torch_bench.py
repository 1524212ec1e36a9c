#!/usr/bin/env python3
"""PyTorch's side of bench/compare: one process, one JSON line with the median step."""
import sys

from measure import batches, options, report, timed


def main():
    p = options(("mnist-cnn", "resnet18"))
    p.add_argument("--channels-last", action="store_true")
    args = p.parse_args()

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
    report("pytorch channels_last" if args.channels_last else "pytorch", args, seconds, version=torch.__version__)


if __name__ == "__main__":
    sys.exit(main())
