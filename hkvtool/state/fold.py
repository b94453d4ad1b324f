"""The fold of events into block states, one event at a time.

`Fold` is the plain form: lists, no compiler, for traces below `PLAIN_LIMIT` events, the guard and
every question about one moment. The transitions are those of `hkvtool.state.step`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hkvtool.model.event import Event
from hkvtool.model.events import BY_CODE, EVENTS
from hkvtool.model.rows import FAILED, MISSING, NO_NAME, PAD, Names
from hkvtool.state import arrays as a
from hkvtool.state import hashes, snapshot, transfers
from hkvtool.state.codes import FOLDED
from hkvtool.state.declarations import Declarations, Group, Pool
from hkvtool.state.step import step

PLAIN_LIMIT = 50_000
"""Shorter traces never wait for a compiler."""

FEW = 4096
"""Dead hash entries, and blocks of ended transfers, that are not worth clearing away."""

NO_SLOT = -(1 << 40)
"""Stands for a block id that is none: ``base + NO_SLOT`` is below 0 in any trace."""

_FOLDED = frozenset(BY_CODE[code].name for code in FOLDED)
_COLUMNS = {
    per: [(name, extent.empty) for name, extent in a.EXTENTS.items() if extent.per == per]
    for per in {extent.per for extent in a.EXTENTS.values()}
}
"""Arrays, and what an untouched place of each holds, by what indexes them."""
_GROUP_OR_POOL = frozenset(["alloc", "touch", "free", "pin", "unpin", "zero"])


class Problem(NamedTuple):
    """Why an event is impossible as written (HKV905).

    `midway` ones are excused in a recording that began in the middle.
    """

    text: str
    midway: bool = False


class Transfer(NamedTuple):
    """A transfer under way or ended, by what began it."""

    begin: Event
    group: Group
    far: Pool | None


class Fold:
    """Every block's state after the events applied so far."""

    laid_out = False
    """Whether every block of every pool has its slot, in order."""

    def __init__(self, names: Names | None = None) -> None:
        self.names = names or Names()
        self.declared = Declarations()
        self.transfers: dict[str, Transfer] = {}
        self.block_of: Any = []
        self.gaps: dict[str, Event] = {}
        self.doubted = MISSING
        """The last event before which some may have been lost."""
        self._slots: list[dict[int, int]] = []
        self._beyond: list[dict[int, int]] = []
        self._pools: list[Pool] = []
        self._arena_kept = 0
        self.st = self._new_arrays()
        self._control: dict[str, Callable[[Event], Problem | None]] = {
            "pool": self._declare_pool,
            "group": self._declare_group,
            "kernel": self._declare_kernel,
            "limits": self._declare_limits,
            "state": self._state,
            "remap": self._remap,
            "rebase": self._rebase,
            "weights": self._weights,
            "dropped": self._dropped,
        }

    # --- looking ---------------------------------------------------------------------------

    def pool_of(self, slot: int) -> Pool:
        number: int = self.st.slot_pool[slot]
        return self._pools[number]

    def slot(self, pool: Pool, block: int) -> int:
        """The slot of a block, made on first sight; `NO_SLOT` where the id is no block."""
        found = self._slots[pool.id].get(block)
        if found is not None:
            return found
        if block < 0 or not pool.has(block):
            return NO_SLOT
        return self._new_slot(pool, block)

    def hashes_known(self, slot: int) -> bool:
        """Whether the trace has said which hashes lead to a block, if any."""
        return bool(self.st.known[slot] != a.UNKNOWN and self.st.unhashed[slot] == 0)

    def find(self, pool: Pool, block: int) -> int | None:
        """The slot of a block that some event has named."""
        slot = self._slots[pool.id].get(block)
        return slot if slot is not None and self.st.touch[slot] >= 0 else None

    def slots_of(self, pool: Pool) -> dict[int, int]:
        """Slots of a pool by block id, of the blocks that some event has named."""
        touch = self.st.touch
        return {block: slot for block, slot in self._slots[pool.id].items() if touch[slot] >= 0}

    def places(self, pool: Pool, blocks: Any) -> Any | None:
        """The slots of an array of block ids, where they need not be looked up one by one."""
        return None

    def overviewed(self, pool: Pool, blocks: Any) -> Any | None:
        """What is known of all these blocks without looking at each (`hkvtool.state.overview`)."""
        return None

    def led_to(self, number: int) -> Iterator[int]:
        """The slots that live entries of a hash lead to."""
        entry = self.st.first_of_hash[number] if number < len(self.st.first_of_hash) else -1
        while entry >= 0:
            if self.st.e_live[entry] == 1:
                yield int(self.st.e_slot[entry])
            entry = self.st.e_next_hash[entry]

    def component(self, slot: int, group: Group) -> int:
        """The place of a group's share of a slot in the component arrays."""
        return slot * int(self.st.h[a.COMPONENTS]) + group.component

    def surely_serve(
        self, group: Group, slots: Sequence[int], spans: Sequence[tuple[int, int]], reader: int
    ) -> bool:
        """Whether each slot surely serves its span, by whichever hash it was come by. A fold that
        knows no quicker way than to look at them one by one says of none that it is sure."""
        return False

    def group(self, name: Any) -> Group | None:
        return None if name is None else self.declared.groups.get(str(name))

    def place(self, event: Event) -> tuple[Group | None, Pool | None]:
        """The group and pool that an event's `blocks` are of."""
        group = self.group(event.get("group"))
        if "pool" in event and event.ev not in ("pool", "group"):
            return group, self.declared.pools.get(str(event["pool"]))
        return group, group.pool if group else None

    def _new_arrays(self) -> a.Arrays:
        st = a.Arrays(*([] for _ in a.Arrays._fields))
        st.h.extend([0] * a.HEADER)
        st.h[a.COMPONENTS] = 1
        st.steps.extend([-1] * (2 * a.STEPS))
        return st

    def _place_pool(self, pool: Pool) -> None:
        """Where a pool's slots start: nowhere, as slots are given out one by one."""

    # --- growing ---------------------------------------------------------------------------

    def make_room(self, per: str, size: int) -> None:
        """Let the arrays that `per` indexes hold `size` integers."""
        for name, empty in _COLUMNS[per]:
            column = getattr(self.st, name)
            if len(column) < size:
                column.extend([empty] * (size - len(column)))

    def _new_slot(self, pool: Pool, block: int) -> int:
        slot = len(self.block_of)
        self.block_of.append(block)
        self._slots[pool.id][block] = slot
        if slot >= len(self.st.slot_pool):
            room = slot + slot // 8 + 64
            self.make_room("slot", room)
            self.make_room("component", room * self.st.h[a.COMPONENTS])
        self.st.slot_pool[slot] = pool.id
        return slot

    def _widen(self, width: int) -> None:
        """Make room for more components a slot."""
        old = self.st.h[a.COMPONENTS]
        if width <= old:
            return
        for name, extent in a.EXTENTS.items():
            if extent.per in ("component", "pool_component"):
                column = getattr(self.st, name)
                wider: list[int] = []
                for i in range(0, len(column), old):
                    wider += column[i : i + old] + [extent.empty] * (width - old)
                column[:] = wider
        self.st.h[a.COMPONENTS] = width

    def req(self, name: Any) -> int:
        """The number of a request or other holder, `NO_NAME` for none."""
        if name is None:
            return NO_NAME
        number = self.names.id("req", name)
        self.make_room("req", number + 1)
        self.make_room("req_table", (number + 1) * max(1, self.st.h[a.TABLES]))
        return number

    def hash(self, name: Any) -> int:
        """The number of a content hash."""
        number = self.names.id("hash", name)
        self.make_room("hash", number + 1)
        return number

    def hashes(self, names: Iterable[Any]) -> list[int]:
        """The numbers of content hashes."""
        number = self.names.id
        found = [number("hash", name) for name in names]
        self.make_room("hash", len(self.names.values["hash"]))
        return found

    # --- declarations ----------------------------------------------------------------------

    def _declare_pool(self, event: Event) -> Problem | None:
        pool = self.declared.pool(event)
        if pool.id == len(self._pools):
            self._pools.append(pool)
            self._slots.append({})
            self._beyond.append({})
            self.make_room("pool", len(self._pools))
            self.make_room("pool_component", len(self._pools) * self.st.h[a.COMPONENTS])
        else:
            pool.map = self._pools[pool.id].map
            self._pools[pool.id] = pool
            self._resize(pool)
        self._place_pool(pool)
        self.st.size[pool.id] = pool.blocks
        self.st.tier[pool.id] = int(pool.tier)
        self._mirrors()
        return None

    def _resize(self, pool: Pool) -> None:
        """Put aside the blocks that a pool no longer has; some may come back."""
        slots, beyond = self._slots[pool.id], self._beyond[pool.id]
        for block in [b for b in slots if not pool.has(b)]:
            beyond[block] = slots.pop(block)
        for block in [b for b in beyond if pool.has(b)]:
            slots[block] = beyond.pop(block)

    def _declare_group(self, event: Event) -> Problem | None:
        group = self.declared.group(event)
        if isinstance(group, str):
            return Problem(group)
        self._widen(group.component + 1)
        self.make_room("group", len(self.declared.groups))
        st = self.st
        self._grow_tables(len(self.declared.tables))
        st.g_table[group.id] = group.table_id
        st.g_comp[group.id] = group.component
        st.g_tokens[group.id] = group.block_tokens
        st.g_form[group.id] = group.form_number
        st.g_pool[group.id] = group.pool.id
        place = group.pool.id * st.h[a.COMPONENTS] + group.component
        st.recur[place] = int(group.form == "recurrent")
        st.h[a.USED] = max(st.h[a.USED], group.component + 1)
        self._mirrors()
        return None

    def _grow_tables(self, tables: int) -> None:
        """Make room for a request's place in so many block tables."""
        st = self.st
        old = max(1, st.h[a.TABLES])
        if tables == st.h[a.TABLES]:
            return
        rows = [st.next_token[i : i + old] for i in range(0, len(st.next_token), old)]
        st.next_token[:] = [v for row in rows for v in row + [0] * (tables - len(row))]
        st.h[a.TABLES] = tables

    def _mirrors(self) -> None:
        """Which component a group's content is on each pool."""
        width = len(self.st.base)
        size = len(self.declared.groups) * width
        self.st.mirror.extend([-1] * (size - len(self.st.mirror)))
        self._fill_mirrors(width)

    def _fill_mirrors(self, width: int) -> None:
        for group in self.declared.groups.values():
            for pool in self._pools:
                there = None if pool is group.pool else self.declared.mirror(group, pool)
                place = group.id * width + pool.id
                self.st.mirror[place] = -1 if there is None else there.component

    def _declare_kernel(self, event: Event) -> Problem | None:
        if self.group(event["group"]) is None:
            return Problem(f"kernel: group {event['group']!r} is not declared")
        self.declared.kernels.append(event)
        return None

    def _declare_limits(self, event: Event) -> Problem | None:
        self.declared.limits.append(event)
        return None

    def _remap(self, event: Event) -> Problem | None:
        pool = self.declared.pools.get(str(event["pool"]))
        if pool is None:
            return Problem(f"remap: pool {event['pool']!r} is not declared")
        pool.map.update({int(k): v for k, v in event["map"].items()})
        pool.map_pos = event.pos
        self.st.h[a.MAPPED] = 1
        self._resize(pool)
        return None

    def _rebase(self, event: Event) -> Problem | None:
        self.declared.rebase(event)
        return None

    def _weights(self, event: Event) -> Problem | None:
        self.st.h[a.EPOCH] += 1
        return None

    def _dropped(self, event: Event) -> Problem | None:
        """What the lost events touched is uncertain, until the lane is seen again: its gap is
        somewhere before its next event, whatever other lanes did meanwhile."""
        self.gaps[event.actor] = event
        self.doubted = event.pos
        self._doubt(event)
        return None

    def _doubt(self, event: Event) -> None:
        """Everything that has been named is uncertain, of that pool where one is named, and so is
        whose bytes lie there."""
        pool = self.declared.pools.get(str(event.get("pool")))
        st = self.st
        for slot in range(len(self.block_of)):
            if st.touch[slot] >= 0 and (pool is None or st.slot_pool[slot] == pool.id):
                st.unsure[slot] = 1
                st.by[slot] = st.dirt[slot] = -1

    def in_gap(self, slot: int) -> bool:
        """Whether events about a block are missing, and may stand anywhere up to here."""
        for gap in self.gaps.values():
            pool = self.declared.pools.get(str(gap.get("pool")))
            if pool is None or self.st.slot_pool[slot] == pool.id:
                return True
        return False

    def seen_again(self, event: Event) -> bool:
        """Whether the event ends a gap of its lane: what was lost is before it, and what other
        lanes named meanwhile is uncertain as well."""
        if not self.gaps or event.ev == "dropped":
            return False
        gap = self.gaps.pop(event.actor, None)
        if gap is not None:
            self._doubt(gap)
            self.doubted = event.pos
        return gap is not None

    def lose(self, event: Event) -> None:
        """Events were lost and only a jump of `seq` shows it, at the event that comes next."""
        self.doubted = event.pos
        for slot in range(len(self.block_of)):
            if self.st.touch[slot] >= 0:
                self.st.unsure[slot] = 1
                self.st.by[slot] = self.st.dirt[slot] = -1

    def _state(self, event: Event) -> Problem | None:
        pool = self.declared.pools.get(str(event["pool"]))
        if pool is None:
            return Problem(f"state: pool {event['pool']!r} is not declared")
        fault = snapshot.fault(event, pool)
        if fault:
            return Problem(f"state: {fault}")
        snapshot.take(self, event, pool)
        return None

    # --- events ----------------------------------------------------------------------------

    def apply(self, event: Event) -> Problem | None:
        """Fold one event; says why where it is impossible as written, and then changes nothing."""
        if event.problem is not None:
            return Problem(event.problem)
        event = event.meant
        self.seen_again(event)
        control = self._control.get(event.ev)
        if control is not None:
            return control(event)
        group = None
        if "group" in event and event.ev != "wire":
            group = self.group(event["group"])
            if group is None:
                return Problem(f"{event.ev}: group {event['group']!r} is not declared")
        if event.ev not in _FOLDED:
            return None
        return self._fold(event, group)

    def _fold(self, event: Event, group: Group | None) -> Problem | None:
        kind, data = event.ev, event.data
        pool = group.pool if group else None
        if "pool" in data:
            pool = self.declared.pools.get(str(data["pool"]))
            if pool is None:
                return Problem(f"{kind}: pool {data['pool']!r} is not declared")
        if pool is None and kind in _GROUP_OR_POOL:
            return Problem(f"{kind}: names neither a group nor a pool")
        g2, far = NO_NAME, None
        handle = NO_NAME
        near, other = data.get("blocks") or (), ()
        flags = PAD if data.get("pad") else 0
        aux = MISSING
        if kind == "copy":
            problem, group, pool, to, far = self._copy_places(data, group, pool)
            if problem:
                return problem
            near, other = data["src"], data["dst"]
            g2 = to.id if to else NO_NAME
        elif kind == "free":
            far, other = pool, data.get("front") or ()
        elif kind in ("store_begin", "load_begin"):
            name = data.get("to" if kind == "store_begin" else "from")
            far = self.declared.pools.get(str(name)) if name is not None else None
            if name is not None and far is None:
                return Problem(f"{kind}: pool {name!r} is not declared")
            other = data.get("peer") or () if far else ()
        elif kind in ("store_end", "load_end"):
            handle = self.names.find("handle", str(data["handle"]))
            if not 0 <= handle < len(self.st.t_state) or self.st.t_state[handle] == a.IDLE:
                return Problem(f"{kind}: transfer {data['handle']!r} never began", midway=True)
            pool = self._pools[self.st.g_pool[self.st.t_group[handle]]]
            near = data.get("failed") or ()
            if data.get("ok") is False:
                flags |= FAILED
        elif kind == "rollback":
            aux = data["to"]
        elif kind == "unpublish" and near and pool is None:
            pools = [p for p in self._pools if not p.tier and p.blocks > 0]
            if len(pools) != 1:
                return Problem("unpublish: blocks without a group")
            pool = pools[0]
        slots = self.resolve(pool, near)
        slots2 = self.resolve(far, other)
        for where, ids, found in ((pool, near, slots), (far, other, slots2)):
            if NO_SLOT in found and where is not None:
                bad = [b for b, s in zip(ids, found, strict=True) if s == NO_SLOT]
                if kind != "use" or max(bad) >= 0:
                    return Problem(f"{kind}: block {max(bad)} is beyond pool {where.name!r}")
        if kind in ("store_begin", "load_begin"):
            handle = self._begin(event, group, far)
        hashed = []
        if kind in ("publish", "unpublish") and data.get("hashes"):
            hashed = self.hashes(data["hashes"])
        if kind == "publish":
            self._room_for_entries(len(hashed))
        tokens = data.get("tokens")
        t0, t1 = tokens if tokens else (MISSING, MISSING)
        req = self.req(data.get("req"))
        if req < 0 and "owner" in data:
            req = self.req(data["owner"])
        step(
            self.st, EVENTS[kind].code, event.pos, data.get("step", MISSING), req,
            group.id if group else NO_NAME, g2,
            pool.id if pool and "pool" in data else NO_NAME, far.id if far else NO_NAME, handle,
            t0, t1, data.get("version", MISSING), data.get("kv_version", MISSING), aux, flags,
            0, 0, slots, 0, len(slots), slots2, 0, len(slots2), hashed, 0, len(hashed),
        )  # fmt: skip
        return None

    def resolve(self, pool: Pool | None, blocks: Any) -> list[int]:
        """The slots of blocks, made on first sight; `NO_SLOT` where an id is no block."""
        if pool is None:
            return []
        known = self._slots[pool.id]
        return [known[b] if b in known else self.slot(pool, b) for b in blocks]

    def _begin(self, event: Event, group: Group | None, far: Pool | None) -> int:
        assert group is not None
        name = str(event["handle"])
        self.transfers[name] = Transfer(event, group, far)
        handle = self.names.id("handle", name)
        self.make_room("handle", handle + 1)
        self._room_for_records(len(event["blocks"]))
        return handle

    def _room_for_entries(self, count: int) -> None:
        """Let so many more hashes be published; forgets the dead ones when they are the most."""
        if self.st.h[a.ENTRIES] > 2 * self.st.h[a.LIVE] + FEW:
            self._forget_dead()
        self.make_room("entry", int(self.st.h[a.ENTRIES]) + count)

    def _forget_dead(self) -> None:
        hashes.forget_dead(self.st)

    def _room_for_records(self, count: int) -> None:
        """Let a transfer of so many blocks begin; forgets those that have ended."""
        st = self.st
        if st.h[a.ARENA] > self._arena_kept + FEW * a.RECORD:
            transfers.forget_ended(st, self._running())
            self._arena_kept = 2 * int(st.h[a.ARENA])
        self.make_room("arena", int(st.h[a.ARENA]) + count * a.RECORD)

    def _running(self) -> Any:
        """The transfers under way, by number."""
        return [h for h, state in enumerate(self.st.t_state) if state == a.RUNNING]

    def _copy_places(
        self, data: Mapping[str, Any], group: Group | None, pool: Pool | None
    ) -> tuple[Problem | None, Group | None, Pool | None, Group | None, Pool | None]:
        """Source group and pool, destination group and pool of a copy."""
        sides: list[tuple[Group | None, Pool | None]] = []
        for key in ("src_group", "dst_group"):
            side, where = group, pool
            if key in data:
                side = self.group(data[key])
                if side is None:
                    text = f"copy: group {data[key]!r} is not declared"
                    return Problem(text), None, None, None, None
                where = side.pool
            sides.append((side, where))
        (src, src_pool), (dst, dst_pool) = sides
        if src_pool is None or dst_pool is None:
            return Problem("copy: names neither a group nor a pool"), None, None, None, None
        return None, src, src_pool, dst, dst_pool
