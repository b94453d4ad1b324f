"""What is known of one paged cache: its pools and groups by the names they have in the trace."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from hkvtool.recorder.tell import beside

if TYPE_CHECKING:
    from hkvtool.recorder.transformers.hooks import Hooks

TRASH_SECTORS = 2
"""Sectors before all others, which no allocator hands out: padding reads and writes there."""


class GroupState:
    """One allocator: the block ids of one attention type are a pool of their own."""

    def __init__(self, allocator: Any, cache: CacheState, name: str) -> None:
        self.allocator = allocator
        self.cache = cache
        self.name = name
        self.window: int | None = getattr(allocator, "sliding_window", None)
        page = int(allocator.tokens_per_page)
        self.unit = page if self.window is None else min(page, self.window)
        self.told = self.window is None or self.window % self.unit == 0
        """Whether what it writes can be told: a ring that wraps inside a block has no blocks of
        consecutive tokens."""
        self.table_index: int | None = None
        """Its place in the tables that a `dispatch` carries; a ring has none."""
        self.tier: str | None = None
        """Its pool in the memory of the host, if there is one."""

    @property
    def laps(self) -> int:
        """Blocks of a full ring."""
        assert self.window is not None
        return self.window // self.unit

    def table(self, req: str) -> list[int]:
        """The request's block table as it stands."""
        return list(self.allocator.block_table.get(req, ()))


class CacheState:
    """One cache of the engine, with the steps that are out and the tables that were told."""

    def __init__(self, cache: Any, number: int, hooks: Hooks) -> None:
        self.cache = cache
        self.hooks = hooks
        process = beside(hooks.tell.engine_number("transformers"))
        self.engine = f"cb{number}{process}"
        suffix = ("" if number == 1 else f".{number}") + process
        self.groups: dict[str, GroupState] = {
            kind: GroupState(allocator, self, f"{kind}{suffix}")
            for kind, allocator in cache.cache_allocators.items()
        }
        self.out: deque[int] = deque()
        """Steps that were dispatched and have not retired."""
        self.told: dict[str, list[list[int]]] = {}
        """Block tables of each request as the last `dispatch` left them."""
        self.found: dict[str, list[int]] = {}
        self.taken: list[tuple[str, list[int]]] = []
        """What the prefix search under way has found, and what of it was taken, by group."""
        self._mark()

    def _mark(self) -> None:
        from hkvtool.recorder.transformers.hooks import STATE

        setattr(self.cache, STATE, self)
        for group in self.groups.values():
            setattr(group.allocator, STATE, group)
            setattr(group.allocator.ledger, STATE, group)

    def forget(self) -> None:
        """Leave nothing on the engine's objects."""
        from hkvtool.recorder.transformers.hooks import STATE

        owners = [self.cache]
        for group in self.groups.values():
            owners += [group.allocator, group.allocator.ledger]
        for owner in owners:
            if hasattr(owner, STATE):
                delattr(owner, STATE)
