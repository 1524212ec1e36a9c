#!/usr/bin/env python3
"""Records what Keras 3 on the TensorFlow backend computes, one .npz per case.

    VENV/bin/python make_keras.py [PREFIX]     only cases whose name starts with PREFIX

README.md lists the arrays of each kind of file.
"""
import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L

from golden import rng, save, uniform

ONLY = sys.argv[1] if len(sys.argv) > 1 else ""
MADE_BY = f"keras {keras.__version__}, tensorflow {tf.__version__}"


def wanted(name):
    return name.startswith(ONLY)


# ---- layers ---------------------------------------------------------------------------------


def value(v):
    """A copy, since a variable's memory changes under a view of it."""
    return np.array(keras.ops.convert_to_numpy(v), copy=True)


def short(variable):
    name = variable.path.split("/")[-1]
    return "gamma" if name.startswith("variable") else name  # LayerScale leaves its weight unnamed


def layer(name, make, *shapes, training=False, x=None, weights=None, **extra):
    """Runs one layer forwards and backwards and records everything that went in or came out.

    `make` builds the layer (or is a function of a tensor); weights are drawn
    afresh, so that biases and BatchNormalization's variables are not zeros and ones."""
    name = "keras_" + name
    if not wanted(name):
        return
    r = rng(name)
    xs = x if x is not None else [uniform(r, s) for s in shapes]
    node = make()
    arg = [tf.constant(a) for a in xs]
    call = (lambda a: node(a, training=training)) if extra.pop("takes_training", False) else node
    if hasattr(node, "build") and not node.built:
        node.build([a.shape for a in xs] if len(xs) > 1 else xs[0].shape)
    arrays = {}
    for w in getattr(node, "weights", []):
        key = short(w)
        if key == "count":
            continue
        if weights and key in weights:
            w.assign(weights[key])
        elif w.trainable or key in ("moving_mean", "moving_variance"):
            low, high = (0.5, 2.0) if key in ("gamma", "moving_variance") else (-1.0, 1.0)
            w.assign(uniform(r, w.shape, low, high))
        arrays[key] = value(w)
    if len(xs) > 1:
        arrays.update({f"x{i}": a for i, a in enumerate(xs)})
    else:
        arrays["x"] = xs[0]
    trainable = [w for w in getattr(node, "weights", []) if w.trainable]
    floats = [a for a in arg if a.dtype.is_floating]
    with tf.GradientTape() as tape:
        for a in floats:
            tape.watch(a)
        y = call(arg if len(arg) > 1 else arg[0])
        dy = uniform(r, y.shape)
        target = tf.reduce_sum(y * dy)
    gradients = tape.gradient(target, floats + [w.value for w in trainable])
    arrays["y"] = value(y)
    arrays["dy"] = dy
    for i, g in enumerate(gradients[:len(floats)]):
        arrays["dx" if len(xs) == 1 else f"dx{i}"] = value(g)
    for w, g in zip(trainable, gradients[len(floats):]):
        arrays["d" + short(w)] = value(tf.convert_to_tensor(g))
    if training:
        for w in node.weights:
            if short(w).startswith("moving_"):
                arrays["new_" + short(w)] = value(w)
    config = {"kind": "layer", "made_by": MADE_BY, "class_name": type(node).__name__, "training": training}
    if hasattr(node, "get_config"):
        config.update({k: v for k, v in node.get_config().items() if k not in ("name", "trainable", "dtype")})
    config.update(extra)
    save(name, config, arrays)


def all_layers():
    layer("dense", lambda: L.Dense(5), (4, 7))
    layer("dense_nobias", lambda: L.Dense(5, use_bias=False), (4, 7))
    layer("dense_3d", lambda: L.Dense(5), (2, 3, 7))
    layer("dense_3d_nobias", lambda: L.Dense(5, use_bias=False), (2, 3, 7))
    layer("dense_relu", lambda: L.Dense(19, activation="relu"), (9, 33))
    layer("dense_softmax", lambda: L.Dense(10, activation="softmax"), (5, 17))

    conv = lambda name, shape, *a, **k: layer("conv2d_" + name, lambda: L.Conv2D(*a, **k), shape)
    conv("valid", (2, 7, 6, 3), 4, 3)
    conv("same", (2, 7, 6, 3), 4, 3, padding="same")
    conv("valid_s2", (2, 8, 7, 3), 4, 3, strides=2)
    conv("same_s2", (2, 8, 7, 3), 4, 3, strides=2, padding="same")
    conv("same_s2_nobias", (2, 9, 8, 3), 4, 3, strides=2, padding="same", use_bias=False)
    conv("valid_d2", (2, 9, 8, 3), 4, 3, dilation_rate=2)
    conv("same_d2", (2, 9, 8, 3), 4, 3, dilation_rate=2, padding="same")
    conv("valid_g2", (2, 6, 7, 4), 6, 3, groups=2)
    conv("same_g2_s2", (2, 6, 7, 4), 6, 3, groups=2, strides=2, padding="same")
    conv("same_even", (2, 6, 7, 3), 4, 4, padding="same")
    conv("same_even_s2", (2, 7, 8, 3), 4, 2, strides=2, padding="same")
    conv("1x1", (2, 5, 6, 8), 4, 1)
    conv("1x1_s2", (2, 7, 6, 3), 4, 1, strides=2)
    conv("1x1_s2_same", (2, 7, 6, 3), 4, 1, strides=2, padding="same")
    conv("nonsquare", (2, 9, 8, 3), 4, (2, 5), padding="same")
    conv("nonsquare_valid_s12", (2, 9, 12, 3), 4, (5, 2), strides=(1, 2))
    conv("relu", (3, 8, 8, 1), 16, 3, activation="relu")
    conv("7x7_s2_same", (1, 14, 14, 2), 8, 7, strides=2, padding="same", use_bias=False)
    conv("3x3_over_1x1", (4, 1, 1, 8), 8, 3, padding="same", use_bias=False)
    conv("3x3_over_2x2", (4, 2, 2, 8), 8, 3, padding="same", use_bias=False)
    conv("wide", (2, 7, 7, 20), 36, 3, padding="same")

    dw = lambda name, shape, *a, **k: layer("depthwise_" + name, lambda: L.DepthwiseConv2D(*a, **k), shape)
    dw("valid", (2, 7, 6, 3), 3)
    dw("same", (2, 7, 6, 3), 3, padding="same")
    dw("m2", (2, 7, 6, 3), 3, depth_multiplier=2)
    dw("same_s2", (2, 8, 7, 3), 3, strides=2, padding="same")
    dw("m2_same_s2", (2, 8, 7, 3), 3, strides=2, padding="same", depth_multiplier=2)
    dw("nobias_wide", (2, 6, 6, 17), 3, padding="same", use_bias=False)

    tr = lambda name, shape, *a, **k: layer("transpose_" + name, lambda: L.Conv2DTranspose(*a, **k), shape)
    tr("valid", (2, 5, 4, 3), 4, 3)
    tr("same", (2, 5, 4, 3), 4, 3, padding="same")
    tr("valid_s2", (2, 5, 4, 3), 4, 3, strides=2)
    tr("same_s2", (2, 5, 4, 3), 4, 3, strides=2, padding="same")
    tr("valid_s2_k2", (2, 5, 4, 3), 4, 2, strides=2)
    tr("same_s2_k2", (2, 5, 4, 3), 4, 2, strides=2, padding="same")
    tr("valid_s3_k2", (2, 4, 4, 3), 4, 2, strides=3)
    tr("valid_s2_op1", (2, 5, 4, 3), 4, 3, strides=2, output_padding=1)
    tr("same_s2_op1", (2, 5, 4, 3), 4, 3, strides=2, padding="same", output_padding=1)
    tr("same_s2_op0", (2, 5, 4, 3), 4, 3, strides=2, padding="same", output_padding=0)
    tr("same_s2_nobias_relu", (2, 5, 4, 3), 4, 3, strides=2, padding="same", use_bias=False, activation="relu")

    for kind, cls in (("maxpool", L.MaxPooling2D), ("avgpool", L.AveragePooling2D)):
        pool = lambda name, shape, *a, **k: layer(f"{kind}_{name}", lambda: cls(*a, **k), shape)
        pool("valid", (2, 6, 8, 3), 2)
        pool("valid_odd", (2, 7, 9, 3), 2)
        pool("same_odd", (2, 7, 9, 3), 2, padding="same")
        pool("valid_k3s2", (2, 7, 8, 3), 3, strides=2)
        pool("same_k3s2", (2, 7, 8, 3), 3, strides=2, padding="same")
        pool("same_k3s1", (2, 5, 6, 3), 3, strides=1, padding="same")
        pool("valid_nonsquare", (2, 7, 9, 3), (2, 3), strides=(1, 2))
    for cls, kind in ((L.GlobalAveragePooling2D, "gap"), (L.GlobalMaxPooling2D, "gmp")):
        layer(kind, lambda: cls(), (2, 5, 6, 3))
        layer(kind + "_keepdims", lambda: cls(keepdims=True), (2, 5, 6, 3))

    for training in (True, False):
        t = "train" if training else "infer"
        bn = lambda name, shape, **k: layer(f"batchnorm_{name}_{t}", lambda: L.BatchNormalization(**k), shape,
                                            training=training, takes_training=True)
        bn("4d", (4, 3, 5, 6))
        bn("2d", (8, 6))
        bn("momentum", (4, 3, 2, 5), momentum=0.9, epsilon=1e-5)
        bn("nocenter", (4, 3, 2, 5), center=False)
        bn("noscale", (4, 3, 2, 5), scale=False)
        bn("plain", (4, 3, 2, 5), center=False, scale=False)
    layer("batchnorm_frozen", lambda: L.BatchNormalization(trainable=False), (4, 3, 2, 5),
          training=True, takes_training=True, trainable=False)

    ln = lambda name, shape, **k: layer("layernorm_" + name, lambda: L.LayerNormalization(**k), shape)
    ln("2d", (4, 9))
    ln("3d", (2, 3, 9))
    ln("4d", (2, 3, 4, 5))
    ln("nocenter", (4, 9), center=False)
    ln("noscale", (4, 9), scale=False)
    ln("eps", (4, 9), epsilon=1e-6)
    ln("axis12", (2, 3, 5), axis=[1, 2])

    # A wide range, so that both tails of every curve are seen, and the exact zero.
    r = rng("activations")
    wide = uniform(r, (6, 11), -6.0, 6.0)
    wide.flat[:7] = [0.0, -0.0, 1.0, -1.0, 20.0, -20.0, 1e-3]
    for a in ("linear", "relu", "leaky_relu", "elu", "gelu", "silu", "sigmoid", "tanh", "softmax"):
        layer("act_" + a, lambda: L.Activation(a), x=[wide])
    layer("act_gelu_tanh", lambda: (lambda v: keras.activations.gelu(v, approximate=True)), x=[wide],
          class_name="Activation", activation="gelu", approximate=True)
    layer("act_leaky_relu_03", lambda: L.LeakyReLU(), x=[wide])
    layer("act_leaky_relu_01", lambda: L.LeakyReLU(negative_slope=0.01), x=[wide])
    layer("act_elu_05", lambda: L.ELU(alpha=0.5), x=[wide])
    layer("act_softmax_4d", lambda: L.Activation("softmax"), x=[uniform(r, (2, 3, 2, 5), -4.0, 4.0)])
    layer("act_relu_layer_max6", lambda: L.ReLU(max_value=6.0), x=[uniform(r, (4, 9), -3.0, 9.0)])

    three = ((3, 4, 5, 2),) * 3
    layer("add", lambda: L.Add(), *three[:2])
    layer("add3", lambda: L.Add(), *three)
    layer("add_broadcast", lambda: L.Add(), (3, 4, 5, 2), (3, 1, 1, 2))
    layer("subtract", lambda: L.Subtract(), *three[:2])
    layer("multiply", lambda: L.Multiply(), *three[:2])
    layer("multiply3", lambda: L.Multiply(), *three)
    layer("multiply_broadcast", lambda: L.Multiply(), (3, 4, 5, 2), (3, 1, 1, 2))
    layer("concat", lambda: L.Concatenate(), (3, 4, 5, 2), (3, 4, 5, 3))
    layer("concat3_axis1", lambda: L.Concatenate(axis=1), (3, 4, 5), (3, 2, 5), (3, 1, 5))
    layer("concat_axis2", lambda: L.Concatenate(axis=2), (2, 3, 4, 2), (2, 3, 1, 2))

    layer("zeropad_1", lambda: L.ZeroPadding2D(1), (2, 3, 4, 2))
    layer("zeropad_asym", lambda: L.ZeroPadding2D(((1, 2), (0, 3))), (2, 3, 4, 2))
    layer("upsample_nearest", lambda: L.UpSampling2D(2), (2, 3, 4, 2))
    layer("upsample_nearest_32", lambda: L.UpSampling2D((3, 2)), (2, 3, 4, 2))
    layer("upsample_bilinear", lambda: L.UpSampling2D(2, interpolation="bilinear"), (2, 3, 4, 2))
    layer("upsample_bilinear_32", lambda: L.UpSampling2D((3, 2), interpolation="bilinear"), (2, 3, 4, 2))
    layer("rescaling", lambda: L.Rescaling(1.0 / 255.0), x=[uniform(r, (2, 3, 4, 1), 0.0, 255.0)])
    layer("rescaling_offset", lambda: L.Rescaling(1.0 / 127.5, offset=-1.0), x=[uniform(r, (2, 3, 4, 1), 0.0, 255.0)])
    mean, variance = [0.3, -0.2, 1.5], [0.5, 2.0, 0.25]
    layer("normalization", lambda: L.Normalization(mean=mean, variance=variance), (4, 5, 3))
    layer("normalization_invert", lambda: L.Normalization(mean=mean, variance=variance, invert=True), (4, 5, 3))
    layer("normalization_scalar", lambda: L.Normalization(axis=None, mean=0.1307, variance=0.0949), (4, 5, 3))
    layer("embedding", lambda: L.Embedding(11, 4), x=[r.integers(0, 11, (3, 5)).astype(np.int32)])
    layer("reshape", lambda: L.Reshape((4, 6)), (2, 3, 4, 2))
    layer("reshape_infer", lambda: L.Reshape((-1, 4)), (2, 3, 4, 2))
    layer("permute", lambda: L.Permute((3, 1, 2)), (2, 3, 4, 5))
    layer("permute_2d", lambda: L.Permute((2, 1)), (2, 3, 4))
    layer("flatten", lambda: L.Flatten(), (2, 3, 4, 2))


def application_layers():
    """What the models of keras.applications need beyond the rest."""
    from keras.src.applications.convnext import LayerScale
    from keras.src.applications.inception_resnet_v2 import CustomScaleLayer
    sep = lambda name, shape, *a, **k: layer("separable_" + name, lambda: L.SeparableConv2D(*a, **k), shape)
    sep("valid", (2, 7, 6, 3), 4, 3)
    sep("same_s2", (2, 8, 7, 3), 4, 3, strides=2, padding="same")
    sep("same_m2_relu", (2, 6, 7, 3), 5, 3, padding="same", depth_multiplier=2, activation="relu")
    sep("same_d2_nobias", (2, 9, 8, 17), 19, (3, 2), padding="same", dilation_rate=2, use_bias=False)
    layer("crop_1", lambda: L.Cropping2D(1), (2, 5, 4, 3))
    layer("crop_asym", lambda: L.Cropping2D(((1, 0), (2, 1))), (2, 5, 6, 3))
    wide = uniform(rng("hard activations"), (6, 11), -6.0, 6.0)
    for a in ("hard_sigmoid", "hard_silu"):
        layer("act_" + a, lambda: L.Activation(a), x=[wide])
    layer("layerscale", lambda: LayerScale(0.1, 7), (2, 3, 4, 7))
    layer("customscale", lambda: CustomScaleLayer(0.17), (3, 4, 5, 2), (3, 4, 5, 2))
    layer("normalization_axis3", lambda: L.Normalization(axis=3, mean=[0.3, -0.2], variance=[0.5, 2.0]), (3, 4, 5, 2))


# ---- losses and metrics ---------------------------------------------------------------------


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype(np.float32)


def loss(name, cls, y_true, y_pred, weighted=(False, True), **options):
    """One case per reduction and with or without sample weights."""
    for reduction in ("sum_over_batch_size", "mean_with_sample_weight", "sum", "none"):
        for w in weighted:
            full = f"keras_loss_{name}_{reduction}{'_weighted' if w else ''}"
            if not wanted(full) or (reduction in ("sum", "none") and not w):
                continue
            r = rng("keras_loss_" + name + "_weights")
            rank = y_pred.ndim if cls is keras.losses.SparseCategoricalCrossentropy else y_true.ndim
            per_sample = y_pred.shape[:1] if rank == 2 else y_pred.shape[:-1]
            sw = uniform(r, per_sample, 0.1, 2.0) if w else None
            node = cls(reduction=reduction, **options)
            p = tf.constant(y_pred)
            with tf.GradientTape() as tape:
                tape.watch(p)
                result = node(y_true, p, sample_weight=sw)
            arrays = {"y_true": y_true, "y_pred": y_pred, "loss": value(result), "dy_pred": value(tape.gradient(result, p))}
            if w:
                arrays["sample_weight"] = sw
            save(full, {"kind": "loss", "made_by": MADE_BY, "class_name": cls.__name__, "reduction": reduction, **options}, arrays)


def all_losses():
    r = rng("losses")
    K = keras.losses
    n, c = 6, 5
    labels = r.integers(0, c, n).astype(np.int32)
    onehot = np.eye(c, dtype=np.float32)[labels]
    soft = softmax(uniform(r, (n, c), -2, 2))
    logits = uniform(r, (n, c), -5, 5)
    probs = softmax(logits)
    loss("scce_logits", K.SparseCategoricalCrossentropy, labels, logits, from_logits=True)
    loss("scce_probs", K.SparseCategoricalCrossentropy, labels, probs, from_logits=False)
    loss("cce_logits", K.CategoricalCrossentropy, onehot, logits, from_logits=True)
    loss("cce_probs", K.CategoricalCrossentropy, onehot, probs, from_logits=False)
    loss("cce_logits_soft", K.CategoricalCrossentropy, soft, logits, from_logits=True)
    loss("cce_probs_soft", K.CategoricalCrossentropy, soft, probs, from_logits=False)
    loss("cce_logits_smooth", K.CategoricalCrossentropy, onehot, logits, from_logits=True, label_smoothing=0.1)
    loss("cce_probs_smooth", K.CategoricalCrossentropy, onehot, probs, from_logits=False, label_smoothing=0.1)
    # Rows that do not sum to one and entries beyond the clip: what is divided, what is clipped, whose gradient is cut.
    odd = uniform(r, (n, c), 0.05, 0.9)
    odd[0] = [0, 0, 1, 0, 0]
    odd[1] = [1e-9, 0.25, 0.25, 0.25, 0.25]
    oddl = labels.copy()
    oddl[0], oddl[1] = 2, 0
    loss("scce_probs_odd", K.SparseCategoricalCrossentropy, oddl, odd, from_logits=False)
    loss("cce_probs_odd", K.CategoricalCrossentropy, np.eye(c, dtype=np.float32)[oddl], odd, from_logits=False)
    labels3 = r.integers(0, c, (2, 4)).astype(np.int32)
    loss("scce_logits_3d", K.SparseCategoricalCrossentropy, labels3, uniform(r, (2, 4, c), -5, 5), from_logits=True)

    bits = r.integers(0, 2, (n, 3)).astype(np.float32)
    blogits = uniform(r, (n, 3), -5, 5)
    bprobs = (1 / (1 + np.exp(-blogits))).astype(np.float32)
    for tag, p, k in (("logits", blogits, True), ("probs", bprobs, False)):
        loss("bce_" + tag, K.BinaryCrossentropy, bits, p, from_logits=k)
        loss(f"bce_{tag}_smooth", K.BinaryCrossentropy, bits, p, from_logits=k, label_smoothing=0.2)
    bodd = bprobs.copy()
    bodd[0] = [0.0, 1.0, 1e-9]
    loss("bce_probs_odd", K.BinaryCrossentropy, bits, bodd, from_logits=False)

    t, p = uniform(r, (n, 4), -2, 2), uniform(r, (n, 4), -2, 2)
    loss("mse", K.MeanSquaredError, t, p)
    loss("mae", K.MeanAbsoluteError, t, p)
    loss("huber", K.Huber, t, p, delta=1.0)
    loss("huber_05", K.Huber, t, p, delta=0.5)
    t, p = uniform(r, (2, 3, 4), -2, 2), uniform(r, (2, 3, 4), -2, 2)
    loss("mse_3d", K.MeanSquaredError, t, p)
    loss("mae_3d", K.MeanAbsoluteError, t, p)
    loss("huber_3d", K.Huber, t, p, delta=1.0)


def metric(name, make, batches):
    """A metric's result after the first batch and after both; once plain, once weighted."""
    for w in (False, True):
        full = f"keras_metric_{name}{'_weighted' if w else ''}"
        if not wanted(full):
            continue
        r = rng(full)
        node = make()
        arrays = {}
        for i, (t, p) in enumerate(batches):
            sw = uniform(r, (len(p),), 0.1, 2.0) if w else None
            node.update_state(t, p, sample_weight=sw)
            arrays.update({f"y_true{i}": t, f"y_pred{i}": p, f"result{i}": value(node.result())})
            if w:
                arrays[f"sample_weight{i}"] = sw
        config = {"kind": "metric", "made_by": MADE_BY, "class_name": type(node).__name__}
        config.update({k: v for k, v in node.get_config().items() if k not in ("name", "dtype")})
        save(full, config, arrays)


def all_metrics():
    r = rng("metrics")
    M = keras.metrics
    sizes = (16, 7)
    labels = [r.integers(0, 6, n).astype(np.int32) for n in sizes]
    scores = [softmax(uniform(r, (n, 6), -2, 2)) for n in sizes]
    onehot = [np.eye(6, dtype=np.float32)[v] for v in labels]
    bits = [r.integers(0, 2, (n, 1)).astype(np.float32) for n in sizes]
    bprob = [uniform(r, (n, 1), 0, 1) for n in sizes]
    bprob[0][0], bprob[0][1] = 0.5, 0.5  # exactly the threshold is not above it
    real = [uniform(r, (n, 3), -2, 2) for n in sizes]
    pred = [uniform(r, (n, 3), -2, 2) for n in sizes]
    metric("sparse_accuracy", M.SparseCategoricalAccuracy, list(zip(labels, scores)))
    metric("categorical_accuracy", M.CategoricalAccuracy, list(zip(onehot, scores)))
    metric("binary_accuracy", M.BinaryAccuracy, list(zip(bits, bprob)))
    metric("binary_accuracy_03", lambda: M.BinaryAccuracy(threshold=0.3), list(zip(bits, bprob)))
    for k in (2, 3):
        metric(f"sparse_top{k}", lambda: M.SparseTopKCategoricalAccuracy(k=k), list(zip(labels, scores)))
        metric(f"top{k}", lambda: M.TopKCategoricalAccuracy(k=k), list(zip(onehot, scores)))
    metric("mse", M.MeanSquaredError, list(zip(real, pred)))
    metric("mae", M.MeanAbsoluteError, list(zip(real, pred)))
    metric("sparse_cross_entropy", M.SparseCategoricalCrossentropy, list(zip(labels, scores)))
    # Equal scores: argmax takes the first, top-k counts a tie as in.
    tied = [np.zeros_like(s) for s in scores]
    metric("sparse_accuracy_tied", M.SparseCategoricalAccuracy, list(zip(labels, tied)))
    metric("sparse_top2_tied", lambda: M.SparseTopKCategoricalAccuracy(k=2), list(zip(labels, tied)))


# ---- optimizers and schedules ---------------------------------------------------------------

SHAPES = ((3, 4), (5,), (1,))
STEPS = 8


def optimizer(name, cls, schedule=None, **options):
    """Eight calls of apply on three variables with given gradients."""
    name = "keras_opt_" + name
    if not wanted(name):
        return
    r = rng("keras_opt")  # the same variables and gradients for every optimizer
    start = [uniform(r, s) for s in SHAPES]
    grads = [uniform(r, (STEPS,) + s, -3, 3) for s in SHAPES]
    config = {"kind": "optimizer", "made_by": MADE_BY, "class_name": cls.__name__}
    if schedule is not None:
        options["learning_rate"] = schedule
        config["schedule_class_name"] = type(schedule).__name__
        config.update({"schedule_" + k: v for k, v in schedule.get_config().items() if k != "name"})
    node = cls(**options)
    variables = [keras.Variable(v, name=f"v{i}") for i, v in enumerate(start)]
    node.build(variables)
    after = [[] for _ in SHAPES]
    average = [[] for _ in SHAPES]
    for t in range(STEPS):
        node.apply([tf.constant(g[t]) for g in grads], variables)
        for i, v in enumerate(variables):
            after[i].append(value(v))
            if node.use_ema:
                average[i].append(value(node._model_variables_moving_average[i]))
    arrays = {}
    for i in range(len(SHAPES)):
        arrays[f"v{i}"] = start[i]
        arrays[f"g{i}"] = grads[i]
        arrays[f"after{i}"] = np.stack(after[i])
        if node.use_ema:
            arrays[f"average{i}"] = np.stack(average[i])
    if node.use_ema:
        node.finalize_variable_values(variables)
        arrays.update({f"final{i}": value(v) for i, v in enumerate(variables)})
    config.update({k: v for k, v in node.get_config().items() if k != "name"})
    config["iterations"] = int(node.iterations)
    save(name, config, arrays)


def all_optimizers():
    O, S = keras.optimizers, keras.optimizers.schedules
    bases = {
        "sgd": (O.SGD, {"learning_rate": 0.1}),
        "sgd_momentum": (O.SGD, {"learning_rate": 0.1, "momentum": 0.9}),
        "sgd_nesterov": (O.SGD, {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
        "adam": (O.Adam, {"learning_rate": 0.01}),
        "adam_amsgrad": (O.Adam, {"learning_rate": 0.01, "amsgrad": True}),
        "adamw": (O.AdamW, {"learning_rate": 0.01}),
        "adamw_amsgrad": (O.AdamW, {"learning_rate": 0.01, "amsgrad": True}),
        "rmsprop": (O.RMSprop, {"learning_rate": 0.01}),
        "rmsprop_momentum": (O.RMSprop, {"learning_rate": 0.01, "momentum": 0.9}),
        "rmsprop_centered": (O.RMSprop, {"learning_rate": 0.01, "centered": True}),
        "rmsprop_centered_momentum": (O.RMSprop, {"learning_rate": 0.01, "centered": True, "momentum": 0.9}),
    }
    variants = {
        "": {},
        "_decay": {"weight_decay": 0.05},
        "_clipvalue": {"clipvalue": 0.5},
        "_clipnorm": {"clipnorm": 1.0},
        "_globalclip": {"global_clipnorm": 1.5},
        "_accumulate": {"gradient_accumulation_steps": 3},
        "_ema": {"use_ema": True, "ema_momentum": 0.9},
        "_ema_overwrite": {"use_ema": True, "ema_momentum": 0.8, "ema_overwrite_frequency": 3},
    }
    for base, (cls, options) in bases.items():
        for tag, more in variants.items():
            optimizer(base + tag, cls, **{**options, **more})
    # Everything at once: the order of the parts shows only where they meet.
    everything = {"weight_decay": 0.05, "global_clipnorm": 1.5, "gradient_accumulation_steps": 2, "use_ema": True, "ema_momentum": 0.9,
                  "ema_overwrite_frequency": 3}
    for base in ("sgd_nesterov", "adam", "adamw", "rmsprop_momentum"):
        cls, options = bases[base]
        optimizer(base + "_everything", cls, **{**options, **everything})
    decay = lambda: S.ExponentialDecay(0.1, 2, 0.5)
    optimizer("sgd_schedule", O.SGD, decay())
    optimizer("sgd_momentum_schedule", O.SGD, decay(), momentum=0.9)
    optimizer("adam_schedule_accumulate", O.Adam, decay(), gradient_accumulation_steps=2)
    optimizer("adamw_schedule_decay", O.AdamW, decay(), weight_decay=0.05)


def schedule(name, node):
    name = "keras_schedule_" + name
    if not wanted(name):
        return
    steps = np.array(sorted({*range(0, 41), *range(45, 400, 7), 99, 100, 101, 199, 200, 201, 1000, 5000}), np.int32)
    values = np.array([value(node(int(s))) for s in steps], np.float32)
    config = {"kind": "schedule", "made_by": MADE_BY, "class_name": type(node).__name__}
    config.update({k: v for k, v in node.get_config().items() if k != "name"})
    save(name, config, {"steps": steps, "values": values})


def all_schedules():
    S = keras.optimizers.schedules
    schedule("exponential", S.ExponentialDecay(0.1, 25, 0.9))
    schedule("exponential_staircase", S.ExponentialDecay(0.1, 25, 0.9, staircase=True))
    schedule("cosine", S.CosineDecay(0.1, 200, alpha=0.1))
    schedule("cosine_warmup", S.CosineDecay(0.01, 200, alpha=0.05, warmup_target=0.1, warmup_steps=20))
    schedule("cosine_warmup_zero", S.CosineDecay(0.0, 180, warmup_target=0.1, warmup_steps=20))
    schedule("piecewise", S.PiecewiseConstantDecay([10, 30, 100], [0.1, 0.05, 0.01, 0.001]))
    schedule("polynomial", S.PolynomialDecay(0.1, 100, end_learning_rate=0.01, power=2.0))
    schedule("polynomial_linear", S.PolynomialDecay(0.1, 100, end_learning_rate=0.01))
    schedule("polynomial_cycle", S.PolynomialDecay(0.1, 50, end_learning_rate=0.01, power=0.5, cycle=True))
    schedule("inverse_time", S.InverseTimeDecay(0.1, 25, 0.5))
    schedule("inverse_time_staircase", S.InverseTimeDecay(0.1, 25, 0.5, staircase=True))


if __name__ == "__main__":
    all_layers()
    application_layers()
    all_losses()
    all_metrics()
    all_optimizers()
    all_schedules()
