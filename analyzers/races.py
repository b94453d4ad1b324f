"""702, 703, 709 and the racing half of 103 and 706: accesses that no chain of edges orders."""

from __future__ import annotations

from dataclasses import dataclass

from hkvtool.analyzers.context import Context, Silent
from hkvtool.analyzers.reading import shown
from hkvtool.analyzers.routing import graph_of
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.rules import Severity
from hkvtool.state import arrays as a
from hkvtool.state.accesses import Access, Span, accesses
from hkvtool.state.order_stamp import Stamp

KEPT = 64
"""Accesses remembered a place; older ones are forgotten first."""


@dataclass(slots=True)
class Touch:
    """One access of one place."""

    access: Access
    slots: tuple[int, int] | None
    stamp: Stamp
    event: Event
    slot: int
    gen: int

    def overlaps(self, other: Touch) -> bool:
        """The two touch the same bytes of the place."""
        if not self.access.meets(other.access):
            return False
        one, two = self.slots, other.slots
        if one is None or two is None or self.access.group is not other.access.group:
            return True
        return one[0] < two[1] and two[0] < one[1]


@dataclass(slots=True)
class Clash:
    """Two unordered accesses, and every place they meet in."""

    code: str
    first: Touch
    second: Touch
    slots: list[int]


class Races(Silent):
    """Remembers who touches which bytes, and asks the order about every pair that matters."""

    codes = frozenset({"HKV702", "HKV703", "HKV706", "HKV709"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.places: dict[tuple[int, int], list[Touch]] = {}
        self.hazards: dict[int, tuple[Event, Event, int]] = {}
        self.explained: list[tuple[Finding, Stamp, Stamp]] = []
        self.buffers: dict[str, list[tuple[Event, Stamp]]] = {}

    def before(self, event: Event) -> None:
        if event.ev == "buffer":
            self._buffer(event)
            return
        if event.ev == "dropped":
            # An edge may be among what was lost: nothing before it can be called unordered.
            self.places.clear()
            self.buffers.clear()
            return
        if event.ev == "alloc":
            self._reissued(event)
            return
        found: dict[tuple[str, int], Clash] = {}
        touches: list[tuple[tuple[int, int], Touch]] = []
        for access in accesses(event, self.ctx.fold.declared):
            self._access(event, access, found, touches)
        for clash in found.values():
            self._tell(clash)
        for place, touch in touches:
            self._remember(place, touch)

    def finish(self) -> None:
        for slot, (begin, alloc, gen) in self.hazards.items():
            if self.ctx.fold.st.gen[slot] == gen:
                self._hazard(slot, begin, alloc)
        for finding, first, second in self.explained:
            finding.edge = str(self.ctx.order.explain_missing(first, second))

    # --- blocks ----------------------------------------------------------------------------

    def _access(
        self, event: Event, access: Access, found: dict[tuple[str, int], Clash],
        touches: list[tuple[tuple[int, int], Touch]],
    ) -> None:  # fmt: skip
        ctx = self.ctx
        pool, stamp = access.pool, ctx.stamp
        if pool is None or stamp is None or len(access.places) != len(access.blocks):
            return
        step = event.step
        for i, (index, block) in enumerate(zip(access.places, access.blocks, strict=True)):
            if block in pool.reserved or index in pool.reserved:
                continue
            slot = ctx.fold.slot(pool, block)
            if slot < 0:
                continue
            gen = ctx.meant(slot, step)
            touch = Touch(access, access.slots(i), stamp, event, slot, gen)
            place = (pool.id, index)
            lanes: set[int] = set()
            for earlier in reversed(self.places.get(place, ())):
                # An edge from a lane's last access orders all before it: that pair is the one.
                lane = earlier.stamp.lane
                if earlier.access.span is Span.LANE and lane in lanes:
                    continue
                if self._pair(earlier, touch, found) and earlier.access.span is Span.LANE:
                    lanes.add(lane)
            touches.append((place, touch))
            if gen == ctx.fold.st.gen[slot]:
                self.hazards.pop(slot, None)

    def _pair(self, first: Touch, second: Touch, found: dict[tuple[str, int], Clash]) -> bool:
        """Whether two accesses race; if so the clash is put with its like."""
        if not (first.access.write or second.access.write) or first.event is second.event:
            return False
        st = self.ctx.fold.st
        if st.known[second.slot] == a.UNKNOWN or st.unsure[second.slot]:
            return False
        if not first.overlaps(second) or self.ctx.order.before(first.stamp, second.stamp):
            return False
        code = self._code(first, second)
        if code == "HKV103" and second.event.ev == "use":
            if graph_of(self.ctx, second.event) is not None and first.access.span is Span.TRANSFER:
                code = "HKV803"
            elif self.ctx.fold.st.loads[second.slot] > 0:
                # Seen to be under way: the read itself is judged, as not yet there.
                return False
        if code is None or not self.ctx.evaluable(code):
            if code is not None:
                self.ctx.suppressed.add(code)
            return False
        clash = found.get((code, first.event.pos))
        if clash is None:
            clash = found[code, first.event.pos] = Clash(code, first, second, [])
        for slot in (second.slot, first.slot):
            if slot not in clash.slots:
                clash.slots.append(slot)
        return True

    @staticmethod
    def _code(first: Touch, second: Touch) -> str | None:
        """Which race two unordered accesses are; see *Which race code* of the catalogue."""
        same = first.gen == second.gen and first.slot == second.slot
        if first.access.write and second.access.write:
            return "HKV709" if same else "HKV703"
        if second.access.write:
            stranger = first.event.req != second.event.req
            return "HKV702" if not same or stranger else None
        if same:
            return "HKV103"
        return "HKV703" if first.gen < second.gen or first.slot != second.slot else "HKV702"

    def _remember(self, place: tuple[int, int], touch: Touch) -> None:
        """Keep an access; a write makes everything that is ordered before it moot."""
        kept = self.places.setdefault(place, [])
        before = self.ctx.order.before
        if touch.access.write and touch.slots is None:
            kept[:] = [t for t in kept if not (t.overlaps(touch) and before(t.stamp, touch.stamp))]
        else:
            kept[:] = [t for t in kept if not self._covered(t, touch)]
        kept.append(touch)
        if len(kept) > KEPT:
            del kept[0]

    @staticmethod
    def _covered(earlier: Touch, later: Touch) -> bool:
        """Whether whoever comes after the later access has come after the earlier one too."""
        one, two = earlier.access, later.access
        return (
            one.write == two.write
            and one.span is two.span is Span.LANE
            and earlier.stamp.lane == later.stamp.lane
            and (earlier.gen, earlier.slot, earlier.event.req)
            == (later.gen, later.slot, later.event.req)
            and one.group is two.group
            and one.part == two.part
            and earlier.slots == later.slots
        )

    def _tell(self, clash: Clash) -> None:
        ctx = self.ctx
        first, second = clash.first, clash.second
        group = second.access.group or first.access.group
        named = second if clash.code != "HKV702" or second.access.write else first
        blocks = shown([ctx.fold.block_of[s] for s in clash.slots])
        graph = graph_of(ctx, second.event) if clash.code == "HKV803" else None
        finding = ctx.report(
            clash.code,
            f"{_does(second)} blocks {blocks} while {_does(first, ongoing=True)} them may still "
            f"be under way: no edge orders event {first.event.pos} before event "
            f"{second.event.pos}",
            [first.event.pos, second.event.pos, graph],
            slots=clash.slots,
            group=group,
            request=named.event.req,
            check=first.event.pos,
            use=second.event.pos,
            step=named.event.step,
            believed={"generation": second.gen, "by": second.event.req},
            actual={"generation": first.gen, "by": first.event.req},
        )
        if finding is not None and finding.edge is None:
            finding.edge = ""
            self.explained.append((finding, first.stamp, second.stamp))

    # --- re-issue --------------------------------------------------------------------------

    def _reissued(self, event: Event) -> None:
        """A block changes owner while a load into it is under way: a hazard until touched."""
        st = self.ctx.fold.st
        loading: dict[int, Event] = {}
        for transfer in self.ctx.fold.transfers.values():
            if transfer.begin.ev != "load_begin":
                continue
            number = self.ctx.fold.names.find("handle", str(transfer.begin["handle"]))
            if st.t_state[number] == a.RUNNING:
                for block in transfer.begin["blocks"]:
                    slot = self.ctx.fold.find(transfer.group.pool, block)
                    if slot is not None:
                        loading[slot] = transfer.begin
        for slot in self.ctx.slots(event):
            if slot in loading and st.loads[slot] > 0:
                self.hazards[slot] = (loading[slot], event, st.gen[slot] + 1)

    def _hazard(self, slot: int, begin: Event, alloc: Event) -> None:
        self.ctx.report(
            "HKV703",
            f"block {self.ctx.fold.block_of[slot]} was handed out again while transfer "
            f"{begin['handle']} still writes it; nobody has touched it since",
            [begin.pos, alloc.pos],
            slots=[slot],
            group=self.ctx.fold.group(begin["group"]),
            request=alloc.req,
            check=begin.pos,
            use=alloc.pos,
            severity=Severity.WARNING,
        )

    # --- buffers ---------------------------------------------------------------------------

    def _buffer(self, event: Event) -> None:
        stamp = self.ctx.stamp
        name = str(event["name"])
        held = self.buffers.setdefault(name, [])
        writes = event["op"] == "write"
        if stamp is None:
            return
        if "stream" in self.ctx.evidence:
            for earlier, when in held:
                if (writes or earlier["op"] == "write") and not self.ctx.order.before(when, stamp):
                    self._mutated(event, earlier, stamp, when)
                    break
        if not writes:
            valid = next((e.get("valid") for e, _ in reversed(held) if e["op"] == "write"), None)
            extent = event.get("extent")
            if valid is not None and extent is not None and extent > valid:
                last = next(e for e, _ in reversed(held) if e["op"] == "write")
                self.ctx.report(
                    "HKV706",
                    f"buffer {name} is read to {extent} entries, of which only {valid} are valid",
                    [last.pos, event.pos],
                    request=event.req,
                    check=last.pos,
                    use=event.pos,
                    step=event.step,
                    believed={"extent": extent},
                    actual={"valid": valid},
                )
        if writes:
            held[:] = [(e, s) for e, s in held if not self.ctx.order.before(s, stamp)]
        held.append((event, stamp))
        del held[:-KEPT]

    def _mutated(self, event: Event, earlier: Event, stamp: Stamp, when: Stamp) -> None:
        name = event["name"]
        if earlier["op"] == "read":
            what = f"buffer {name} is written again before its reader has surely read it"
        else:
            what = f"buffer {name} is read though its write is not ordered before"
        finding = self.ctx.report(
            "HKV706",
            f"{what}: no edge orders event {earlier.pos} before event {event.pos}",
            [earlier.pos, event.pos],
            request=event.req,
            check=earlier.pos,
            use=event.pos,
            step=event.step if event.step is not None else earlier.step,
            believed={"version": earlier.get("version")},
            actual={"version": event.get("version")},
        )
        if finding is not None and finding.edge is None:
            finding.edge = ""
            self.explained.append((finding, when, stamp))


def _does(touch: Touch, *, ongoing: bool = False) -> str:
    """An access in words."""
    event = touch.event
    if event.ev in ("store_begin", "load_begin"):
        kind = "store" if event.ev == "store_begin" else "load"
        verb = "writes" if touch.access.write else "reads"
        said = f"{kind} {event['handle']}"
    else:
        verb = {"use": "reads", "zero": "zeroes", "copy": "copies"}.get(event.ev, "writes")
        said = f"request {event.req}" if event.req is not None else f"lane {event.actor}"
        if event.step is not None:
            said += f" in step {event.step}"
    if ongoing:
        verb = {"writes": "the write", "reads": "the read", "zeroes": "the zeroing",
                "copies": "the copy"}[verb]  # fmt: skip
        return f"{verb} by {said} of"
    return f"{said} {verb}"
