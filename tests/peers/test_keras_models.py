"""Models of Keras's as Manta's and back: predictions, weights, and the table of summary()."""

PROGRAM = """
import keras, numpy
import manta
from manta import layers

def same(a, b):
    return all((p == q).all() for p, q in zip(a.get_weights(), b.get_weights()))

def near(ours, theirs, x):
    return numpy.allclose(ours.predict(x), theirs.predict(x, verbose=0), atol=1e-5)

x = numpy.random.default_rng(0).random((32, 4), dtype=numpy.float32)
theirs = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu", name="first"),
                           keras.layers.Dense(2, activation="softmax", name="last")], name="small")
theirs.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
ours = manta.from_keras(theirs)
print("there:", same(ours, theirs), near(ours, theirs, x))

table, own = [], []
theirs.summary(print_fn=lambda line, **kwargs: table.append(line))
ours.summary(print_fn=own.append)
print("summary:", [l.rstrip() for l in "\\n".join(table).splitlines() if l.strip()] == "\\n".join(own).splitlines())

ours.fit(x, (x.sum(1) > 2).astype("int64"), verbose=0)
again = manta.to_keras(ours)
print("back:", type(again) is type(theirs), same(ours, again), near(ours, again, x))

model = manta.Sequential([manta.Input((8, 8, 1)), layers.Conv2D(4, 3, padding="same", activation="relu"),
                          layers.BatchNormalization(), layers.MaxPooling2D(), layers.Flatten(), layers.Dense(3)], seed=2)
pictures = numpy.random.default_rng(0).random((8, 8, 8, 1), dtype=numpy.float32)
print("made here:", near(model, manta.to_keras(model), pictures))
try:
    manta.from_keras(ours)
except TypeError as e:
    print(e)
"""


def test_models_between_keras_and_manta(python):
    assert python(PROGRAM).splitlines()[-5:] == ["there: True True", "summary: True", "back: True True True", "made here: True",
                                                 "from_keras: Sequential is given, expected a model of Keras"]
