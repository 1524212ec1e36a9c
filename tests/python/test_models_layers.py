"""manta.layers: a class for each table of the library, its types, and one model with most of them."""
import importlib.util
import pathlib

import pytest

import manta
from manta import _manta, layers

numpy = pytest.importorskip("numpy")
ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_layer_of_the_library_is_here():
    for name, fields in _manta.layer_classes():
        cls = getattr(layers, name)
        assert name in layers.__all__ and set(cls.fields) == {key for key, _ in fields}
        assert f"manta.layers.{name}(" in cls.__doc__
    assert layers.MaxPool2D is layers.MaxPooling2D


def test_the_types_are_those_of_the_tables():
    """python/manta/layers.pyi is what tools/layer_stubs.py writes."""
    spec = importlib.util.spec_from_file_location("layer_stubs", ROOT / "tools" / "layer_stubs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "python" / "manta" / "layers.pyi").read_text() == module.stubs()


@pytest.mark.sanitized
def test_images_through_many_layers():
    given = manta.Input((8, 8, 2), dtype="uint8")
    x = layers.Rescaling(1 / 255)(given)
    x = layers.Conv2D(4, 3, padding="same", use_bias=False, kernel_initializer=manta.initializers.RandomNormal(stddev=0.1),
                      kernel_regularizer=manta.regularizers.L2(1e-3))(x)
    x = layers.BatchNormalization(momentum=0.9)(x)
    x = layers.ReLU(6.0)(x)
    y = layers.Conv2D(4, (3, 3), (1, 1), "same")(x)
    x = layers.Add()([x, y])
    x = layers.MaxPooling2D(2)(x)
    x = layers.ZeroPadding2D(((1, 0), (0, 1)))(x)
    x = layers.SeparableConv2D(6, 3, activation="gelu")(x)
    x = layers.Dropout(0.25)(x)
    x = layers.LayerNormalization()(layers.GlobalAveragePooling2D()(x))
    model = manta.Model(given, layers.Dense(3, activation="softmax")(x))
    model.compile("adamw", manta.losses.SparseCategoricalCrossentropy(),
                  metrics=["accuracy", manta.metrics.SparseTopKCategoricalAccuracy(k=2)])
    rng = numpy.random.default_rng(0)
    pictures, kinds = rng.integers(0, 256, (40, 8, 8, 2), numpy.uint8), rng.integers(0, 3, 40)
    history = model.fit(pictures, kinds, batch_size=8, epochs=2, verbose=0)
    assert numpy.isfinite(history.history["loss"]).all()
    assert model.predict(pictures).shape == (40, 3)
    moving = [n for n, _, _, trainable, _ in model._build().variables if not trainable]
    assert moving == ["batch_normalization/moving_mean", "batch_normalization/moving_variance"]


def test_texts_of_numbers():
    given = manta.Input((5,), dtype="int32")
    model = manta.Model(given, layers.Dense(1)(layers.Flatten()(layers.Embedding(10, 4)(given))))
    model.compile("rmsprop", "binary_crossentropy")
    words = numpy.arange(50, dtype=numpy.int32).reshape(10, 5) % 10
    assert model.predict(words).shape == (10, 1)
    assert model.evaluate(words, numpy.ones(10), verbose=0) > 0
