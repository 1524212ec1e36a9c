#!/usr/bin/env python3
"""One run of resnet18 in PyTorch: model_torch.py OUT.npz DATA THREADS f32|f64|plain adam|sgd. See make_models.

f32 is PyTorch as it comes; `plain` has oneDNN switched off, which sums in another order."""
import os
import sys

out, data, threads, kind, rule = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5]

import numpy as np
import torch
import torchvision
from torch import nn

from golden import formula, idx, scale_of

torch.set_num_threads(threads)
if kind == "plain":
    torch.backends.mkldnn.enabled = False
IMAGES, BATCH, STEPS = 256, 32, 30
images = idx(os.path.join(data, "fashion-mnist", "train-images-idx3-ubyte.gz"))[:IMAGES]
labels = idx(os.path.join(data, "fashion-mnist", "train-labels-idx1-ubyte.gz"))[:IMAGES]
x = (images.astype(np.float32) / np.float32(255) - np.float32(0.5)) / np.float32(0.5)

model = torchvision.models.resnet18(num_classes=10)
model.conv1 = nn.Conv2d(1, 64, 7, 2, 3, bias=False)
scales = {}
with torch.no_grad():
    for number, (key, p) in enumerate(model.named_parameters()):
        if p.ndim > 1:
            scales[key] = scale_of(int(np.prod(p.shape[1:])))
            p.copy_(torch.from_numpy(formula(number, p.numel(), scales[key]).reshape(tuple(p.shape))))
        else:
            # Batch normalisation starts as the identity, the last bias at zero.
            p.fill_(1.0 if key.endswith("weight") else 0.0)
            scales[key] = np.float32(0)
xt, yt = torch.from_numpy(x).unsqueeze(1), torch.from_numpy(labels.astype(np.int64))
if kind == "f64":
    model, xt = model.double(), xt.double()

optimizer = torch.optim.Adam(model.parameters(), 1e-3) if rule == "adam" else torch.optim.SGD(model.parameters(), 1e-3)
loss = nn.CrossEntropyLoss()
model.train()
losses, first, stats = [], None, None
for i in range(STEPS):
    at = i * BATCH % IMAGES
    value = loss(model(xt[at:at + BATCH]), yt[at:at + BATCH])
    optimizer.zero_grad()
    value.backward()
    if first is None:
        first = {k: p.grad.numpy().copy() for k, p in model.named_parameters()}
        stats = {k: b.numpy().copy() for k, b in model.named_buffers() if b.is_floating_point()}
    optimizer.step()
    losses.append(value.item())
arrays = {"loss": np.array(losses, np.float64), "images": images, "labels": labels}
for key, scale in scales.items():
    arrays["scale:" + key] = scale
    arrays["grad:" + key] = first[key]
arrays.update({"stat:" + k: b for k, b in stats.items()})
np.savez(out, **arrays, made_by=f"torch {torch.__version__}, torchvision {torchvision.__version__}")
