"""702, 703, 709 and the racing half of 103: accesses that no chain of edges orders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.analyzers.places import Place, Touch
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.rules import Severity
from hkvtool.state.accesses import Access, Span, accesses
from hkvtool.state.order_stamp import Stamp
from hkvtool.state.read_faults import graph_of
from hkvtool.state.serving import known
from hkvtool.state.wording import shown


@dataclass(slots=True)
class Clash:
    """Two unordered accesses, and every place they meet in."""

    code: str
    first: Touch
    second: Touch
    slots: list[int]


class Races(Silent):
    """Remembers who touches which bytes, and asks the order about every pair that matters."""

    codes = frozenset({"HKV702", "HKV703", "HKV709"})
    kinds = frozenset(
        {"alloc", "write", "seal", "index", "zero", "copy", "use", "store_begin", "load_begin"}
    )

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.places: dict[tuple[int, int], Place] = {}
        self.hazards: dict[int, tuple[Event, Event, int]] = {}
        self.explained: list[tuple[Finding, Stamp, Stamp]] = []

    def before(self, event: Event) -> None:
        if self.ctx.after_loss(event):
            self.places.clear()
        if event.ev == "alloc":
            self._reissued(event)
            return
        found: dict[tuple[str, int], Clash] = {}
        touched: list[tuple[Place, Touch]] = []
        for access in accesses(event, self.ctx.fold.declared):
            for place, touch in self._touches(event, access):
                self._meet(place, touch, found)
                touched.append((place, touch))
        for clash in found.values():
            self._tell(clash)
        for place, touch in touched:
            place.keep(touch, self.ctx.order)

    def finish(self) -> None:
        for slot, (begin, alloc, gen) in self.hazards.items():
            if self.ctx.fold.st.gen[slot] == gen:
                self._hazard(slot, begin, alloc)
        for finding, first, second in self.explained:
            finding.edge = str(self.ctx.order.explain_missing(first, second))

    # --- pairs -----------------------------------------------------------------------------

    def _touches(self, event: Event, access: Access) -> Iterator[tuple[Place, Touch]]:
        """Every place that an access touches, but for reserved blocks, which are nobody's."""
        pool, stamp, step = access.pool, self.ctx.stamp, event.step
        if pool is None or stamp is None or len(access.places) != len(access.blocks):
            return
        fold, places, number, reserved = self.ctx.fold, self.places, pool.id, pool.reserved
        gen, hazards = fold.st.gen, self.hazards
        slots = [fold.slot(pool, block) for block in access.blocks]
        gens = self.ctx.generations(slots, step)
        tokens = access.all_slots()
        for i, index in enumerate(access.places):
            slot = slots[i]
            if slot < 0 or (reserved and (access.blocks[i] in reserved or index in reserved)):
                continue
            if hazards and slot in hazards and gens[i] == gen[slot]:
                del hazards[slot]
            key = (number, index)
            place = places.get(key)
            if place is None:
                place = places[key] = Place()
            yield place, Touch(access, tokens[i], stamp, event, slot, gens[i])

    def _meet(self, place: Place, touch: Touch, found: dict[tuple[str, int], Clash]) -> None:
        """Put the races of an access in one place with their like."""
        told: set[int] = set()
        for earlier in place.unordered(touch, self.ctx.order):
            # An edge from a lane's last access orders all before it: that pair is the one.
            if earlier.access.span is not Span.LANE:
                self._pair(earlier, touch, found)
            elif earlier.stamp.lane not in told and self._pair(earlier, touch, found):
                told.add(earlier.stamp.lane)

    def _pair(self, first: Touch, second: Touch, found: dict[tuple[str, int], Clash]) -> bool:
        """Whether two unordered accesses race; if so the clash is put with its like."""
        if not (first.access.write or second.access.write):
            return False
        if not known(self.ctx.fold, second.slot) or not first.overlaps(second):
            return False
        code = _code(first, second)
        if code == "HKV103" and second.event.ev == "use":
            if graph_of(self.ctx, second.event) is not None and first.access.span is Span.TRANSFER:
                code = "HKV803"
            elif self.ctx.fold.st.loads[second.slot] > 0:
                # Seen to be under way: the read itself is judged, as not yet there.
                return False
        if code is None or not self.ctx.evaluable(code):
            return False
        clash = found.get((code, first.event.pos))
        if clash is None:
            clash = found[code, first.event.pos] = Clash(code, first, second, [])
        for slot in (second.slot, first.slot):
            if slot not in clash.slots:
                clash.slots.append(slot)
        return True

    def _tell(self, clash: Clash) -> None:
        ctx = self.ctx
        first, second = clash.first, clash.second
        named = second if clash.code != "HKV702" or second.access.write else first
        blocks = shown([ctx.fold.block_of[s] for s in clash.slots])
        graph = graph_of(ctx, second.event) if clash.code == "HKV803" else None
        finding = ctx.report(
            clash.code,
            f"{_does(second)} blocks {blocks}, and {_does(first, ongoing=True)} them may still be "
            f"under way: no edge orders event {first.event.pos} before event {second.event.pos}",
            [first.event.pos, second.event.pos, graph],
            slots=clash.slots,
            group=second.access.group or first.access.group,
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
        for slot in self.ctx.slots(event):
            if slot >= 0 and st.loads[slot] > 0:
                begin = self.ctx.moves.loads.get(slot)
                if begin is not None:
                    self.hazards[slot] = (begin, event, st.gen[slot] + 1)

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
