"""Where each group's rows lie: the recorded layouts as pages in named stretches of memory.

Groups overlay one another as recorded: those that name one `storage` lie in it at their offsets
and strides, those of one block table lie side by side, and tables of one pool share its bytes. Of
the layers of a group one is kept. What a trace does not state is filled in: rows of `ROW` bytes
in one piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hkvtool.kernels.rows import Page, page_of, plain_page
from hkvtool.kernels.stamps import BYTES
from hkvtool.state.declarations import Declarations, Group, Pool

BUFFER_ENTRIES = 256
"""Entries of a metadata buffer that are kept."""

ROW = 64
"""Bytes of a row whose layout is not recorded."""


@dataclass(frozen=True)
class Share:
    """One group's part of a pool's blocks: its page, and the storage it lies in."""

    storage: str
    page: Page


class Geometry:
    """The pages of every group, as the trace declares them; `thin` rows are one stamp long."""

    def __init__(self, declared: Declarations, *, thin: bool = False) -> None:
        self.declared = declared
        self.thin = thin
        self._shares: dict[tuple[str, str, str], Share] = {}
        self._tight: dict[str, bool] = {}

    def forget(self) -> None:
        """The declarations have changed."""
        self._shares.clear()
        self._tight.clear()

    def share(self, group: Group, pool: Pool, expects: Mapping[str, Any] | None = None) -> Share:
        """A group's part of a pool's blocks; with `expects` as that consumer computes it."""
        key = (group.name, pool.name, repr(expects) if expects else "")
        found = self._shares.get(key)
        if found is None:
            found = self._shares[key] = self._make(group, pool, expects)
        return found

    def known(self, group: Group, pool: Pool) -> Share | None:
        """A group's part of a pool's blocks as it was last asked for, if it was."""
        return self._shares.get((group.name, pool.name, ""))

    def buffer(self, name: str) -> Share:
        """A metadata buffer: entries of one stamp each."""
        key = ("", name, "buffer")
        found = self._shares.get(key)
        if found is None:
            found = self._shares[key] = Share(f"buffer {name}", plain_page(BUFFER_ENTRIES, BYTES))
        return found

    def tight(self, pool: Pool) -> bool:
        """Whether some group of a pool has rows that a stamp does not fit in: then the recorded
        pages have no room, and all of the pool's groups get pages of their own size."""
        found = self._tight.get(pool.name)
        if found is None:
            own = [g for g in self.declared.groups.values() if g.pool is pool]
            rows = [self._stated_row(g, g.layout) for g in own]
            found = self._tight[pool.name] = any(r is not None and r < BYTES for r in rows)
        return found

    def _layout(self, group: Group) -> Mapping[str, Any]:
        return {} if self.thin or self.tight(group.pool) else group.layout

    def rows(self, group: Group) -> int:
        """Stored entries of a block; a recurrent block is one state."""
        if group.form == "recurrent":
            return 1
        return max(1, group.block_tokens // group.ratio)

    def row_bytes(self, group: Group, layout: Mapping[str, Any]) -> int:
        rows = self.rows(group)
        page = layout.get("page_bytes")
        row = layout.get("row_bytes")
        if self.thin:
            return BYTES
        if group.form == "recurrent" and isinstance(page, int):
            row = page
        elif not isinstance(row, int) and isinstance(page, int):
            row = page // rows
        if not isinstance(row, int) or row < BYTES:
            return max(ROW if not isinstance(row, int) else BYTES, BYTES)
        return row

    def _page(self, group: Group, layout: Mapping[str, Any], pool: Pool) -> Page:
        rows, row = self.rows(group), self.row_bytes(group, layout)
        if self.thin or row != self._stated_row(group, layout):
            layout = {"order": ""}
        return page_of(layout, rows, pool.blocks, row)

    def _stated_row(self, group: Group, layout: Mapping[str, Any]) -> int | None:
        page, row = layout.get("page_bytes"), layout.get("row_bytes")
        if group.form == "recurrent" or not isinstance(row, int):
            return page // self.rows(group) if isinstance(page, int) else None
        return row

    def _make(self, group: Group, pool: Pool, expects: Mapping[str, Any] | None) -> Share:
        layout = self._layout(group)
        page = self._page(group, layout, pool)
        mates = [g for g in self.declared.groups.values()
                 if g.table == group.table and g.pool is group.pool]  # fmt: skip
        stated = not self.thin and isinstance(layout.get("stride_bytes"), int)
        placed = stated and ("offset" in layout or len(mates) == 1)
        storage = pool.name
        if not self.thin and "storage" in layout and pool is group.pool:
            storage = f"{pool.name}/{layout['storage']}"
        elif stated and not placed:
            # Components with strides of their own and no offsets lie in buffers of their own.
            storage = f"{pool.name}/{group.name}"
            placed = True
        if placed:
            offset, stride = int(layout.get("offset") or 0), page.stride
        else:
            offset = self._beside(group, mates, pool)
            stride = max(page.stride, self._stride(group.pool, pool))
        if expects is not None:
            return Share(storage, self._believed(group, pool, expects, offset, stride))
        return Share(storage, Page(page.starts, page.lengths, page.bytes, stride, offset))

    def _believed(
        self, group: Group, pool: Pool, expects: Mapping[str, Any], offset: int, stride: int
    ) -> Page:
        """The page as a consumer that expects something else computes its addresses."""
        layout = {**self._layout(group), **expects}
        kernel_block = expects.get("kernel_block_tokens")
        rows, parts = self.rows(group), 1
        if isinstance(kernel_block, int) and 0 < kernel_block < group.block_tokens:
            parts = max(1, group.block_tokens // kernel_block)
            rows = max(1, rows // parts)
        row = layout.get("row_bytes")
        if not isinstance(row, int):
            size = layout.get("page_bytes")
            row = (
                size // rows
                if isinstance(size, int)
                else self.row_bytes(group, self._layout(group))
            )
        if not row or row < 1:
            row = self.row_bytes(group, self._layout(group))
        page = page_of(layout, rows, pool.blocks, row)
        own = expects.get("stride_bytes", expects.get("page_bytes"))
        step = own if isinstance(own, int) and own > 0 else stride // parts
        at = expects.get("offset", offset)
        return Page(page.starts, page.lengths, page.bytes, step, int(at), parts)

    def _beside(self, group: Group, mates: list[Group], pool: Pool) -> int:
        at = 0
        for mate in mates:
            if mate is group:
                break
            at += self._page(mate, self._layout(mate), pool).bytes
        return at

    def _stride(self, home: Pool, pool: Pool) -> int:
        """Bytes of a block in which every table of a pool has room."""
        tables: dict[str, int] = {}
        for group in self.declared.groups.values():
            if group.pool is home:
                size = self._page(group, self._layout(group), pool).bytes
                tables[group.table] = tables.get(group.table, 0) + size
        most = max(tables.values(), default=ROW)
        return -(-most // BYTES) * BYTES
