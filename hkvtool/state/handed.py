"""Many arrays handed to compiled code as one address.

A named tuple of arrays goes from one compiled function to the next array by array, seven words
each: a call among the transitions then costs a thousand stores, more than its work. Handed over
like this a call takes one word, and an array that is asked for is looked up in a table.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import from_dtype

_WORDS = 2
"""Words of the table for each array: where its first element is, and how many it has."""


class Handed:
    """The arrays of a named tuple, which stay where they are as long as this is there."""

    def __init__(self, arrays: Any) -> None:
        self.arrays = arrays
        places = [column.__array_interface__["data"][0] for column in arrays]
        self._table = np.array([places, [len(column) for column in arrays]], np.int64).T.copy()
        self.address = int(self._table.__array_interface__["data"][0])
        kinds = "".join(column.dtype.char for column in arrays)
        self.kind = _kind(type(arrays).__name__, arrays._fields, kinds)


class HandedType(types.Type):
    """What the compiler knows of it: the names of the arrays and what they are of."""

    def __init__(self, title: str, fields: tuple[str, ...], kinds: str) -> None:
        self.fields, self.kinds = fields, kinds
        super().__init__(name=f"{title}({','.join(fields)}: {kinds})")

    def array(self, name: str) -> Any:
        """The type of one of the arrays."""
        kind = from_dtype(np.dtype(self.kinds[self.fields.index(name)]))
        return types.Array(kind, 1, "C")


@cache
def _kind(title: str, fields: tuple[str, ...], kinds: str) -> HandedType:
    return HandedType(title, fields, kinds)


@typeof_impl.register(Handed)  # type: ignore[untyped-decorator]
def _typeof(handed: Handed, _: Any) -> HandedType:
    return handed.kind


@register_model(HandedType)
class _Address(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: HandedType) -> None:
        super().__init__(manager, kind, cgutils.voidptr_t)


@unbox(HandedType)  # type: ignore[untyped-decorator]
def _unboxed(_: HandedType, handed: Any, c: Any) -> Any:
    number = c.pyapi.object_getattr_string(handed, "address")
    address = c.pyapi.long_as_ulonglong(number)
    c.pyapi.decref(number)
    return NativeValue(c.builder.inttoptr(address, cgutils.voidptr_t))


@infer_getattr
class _Attributes(AttributeTemplate):  # type: ignore[misc]
    key = HandedType

    def generic_resolve(self, kind: HandedType, name: str) -> Any:
        return kind.array(name) if name in kind.fields else None


@lower_getattr_generic(HandedType)  # type: ignore[untyped-decorator]
def _array(context: Any, builder: Any, kind: HandedType, address: Any, name: str) -> Any:
    of = kind.array(name)
    array = context.make_array(of)(context, builder)
    first = _WORDS * kind.fields.index(name)
    size = cgutils.intp_t(context.get_abi_sizeof(context.get_data_type(of.dtype)))
    populate_array(
        array,
        data=_word(builder, address, first, array.data.type),
        shape=[_word(builder, address, first + 1, cgutils.intp_t)],
        strides=[size],
        itemsize=size,
        meminfo=None,
    )
    return array._getvalue()


def _word(builder: Any, address: Any, place: int, kind: Any) -> Any:
    """One word of the table. It was made before the code ran, so that nothing the code stores
    changes it, and it need not be looked up again after a store."""
    table = builder.bitcast(address, kind.as_pointer())
    found = builder.load(builder.gep(table, [cgutils.intp_t(place)]))
    found.set_metadata("invariant.load", builder.module.add_metadata([]))
    return found
