"""Models of Manta's own, in the words of Keras; the library computes.

    import manta
    from manta import layers

    model = manta.Sequential([manta.Input((784,)), layers.Dense(128, "relu"), layers.Dense(10, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(x, y, epochs=3, validation_split=0.1)
    model.save("digits.keras")

| file | what |
|---|---|
| _model | Model, Sequential, load_model, zoo: building, compiling, weights, files |
| _training | fit, evaluate, predict, single batches |
| _workers, _helper | fit(workers=2): the program's side, and the process that trains for it |
| _keras | models between Manta and a Keras that is installed |
| _graph | what calls of layers make, and the Keras configuration of it |
| _dataset, _arrays | samples by words and in arrays |
| _listen, _summary, _words | callbacks as C calls them; the table of summary(); names and values |
| ../layers, callbacks, optimizers, losses, metrics, initializers, regularizers | what a model is made and trained with |

A model becomes the text of a Keras configuration, which the library reads as it reads the files of Keras: it knows the
layers, their options and defaults, and says what is wrong with them. NumPy is imported when the first array is met.
"""
from manta.models._dataset import Dataset
from manta.models._keras import from_keras, to_keras
from manta.models._model import Model, Sequential, load_model, zoo

__all__ = ["Dataset", "Model", "Sequential", "from_keras", "load_model", "to_keras", "zoo"]
