"""What a hybrid model keeps of its history: groups, the tables they share, and what each needs.

A *group* is a set of layers that keep the same form in the same block ids. A *table* is one list
of blocks a request; groups that hold different components of the same tokens share one (a
compressed history and its indexer rows). All tables of an engine draw from one pool of blocks of
one size, so a freed block may come back in another form: that is why form is part of its state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hkvtool.model.forms import HISTORY, Form


@dataclass(frozen=True)
class Work:
    """What one step does for one request: compute tokens [start, end), and `draft` more that
    may be rejected. Tokens before `firm` are sealed as far as their units are complete."""

    start: int
    end: int
    draft: int = 0
    firm: int = 0
    decode: bool = False


@dataclass(frozen=True)
class Group:
    """One cache group and how its producer lays one layer of a block out.

    `ratio`: tokens a stored entry stands for. `unit` and `overlap`, of a tail: the ratio of the
    history it is compressed into, and how many tokens before the open unit the compressor needs.
    `sparse`: a window publishes only where it is a checkpoint, a point where every other group
    can resume as well; a dense one publishes every complete block.
    """

    name: str
    form: Form
    block_tokens: int
    layers: int
    dtype: str
    page_bytes: int
    codec: str = "identity/1"
    order: str = "block,token,row"
    row_bytes: int = 0
    scale_bytes: int = 0
    offset: int = 0
    ratio: int = 1
    window: int = 0
    chunked: bool = False
    unit: int = 1
    overlap: int = 0
    serves: str | None = None
    table: str = ""
    sparse: bool = False

    @property
    def rows(self) -> int:
        """Stored entries of a block; a recurrent block is one state."""
        return 1 if self.form is Form.RECURRENT else self.block_tokens // self.ratio

    def needs(self, at: int) -> tuple[int, int]:
        """The tokens whose blocks must be there to resume at `at`: the *Forms* table of `hkv/1`.

        History needs everything, a window its last tokens, a tail the open compression unit and
        its overlap, a recurrent state the one slot written at exactly `at`.
        """
        if self.form in HISTORY or at == 0:
            return 0, at
        if self.form is Form.RECURRENT:
            return at - 1, at
        if self.form is Form.TAIL:
            return max(0, at - at % self.unit - self.overlap), at
        if self.chunked:
            return at - at % self.window, at
        return max(0, at - self.window + 1), at

    def writes(self, work: Work) -> tuple[int, int]:
        """The tokens that a step puts into this form: form follows from layer and position.

        History of ratio 1 and windows take every token of the step, drafts included. A
        compressed history takes the units that verified tokens complete, a tail whatever is left
        open (all of it in decode, where each token passes through), a recurrent group the one
        state at the end.
        """
        if self.form is Form.RECURRENT:
            slot = (work.end - 1) // self.block_tokens * self.block_tokens
            return max(work.start, slot), work.end
        if self.form is Form.TAIL:
            open_from = work.start if work.decode else max(work.start, self.needs(work.end)[0])
            return open_from, work.end + work.draft
        if self.ratio > 1:
            return work.firm - work.firm % self.ratio, work.end - work.end % self.ratio
        return work.start, work.end + work.draft

    def reads(self, work: Work) -> tuple[int, int]:
        """The tokens that a step reads in this form: tails and states before it writes them,
        everything else after."""
        if self.form is Form.RECURRENT:
            return max(0, work.start - 1), work.start
        if self.form is Form.TAIL:
            return self.needs(work.firm)[0], work.start
        if self.form in HISTORY:
            end = work.end + work.draft if self.ratio == 1 else work.end
            return 0, end - end % self.ratio
        # The first query of the step is at `start` and sees its own token.
        return self.needs(work.start)[0], work.end + work.draft

    def span(self, start: int, end: int) -> range:
        """Indices of the blocks that hold tokens [start, end)."""
        size = self.block_tokens
        return range(start // size, -(-end // size) if end > start else start // size)

    def layout(self, storage: str, stride: int, align: int, blocks: int) -> dict[str, Any]:
        """The `layout` of the group's declaration in a pool of `blocks` blocks."""
        out: dict[str, Any] = {
            "dtype": self.dtype, "order": self.order, "codec": self.codec,
            "page_bytes": self.page_bytes, "stride_bytes": stride, "storage": storage,
            "offset": self.offset, "layer_stride_bytes": self.page_bytes,
            "region_bytes": stride * blocks, "align": align,
        }  # fmt: skip
        if self.row_bytes:
            out["row_bytes"] = self.row_bytes
        if self.scale_bytes:
            out["scale_bytes"] = self.scale_bytes
        return out


@dataclass(frozen=True)
class Table:
    """One list of blocks a request. Book-keeping names its first group and holds for all."""

    groups: tuple[Group, ...]

    @cached_property
    def lead(self) -> Group:
        return self.groups[0]

    @cached_property
    def name(self) -> str:
        return self.lead.name

    @cached_property
    def history(self) -> bool:
        return self.lead.form in HISTORY


@dataclass(frozen=True)
class Preset:
    """The geometry of one model family as an engine allocates it.

    `stride`: bytes of one block over all layers of its table. `blocks`: pool size that two
    thousand requests of the conversation trace fill several times over. `draft`: tokens a step
    speculates ahead. `partial`: the last, partial block of a prompt is published too.
    """

    name: str
    model: str
    groups: tuple[Group, ...]
    stride: int
    align: int
    blocks: int
    draft: int = 0
    partial: bool = False

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        by_name: dict[str, list[Group]] = {}
        for group in self.groups:
            by_name.setdefault(group.table or group.name, []).append(group)
        return tuple(Table(tuple(groups)) for groups in by_name.values())

    @cached_property
    def by_name(self) -> dict[str, Group]:
        return {group.name: group for group in self.groups}

    @cached_property
    def grain(self) -> int:
        """Resume points are multiples of this: where every group's block ends at once."""
        return math.lcm(*(group.block_tokens for group in self.groups))

    @cached_property
    def checkpoints(self) -> bool:
        """Whether some form can be resumed only where a step ended at a multiple of `grain`."""
        return any(g.sparse or g.form is Form.RECURRENT for g in self.groups)

    @cached_property
    def places(self) -> int:
        """The most groups that share a table."""
        return max(len(table.groups) for table in self.tables)

    def page_rows(self, *, all_layers: bool = False) -> int:
        """Stored entries in the widest block, of one layer a group or of all; every table's rows
        overlay the same page."""
        return max(
            sum(group.rows * (group.layers if all_layers else 1) for group in table.groups)
            for table in self.tables
        )

    def blocks_for(self, tokens: int) -> int:
        """Blocks that a request of so many tokens can hold at once, chunk after chunk."""
        return sum(
            -(-tokens // table.lead.block_tokens) + 1 if table.history else self._live(table)
            for table in self.tables
        )

    def _live(self, table: Table) -> int:
        lead = table.lead
        if lead.form is Form.RECURRENT:
            return 2
        held = lead.window or lead.unit + lead.overlap
        return -(-held // lead.block_tokens) + 2
