"""What lanes do: the accesses of events on real bytes, and the account of what reads found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from hkvtool.kernels import operations as kernels
from hkvtool.kernels.rows import Rows
from hkvtool.kernels.stamps import BYTES, NEVER, VERSION_BITS, check_word, told
from hkvtool.replay.cells import Area, Cells, Due, stamps
from hkvtool.replay.encoding import flipped
from hkvtool.replay.memory import Memory

_FIELDS = torch.tensor([[-1, -1, 0, 0]], dtype=torch.int64)
"""A read is due a sequence, a group and a token; in which generation and version the bytes were
first written says where they come from."""

KEPT = 64
"""Wrong rows told in full; the rest are counted."""


@dataclass(frozen=True)
class About:
    """A read, in the trace's terms: who read what of which group."""

    pos: int
    req: str | None
    step: int | None
    group: str
    pool: str
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
    readers: dict[tuple[int, str], About] = field(default_factory=dict)
    """Who read wrong rows, by event and group."""
    own: frozenset[tuple[str, int]] | None = None
    """Blocks in which rows that nobody wrote are wrong; None: in all of them."""

    def judge(
        self, about: About, cells: Cells, bad: torch.Tensor, expected: torch.Tensor,
        found: torch.Tensor, why: str | None = None,
    ) -> None:  # fmt: skip
        """Note which rows of a read were wrong; `why` says in words what was due, where that is
        no stamp."""
        self.reads += 1
        self.rows += len(bad)
        at = bad.cpu().nonzero().reshape(-1)
        if self.own is not None and len(at):
            at = self._surely(about, cells, at, found)
        if not len(at):
            return
        blocks, entries, tokens = (part[at].tolist() for part in cells.laid_out())
        self.wrong_rows += len(at)
        self.wrong_at[about.pos] = self.wrong_at.get(about.pos, 0) + len(at)
        self.blocks_at.setdefault(about.pos, set()).update((about.pool, b) for b in blocks)
        self.tokens_at.setdefault(about.pos, []).extend(zip(blocks, tokens, strict=True))
        self.readers[about.pos, about.group] = about
        room = max(0, KEPT - len(self.wrong))
        for n, i in enumerate(at[:room].tolist()):
            due = {"state": why} if why else _due(expected[i])
            self.wrong.append(Wrong(about, blocks[n], entries[n], tokens[n], due, told(found[i])))

    def _surely(
        self, about: About, cells: Cells, at: torch.Tensor, found: torch.Tensor
    ) -> torch.Tensor:
        """Those of some wrong rows that are wrong whatever was there before the slice."""
        assert self.own is not None
        rows = found[at].cpu().contiguous().view(torch.uint8).reshape(len(at), -1)
        written = (rows != NEVER).any(1)
        mine = [(about.pool, block) in self.own for block in cells.laid_out()[0][at].tolist()]
        return at[written | torch.tensor(mine, dtype=torch.bool)]


def _due(words: torch.Tensor) -> dict[str, Any]:
    """What a read is due: whose token. In which generation it was written is of no account."""
    stamp = told(words)
    return {key: stamp[key] for key in ("state", "sequence", "group", "token")}


class Op(Protocol):
    """One piece of work of one lane."""

    def run(self, memory: Memory, account: Account) -> None: ...


@dataclass(frozen=True)
class Write:
    """A kernel writes rows; generation and version are of each block."""

    area: Area
    group: int
    due: Due
    generations: tuple[int, ...] = ()
    versions: tuple[int, ...] = ()

    def run(self, memory: Memory, account: Account) -> None:
        buffer, rows = memory.at(self.area)
        cells = self.area.cells
        _, _, tokens = cells.laid_out()
        generation: torch.Tensor | int = 0
        version: torch.Tensor | int = 0
        if self.generations:
            generation = cells.by_piece(self.generations)
            version = cells.by_piece(self.versions)
        kernels.stamp(buffer, rows, stamps(self.due, self.group, tokens, generation, version))


@dataclass
class Lay:
    """What unknown content is taken for, laid down where it comes in; known once it is read."""

    ops: list[Write] = field(default_factory=list)

    def run(self, memory: Memory, account: Account) -> None:
        for op in self.ops:
            op.run(memory, account)


@dataclass(frozen=True)
class Read:
    """A kernel reads rows; `limit` is how many tokens a stale graph reads at most, `mask` what
    rows look like to a reader of another codec, `graph` the captured graph that the kernel is part
    of."""

    area: Area
    group: int
    due: Due
    about: About
    limit: int | None = None
    mask: bytes | None = None
    graph: str | None = None

    def run(self, memory: Memory, account: Account) -> None:
        buffer, rows = memory.at(self.area)
        _, _, tokens = self.area.cells.laid_out()
        expected = stamps(self.due, self.group, tokens)
        if self.graph is not None and buffer.is_cuda:
            buffer, rows = _packed(memory.captures.gather(self.graph, self.area.name, buffer, rows))
        if self.limit is not None:
            buffer, rows = _output(buffer, rows, tokens < self.limit)
        if self.mask is not None:
            buffer, rows = _packed(flipped(kernels.gather(buffer, rows), self.mask))
        bad, found = kernels.verify(buffer, rows, expected, _FIELDS.expand(len(tokens), 4))
        account.judge(self.about, self.area.cells, bad, expected, found)


def _output(buffer: torch.Tensor, rows: Rows, seen: torch.Tensor) -> tuple[torch.Tensor, Rows]:
    """What a kernel gathers that leaves some rows out: there its output is as it was."""
    packed = kernels.gather(buffer, rows)
    output = torch.full_like(packed, NEVER)
    seen = seen.to(buffer.device)
    output[seen] = packed[seen]
    return _packed(output)


def _packed(output: torch.Tensor) -> tuple[torch.Tensor, Rows]:
    """Packed rows as a buffer of their own."""
    count, size = output.shape
    starts = torch.arange(count, dtype=torch.int64)[:, None] * size
    return output.reshape(-1), Rows(starts, (size,))


@dataclass(frozen=True)
class ReadVersions:
    """An indexer's rows, read beside the rows they route to: none may be of an older version."""

    area: Area
    served: Area
    about: About

    def run(self, memory: Memory, account: Account) -> None:
        mine = kernels.heads(kernels.gather(*memory.at(self.area))).cpu()
        theirs = kernels.heads(kernels.gather(*memory.at(self.served))).cpu()
        low = (1 << VERSION_BITS) - 1
        old, new = mine[:, 2] & low, theirs[:, 2] & low
        whole = (mine[:, 3] == check_word(mine)) & (theirs[:, 3] == check_word(theirs))
        bad = whole & (old > 0) & (old < new)
        account.judge(self.about, self.area.cells, bad, theirs, mine, "rows of the data's version")


@dataclass(frozen=True)
class ReadPromised:
    """Whole blocks read behind a hash, whose newest rows must be of the version it stands for."""

    area: Area
    version: int
    about: About

    def run(self, memory: Memory, account: Account) -> None:
        found = kernels.heads(kernels.gather(*memory.at(self.area))).cpu()
        versions = found[:, 2] & (1 << VERSION_BITS) - 1
        whole = found[:, 3] == check_word(found)
        other = whole & (versions.max() != self.version)
        none = torch.zeros_like(found)
        why = f"rows of version {self.version}"
        account.judge(self.about, self.area.cells, other, none, found, why)


@dataclass(frozen=True)
class ReadClear:
    """A read of padding rows, which must be clear."""

    area: Area
    about: About

    def run(self, memory: Memory, account: Account) -> None:
        packed = kernels.gather(*memory.at(self.area))
        found = kernels.heads(packed)
        none = torch.zeros_like(found)
        bad = (packed != 0).any(dim=1)
        account.judge(self.about, self.area.cells, bad, none, found, "zero")


@dataclass(frozen=True)
class ReadBehind:
    """A kernel loads the whole tile: rows behind what is written must not be of another form."""

    area: Area
    groups: frozenset[int]
    about: About

    def run(self, memory: Memory, account: Account) -> None:
        found = kernels.heads(kernels.gather(*memory.at(self.area))).cpu()
        strange = torch.tensor(
            [told(row).get("group", -1) not in (*self.groups, -1) for row in found]
        )
        none = torch.zeros_like(found)
        why = "zero, or rows of this form"
        account.judge(self.about, self.area.cells, strange, none, found, why)


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
class Relocate:
    """Rows go to other places all at once, as blocks that change places do; where they were is
    then marked as freed."""

    pairs: tuple[tuple[Area, Area], ...]
    left: tuple[Area, ...]

    def run(self, memory: Memory, account: Account) -> None:
        packed = [kernels.gather(*memory.at(source)) for source, _ in self.pairs]
        Poison(self.left).run(memory, account)
        for rows, (_, target) in zip(packed, self.pairs, strict=True):
            kernels.scatter(*memory.at(target), rows)


@dataclass
class Rehouse:
    """A pool's rows come to another memory, laid out anew; what they leave is taken away.

    `pairs` are known once the whole trace is: only what is read there later is mapped there.
    """

    names: tuple[str, ...]
    pairs: list[tuple[Area, Area]] = field(default_factory=list)

    def run(self, memory: Memory, account: Account) -> None:
        for source, target in self.pairs:
            packed = kernels.gather(*memory.at(source))
            there, places = memory.at(target)
            kernels.scatter(there, places, fitted(packed, places.row_bytes))
        Discard(self.names).run(memory, account)


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
