"""What lanes do: the accesses of events on real bytes, and the account of what reads found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from hkvtool.kernels import reference as kernels
from hkvtool.kernels.rows import Rows
from hkvtool.kernels.stamps import BYTES, NEVER, TOKEN_BITS, told
from hkvtool.replay.memory import Area, Memory

TOKEN = (1 << TOKEN_BITS) - 1

KEPT = 64
"""Wrong rows told in full; the rest are counted."""


@dataclass(frozen=True)
class About:
    """A read, in the trace's terms: who read which group, and the block and token of each row."""

    pos: int
    req: str | None
    step: int | None
    group: str
    pool: str
    blocks: torch.Tensor
    rows: torch.Tensor
    what: str = "read"


@dataclass(frozen=True)
class Wrong:
    """One row that did not hold what its reader was due."""

    about: About
    block: int
    row: int
    token: int
    expected: dict[str, Any]
    found: dict[str, Any]


@dataclass
class Account:
    """What the reads of one run found."""

    reads: int = 0
    rows: int = 0
    wrong_rows: int = 0
    wrong: list[Wrong] = field(default_factory=list)
    wrong_at: dict[int, int] = field(default_factory=dict)
    """Wrong rows by event."""
    blocks_at: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    """Pool and block of wrong rows, by event."""
    tokens_at: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Block and token of wrong rows, by event."""

    def judge(
        self, about: About, bad: torch.Tensor, expected: torch.Tensor, found: torch.Tensor,
        why: str | None = None,
    ) -> None:  # fmt: skip
        self.reads += 1
        self.rows += len(bad)
        at = bad.cpu().nonzero().reshape(-1).tolist()
        if not at:
            return
        self.wrong_rows += len(at)
        self.wrong_at[about.pos] = self.wrong_at.get(about.pos, 0) + len(at)
        blocks = about.blocks.tolist()
        tokens = (expected[:, 1] & TOKEN).tolist()
        self.blocks_at.setdefault(about.pos, set()).update((about.pool, blocks[i]) for i in at)
        self.tokens_at.setdefault(about.pos, []).extend((blocks[i], tokens[i]) for i in at)
        for i in at:
            if len(self.wrong) == KEPT:
                break
            due = {"state": why} if why else told(expected[i])
            self.wrong.append(
                Wrong(about, blocks[i], int(about.rows[i]), tokens[i], due, told(found[i]))
            )


class Op(Protocol):
    """One piece of work of one lane."""

    def run(self, memory: Memory, account: Account) -> None: ...


@dataclass(frozen=True)
class Write:
    """A kernel writes rows."""

    area: Area
    stamps: torch.Tensor

    def run(self, memory: Memory, account: Account) -> None:
        buffer, rows = memory.at(self.area)
        kernels.stamp(buffer, rows, self.stamps)


@dataclass(frozen=True)
class Read:
    """A kernel reads rows; `limit` is how many tokens a stale graph reads at most."""

    area: Area
    expected: torch.Tensor
    fields: torch.Tensor
    about: About
    limit: int | None = None

    def run(self, memory: Memory, account: Account) -> None:
        buffer, rows = memory.at(self.area)
        if self.limit is not None:
            buffer, rows = self._output(buffer, rows, self.limit)
        bad, found = kernels.verify(buffer, rows, self.expected, self.fields)
        account.judge(self.about, bad, self.expected, found)

    def _output(self, buffer: torch.Tensor, rows: Rows, limit: int) -> tuple[torch.Tensor, Rows]:
        """What a kernel gathers that stops at token `limit`: the rest of its output is as it was."""
        packed = kernels.gather(buffer, rows)
        output = torch.full_like(packed, NEVER)
        seen = (self.expected[:, 1] & TOKEN < limit).to(buffer.device)
        output[seen] = packed[seen]
        starts = torch.arange(len(rows), dtype=torch.int64)[:, None] * rows.row_bytes
        return output.view(-1), Rows(starts, (rows.row_bytes,))


@dataclass(frozen=True)
class ReadClear:
    """A read of padding rows, which must be clear."""

    area: Area
    about: About

    def run(self, memory: Memory, account: Account) -> None:
        buffer, rows = memory.at(self.area)
        packed = kernels.gather(buffer, rows)
        found = kernels.heads(packed)
        none = torch.zeros((len(packed), 4), dtype=torch.int64)
        account.judge(self.about, (packed != 0).any(dim=1), none, found, "zero")


@dataclass(frozen=True)
class ReadBehind:
    """A kernel loads the whole tile: rows behind what is written must not be of another form."""

    area: Area
    groups: frozenset[int]
    about: About

    def run(self, memory: Memory, account: Account) -> None:
        buffer, rows = memory.at(self.area)
        found = kernels.heads(kernels.gather(buffer, rows)).cpu()
        strange = torch.tensor(
            [told(row).get("group", -1) not in (*self.groups, -1) for row in found]
        )
        none = torch.zeros((len(found), 4), dtype=torch.int64)
        account.judge(self.about, strange, none, found, "zero, or rows of this form")


@dataclass(frozen=True)
class Zero:
    """Bytes are cleared."""

    areas: tuple[Area, ...]

    def run(self, memory: Memory, account: Account) -> None:
        for area in self.areas:
            kernels.zero(*memory.at(area))


@dataclass(frozen=True)
class Poison:
    """Freed rows are marked as such; `lifted` takes the mark back."""

    areas: tuple[Area, ...]
    lifted: bool = False

    def run(self, memory: Memory, account: Account) -> None:
        for area in self.areas:
            kernels.poison(*memory.at(area), lifted=self.lifted)


@dataclass(frozen=True)
class Discard:
    """The memory behind a storage is taken away."""

    names: tuple[str, ...]

    def run(self, memory: Memory, account: Account) -> None:
        for name in self.names:
            memory.discard(name)


@dataclass(frozen=True)
class Move:
    """Bytes go from some rows to others, row by row; what is read on the way is verified."""

    source: Area | None
    target: Area | None
    check: Read | None = None

    def run(self, memory: Memory, account: Account) -> None:
        if self.check is not None:
            self.check.run(memory, account)
        if self.source is None or self.target is None:
            return
        buffer, rows = memory.at(self.source)
        packed = kernels.gather(buffer, rows)
        there, places = memory.at(self.target)
        kernels.scatter(there, places, fitted(packed, places.row_bytes))


def fitted(packed: torch.Tensor, size: int) -> torch.Tensor:
    """Rows of one layout as rows of another: whole ones are converted, others cut or left open."""
    count, have = packed.shape
    if have == size:
        return packed
    head = kernels.heads(packed)
    whole = (packed == kernels.tiled(head, have)).all(dim=1) & (have >= BYTES)
    cut = torch.full((count, size), NEVER, dtype=torch.uint8, device=packed.device)
    both = min(have, size)
    cut[:, :both] = packed[:, :both]
    return torch.where(whole[:, None], kernels.tiled(head, size), cut)
