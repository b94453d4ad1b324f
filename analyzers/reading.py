"""One read of cached blocks, and which of its faults is the root.

Every family says what is wrong with a block for a reader; the first by the order of
`PRECEDENCE` is the root, the others are attached to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hkvtool.analyzers.context import Context
from hkvtool.model.event import Event
from hkvtool.state.arrays import EPOCH
from hkvtool.state.declarations import Group
from hkvtool.state.requests import Request
from hkvtool.state.resume import Fault, Span, aligned, need_of

PRECEDENCE: dict[str, int] = {
    code: rank
    for rank, codes in enumerate(
        (
            ("HKV703", "HKV709"),
            ("HKV702",),
            ("HKV601", "HKV604"),
            ("HKV105",),
            ("HKV602", "HKV305", "HKV603", "HKV803"),
            ("HKV103",),
            ("HKV307", "HKV301", "HKV302", "HKV303", "HKV304", "HKV306"),
            ("HKV701",),
            ("HKV704",),
            ("HKV102",),
            ("HKV101",),
        )
    )
    for code in codes
}
"""Rank of a code among the faults of one read; the lowest is the root."""


@dataclass(slots=True)
class Read:
    """A use, or a resume that names blocks for one.

    `gens` are the generations the reader holds (latest where it holds none); `resume` the
    decision it follows from; `route` what that decision stated for the group.
    """

    event: Event
    group: Group
    request: Request | None
    slots: list[int]
    spans: list[Span | None]
    gens: list[int] = field(default_factory=list)
    resume: Event | None = None
    route: str | None = None
    at: int | None = None

    @property
    def check(self) -> int | None:
        if self.resume is not None:
            return self.resume.pos
        if self.request is not None and self.request.lookup is not None:
            return self.request.lookup.pos
        return None


def reader_number(ctx: Context, request: Request | None) -> int:
    """The number of the reading request, as owners are numbered."""
    if request is None:
        return -1
    for name in (request.name, _integer(request.name)):
        if name is not None:
            found = ctx.fold.names.find("req", name)
            if found >= 0:
                return found
    return -1


def _integer(text: str) -> int | None:
    return int(text) if text.lstrip("-").isdigit() else None


def read_of_use(ctx: Context, event: Event, group: Group) -> Read:
    """The read that a `use` event is: its blocks, and which tokens of each it reads."""
    request = ctx.request(event)
    slots = ctx.slots(event)
    tokens = event.get("tokens")
    spans: list[Span | None] = [None] * len(slots)
    if tokens and slots:
        start, end = tokens
        unit = group.block_tokens
        if group.form in ("compressed", "indexer"):
            end -= end % max(group.ratio, ctx.fold.declared.ratio_served(group))
        first = aligned(group, len(slots), tokens[1])
        for i in range(len(slots)):
            low, high = max(start, first + i * unit), min(end, first + (i + 1) * unit)
            spans[i] = (low, max(low, high))
    step = event.step
    dispatched = ctx.dispatched.get(step, event.pos) if step is not None else event.pos
    gens = []
    for slot in slots:
        held = request is not None and slot >= 0 and request.held_at(slot, dispatched)
        gens.append(ctx.meant(slot, step) if held else -1)
    resume = request.resume if request else None
    route = at = None
    if resume is not None:
        route = route_of(ctx, resume, group)
        at = resume["at"]
    return Read(event, group, request, slots, spans, gens, resume, route, at)


def route_of(ctx: Context, resume: Event, group: Group) -> str | None:
    """The recovery route that a resume states for a group; where it names neither the group's
    blocks nor its route, what it states for another group of the same table."""
    routes = resume.get("route") or {}
    if group.name in routes or group.name in (resume.get("blocks") or {}):
        route = routes.get(group.name)
        return None if route is None else str(route)
    for mate in ctx.fold.declared.mates(group):
        if mate.name in routes:
            return str(routes[mate.name])
    return None


def brought(ctx: Context, event: Event, group: Group) -> list[int] | None:
    """Blocks that a lookup or resume names for a group or for one that shares its table; None
    where it names none of them."""
    named = event.get("blocks") or {}
    if group.name in named:
        return list(named[group.name])
    for mate in ctx.fold.declared.mates(group):
        if mate.name in named:
            return list(named[mate.name])
    return None


def settle(ctx: Context, read: Read, faults: Sequence[Fault]) -> None:
    """Report the faults of one read: per block the first by precedence, a finding a code."""
    best: dict[tuple[int, Span | None], Fault] = {}
    changed = {f.slot for f in faults if f.code == "HKV701"}
    for fault in faults:
        if fault.slot in changed and fault.code == "HKV105" and "hash was pub" not in fault.why:
            # The hash was right when it was checked: what came after is check against use.
            continue
        key = (fault.slot, fault.tokens if fault.slot < 0 else None)
        if not ctx.evaluable(fault.code):
            ctx.suppressed.add(fault.code)
            continue
        held = best.get(key)
        if held is None or PRECEDENCE[fault.code] < PRECEDENCE[held.code]:
            best[key] = fault
    by_code: dict[str, list[Fault]] = {}
    for fault in best.values():
        by_code.setdefault(fault.code, []).append(fault)
    for code in sorted(by_code, key=lambda c: PRECEDENCE[c]):
        tell(ctx, read, code, by_code[code])


def tell(ctx: Context, read: Read, code: str, faults: Sequence[Fault]) -> None:
    """One finding about one read."""
    group, event = read.group, read.event
    slots = [f.slot for f in faults if f.slot >= 0]
    low = min(f.tokens[0] for f in faults)
    high = max(f.tokens[1] for f in faults)
    believed: dict[str, Any] = {}
    check = read.check
    if read.resume is not None:
        believed = {"resumed_at": read.at, "route": read.route}
    if read.request is not None and slots:
        seen = read.request.seen.get(slots[0])
        if seen is not None:
            believed |= {"generation": seen.generation, "version": seen.version}
            if code == "HKV701":
                check = seen.pos
    actual = ctx.describe(slots[0], group) if slots else {"blocks": "none"}
    use = event.pos if event.ev == "use" else None
    changes = [_last_change(ctx, slot, group) for slot in slots[:2]]
    if code in ("HKV601", "HKV603", "HKV305", "HKV803"):
        changes += [_loading(ctx, slot) for slot in slots[:1]]
    if code == "HKV803":
        step = event.step
        changes.append(ctx.launched.get(step) if step is not None else None)
    ctx.report(
        code,
        sentence(ctx, read, faults),
        [check, event.pos, *changes],
        slots=slots,
        of_read=True,
        group=group,
        request=read.request.name if read.request else None,
        check=check,
        use=use,
        step=event.step,
        tokens=(low, high) if high > low else None,
        believed=believed,
        actual=actual,
        need=need_of(group),
    )


def _last_change(ctx: Context, slot: int, group: Group) -> int | None:
    """Where the block became what it is: its allocation or its last write."""
    st = ctx.fold.st
    c = ctx.fold.component(slot, group)
    if st.cid[c] > 0 and st.epoch[c] != st.h[EPOCH]:
        return ctx.weights_pos
    pos = max(st.alloc_pos[slot], st.wpos[c])
    return pos if pos >= 0 else None


def _loading(ctx: Context, slot: int) -> int | None:
    """Where the load into a block began that was the last to do so."""
    block, pool = ctx.fold.block_of[slot], ctx.fold.pool_of(slot)
    begun = [
        t.begin.pos
        for t in ctx.fold.transfers.values()
        if t.begin.ev == "load_begin" and t.group.pool is pool and block in t.begin["blocks"]
    ]
    return max(begun, default=None)


def sentence(ctx: Context, read: Read, faults: Sequence[Fault]) -> str:
    """What is wrong with a read, in a user's terms."""
    who = f"request {read.request.name}" if read.request else "a kernel"
    group = read.group.name
    if read.event.ev == "resume":
        does = f"{who} resumes at token {read.event['at']}"
    elif read.event.ev == "lookup":
        does = f"the lookup of {who} hits"
    else:
        does = f"{who} reads group {group}"
        if read.event.step is not None:
            does += f" in step {read.event.step}"
        if read.at is not None:
            does += f", resumed at token {read.at}"
    fault = faults[0]
    blocks = [ctx.fold.block_of[f.slot] for f in faults if f.slot >= 0]
    if not blocks:
        return f"{does}, but in group {group} {fault.why}"
    name = f"block {blocks[0]}" if len(blocks) == 1 else f"blocks {shown(blocks)}"
    also = "" if len(blocks) == 1 else f" (block {blocks[0]})"
    return f"{does}, but {name} of group {group} cannot serve it: {fault.why}{also}"


def shown(blocks: Sequence[int]) -> str:
    """A few block ids as text."""
    head = ", ".join(map(str, blocks[:6]))
    return head if len(blocks) <= 6 else f"{head}, … ({len(blocks)} in all)"
