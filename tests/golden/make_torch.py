#!/usr/bin/env python3
"""Records what PyTorch computes where it differs from Keras, one .npz per case.

    VENV/bin/python make_torch.py [PREFIX]     only cases whose name starts with PREFIX

Everything is in PyTorch's own layout: images NCHW, convolution weights OIHW,
linear weights out×in. README.md lists the arrays of each kind of file.
"""
import sys

import numpy as np
import torch
from torch import nn

from golden import rng, save, uniform

ONLY = sys.argv[1] if len(sys.argv) > 1 else ""
MADE_BY = f"torch {torch.__version__}"


def wanted(name):
    return name.startswith(ONLY)


def value(t):
    return np.array(t.detach().numpy(), copy=True)


def layer(name, node, shape, training=False, x=None, **config):
    """Runs one module forwards and backwards and records everything that went in or came out."""
    name = "torch_" + name
    if not wanted(name):
        return
    r = rng(name)
    x = uniform(r, shape) if x is None else x
    node.train(training)
    arrays = {"x": x}
    with torch.no_grad():
        for key, p in list(node.named_parameters()) + list(node.named_buffers()):
            if not p.is_floating_point():
                continue
            positive = key == "running_var" or (key == "weight" and p.ndim == 1)
            p.copy_(torch.from_numpy(uniform(r, tuple(p.shape), 0.5 if positive else -1.0, 2.0 if positive else 1.0)))
            arrays[key] = value(p)
    t = torch.from_numpy(x).requires_grad_()
    y = node(t)
    dy = uniform(r, tuple(y.shape))
    y.backward(torch.from_numpy(dy))
    arrays.update(y=value(y), dy=dy, dx=value(t.grad))
    for key, p in node.named_parameters():
        arrays["d" + key] = value(p.grad)
    if training:
        for key, b in node.named_buffers():
            if b.is_floating_point():
                arrays["new_" + key] = value(b)
    save(name, {"kind": "layer", "made_by": MADE_BY, "class_name": type(node).__name__, "training": training, **config}, arrays)


def all_layers():
    layer("linear", nn.Linear(7, 5), (4, 7), in_features=7, out_features=5, bias=True)

    def conv(name, shape, i, o, k, **options):
        layer("conv2d_" + name, nn.Conv2d(i, o, k, **options), shape, in_channels=i, out_channels=o, kernel_size=k, **options)

    conv("p1", (2, 3, 7, 6), 3, 4, 3, padding=1)
    conv("p1_s2", (2, 3, 8, 7), 3, 4, 3, padding=1, stride=2)  # pads left where "same" pads right
    conv("p3_s2_k7", (1, 1, 14, 14), 1, 8, 7, padding=3, stride=2, bias=False)
    conv("p2_d2_g2", (2, 4, 9, 8), 4, 6, 3, padding=2, dilation=2, groups=2)
    conv("k1_s2", (2, 4, 7, 7), 4, 8, 1, stride=2, bias=False)
    conv("p1_over_1x1", (4, 8, 1, 1), 8, 8, 3, padding=1, bias=False)
    conv("p1_s2_over_2x2", (4, 8, 2, 2), 8, 8, 3, padding=1, stride=2, bias=False)

    def transpose(name, shape, i, o, k, **options):
        layer("transpose_" + name, nn.ConvTranspose2d(i, o, k, **options), shape, in_channels=i, out_channels=o, kernel_size=k, **options)

    transpose("s2_p1_op1", (2, 3, 5, 4), 3, 4, 3, stride=2, padding=1, output_padding=1)
    transpose("s2", (2, 3, 5, 4), 3, 4, 2, stride=2)

    layer("maxpool_k3s2p1", nn.MaxPool2d(3, 2, 1), (2, 3, 14, 13), kernel_size=3, stride=2, padding=1)
    for include in (True, False):
        layer(f"avgpool_k3s2p1_{'with' if include else 'without'}_pad", nn.AvgPool2d(3, 2, 1, count_include_pad=include), (2, 3, 8, 7),
              kernel_size=3, stride=2, padding=1, count_include_pad=include)
    layer("adaptive_avgpool_1", nn.AdaptiveAvgPool2d(1), (2, 3, 5, 4), output_size=1)

    for training in (True, False):
        t = "train" if training else "infer"
        bn = {"training": training, "momentum": 0.1, "eps": 1e-5}
        layer("batchnorm2d_" + t, nn.BatchNorm2d(6), (4, 6, 3, 5), affine=True, **bn)
        layer("batchnorm2d_1x1_" + t, nn.BatchNorm2d(6), (8, 6, 1, 1), affine=True, **bn)
        layer("batchnorm1d_" + t, nn.BatchNorm1d(6), (8, 6), affine=True, **bn)
        layer("batchnorm2d_plain_" + t, nn.BatchNorm2d(6, affine=False), (4, 6, 3, 5), affine=False, **bn)
    layer("layernorm", nn.LayerNorm(9), (4, 9), normalized_shape=9, eps=1e-5)
    wide = uniform(rng("torch_activations"), (6, 11), -6.0, 6.0)
    wide.flat[:7] = [0.0, -0.0, 1.0, -1.0, 20.0, -20.0, 1e-3]
    layer("act_leaky_relu", nn.LeakyReLU(), None, x=wide, negative_slope=0.01)
    layer("act_gelu", nn.GELU(), None, x=wide, approximate="none")
    layer("act_gelu_tanh", nn.GELU(approximate="tanh"), None, x=wide, approximate="tanh")
    layer("act_elu", nn.ELU(), None, x=wide, alpha=1.0)


def all_losses():
    r = rng("torch_losses")
    logits = uniform(r, (6, 5), -5, 5)
    labels = r.integers(0, 5, 6)
    weight = uniform(r, (5,), 0.2, 2.0)
    for tag, w, smooth in (("", None, 0.0), ("_smooth", None, 0.1), ("_class_weights", weight, 0.0), ("_class_weights_smooth", weight, 0.1)):
        for reduction in ("mean", "sum"):
            name = f"torch_loss_cross_entropy{tag}_{reduction}"
            if not wanted(name):
                continue
            t = torch.from_numpy(logits).requires_grad_()
            node = nn.CrossEntropyLoss(None if w is None else torch.from_numpy(w), reduction=reduction, label_smoothing=smooth)
            out = node(t, torch.from_numpy(labels))
            out.backward()
            arrays = {"y_true": labels, "y_pred": logits, "loss": value(out), "dy_pred": value(t.grad)}
            if w is not None:
                arrays["class_weight"] = w
            save(name, {"kind": "loss", "made_by": MADE_BY, "class_name": "CrossEntropyLoss", "reduction": reduction,
                        "label_smoothing": smooth}, arrays)


SHAPES = ((3, 4), (5,), (1,))
STEPS = 8


def optimizer(name, cls, rates=None, **options):
    """Eight steps on three variables with given gradients; `rates` changes the learning rate before a step."""
    name = "torch_opt_" + name
    if not wanted(name):
        return
    r = rng("torch_opt")  # the same variables and gradients for every optimizer
    start = [uniform(r, s) for s in SHAPES]
    grads = [uniform(r, (STEPS,) + s, -3, 3) for s in SHAPES]
    variables = [nn.Parameter(torch.from_numpy(v.copy())) for v in start]
    node = cls(variables, **options)
    after = [[] for _ in SHAPES]
    for t in range(STEPS):
        if rates:
            node.param_groups[0]["lr"] = rates[t]
        for v, g in zip(variables, grads):
            v.grad = torch.from_numpy(g[t].copy())
        node.step()
        for i, v in enumerate(variables):
            after[i].append(value(v))
    arrays = {}
    for i in range(len(SHAPES)):
        arrays.update({f"v{i}": start[i], f"g{i}": grads[i], f"after{i}": np.stack(after[i])})
    if rates:
        arrays["rates"] = np.array(rates, np.float32)
    config = {"kind": "optimizer", "made_by": MADE_BY, "class_name": cls.__name__}
    config.update({k: v for k, v in node.defaults.items() if k not in ("foreach", "maximize", "capturable", "differentiable", "fused")})
    save(name, config, arrays)


def all_optimizers():
    O = torch.optim
    falling = [0.1, 0.1, 0.05, 0.05, 0.02, 0.02, 0.01, 0.01]
    optimizer("sgd", O.SGD, lr=0.1)
    optimizer("sgd_decay", O.SGD, lr=0.1, weight_decay=0.05)
    optimizer("sgd_momentum", O.SGD, lr=0.1, momentum=0.9)
    optimizer("sgd_momentum_decay", O.SGD, lr=0.1, momentum=0.9, weight_decay=0.05)
    optimizer("sgd_dampening", O.SGD, lr=0.1, momentum=0.9, dampening=0.3)
    optimizer("sgd_nesterov", O.SGD, lr=0.1, momentum=0.9, nesterov=True)
    optimizer("sgd_nesterov_decay", O.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.05)
    optimizer("sgd_momentum_rates", O.SGD, falling, lr=0.1, momentum=0.9)
    optimizer("sgd_nesterov_rates", O.SGD, falling, lr=0.1, momentum=0.9, nesterov=True)
    for tag, cls in (("adam", O.Adam), ("adamw", O.AdamW)):
        optimizer(tag, cls, lr=0.01)
        optimizer(tag + "_decay", cls, lr=0.01, weight_decay=0.05)
        optimizer(tag + "_amsgrad", cls, lr=0.01, amsgrad=True)
        optimizer(tag + "_amsgrad_decay", cls, lr=0.01, amsgrad=True, weight_decay=0.05)
        optimizer(tag + "_rates", cls, falling, lr=0.1)
    optimizer("rmsprop", O.RMSprop, lr=0.01)
    optimizer("rmsprop_decay", O.RMSprop, lr=0.01, weight_decay=0.05)
    optimizer("rmsprop_momentum", O.RMSprop, lr=0.01, momentum=0.9)
    optimizer("rmsprop_centered", O.RMSprop, lr=0.01, centered=True)
    optimizer("rmsprop_centered_momentum", O.RMSprop, lr=0.01, centered=True, momentum=0.9, alpha=0.9)


if __name__ == "__main__":
    torch.set_num_threads(1)
    all_layers()
    all_losses()
    all_optimizers()
