"""6xx: form routing. A block is read as what it is, by a route that fits its form, once."""

from __future__ import annotations

from hkvtool.analyzers.context import Context, Silent
from hkvtool.analyzers.reading import Read, brought
from hkvtool.model.event import Event
from hkvtool.state.declarations import Group
from hkvtool.state.resume import Fault, foreign, known

FITTING = {
    "compressed": {"reuse", "load", "recompute", "decompress", "bypass"},
    "tail": {"reuse", "load", "recompute", "bypass"},
    "swa": {"reuse", "load", "recompute", "bypass"},
    "indexer": {"reuse", "load", "recompute", "reindex", "bypass"},
    "recurrent": {"reuse", "load", "recompute", "bypass"},
}
"""Recovery routes that can bring back a block of each form."""


def same_rows(one: Group, other: Group) -> bool:
    """Whether bytes of one group are harmless as leftovers under another's.

    Layouts decide where both are stated: windows and history then hold the same plain rows,
    which a mask hides. Where nothing is stated, a change of form is a change.
    """
    mine, theirs = one.layout, other.layout
    told = [k for k in ("dtype", "codec", "row_bytes") if k in mine and k in theirs]
    plain = {"compressed", "swa"}
    alike = one.form == other.form or (one.form in plain and other.form in plain)
    if told:
        return alike and all(mine[k] == theirs[k] for k in told)
    return one.form == other.form


def form_faults(ctx: Context, read: Read) -> list[Fault]:
    """601 and 604: the block is of another table, or dirty with another form's bytes."""
    faults: list[Fault] = []
    st = ctx.fold.st
    groups = {g.id: g for g in ctx.fold.declared.groups.values()}
    for slot, span in zip(read.slots, read.spans, strict=True):
        if slot < 0 or ctx.fold.block_of[slot] in read.group.pool.reserved:
            continue
        tokens = span or (0, 0)
        if ctx.meant(slot, read.event.step) != st.gen[slot]:
            continue
        if foreign(ctx.fold, read.group, slot):
            owner = next(g for g in groups.values() if g.table_id == st.table[slot])
            why = f"it was allocated for group {owner.name} (form {owner.form})"
            faults.append(Fault("HKV601", slot, tokens, why))
            continue
        # Leftovers lie in places, and a moved block's place held another block before.
        dirt = -1 if read.group.pool.map else st.dirt[slot]
        if dirt >= 0 and known(ctx.fold, slot) and not same_rows(groups[dirt], read.group):
            if st.table[slot] == read.group.table_id:
                why = (
                    f"it still holds bytes of group {groups[dirt].name} behind what was written, "
                    "and was not zeroed"
                )
                faults.append(Fault("HKV604", slot, tokens, why))
    return faults


def residency_faults(ctx: Context, read: Read) -> list[Fault]:
    """305 and 603 (803 under a graph): the block is on a lower tier, or on its way back."""
    faults: list[Fault] = []
    st = ctx.fold.st
    launched = graph_of(ctx, read.event) is not None
    for slot, span in zip(read.slots, read.spans, strict=True):
        if slot < 0 or not known(ctx.fold, slot):
            continue
        tokens = span or (0, 0)
        if st.loads[slot] > 0 and ctx.meant(slot, read.event.step) == st.gen[slot]:
            if part_is_in(ctx, slot, read.event.get("part")):
                continue
            if launched:
                why = "a transfer into it is under way while a captured graph reads it"
                faults.append(Fault("HKV803", slot, tokens, why))
            elif read.resume is not None and read.resume.pos < read.event.pos:
                why = "its load has not ended"
                faults.append(Fault("HKV305", slot, tokens, why))
            else:
                faults.append(Fault("HKV603", slot, tokens, "it is recovering: unreadable"))
        elif read.group.pool.tier:
            why = f"its bytes are on {read.group.pool.medium} only"
            faults.append(Fault("HKV603", slot, tokens, why))
    return faults


def graph_of(ctx: Context, event: Event) -> int | None:
    """The launch, or the capture with its warm-up, that an access belongs to."""
    if event.step is not None:
        return ctx.launched.get(event.step)
    return ctx.capturing.get(event.actor)


def part_is_in(ctx: Context, slot: int, part: object) -> bool:
    """Whether the part of the block that is read has arrived, other parts being under way."""
    if part is None:
        return False
    block, pool = ctx.fold.block_of[slot], ctx.fold.pool_of(slot)
    waiting = [
        t.begin.get("part")
        for name, t in ctx.fold.transfers.items()
        if t.begin.ev == "load_begin"
        and t.group.pool is pool
        and block in t.begin["blocks"]
        and running(ctx, name)
    ]
    return bool(waiting) and part not in waiting and None not in waiting


def running(ctx: Context, handle: str) -> bool:
    """Whether a transfer has begun and not ended."""
    number = ctx.fold.names.find("handle", handle)
    return number >= 0 and ctx.fold.st.t_state[number] == 1


class Routing(Silent):
    """602 at the resume, 605 at the ends of transfers and at the end of the trace."""

    codes = frozenset({"HKV601", "HKV602", "HKV603", "HKV604", "HKV605"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.ends: dict[str, Event] = {}
        self.unnamed: dict[str, tuple[Event, Event]] = {}
        self.begun: dict[str, Event] = {}

    def before(self, event: Event) -> None:
        if event.ev in ("store_end", "load_end"):
            self._end(event)
        elif event.ev in ("store_begin", "load_begin"):
            name = str(event["handle"])
            self.ends.pop(name, None)
            self.begun[name] = event
            if event.ev == "load_begin" and event.req is not None:
                self._retried(event)
        elif event.ev == "resume":
            self._went_on(event)
            self._routes(event)
        elif event.ev == "use":
            self._went_on(event)

    def _routes(self, event: Event) -> None:
        ctx = self.ctx
        for name, route in (event.get("route") or {}).items():
            group = ctx.fold.group(name)
            if group is None:
                continue
            if route not in FITTING[group.form]:
                ids = brought(ctx, event, group) or []
                ctx.report(
                    "HKV602",
                    f"request {event.req} resumes group {group.name} by route {route}, which "
                    f"does not fit form {group.form}",
                    [event.pos],
                    slots=[s for s in (ctx.fold.slot(group.pool, b) for b in ids) if s >= 0],
                    group=group,
                    request=event.req,
                    check=event.pos,
                    believed={"route": route},
                    actual={"form": group.form},
                )

    def _end(self, event: Event) -> None:
        name = str(event["handle"])
        begin = self.begun.get(name)
        if begin is None:
            return
        last = self.ends.get(name)
        if last is not None:
            self.ctx.report(
                "HKV605",
                f"transfer {name} ends a second time",
                [begin.pos, last.pos, event.pos],
                slots=self.ctx.slots(begin),
                group=self.ctx.fold.group(begin["group"]),
                request=begin.req,
            )
            return
        self.ends[name] = event
        if event.get("ok") is False and not event.get("failed"):
            self.unnamed[name] = (begin, event)

    def _retried(self, event: Event) -> None:
        """A new load of the same blocks resolves a failure that named none."""
        for name, (begin, _) in list(self.unnamed.items()):
            if begin.req == event.req and begin["group"] == event["group"]:
                del self.unnamed[name]

    def _went_on(self, event: Event) -> None:
        """A request continues although a transfer of its failed without naming a block."""
        if event.req is None or not self.unnamed:
            return
        for name, (begin, end) in list(self.unnamed.items()):
            if begin.req != event.req:
                continue
            del self.unnamed[name]
            group = self.ctx.fold.group(begin["group"])
            slots = self.ctx.slots(begin)
            found = self.ctx.report(
                "HKV605",
                f"transfer {name} failed without naming a block, and request {event.req} went on",
                [begin.pos, end.pos, event.pos],
                slots=slots,
                group=group,
                request=event.req,
                check=end.pos,
                use=event.pos,
                believed={"arrived": True},
                actual={"ok": False, "failed": []},
            )
            if found is not None and group is not None:
                self.ctx.blame_table(found, event.req, group)

    def finish(self) -> None:
        self._never_released()
        requests = self.ctx.requests.by_name
        if any(r.is_request and r.ended is None for r in requests.values()):
            over = {r.name for r in requests.values() if r.ended is not None}
        else:
            over = set(requests)
        for name, begin in self.begun.items():
            if name in self.ends or not running(self.ctx, name):
                continue
            if any(pos > begin.pos for pos in self.ctx.lost):
                continue
            if begin.req is not None and begin.req not in over:
                continue
            if begin.req is None and len(over) != len(requests):
                continue
            self.ctx.report(
                "HKV605",
                f"transfer {name} never ends, though the trace goes on behind it",
                [begin.pos],
                slots=self.ctx.slots(begin),
                group=self.ctx.fold.group(begin["group"]),
                request=begin.req,
            )

    def _never_released(self) -> None:
        """Everything has ended, and a transfer still holds blocks under its own name."""
        ctx = self.ctx
        requests = [r for r in ctx.requests.by_name.values() if r.is_request]
        if not requests or any(r.ended is None for r in requests) or ctx.lost:
            return
        for name, end in self.ends.items():
            holder = ctx.requests.by_name.get(name)
            slots = [s for s in holder.held if ctx.fold.st.refs[s] > 0] if holder else []
            begin = self.begun.get(name)
            if slots and begin is not None:
                ctx.report(
                    "HKV605",
                    f"transfer {name} has ended, and the references it held are never given back",
                    [begin.pos, end.pos],
                    slots=slots,
                    group=ctx.fold.group(begin["group"]),
                    request=begin.req,
                    check=begin.pos,
                    use=end.pos,
                    actual={"references": ctx.fold.st.refs[slots[0]]},
                )
