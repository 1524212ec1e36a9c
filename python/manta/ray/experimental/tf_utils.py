"""ray.experimental.tf_utils: the weights of a graph of TensorFlow 1, in and out.

For programs of sessions and graphs (`tf.compat.v1`). TensorFlow is imported when a graph is given, not before.
"""
from __future__ import annotations

from collections import OrderedDict
from typing import Any, Iterable

VARIABLES = ("VarHandleOp", "VariableV2", "Variable")


def _variables_of(outputs: Iterable[Any]) -> set[str]:
    """Names of the operations that hold a variable which one of the outputs depends on."""
    waiting = [output.op for output in outputs]
    met = set(waiting)
    names = set()
    while waiting:
        op = waiting.pop()
        if op.type in VARIABLES:
            names.add(op.name)
        for before in [tensor.op for tensor in op.inputs] + list(op.control_inputs):
            if before not in met:
                met.add(before)
                waiting.append(before)
    return names


class TensorFlowVariables:
    """Gets and sets the variables that an output depends on, as a dictionary of arrays or as one flat array.

    >>> variables = ray.experimental.TensorFlowVariables(loss, sess)
    >>> weights = variables.get_weights()
    >>> variables.set_weights(weights)

    Nodes for setting are added to the graph once, here: setting does not make it grow.
    """

    def __init__(self, output: Any, sess: Any = None, input_variables: Iterable[Any] | None = None) -> None:
        import tensorflow.compat.v1 as tf

        outputs = list(output) if isinstance(output, (list, tuple)) else [output]
        if not outputs or not all(tf.is_symbolic_tensor(o) for o in outputs):
            raise TypeError("TensorFlowVariables() takes a tensor of a graph: build it under tf.compat.v1.Graph().as_default() "
                            "or after tf.compat.v1.disable_v2_behavior()")
        self.sess = sess
        with outputs[0].graph.as_default() as graph:
            names = _variables_of(outputs)
            found = [v for v in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES) if v.op.name in names]
            self.variables = OrderedDict((v.op.name, v) for v in [*found, *(input_variables or ())])
            self.placeholders = {name: tf.placeholder(v.dtype.base_dtype, v.get_shape().as_list(), name=f"Placeholder_{name}")
                                 for name, v in self.variables.items()}
            self.assignment_nodes = {name: v.assign(self.placeholders[name]) for name, v in self.variables.items()}

    def set_session(self, sess: Any) -> None:
        """The session that later calls use."""
        self.sess = sess

    def _session(self) -> Any:
        if self.sess is None:
            raise RuntimeError("The session is not set: pass sess, or call set_session() first.")
        return self.sess

    def get_flat_size(self) -> int:
        """How many numbers get_flat() returns."""
        return sum(v.get_shape().num_elements() for v in self.variables.values())

    def get_flat(self) -> Any:
        """All variables behind each other in one array."""
        import numpy
        values = self.get_weights().values()
        return numpy.concatenate([v.reshape(-1) for v in values]) if values else numpy.zeros(0)

    def set_flat(self, new_weights: Any) -> None:
        """Takes back what get_flat() gave."""
        at, new = 0, {}
        for name, v in self.variables.items():
            shape = v.get_shape()
            new[name] = new_weights[at:at + shape.num_elements()].reshape(shape.as_list())
            at += shape.num_elements()
        self.set_weights(new)

    def get_weights(self) -> OrderedDict[str, Any]:
        """The values by name, as arrays of numpy."""
        return OrderedDict(zip(self.variables, self._session().run(list(self.variables.values()))))

    def set_weights(self, new_weights: dict[str, Any]) -> None:
        """Sets the variables that are named; names of others are passed over, but one must be known."""
        known = [name for name in new_weights if name in self.variables]
        if not known:
            raise ValueError(f"None of {', '.join(map(str, new_weights))} is a variable of this network, which has "
                             f"{', '.join(self.variables)}. Two networks in one graph have different names.")
        self._session().run([self.assignment_nodes[name] for name in known],
                            feed_dict={self.placeholders[name]: new_weights[name] for name in known})
