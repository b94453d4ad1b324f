"""For whom the engine takes or gives back blocks, read from the call that is under way.

The pool is not told whose blocks it hands out. Wrapping the managers that know would cost in every
step, mostly for nothing; looking at the caller costs only where blocks move.
"""

from __future__ import annotations

from types import CodeType, FrameType
from typing import Any, NamedTuple

WINDOW = ("_remove_blocks_in_range", "remove_skipped_blocks")
"""Where a manager lets go of blocks that its window has left."""

COPY_OWNER = "copy"
"""Holder of both ends of a copy on write until the copy has been handed out."""

DEFERRED_OWNER = "deferred"
"""Holder of blocks that are freed when the step in flight has ended."""

_OWNERS = {
    "_free_cow_retained_blocks": COPY_OWNER,
    "_drain_deferred_frees": DEFERRED_OWNER,
}


class Holder(NamedTuple):
    """Who takes or gives back: a request and its group, or a named owner."""

    req: str | None
    number: int | None
    owner: str | None
    slides: bool


class _Kind(NamedTuple):
    """What a function's frame says: whether a manager's method for a request, whether it slides."""

    code: CodeType
    """Held, since it is found by its address: to hash code takes longer than all the rest."""
    manager: bool
    slides: bool
    owner: str


KINDS: dict[int, _Kind] = {}
"""By the address of the code; `_hooks.c` reads it too."""

_holder = tuple.__new__
"""A third of the time that the call of the class takes."""


def holder(frame: FrameType) -> Holder:
    """The holder on whose behalf the function of `frame` works."""
    code = frame.f_code
    kind = KINDS.get(id(code))
    if kind is None:
        kind = KINDS[id(code)] = _kind_of(code)
    if kind.manager:
        names = frame.f_locals
        number = getattr(names["self"], "kv_cache_group_id", None)
        req = names["request_id"]
        if number is not None and isinstance(req, str):
            return _holder(Holder, (req, number, None, kind.slides))
    return Holder(None, None, kind.owner or _class_of(frame), False)


def _kind_of(code: CodeType) -> _Kind:
    names = code.co_varnames[: code.co_argcount]
    manager = "self" in names and "request_id" in names
    return _Kind(code, manager, code.co_name in WINDOW, _OWNERS.get(code.co_name, ""))


def _class_of(frame: FrameType) -> str:
    """The class whose method it is: a connector that pins blocks has no name of its own here."""
    myself: Any = frame.f_locals.get("self")
    if myself is not None:
        return type(myself).__name__
    return frame.f_code.co_name
