"""A computation written down as operators on arrays, for programs that do not run Python.

What a fitted model does to its input is recorded as a list of nodes in the vocabulary of ONNX: names in, an operator,
names out. Nothing here needs the onnx package; `preflearn.io.to_onnx` turns the records into a file.

A model says what it computes in a method ``_onnx_nodes(graph, X)``, from the recorded input to the recorded output:

    scores = (X - centre) @ weights + intercept

reads as it would with arrays. All numbers are float64. A model that takes a table rather than a matrix has a method
``_onnx_inputs()`` that says "number", "moment" or "text" for each column by name, and gets a mapping of them. One
whose output depends on the other rows of the call says so in an attribute ``_looks_at_query``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


class ExportError(ValueError):
    """A model, or a part of one, that has no counterpart in the format it is to be exported to."""


@dataclass(frozen=True)
class Node:
    """One operator.

    Attributes
    ----------
    operator : str
    inputs, outputs : tuple of str
        Names of values.
    attributes : dict
    domain : str
        The operator set; empty for the default one.
    """

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    domain: str = ""


@dataclass
class Graph:
    """The operators recorded so far.

    Attributes
    ----------
    nodes : list of Node
    constants : dict
    rounded : {"", "inputs", "results"}
        How the numbers of a table or matrix arrive: not rounded; rounded to float32 as they are written there; or
        computed from rounded numbers, so that their original values can no longer be recognised.

    Examples
    --------
    >>> graph = Graph()
    >>> X = graph.input("X")
    >>> scores = X @ np.array([[1.0], [2.0]]) + 0.5
    >>> [node.operator for node in graph.nodes]
    ['MatMul', 'Add']
    """

    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    rounded: str = ""

    def input(self, name: str) -> Value:
        """A value that comes from outside."""
        return Value(self, name)

    def constant(self, values: Any) -> Value:
        """A fixed array: whole numbers stay so, other numbers become float64."""
        array = np.asarray(values)
        if array.dtype.kind in "fb":
            array = array.astype(np.float64)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = array
        return Value(self, name)

    def apply(
        self, operator: str, *inputs: Any, domain: str = "", n_outputs: int = 1, **attributes: Any
    ) -> Any:
        """Record an operator; its output, or a tuple of them."""
        names = tuple(one.name if isinstance(one, Value) else self.constant(one).name for one in inputs)
        outputs = tuple(f"value_{len(self.nodes)}_{k}" for k in range(n_outputs))
        self.nodes.append(Node(operator, names, outputs, attributes, domain))
        values = tuple(Value(self, name) for name in outputs)
        return values[0] if n_outputs == 1 else values

    def concatenate(self, values: list[Value]) -> Value:
        """Columns side by side."""
        return values[0] if len(values) == 1 else self.apply("Concat", *values, axis=1)

    def columns(self, X: Value, places: Any) -> Value:
        """Some columns of X, in this order."""
        return self.apply("Gather", X, np.asarray(places, dtype=np.int64), axis=1)

    def to_recognise(self, X: Value, values: np.ndarray) -> tuple[Value, np.ndarray]:
        """X and the values that its entries are compared with, both rounded to float32 where the inputs are.

        Values that were equal are equal again, and values that were above or below are not moved past each other.

        Raises
        ------
        ExportError
            If X has been computed from rounded numbers: then a value cannot be distinguished from its neighbours.
        """
        if not self.rounded:
            return X, values
        if self.rounded != "inputs":
            raise ExportError(
                "The model recognises values of its features (quantiles that many rows share), and the steps before it "
                "would compute them from float32 numbers: export it with dtype='float64' (--dtype float64)."
            )
        narrow = self.apply("Cast", self.apply("Cast", X, to="float32"), to="float64")
        return narrow, values.astype(np.float32).astype(np.float64)

    def where(self, condition: Value, value: Any, other: Any) -> Value:
        """One of two values, entry by entry."""
        return self.apply("Where", condition, value, other)


@dataclass(frozen=True, eq=False)
class Value:
    """A recorded array; arithmetic on it records an operator."""

    graph: Graph
    name: str

    def __add__(self, other: Any) -> Value:
        return self.graph.apply("Add", self, other)

    def __sub__(self, other: Any) -> Value:
        return self.graph.apply("Sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.graph.apply("Sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self.graph.apply("Mul", self, other)

    def __truediv__(self, other: Any) -> Value:
        return self.graph.apply("Div", self, other)

    def __pow__(self, other: Any) -> Value:
        return self.graph.apply("Pow", self, other)

    def __matmul__(self, other: Any) -> Value:
        return self.graph.apply("MatMul", self, other)

    def __neg__(self) -> Value:
        return self.graph.apply("Neg", self)

    # NumPy must not broadcast an operation over the entries of its array: the recorded value is the array.
    __array_ufunc__ = None
    __radd__ = __add__
    __rmul__ = __mul__

    def exp(self) -> Value:
        return self.graph.apply("Exp", self)

    def log(self) -> Value:
        return self.graph.apply("Log", self)

    def sqrt(self) -> Value:
        return self.graph.apply("Sqrt", self)

    def abs(self) -> Value:
        return self.graph.apply("Abs", self)

    def floor(self) -> Value:
        return self.graph.apply("Floor", self)

    def at_least(self, bound: Any) -> Value:
        return self.graph.apply("Max", self, bound)

    def at_most(self, bound: Any) -> Value:
        return self.graph.apply("Min", self, bound)

    def less(self, other: Any) -> Value:
        return self.graph.apply("Less", self, other)

    def equal(self, other: Any) -> Value:
        return self.graph.apply("Equal", self, other)

    def as_numbers(self) -> Value:
        """Booleans or whole numbers as float64."""
        return self.graph.apply("Cast", self, to="float64")

    def reduce(self, how: str, axis: int, keep: bool = True) -> Value:
        """Sum, Mean, Min or Max along an axis."""
        return self.graph.apply(f"Reduce{how}", self, np.array([axis]), keepdims=int(keep))

    def with_axis(self, axis: int) -> Value:
        """The same with one more axis, of length 1."""
        return self.graph.apply("Unsqueeze", self, np.array([axis]))

    def without_axis(self, axis: int) -> Value:
        return self.graph.apply("Squeeze", self, np.array([axis]))
