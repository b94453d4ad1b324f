"""What the hooks keep of one block pool between two calls of the engine."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hkvtool.recorder.vllm.hooks import Hooks

GROUP_BYTES = 4
"""An engine's hash key ends with the number of the cache group in so many bytes."""

_names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""Of every pool of this process that was ever followed."""


def unique_name(pool: Any, name: str, taken: set[str]) -> str:
    """What a pool is called: as it was, be it that hooks went and came back, else as nobody is."""
    number, found = 1, _names.get(pool, name)
    while found in taken:
        number += 1
        found = f"{name}.{number}"
    _names[pool] = found
    return found


Removed = tuple[int, bytes]
Inserted = tuple[int, bytes, int | None]


class PoolState:
    """One pool under its name in the trace, its groups, and hash changes not told yet.

    Hashes come and go one by one inside a call of the engine and are told together.
    """

    def __init__(self, hooks: Hooks, pool: Any, name: str) -> None:
        self.hooks = hooks
        self.name = name
        self.groups: dict[int, str] = {}
        """Name of each cache group by the engine's number."""
        self.units: dict[int, int] = {}
        """Tokens of a block, by the engine's number of the group."""
        self.first_table = 0
        """Number of the block table of the engine's group 0."""
        self.sliding: set[int] = set()
        """Groups of which a window leaves blocks behind."""
        self.recurrent: set[int] = set()
        """Groups whose blocks hold a state, not tokens."""
        self.reusable: set[int] = set()
        """Groups that a prefix hit brings blocks of."""
        self.removed: list[Removed] = []
        self.inserted: list[Inserted] = []
        self.gathering = False
        """Hashes are told when the call under way has ended."""
        self.comparing = False
        """So are those of its blocks, by what it leaves behind."""
        self._pool = weakref.ref(pool)
        pool.hkvtool_state = self

    @property
    def pool(self) -> Any:
        """The engine's pool, or None when it is gone."""
        return self._pool()

    def forget(self) -> None:
        """Leave the engine's pool as it was found."""
        pool = self._pool()
        if pool is not None and getattr(pool, "hkvtool_state", None) is self:
            del pool.hkvtool_state

    def group(self, number: int) -> str:
        """The name of a group; one that nobody declared is declared as it is met."""
        name = self.groups.get(number)
        if name is None:
            from hkvtool.recorder.vllm.declare import declare_bare_group

            name = declare_bare_group(self, number)
        return name

    def tell_removed(self, reason: str) -> None:
        """Tell the hashes that no longer lead anywhere, group by group."""
        removed, self.removed = self.removed, []
        if len(removed) == 1:
            block, key = removed[0]
            name = self.hooks.keyed.hash(key[:-GROUP_BYTES])
            group = self.group(int.from_bytes(key[-GROUP_BYTES:], "big"))
            self.hooks.tell.unpublish(group, [block], [name], reason)
            return
        by_group: dict[bytes, tuple[list[int], list[int]]] = {}
        hash_of = self.hooks.keyed.hash
        for block, key in removed:
            number = key[-GROUP_BYTES:]
            found = by_group.get(number)
            if found is None:
                found = by_group[number] = ([], [])
            found[0].append(block)
            found[1].append(hash_of(key[:-GROUP_BYTES]))
        for number, (blocks, hashes) in by_group.items():
            group = self.group(int.from_bytes(number, "big"))
            self.hooks.tell.unpublish(group, blocks, hashes, reason)

    def tell_inserted(self, req: str | None) -> None:
        """Tell the hashes that can now be hit, in runs of blocks that go on behind one another."""
        inserted, self.inserted = self.inserted, []
        hash_of = self.hooks.keyed.hash
        if len(inserted) == 1:
            block, key, tokens = inserted[0]
            name = hash_of(key[:-GROUP_BYTES])
            self._tell_run(
                key[-GROUP_BYTES:], [block], [name], -1 if tokens is None else tokens, req
            )
            return
        blocks: list[int] = []
        hashes: list[int] = []
        number, end, tail = b"", -1, False
        for block, key, tokens in inserted:
            group = key[-GROUP_BYTES:]
            unit = self.units.get(int.from_bytes(group, "big"), 0)
            whole = tokens is not None and unit > 0 and tokens % unit == 0
            if blocks and not (
                group == number and whole and not tail and tokens is not None
                and tokens == end + unit
            ):  # fmt: skip
                self._tell_run(number, blocks, hashes, end, req)
                blocks, hashes = [], []
            number, end, tail = group, -1 if tokens is None else tokens, not whole
            blocks.append(block)
            hashes.append(hash_of(key[:-GROUP_BYTES]))
        if blocks:
            self._tell_run(number, blocks, hashes, end, req)

    def _tell_run(
        self, number: bytes, blocks: list[int], hashes: list[int], end: int, req: str | None
    ) -> None:
        group = int.from_bytes(number, "big")
        unit = self.units.get(group, 0)
        tokens = None
        if end >= 0 and unit:
            tokens = [-(-end // unit) * unit - len(blocks) * unit, end]
        self.hooks.tell.publish(self.group(group), blocks, hashes, tokens, req)
