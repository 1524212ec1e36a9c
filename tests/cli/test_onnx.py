"""ONNX files: the checker takes them, and onnxruntime computes from them what Manta computes."""
import numpy as np
import onnx
import onnxruntime
import pytest

from libmanta import LIB, Model, Session, columns, must


def compare(model, path, tolerance=1e-5, batch=3, data=None):
    """Random weights and inputs through both; the ONNX model, for a closer look."""
    random = np.random.default_rng(7)
    session = Session(model)
    weights = {}
    for name, shape in model.variables().items():
        scale = 1 / np.sqrt(max(1, np.prod(shape[:-1])))
        w = random.normal(0, scale, shape) if not name.endswith("variance") else random.uniform(0.5, 2, shape)
        if name.endswith("gamma"):
            w = random.uniform(0.5, 1.5, shape)
        weights[name] = w.astype("float32")
        session.set(name, weights[name])
    array, kept = columns(weights)
    must(LIB.manta_onnx_write(str(path).encode(), model.p, len(array), array))
    del kept

    proto = onnx.load(str(path))
    onnx.checker.check_model(proto, full_check=True)
    assert proto.ir_version == 8 and proto.opset_import[0].version == 17
    assert [i.name for i in proto.graph.input] == [name for name, _, _ in model.inputs()]

    feeds = {}
    for name, dtype, shape in model.inputs():
        shape = (batch,) + shape[1:]
        if data and name in data:
            feeds[name] = data[name]
        elif dtype == "float32":
            feeds[name] = random.normal(0, 1, shape).astype("float32")
        else:
            feeds[name] = random.integers(0, 5, shape).astype(dtype)
    ours = session.predict(*feeds.values())
    theirs = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
    session.close()
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert np.abs(a).max() > 1e-3, "nothing is compared"
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance)
    return proto


@pytest.mark.parametrize("name", ["mnist-cnn", "resnet18", "mlp", "linear", "autoencoder"])
def test_zoo(name, tmp_path):
    model = Model(zoo=name)
    proto = compare(model, tmp_path / "m.onnx")
    ops = [n.op_type for n in proto.graph.node]
    if name == "resnet18":      # channels first all the way through: in at the front, and no way back for a map
        assert ops.count("Conv") == 20 and ops.count("Transpose") <= 1
    model.close()


MAP = (6, 7, 4)
ONE_LAYER = [
    ("Conv2D", MAP, dict(filters=3, kernel_size=(3, 3))),
    ("Conv2D", MAP, dict(filters=3, kernel_size=(3, 2), strides=(2, 2), padding="same", activation="relu")),
    ("Conv2D", (7, 7, 4), dict(filters=6, kernel_size=(2, 2), strides=(2, 2), padding="same", groups=2)),
    ("Conv2D", MAP, dict(filters=5, kernel_size=(2, 2), dilation_rate=(2, 2), padding="same", use_bias=False)),
    ("DepthwiseConv2D", MAP, dict(kernel_size=(3, 3), padding="same")),
    ("DepthwiseConv2D", MAP, dict(kernel_size=(2, 2), strides=(2, 2), depth_multiplier=3)),
    ("Conv2DTranspose", MAP, dict(filters=3, kernel_size=(3, 3), strides=(2, 2), padding="same")),
    ("Conv2DTranspose", MAP, dict(filters=2, kernel_size=(2, 3), strides=(3, 2))),
    ("Conv2DTranspose", MAP, dict(filters=2, kernel_size=(3, 3), strides=(2, 2), output_padding=(1, 1))),
    ("Conv2DTranspose", MAP, dict(filters=2, kernel_size=(3, 3), dilation_rate=(2, 2), use_bias=False)),
    ("MaxPooling2D", MAP, dict(pool_size=(2, 2))),
    ("MaxPooling2D", (7, 7, 2), dict(pool_size=(3, 3), strides=(2, 2), padding="same")),
    ("AveragePooling2D", (7, 5, 2), dict(pool_size=(3, 3), strides=(2, 2), padding="same")),
    ("AveragePooling2D", MAP, dict(pool_size=(2, 2))),
    ("GlobalAveragePooling2D", MAP, {}),
    ("GlobalAveragePooling2D", MAP, dict(keepdims=True)),
    ("GlobalMaxPooling2D", MAP, {}),
    ("GlobalMaxPooling2D", MAP, dict(keepdims=True)),
    ("BatchNormalization", MAP, {}),
    ("BatchNormalization", (5,), dict(epsilon=0.01)),
    ("BatchNormalization", (4, 5), dict(scale=False)),
    ("BatchNormalization", MAP, dict(center=False, scale=False)),
    ("LayerNormalization", MAP, {}),
    ("LayerNormalization", (5, 6), dict(center=False)),
    ("LayerNormalization", (5,), dict(scale=False)),
    ("Dense", (5,), dict(units=4)),
    ("Dense", (3, 5), dict(units=4, activation="gelu")),
    ("Dense", (5,), dict(units=4, use_bias=False)),
    ("Dense", MAP, dict(units=2, activation="softmax")),
    ("Flatten", MAP, {}),
    ("Reshape", MAP, dict(target_shape=(14, 12))),
    ("Permute", MAP, dict(dims=(3, 1, 2))),
    ("Permute", (3, 4), dict(dims=(2, 1))),
    ("ZeroPadding2D", MAP, dict(padding=((1, 2), (0, 3)))),
    ("UpSampling2D", MAP, dict(size=(2, 3))),
    ("UpSampling2D", MAP, dict(size=(2, 2), interpolation="bilinear")),
    ("Rescaling", MAP, dict(scale=0.5, offset=-1.0)),
    ("Normalization", MAP, dict(mean=[0, 1, 2, 3], variance=[1, 4, 0.25, 9])),
    ("Normalization", MAP, dict(mean=[0.5], variance=[4], invert=True)),
    ("Dropout", (5,), dict(rate=0.5)),
    ("Softmax", (5,), {}),
    ("LeakyReLU", MAP, dict(negative_slope=0.1)),
    ("ELU", MAP, dict(alpha=0.7)),
    ("ReLU", MAP, dict(max_value=1.0, negative_slope=0.2)),
    ("ReLU", MAP, dict(negative_slope=0.2, threshold=0.5)),
] + [("Activation", MAP, dict(activation=a)) for a in
     ("linear", "relu", "relu6", "leaky_relu", "elu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "softmax")]


@pytest.mark.parametrize("layer,shape,config", ONE_LAYER,
                         ids=[f"{k}-{case[0]}" for k, case in enumerate(ONE_LAYER)])
def test_layer(layer, shape, config, tmp_path):
    model = Model()
    model.build(y=model(layer, model.input("x", shape), **config))
    compare(model, tmp_path / "m.onnx")
    model.close()


@pytest.mark.parametrize("layer,shape,config", [case for case in ONE_LAYER if len(case[1]) == 3],
                         ids=[f"{k}-{case[0]}" for k, case in enumerate(ONE_LAYER) if len(case[1]) == 3])
def test_layer_between_convolutions(layer, shape, config, tmp_path):
    """The same, meeting a value that is channels first already."""
    model = Model()
    x = model("Conv2D", model.input("x", shape), filters=shape[2], kernel_size=(1, 1))
    y = model(layer, x, **config)
    model.build(y=y)
    compare(model, tmp_path / "m.onnx", 2e-5)
    model.close()


@pytest.mark.parametrize("merge", ["Add", "Subtract", "Multiply"])
@pytest.mark.parametrize("other", [MAP, (1, 1, 4), (4,), (7, 1)])
def test_merge(merge, other, tmp_path):
    model = Model()
    a, b = model.input("a", MAP), model.input("b", other)
    c = model("Conv2D", a, filters=4, kernel_size=(1, 1))
    model.build(plain=model(merge, [a, b]), converted=model(merge, [c, b]), turned=model(merge, [b, c]))
    compare(model, tmp_path / "m.onnx")
    model.close()


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_concatenate(axis, tmp_path):
    model = Model()
    a, b = model.input("a", MAP), model.input("b", MAP)
    c, d = (model("Conv2D", v, filters=4, kernel_size=(1, 1)) for v in (a, b))
    model.build(plain=model("Concatenate", [a, b], axis=axis), first=model("Concatenate", [c, d], axis=axis),
                mixed=model("Concatenate", [a, d, b], axis=axis))
    compare(model, tmp_path / "m.onnx")
    model.close()


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32"])
def test_embedding(dtype, tmp_path):
    model = Model()
    x = model("Embedding", model.input("words", (6,), dtype), input_dim=5, output_dim=3)
    model.build(y=model("Dense", model("Flatten", x), units=2))
    compare(model, tmp_path / "m.onnx", data={"words": (np.arange(18).reshape(3, 6) % 5).astype(dtype)})
    model.close()


def test_functional(tmp_path):
    """Two inputs (one of bytes), shared values, a residual, two outputs, and several batch sizes."""
    model = Model()
    image, extra = model.input("image", (8, 8, 3), "uint8"), model.input("extra", (4,))
    x = model("Rescaling", image, scale=1 / 255)
    x = model("Conv2D", x, filters=8, kernel_size=(3, 3), padding="same", use_bias=False)
    x = model("Activation", model("BatchNormalization", x), activation="relu")
    y = model("Conv2D", x, filters=8, kernel_size=(3, 3), padding="same")
    x = model("Activation", model("Add", [x, y]), activation="relu")
    gate = model("Reshape", model("Dense", extra, units=8, activation="sigmoid"), target_shape=(1, 1, 8))
    x = model("Multiply", [x, gate])
    flat = model("GlobalAveragePooling2D", x)
    both = model("Concatenate", [flat, extra])
    classes = model("Dense", model("Dropout", both, rate=0.3), units=5, activation="softmax")
    model.build(classes=classes, map=x)
    for batch in (1, 4):
        proto = compare(model, tmp_path / "m.onnx", batch=batch)
    assert [o.name for o in proto.graph.output] == ["classes", "map"]
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    model.close()


def test_a_missing_weight_is_named(tmp_path):
    model = Model(zoo="linear")
    array, kept = columns({"nothing": np.zeros(1, "float32")})
    assert LIB.manta_onnx_write(str(tmp_path / "m.onnx").encode(), model.p, 1, array) != 0
    assert next(iter(model.variables())) in LIB.manta_error_text().decode()
    assert not (tmp_path / "m.onnx").exists()
    del kept
    model.close()
