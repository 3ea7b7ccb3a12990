"""Short runs of an array as vectors of the processor.

The compiler makes scalar code of loops over 8 or 16 neighbouring numbers, several times slower: it must assume that
two arrays overlap. The functions made here say what is meant, and are called in compiled loops like any other.

Numba caches a loop until the file of the loop itself changes: after a change here or in `running_sums`, the caches
of the loops that use them have to be deleted (tests/conftest.py does so).
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

_INDEX = ir.IntType(32)


class _Run:
    """``width`` numbers of a one-dimensional C-contiguous array from ``start`` on, inside the code of a function."""

    def __init__(self, context, builder, array_type, array, start, width):
        data = context.make_array(array_type)(context, builder, array).data
        self.type = ir.VectorType(context.get_data_type(array_type.dtype), width)
        self._alignment = context.get_abi_sizeof(self.type.element)
        self._builder = builder
        self._pointer = builder.bitcast(builder.gep(data, [start]), self.type.as_pointer())

    def load(self):
        return self._builder.load(self._pointer, align=self._alignment)

    def store(self, vector):
        self._builder.store(vector, self._pointer, align=self._alignment)


def _check(*arrays):
    for array in arrays:
        if not isinstance(array, types.Array) or array.ndim != 1 or array.layout != "C":
            raise TypingError(f"a one-dimensional C-contiguous array is needed here: found {array}.")


def in_all_lanes(builder, x, width):
    """A vector with the value x in all places."""
    undefined = ir.Constant(ir.VectorType(x.type, width), ir.Undefined)
    first = builder.insert_element(undefined, x, _INDEX(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_INDEX, width), [0] * width))


def add_where(width, relation):
    """A function (array, start, place, value): array[start + k] += value for those k < width related to the place.

    Parameters
    ----------
    width : int
    relation : {"<", ">"}
    """

    @intrinsic
    def add(typing_context, array, start, place, value):
        _check(array)
        return types.void(array, types.int64, types.int32, array.dtype), generate

    def generate(context, builder, signature, arguments):
        array, start, place, value = arguments
        run = _Run(context, builder, signature.args[0], array, start, width)
        whole = isinstance(run.type.element, ir.IntType)
        numbers = ir.Constant(ir.VectorType(_INDEX, width), list(range(width)))
        related = builder.icmp_signed(relation, numbers, in_all_lanes(builder, place, width))
        nothing = ir.Constant(run.type, [0 if whole else 0.0] * width)
        change = builder.select(related, in_all_lanes(builder, value, width), nothing)
        run.store((builder.add if whole else builder.fadd)(run.load(), change))
        return context.get_dummy_value()

    return add
