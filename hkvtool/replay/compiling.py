"""A trace compiled: every access of every event as work on rows, with what each read is due.

The events are folded once in line order. A write stamps the request's own tokens; a read is due
the reader's own tokens, whatever block they come from. Content from before the recording, and of
peers that nobody filled, is laid down first (*seeded*): it is what its first reader takes it for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from hkvtool.kernels.stamps import pack
from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING
from hkvtool.replay.geometry import BUFFER_ENTRIES, Geometry, Share
from hkvtool.replay.graphs import Graphs
from hkvtool.replay.memory import Area, Touched
from hkvtool.replay.ops import (
    About,
    Discard,
    Move,
    Op,
    Poison,
    Read,
    ReadBehind,
    ReadClear,
    Write,
    Zero,
)
from hkvtool.replay.placing import Entries, Piece, entries, held, needed_from, written
from hkvtool.replay.program import Program, Step
from hkvtool.replay.sequences import Sequences, sequence
from hkvtool.state.accesses import Access, accesses
from hkvtool.state.blocks import generation
from hkvtool.state.declarations import Group, Pool
from hkvtool.state.fold import Fold
from hkvtool.state.order import Order
from hkvtool.state.order_stamp import Stamp
from hkvtool.state.requests import Requests
from hkvtool.state.serving import filled, hashed

Block = tuple[str, int]
"""A pool and the place of a block in it."""

_FIELDS = torch.tensor([[-1, -1, 0, 0]], dtype=torch.int64)
_PADDING = "padding"


@dataclass
class Believed:
    """A consumer that computes addresses of a group by a layout of its own.

    `moves` says that it is what transfers run, not what reads.
    """

    group: str
    expects: Mapping[str, Any]
    moves: bool


@dataclass
class _Request:
    """What a request's tokens are now: how far it has come by group, what was rejected."""

    extent: dict[str, int] = field(default_factory=dict)
    hit: int = 0
    branches: list[tuple[int, int]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    branch: int = 0
    checked: int = 0


class Compiler:
    """One pass over a trace. `keep` limits the bytes to some blocks; all else is only folded."""

    def __init__(
        self, sequences: Sequences, *, keep: frozenset[Block] | None = None, thin: bool = False,
        believed: Believed | None = None, recapture: bool = False,
    ) -> None:  # fmt: skip
        self.sequences = sequences
        self.keep = keep
        self.believed = believed
        self.fold = Fold()
        self.order = Order()
        self.requests = Requests(self.fold)
        self.geometry = Geometry(self.fold.declared, thin=thin)
        self.graphs = Graphs(recapture)
        self.epoch = 0
        self.steps: list[Step] = []
        self.seeds: list[Op] = []
        self.events = 0
        self._of: dict[str, _Request] = {}
        self._touched: dict[tuple[str, int], Touched] = {}
        self._shares: list[Share] = []
        self._written: set[tuple[str, str, int]] = set()
        self._seeded: dict[tuple[str, str, int, int], tuple[int, int]] = {}
        self._holds: dict[tuple[str, int, str], tuple[str, int, int]] = {}
        self._names: dict[int, str] = {}
        self._begins: dict[str, Event] = {}
        self._ends: dict[str, Event] = {}
        self._in_flight: set[int] = set()
        self._moving: dict[str, set[Block]] = {}
        self._dead: list[tuple[int, int, set[int], set[str]]] = []
        self._stamp: Stamp | None = None
        self._buffers: dict[str, tuple[int, int]] = {}
        self._numbers: dict[str, int] = {}

    # --- the pass --------------------------------------------------------------------------

    def compile(self, events: Sequence[Event]) -> Program:
        for event in events:
            if event.ev in ("store_end", "load_end"):
                self._ends.setdefault(str(event.get("handle")), event)
            elif event.ev in ("store_begin", "load_begin"):
                self._begins.setdefault(str(event.get("handle")), event)
        for event in events:
            self.take(event.meant)
        head = Step(0, "recording", Stamp("seed", 0, -1, 0, (), None), self.seeds)
        groups: dict[int, str] = {}
        for group in self.fold.declared.groups.values():
            groups.setdefault(self._number(group), group.name)
        return Program(
            [head, *self.steps], list(self._touched.values()), self.order, groups, self._names,
            self.geometry.thin, self.events,
        )  # fmt: skip

    def take(self, event: Event) -> None:
        """One event: fold it, and note what it does to bytes."""
        self.events += 1
        self._stamp = self.order.feed(event)
        if event.problem is not None:
            return
        make = _MAKE.get(event.ev)
        early = event.ev in ("use", "write", "seal", "index", "zero", "copy")
        if make is not None and early:
            make(self, event)
        released = self._released(event)
        if self.fold.apply(event) is not None:
            return
        self.requests.follow(event)
        if event.ev in ("pool", "group"):
            self.geometry.forget()
            self._numbers.clear()
        if make is not None and not early:
            make(self, event)
        for slot in released:
            self._dies(event, slot)

    def _emit(self, event: Event, ops: Iterable[Op], lane: str | None = None) -> None:
        found = list(ops)
        if found:
            assert self._stamp is not None
            self.steps.append(Step(event.pos, lane or event.actor, self._stamp, found))

    def _number(self, group: Group) -> int:
        """The number of a group in stamps. Groups of two engines that hold the same content, and
        a lower tier's copy, share the one of the first declared."""
        found = self._numbers.get(group.name)
        if found is None:
            pool, declared = group.pool, self.fold.declared
            twin = group
            for other in declared.pools.values():
                apart = other.engine != pool.engine or (pool.tier and not other.tier)
                if other.id < pool.id and apart:
                    twin = declared.mirror(group, other) or group
                    break
            found = self._numbers[group.name] = twin.id + 1
        return found

    # --- requests --------------------------------------------------------------------------

    def _request(self, name: str) -> _Request:
        found = self._of.get(name)
        if found is None:
            found = self._of[name] = _Request()
        return found

    def _sequence(self, reader: str, origin: str, token: int) -> int:
        """The sequence of one token of `origin`, as `reader` takes it."""
        author = self._request(origin)
        branch = next((b for at, b in reversed(author.branches) if at <= token), 0)
        if reader == origin:
            epoch = next((e for at, e in reversed(author.epochs) if at <= token), self.epoch)
        else:
            epoch = self._request(reader).checked
        found = sequence(origin, branch, epoch)
        self._names[found] = origin
        return found

    def _sequences(self, reader: str, tokens: torch.Tensor) -> torch.Tensor:
        """The sequence of each token of a request, ascending or not."""
        if not len(tokens):
            return tokens
        low, high = int(tokens.min()), int(tokens.max()) + 1
        found = torch.empty_like(tokens)
        cuts = {low, high}
        pieces = self.sequences.pieces(reader, low, high)
        for start, end, origin in pieces:
            author = self._request(origin)
            cuts |= {start, end}
            cuts |= {at for at, _ in (*author.branches, *author.epochs) if start < at < end}
        points = sorted(cuts)
        for start, end in zip(points, points[1:], strict=False):
            origin = next(o for a, b, o in pieces if a <= start < b)
            inside = (tokens >= start) & (tokens < end)
            found[inside] = self._sequence(reader, origin, start)
        return found

    def _lookup(self, event: Event) -> None:
        request = self._request(str(event.req))
        request.hit = max([0, *event["hit"].values()])
        request.checked = self.epoch

    def _resume(self, event: Event) -> None:
        request = self._request(str(event.req))
        request.checked = self.epoch
        for name in self.fold.declared.groups:
            request.extent[name] = event["at"]

    def _rollback(self, event: Event) -> None:
        request, to = self._request(str(event.req)), event["to"]
        request.branch += 1
        request.branches = [b for b in request.branches if b[0] < to] + [(to, request.branch)]
        request.extent = {name: min(at, to) for name, at in request.extent.items()}

    def _preempted(self, event: Event) -> None:
        self._request(str(event.req)).extent.clear()

    def _weights(self, event: Event) -> None:
        self.epoch += 1

    # --- bytes -----------------------------------------------------------------------------

    def _kept(self, pool: Pool, place: int) -> bool:
        return self.keep is None or (pool.name, place) in self.keep

    def _area(
        self, group: Group, pool: Pool, places: Sequence[int], found: Entries, space: str = "",
        expects: Mapping[str, Any] | None = None,
    ) -> Area:  # fmt: skip
        share = self.geometry.share(group, pool, expects)
        name = share.storage + space
        self._touch(name, share, pool, places)
        blocks = torch.tensor(places, dtype=torch.int64)[found.places]
        return Area(name, share.page.at(blocks, found.entries))

    def _touch(self, name: str, share: Share, pool: Pool, places: Iterable[int]) -> None:
        key = (name, id(share))
        touched = self._touched.get(key)
        if touched is None:
            self._shares.append(share)
            touched = self._touched[key] = Touched(name, share.page, pool.medium)
        touched.blocks.update(places)

    def _whole(self, group: Group, pool: Pool, places: Sequence[int], space: str) -> Area:
        """Every row of a group's part of some blocks."""
        rows = self.geometry.rows(group)
        count = len(places)
        every = Entries(
            torch.arange(count, dtype=torch.int64).repeat_interleave(rows),
            torch.arange(rows, dtype=torch.int64).repeat(count),
            torch.zeros(count * rows, dtype=torch.int64),
        )
        return self._area(group, pool, places, every, space)

    def _chosen(self, pool: Pool, places: Sequence[int], pieces: list[Piece]) -> list[Piece]:
        """Pieces in blocks that are kept and are no null blocks."""
        return [
            p for p in pieces
            if p.place < len(places) and places[p.place] >= 0
            and places[p.place] not in pool.reserved and self._kept(pool, places[p.place])
        ]  # fmt: skip

    def _due(self, req: str, group: Group, found: Entries) -> torch.Tensor:
        return pack(self._sequences(req, found.tokens), self._number(group), found.tokens, 0, 0)

    # --- writes ----------------------------------------------------------------------------

    def _write(self, event: Event) -> None:
        for access in accesses(event, self.fold.declared):
            group, pool = access.group, access.pool
            if group is None or pool is None:
                continue
            if event.get("pad"):
                self._pad_write(event, access, group, pool)
                continue
            tokens = self._tokens_written(event, group)
            if tokens is None or event.req is None:
                continue
            if event.ev == "seal" and "from" in event:
                self._tail_read(event, tokens)
            pieces = written(group, len(access.places), tokens)
            self._note_written(event, group, pool, access.places, pieces)
            chosen = self._chosen(pool, access.places, pieces)
            found = entries(group, self.geometry.rows(group), chosen)
            if not len(found):
                continue
            stamps = self._stamps(event, group, pool, access, found)
            space = self.graphs.space(pool.name, event)
            self._emit(event, [Write(self._area(group, pool, access.places, found, space), stamps)])

    def _tokens_written(self, event: Event, group: Group) -> tuple[int, int] | None:
        tokens = event.get("tokens")
        if tokens:
            return tokens[0], tokens[1]
        blocks = event["blocks"]
        slot = self.fold.find(group.pool, blocks[0]) if blocks else None
        if slot is None or self.fold.st.start[slot] == MISSING:
            return None
        start = int(self.fold.st.start[slot])
        return start, start + len(blocks) * group.block_tokens

    def _note_written(
        self, event: Event, group: Group, pool: Pool, places: Sequence[int], pieces: list[Piece]
    ) -> None:
        req = str(event.req)
        request = self._request(req)
        for place, start, end in pieces:
            self._written.add((pool.name, group.name, places[place]))
            key = (pool.name, places[place], group.name)
            last = self._holds.get(key)
            if last is not None and last[0] == req and last[1] <= start <= last[2]:
                start = last[1]
            self._holds[key] = (req, start, end)
            request.extent[group.name] = max(request.extent.get(group.name, 0), end)
        if pieces:
            first = min(p.start for p in pieces)
            if not request.epochs or request.epochs[-1][1] != self.epoch:
                request.epochs = [e for e in request.epochs if e[0] < first]
                request.epochs.append((first, self.epoch))

    def _stamps(
        self, event: Event, group: Group, pool: Pool, access: Access, found: Entries
    ) -> torch.Tensor:
        gens, versions = [], []
        for block in access.blocks:
            slot = self.fold.find(pool, block)
            gens.append(0 if slot is None else int(generation(self.fold.st, slot,
                                                              event.get("step", MISSING))))  # fmt: skip
            c = None if slot is None else self.fold.component(slot, group)
            current = slot is not None and c is not None and filled(self.fold, slot, c)
            versions.append(int(self.fold.st.ver[c]) + 1 if current else 1)
        if "version" in event:
            versions = [event["kv_version"] if event.ev == "index" else event["version"]] * len(
                gens
            )
        if len(gens) != len(access.places):
            gens, versions = [0] * len(access.places), [0] * len(access.places)
        gen = torch.tensor(gens, dtype=torch.int64)[found.places]
        version = torch.tensor(versions, dtype=torch.int64)[found.places] & (1 << 31) - 1
        seq = self._sequences(str(event.req), found.tokens)
        return pack(seq, self._number(group), found.tokens, gen & (1 << 31) - 1, version)

    def _pad_write(self, event: Event, access: Access, group: Group, pool: Pool) -> None:
        """Padding rows land wherever their table says, the null block or a live one."""
        places = [p for p in access.places if self._kept(pool, p)]
        tokens = event.get("tokens") or (0, 1)
        pieces = [p for p in written(group, len(places), tuple(tokens)) if p.place < len(places)]
        found = entries(group, self.geometry.rows(group), pieces)
        if not len(found):
            return
        number = sequence(_PADDING)
        self._names[number] = _PADDING
        stamps = pack(number, self._number(group), found.tokens, 0, 0)
        for place in places:
            self._written.add((pool.name, group.name, place))
        space = self.graphs.space(pool.name, event)
        self._emit(event, [Write(self._area(group, pool, places, found, space), stamps)])

    # --- reads -----------------------------------------------------------------------------

    def _use(self, event: Event) -> None:
        for access in accesses(event, self.fold.declared):
            group, pool = access.group, access.pool
            if group is None or pool is None:
                continue
            if event.get("pad"):
                self._pad_read(event, access, group, pool)
            elif event.req is not None:
                self._read(event, access, group, pool)

    def _read(self, event: Event, access: Access, group: Group, pool: Pool) -> None:
        req = str(event.req)
        at = self._position(event, req, group)
        tokens = event.get("tokens")
        if at <= 0 and not tokens:
            return
        start, end = tokens or (needed_from(self.fold.declared, group, at), at)
        pieces = held(group, len(access.places), (start, end), end)
        self._read_pieces(event, access, group, pool, pieces, req)
        if tokens is None and group.form != "recurrent":
            self._behind(event, access, group, pool, pieces)

    def _position(self, event: Event, req: str, group: Group) -> int:
        return self._request(req).extent.get(group.name, 0)

    def _read_pieces(
        self, event: Event, access: Access, group: Group, pool: Pool, pieces: list[Piece],
        req: str, what: str = "read",
    ) -> None:  # fmt: skip
        chosen = self._chosen(pool, access.places, pieces)
        found = entries(group, self.geometry.rows(group), chosen)
        found = self._judged(access, group, pool, found, req)
        if not len(found):
            return
        space = self.graphs.space(pool.name, event)
        expects = None
        if self.believed and not self.believed.moves and self.believed.group == group.name:
            expects = self.believed.expects
        area = self._area(group, pool, access.places, found, space, expects)
        about = self._about(event, access, group, pool, found, what)
        due = self._due(req, group, found)
        self._emit(event, [Read(area, due, self._fields(due), about, self.graphs.limit(event))])

    def _fields(self, due: torch.Tensor) -> torch.Tensor:
        return _FIELDS.expand(len(due), 4)

    def _about(
        self, event: Event, access: Access, group: Group, pool: Pool, found: Entries, what: str
    ) -> About:
        blocks = torch.tensor(access.places, dtype=torch.int64)[found.places]
        return About(event.pos, event.req, event.step, group.name, pool.name, blocks,
                     found.entries, what)  # fmt: skip

    def _judged(
        self, access: Access, group: Group, pool: Pool, found: Entries, req: str
    ) -> Entries:
        """The entries that can be judged: those of blocks that the trace has filled, and of
        unknown ones those that are taken for the same by all their readers."""
        if not len(found):
            return found
        keep = torch.ones(len(found), dtype=torch.bool)
        for place in found.places.unique().tolist():
            block = access.blocks[place] if place < len(access.blocks) else -1
            if not self._unknown(group, pool, block, access.places[place]):
                continue
            mine = found.places == place
            keep[mine] = self._seed(group, pool, access.places[place], found, mine, req)
        if bool(keep.all()):
            return found
        return Entries(found.places[keep], found.entries[keep], found.tokens[keep])

    def _unknown(self, group: Group, pool: Pool, block: int, place: int) -> bool:
        """Whether the trace does not say what a block held before."""
        if (pool.name, group.name, place) in self._written:
            return False
        slot = self.fold.find(pool, block)
        if slot is None:
            return True
        st = self.fold.st
        if st.known[slot] == 0 or st.unsure[slot]:
            return True
        c = self.fold.component(slot, group)
        return bool(st.alloc_pos[slot] < 0 and filled(self.fold, slot, c))

    def _seed(
        self, group: Group, pool: Pool, place: int, found: Entries, mine: torch.Tensor, req: str
    ) -> torch.Tensor:
        tokens, rows = found.tokens[mine], found.entries[mine]
        seq = self._sequences(req, tokens)
        good = torch.ones(len(tokens), dtype=torch.bool)
        fresh = torch.zeros(len(tokens), dtype=torch.bool)
        for i, (row, token, number) in enumerate(
            zip(rows.tolist(), tokens.tolist(), seq.tolist(), strict=True)
        ):
            key = (pool.name, group.name, place, row)
            known = self._seeded.setdefault(key, (token, number))
            good[i] = known == (token, number)
            fresh[i] = bool(good[i])
        if bool(fresh.any()):
            zeros = torch.zeros(int(fresh.sum()), dtype=torch.int64)
            only = Entries(zeros, rows[fresh], tokens[fresh])
            stamps = pack(seq[fresh], self._number(group), tokens[fresh], 0, 0)
            self.seeds.append(Write(self._area(group, pool, [place], only), stamps))
        return good

    def _behind(
        self, event: Event, access: Access, group: Group, pool: Pool, pieces: list[Piece]
    ) -> None:
        """Rows behind the last token of a partly filled block, which a kernel loads too."""
        rows, unit = self.geometry.rows(group), group.block_tokens
        chosen = self._chosen(pool, access.places, pieces[-1:])
        if not chosen or chosen[0].end % unit == 0 or group.ratio > 1 or group.form == "tail":
            return
        place, _, end = chosen[0]
        if self._unknown(group, pool, access.blocks[place], access.places[place]):
            return
        rest = torch.arange(end % unit, rows, dtype=torch.int64)
        found = Entries(torch.full_like(rest, place), rest, rest)
        mates = frozenset(self._number(g) for g in self.fold.declared.mates(group))
        space = self.graphs.space(pool.name, event)
        area = self._area(group, pool, access.places, found, space)
        about = self._about(event, access, group, pool, found, "load of the whole block")
        self._emit(event, [ReadBehind(area, mates, about)])

    def _pad_read(self, event: Event, access: Access, group: Group, pool: Pool) -> None:
        places = [p for p in access.places if self._kept(pool, p)]
        rows = self.geometry.rows(group)
        every = [Piece(i, 0, rows * group.ratio) for i in range(len(places))]
        found = entries(group, rows, every)
        # Only what padding has written is known not to be clear; the rest is as it was born.
        if not len(found) or not any((pool.name, group.name, p) in self._written for p in places):
            return
        first = Entries(found.places[:1], found.entries[:1], found.tokens[:1])
        space = self.graphs.space(pool.name, event)
        area = self._area(group, pool, places, first, space)
        about = self._about(event, access, group, pool, first, "read by padding rows")
        self._emit(event, [ReadClear(area, about)])

    def _tail_read(self, event: Event, tokens: tuple[int, int]) -> None:
        """What a seal takes from the request's tail."""
        tail = self.fold.group(event["from"])
        request = self.requests.by_name.get(str(event.req))
        if tail is None or request is None:
            return
        table = request.table(tail.table_id)
        blocks = tuple(self.fold.block_of[slot] for slot in table)
        at = max(tokens[1], self._request(str(event.req)).extent.get(tail.name, 0))
        places = tuple(tail.pool.map.get(b, b) for b in blocks)
        access = Access(False, accesses(event, self.fold.declared)[0].span, tail.pool, tail,
                        places, blocks)  # fmt: skip
        pieces = held(tail, len(blocks), tokens, at)
        self._read_pieces(event, access, tail, tail.pool, pieces, str(event.req), "seal from")

    # --- whole blocks ----------------------------------------------------------------------

    def _groups_in(self, pool: Pool, group: Group | None) -> list[Group]:
        if group is not None:
            return [group]
        own = [g for g in self.fold.declared.groups.values() if g.pool is pool]
        return own or list(self.fold.declared.groups.values())

    def _zero(self, event: Event) -> None:
        for access in accesses(event, self.fold.declared):
            pool = access.pool
            if pool is None:
                continue
            places = [p for p in access.places if self._kept(pool, p)]
            if places:
                space = self.graphs.space(pool.name, event)
                self._emit(event, [Zero(tuple(
                    self._whole(g, pool, places, space)
                    for g in self._groups_in(pool, access.group)
                ))])  # fmt: skip

    def _copy(self, event: Event) -> None:
        sides = accesses(event, self.fold.declared)
        if len(sides) != 2 or sides[0].pool is None or sides[1].pool is None:
            return
        source, target = sides
        pairs = [
            (a, b) for a, b in zip(source.places, target.places, strict=False)
            if self._kept(target.pool, b) and self._kept(source.pool, a)
        ]  # fmt: skip
        if not pairs:
            return
        ops: list[Op] = []
        for group in self._groups_in(source.pool, source.group):
            to = target.group or group
            space = self.graphs.space(source.pool.name, event)
            here = self._whole(group, source.pool, [a for a, _ in pairs], space)
            there = self._whole(to, target.pool, [b for _, b in pairs], space)
            if len(here.rows) == len(there.rows):
                ops.append(Move(here, there))
            for a, b in pairs:
                self._carry((source.pool.name, a, group.name), (target.pool.name, b, to.name))
        self._emit(event, ops)

    def _carry(self, source: tuple[str, int, str], target: tuple[str, int, str]) -> None:
        content = self._holds.get(source)
        if content is None:
            self._holds.pop(target, None)
        else:
            self._holds[target] = content
        if (source[0], source[2], source[1]) in self._written:
            self._written.add((target[0], target[2], target[1]))

    # --- transfers -------------------------------------------------------------------------

    def _transfer(self, event: Event) -> None:
        store = event.ev == "store_begin"
        near, far = _sides(event, accesses(event, self.fold.declared), store)
        if near is None or near.group is None or near.pool is None:
            return
        handle = str(event["handle"])
        self._moving.setdefault(handle, set()).update((near.pool.name, p) for p in near.places)
        pieces = self._moved(event, near.group, len(near.places))
        if not store and event.req is not None and pieces:
            extent = self._request(event.req).extent
            last = max(p.end for p in pieces)
            extent[near.group.name] = max(extent.get(near.group.name, 0), last)
        end = self._ends.get(handle)
        failed = _failed(end, near.blocks)
        ops: list[Op] = []
        for i, place in enumerate(near.places):
            if not self._kept(near.pool, place) and not (
                far is not None and far.pool is not None and i < len(far.places)
                and self._kept(far.pool, far.places[i])
            ):  # fmt: skip
                continue
            ops += self._move(event, near, far, i, [p for p in pieces if p.place == i], store,
                              near.blocks[i] not in failed)  # fmt: skip
        self._emit(event, ops, f"transfer {handle}")

    def _moved(self, event: Event, group: Group, count: int) -> list[Piece]:
        """Which tokens each block of a transfer stands for, as far as anyone says."""
        tokens = event.get("tokens")
        if tokens:
            return [Piece(i, a, b) for i, (a, b) in enumerate(
                (max(tokens[0], s), min(tokens[1], s + group.block_tokens))
                for s in range(tokens[0] - tokens[0] % group.block_tokens, tokens[1],
                               group.block_tokens)
            )][:count]  # fmt: skip
        request = self._request(event.req) if event.req is not None else None
        found = []
        for i, block in enumerate(event["blocks"]):
            slot = self.fold.find(group.pool, block)
            start = MISSING if slot is None else int(self.fold.st.start[slot])
            if event.ev == "store_begin":
                place = group.pool.map.get(block, block)
                held_ = self._holds.get((group.pool.name, place, group.name))
                if group.form == "recurrent" or start == MISSING or request is None:
                    if held_ is not None:
                        found.append(Piece(i, held_[1], held_[2]))
                    continue
                known = max(request.extent.get(group.name, 0), request.hit if not request.extent
                            else 0)  # fmt: skip
            elif request is not None and start != MISSING:
                known = request.hit
                if group.form == "recurrent":
                    if i == len(event["blocks"]) - 1 and known > 0:
                        found.append(Piece(i, known - 1, known))
                    continue
            else:
                continue
            end = min(start + group.block_tokens, known)
            if end > start:
                found.append(Piece(i, start, end))
        return found

    def _move(
        self, event: Event, near: Access, far: Access | None, i: int, pieces: list[Piece],
        store: bool, arrives: bool,
    ) -> list[Op]:  # fmt: skip
        group, pool = near.group, near.pool
        assert group is not None and pool is not None
        place = near.places[i]
        has_far = far is not None and far.pool is not None and i < len(far.places)
        far_group = (far.group if far is not None else None) or group
        far_pool = far.pool if far is not None else None
        if far_pool is not None and far_group.pool is not far_pool:
            far_group = group
        expects = None
        if self.believed and self.believed.moves and self.believed.group == group.name:
            expects = self.believed.expects
        space = self.graphs.space(pool.name, event)
        here = self._block_area(group, pool, place, space, expects)
        there = None
        if has_far and far is not None and far_pool is not None:
            there = self._block_area(far_group, far_pool, far.places[i], "", None)
        check = self._checked_move(event, near, far, i, pieces, store, here, there)
        if not has_far and not store and pieces:
            # Nobody says where it comes from: what arrives is what the transfer is for.
            rows = self.geometry.rows(group)
            found = entries(group, rows, [Piece(0, p.start, p.end) for p in pieces])
            self._carry_content(event, near, None, i, pieces, store)
            if arrives and event.req is not None and len(found):
                area = self._area(group, pool, [place], found, space)
                return [Write(area, self._due(event.req, group, found))]
            return []
        if arrives:
            self._carry_content(event, near, far, i, pieces, store)
        source, target = (here, there) if store else (there, here)
        if not arrives:
            source = None
        return [Move(source, target, check)]

    def _block_area(
        self, group: Group, pool: Pool, place: int, space: str,
        expects: Mapping[str, Any] | None,
    ) -> Area:  # fmt: skip
        rows = self.geometry.rows(group)
        row = torch.arange(rows, dtype=torch.int64)
        return self._area(group, pool, [place], Entries(torch.zeros_like(row), row, row), space,
                          expects)  # fmt: skip

    def _checked_move(
        self, event: Event, near: Access, far: Access | None, i: int, pieces: list[Piece],
        store: bool, here: Area, there: Area | None,
    ) -> Read | None:  # fmt: skip
        """What a transfer reads is due what it stands for."""
        group, pool = near.group, near.pool
        assert group is not None and pool is not None
        source, side = (here, near) if store else (there, far)
        if source is None or side is None or side.pool is None or not pieces:
            return None
        req = event.req
        if req is None:
            content = self._holds.get((pool.name, near.places[i], group.name))
            req = None if content is None else content[0]
        if req is None:
            return None
        rows = self.geometry.rows(group)
        found = entries(group, rows, [Piece(0, p.start, p.end) for p in pieces])
        at = Access(False, side.span, side.pool, side.group, side.places[i : i + 1],
                    side.blocks[i : i + 1])  # fmt: skip
        owner = side.group if side.group is not None and side.group.pool is side.pool else group
        found = self._judged(at, owner, side.pool, found, req)
        if not len(found):
            return None
        area = Area(source.name, type(source.rows)(source.rows.starts[found.entries],
                                                   source.rows.lengths))  # fmt: skip
        due = self._due(req, group, found)
        about = self._about(event, at, group, side.pool, found, "store" if store else "load")
        return Read(area, due, self._fields(due), about)

    def _carry_content(
        self, event: Event, near: Access, far: Access | None, i: int, pieces: list[Piece],
        store: bool,
    ) -> None:  # fmt: skip
        group, pool = near.group, near.pool
        assert group is not None and pool is not None
        here = (pool.name, near.places[i], group.name)
        if far is None or far.pool is None or i >= len(far.places):
            if not store and pieces and event.req is not None:
                self._holds[here] = (event.req, pieces[0].start, pieces[-1].end)
                self._written.add((pool.name, group.name, near.places[i]))
            return
        owner = far.group if far.group is not None and far.group.pool is far.pool else group
        there = (far.pool.name, far.places[i], owner.name)
        source, target = (here, there) if store else (there, here)
        self._carry(source, target)
        self._written.add((target[0], target[2], target[1]))

    def _ended(self, event: Event) -> None:
        self._moving.pop(str(event["handle"]), None)
        self._bury(event)

    # --- freed blocks ----------------------------------------------------------------------

    def _dispatched(self, event: Event) -> None:
        self._in_flight.add(event["step"])

    def _retired(self, event: Event) -> None:
        self._in_flight.discard(event["step"])
        self._bury(event)

    def _released(self, event: Event) -> list[int]:
        """Device blocks that lose their last reference by this event."""
        if event.ev != "free":
            return []
        _, pool = self.fold.place(event)
        if pool is None or pool.tier:
            return []
        st = self.fold.st
        slots = [self.fold.slot(pool, b) for b in event["blocks"] if b not in pool.reserved]
        return [s for s in slots if s >= 0 and st.refs[s] == 1 and st.known[s] != 0]

    def _dies(self, event: Event, slot: int) -> None:
        """A block that is free and that no hash leads to is nobody's: its rows are marked, as
        soon as nothing that was handed out before can still read them."""
        fold = self.fold
        if fold.st.refs[slot] > 0 or fold.st.live[slot] > 0 or not fold.hashes_known(slot):
            return
        block = (fold.pool_of(slot).name, fold.block_of[slot])
        moving = {h for h, blocks in self._moving.items() if block in blocks}
        self._dead.append((slot, int(fold.st.gen[slot]), set(self._in_flight), moving))
        self._bury(event)

    def _bury(self, event: Event) -> None:
        kept = []
        for slot, gen, steps, moving in self._dead:
            st = self.fold.st
            if st.gen[slot] != gen or st.refs[slot] > 0 or st.live[slot] > 0:
                continue
            if steps & self._in_flight or moving & self._moving.keys():
                kept.append((slot, gen, steps, moving))
                continue
            pool, block = self.fold.pool_of(slot), self.fold.block_of[slot]
            place = pool.map.get(block, block)
            if self._kept(pool, place):
                space = self.graphs.space(pool.name, None)
                groups = [g for g in self.fold.declared.groups.values()
                          if g.pool is pool and g.table_id == st.table[slot]]  # fmt: skip
                areas = tuple(self._whole(g, pool, [place], space) for g in groups)
                self._emit(event, [Poison(areas)] if areas else [])
        self._dead = kept

    # --- memory that goes away, leases, buffers, graphs ------------------------------------

    def _rebase(self, event: Event) -> None:
        pools = self.graphs.rebase(event, self.fold.declared)
        self.geometry.forget()
        gone = [t.name for t in self._touched.values()
                if any(t.name == s or t.name.startswith(s) for s in self._storages(pools))]  # fmt: skip
        if gone and str(event.get("reason")) in ("sleep", "wake"):
            self._emit(event, [Discard(tuple(dict.fromkeys(gone)))]
                       if event.get("reason") == "sleep" else [])  # fmt: skip

    def _storages(self, pools: Sequence[str]) -> list[str]:
        return [p + self.graphs.suffix(p) for p in pools]

    def _lease(self, event: Event) -> None:
        """Behind its lease the far side may give lent bytes to anyone: they are marked freed."""
        pool = self.fold.declared.pools.get(str(event.get("pool")))
        if pool is None:
            return
        places = [b for b in event.get("blocks") or () if self._kept(pool, b)]
        transfer = self._begins.get(str(event["handle"]))
        group = None if transfer is None else self.fold.group(transfer["group"])
        if not places or group is None:
            return
        area = self._whole(group, pool, places, "")
        self._emit(event, [Poison((area,), lifted=event["op"] == "grant")])

    def _buffer(self, event: Event) -> None:
        """A metadata buffer is rows of stamps: which version each entry is of."""
        name = str(event["name"])
        last, valid = self._buffers.get(name, (0, 0))
        writes = event["op"] == "write"
        version = event.get("version", last + 1 if writes else last)
        count = event.get("valid" if writes else "extent")
        if count is None:
            count = 8 if writes else (valid or 8)
        count = min(int(count), BUFFER_ENTRIES)
        if writes:
            self._buffers[name] = (version, count)
        elif not last:
            return
        if count <= 0:
            return
        number = sequence(f"buffer {name}", version)
        self._names[number] = f"{name} version {version}"
        rows = torch.arange(count, dtype=torch.int64)
        share = self.geometry.buffer(name)
        pool = Pool(-1, f"buffer {name}", "gpu", 1, frozenset(), None, False, 0)
        self._touch(share.storage, share, pool, [0])
        area = Area(share.storage, share.page.at(torch.zeros_like(rows), rows))
        stamps = pack(number, 0, rows, 0, version & (1 << 31) - 1)
        if writes:
            self._emit(event, [Write(area, stamps)])
            return
        about = About(event.pos, event.req, event.step, name, pool.name, torch.zeros_like(rows),
                      rows, "read of the buffer")  # fmt: skip
        self._emit(event, [Read(area, stamps, self._fields(stamps), about)])

    def _graph(self, event: Event) -> None:
        self.graphs.take(event)


def _sides(
    event: Event, found: Sequence[Access], store: bool
) -> tuple[Access | None, Access | None]:
    """Near and far side of a transfer."""
    near = next((a for a in found if a.write is not store and a.group is not None
                 and a.group.name == event["group"] and a.pool is a.group.pool), None)  # fmt: skip
    far = next((a for a in found if a is not near), None)
    return near, far


def _failed(end: Event | None, blocks: Sequence[int]) -> frozenset[int]:
    """The blocks that did not arrive; all of them where a failure names none."""
    if end is None or end.get("ok", True):
        return frozenset(() if end is None else end.get("failed") or ())
    return frozenset(end.get("failed") or blocks)


_MAKE: dict[str, Any] = {
    "write": Compiler._write, "seal": Compiler._write, "index": Compiler._write,
    "use": Compiler._use, "zero": Compiler._zero, "copy": Compiler._copy,
    "store_begin": Compiler._transfer, "load_begin": Compiler._transfer,
    "store_end": Compiler._ended, "load_end": Compiler._ended,
    "lookup": Compiler._lookup, "resume": Compiler._resume, "rollback": Compiler._rollback,
    "preempt": Compiler._preempted, "weights": Compiler._weights,
    "dispatch": Compiler._dispatched, "retire": Compiler._retired,
    "rebase": Compiler._rebase, "lease": Compiler._lease, "buffer": Compiler._buffer,
    "capture": Compiler._graph, "launch": Compiler._graph,
}  # fmt: skip
