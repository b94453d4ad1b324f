"""Pickles of plain values, read without running anything that is in them.

A pickle is a program. It is taken apart instruction by instruction, and only those that make None,
numbers, text, bytes, tuples, lists and dicts are carried out, here: the first other one ends the
reading, with its offset. What is made stays within a multiple of the file, and the file is bounded.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from typing import IO, Any

MAX_BYTES = 256 << 20
MOST_STEPS = 30_000_000
"""Instructions that are carried out: a snapshot of a whole process has a few million."""

_VALUES = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE",
    "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
})  # fmt: skip
"""Instructions whose argument is the value."""

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_MARK = object()


class NotPlain(ValueError):
    """A pickle that is damaged, or that holds more than plain values; `offset` is where."""

    def __init__(self, problem: str, offset: int) -> None:
        super().__init__(problem)
        self.offset = offset


def read_plain(stream: IO[bytes]) -> Any:
    """The value of a pickle. Raises NotPlain."""
    machine = _Machine()
    offset = 0
    try:
        for step, (code, argument, position) in enumerate(pickletools.genops(stream)):
            offset = position or 0
            if step >= MOST_STEPS:
                raise NotPlain(f"more than {MOST_STEPS:,} instructions", offset)
            if code.name == "STOP":
                return machine.pop()
            machine.take(code.name, argument)
    except NotPlain:
        raise
    except _Refused as e:
        raise NotPlain(str(e), offset) from None
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError) as e:
        raise NotPlain(f"damaged: {str(e)[:80] or type(e).__name__}", offset) from None
    raise NotPlain("it has no end", offset)


class _Refused(Exception):
    """An instruction that is not carried out."""


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value should be")
        return value

    def take(self, name: str, argument: Any) -> None:
        """Carry out one instruction."""
        stack = self._stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self._memo[argument])
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = self._top()
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self._memo[argument] = self._top()
        elif name == "MARK":
            stack.append(_MARK)
        elif name not in ("PROTO", "FRAME"):
            self._build(name)

    def _build(self, name: str) -> None:
        """Carry out one that makes or fills a container."""
        stack = self._stack
        if name == "EMPTY_LIST":
            stack.append([])
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name == "EMPTY_TUPLE":
            stack.append(())
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            values = [self.pop() for _ in range(int(name[-1]))]
            stack.append(tuple(reversed(values)))
        elif name == "TUPLE":
            stack.append(tuple(self._marked()))
        elif name == "LIST":
            stack.append(self._marked())
        elif name == "DICT":
            stack.append(dict(_pairs(self._marked())))
        elif name == "APPEND":
            value = self.pop()
            self._of_type(list).append(value)
        elif name == "APPENDS":
            values = self._marked()
            self._of_type(list).extend(values)
        elif name == "SETITEM":
            value, key = self.pop(), self.pop()
            self._of_type(dict)[key] = value
        elif name == "SETITEMS":
            values = self._marked()
            self._of_type(dict).update(_pairs(values))
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._marked()
        else:
            raise _Refused(f"it holds more than plain values ({name})")

    def _top(self) -> Any:
        if self._stack[-1] is _MARK:
            raise ValueError("a mark where a value should be")
        return self._stack[-1]

    def _of_type(self, kind: type[Any]) -> Any:
        if type(self._stack[-1]) is not kind:
            raise ValueError(f"no {kind.__name__} to fill")
        return self._stack[-1]

    def _marked(self) -> list[Any]:
        """What stands above the last mark, which goes too."""
        stack = self._stack
        place = len(stack) - 1
        while stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise ValueError("no mark")
        values = stack[place + 1 :]
        del stack[place:]
        return values


def _pairs(values: list[Any]) -> Iterator[tuple[Any, Any]]:
    if len(values) % 2:
        raise ValueError("a key without a value")
    return zip(values[::2], values[1::2], strict=True)
