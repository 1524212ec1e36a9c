"""A program as torchrun runs it: the environment says who and where, and a sampler takes this rank's part.

    launched_ddp.py gloo | manta
"""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

if sys.argv[1] == "manta":
    from manta.train.torch import register_backend
    register_backend()
dist.init_process_group(sys.argv[1])
rank = dist.get_rank()
assert rank == int(os.environ["LOCAL_RANK"]) and dist.get_backend() == sys.argv[1]

torch.manual_seed(rank)                     # DistributedDataParallel makes the weights those of rank 0
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.randn(256, 4, generator=torch.Generator().manual_seed(1))
data = TensorDataset(x, x.sum(1, keepdim=True))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=1)
losses, rows = [], 0
for epoch in range(3):
    sampler.set_epoch(epoch)
    total = torch.zeros(1)
    for a, b in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(a), b)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        rows += len(a)
    dist.all_reduce(total)
    losses.append(total.item())
weights = sum(p.detach().double().sum().item() for p in model.parameters())
print("RESULT", {"rank": rank, "size": dist.get_world_size(), "rows": rows, "losses": losses, "weights": weights})
dist.destroy_process_group()
