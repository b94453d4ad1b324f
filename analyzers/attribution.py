"""Which of a read's faults is the root.

Every family says what is wrong with a block for a reader; the first by precedence is the root and
is told, the others follow from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hkvtool.analyzers.context import Context
from hkvtool.state.arrays import EPOCH
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, roots
from hkvtool.state.needs import need_of
from hkvtool.state.reading import Read
from hkvtool.state.wording import sentence


def settle(ctx: Context, read: Read, faults: Iterable[Fault]) -> None:
    """Report the faults of one read: per block the first by precedence, a finding a code."""
    for code, same in roots(faults, ctx.evaluable).items():
        _tell(ctx, read, code, same)


def _tell(ctx: Context, read: Read, code: str, faults: Sequence[Fault]) -> None:
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
    changes = [_last_change(ctx, slot, group) for slot in slots[:2]]
    if code in ("HKV601", "HKV603", "HKV305", "HKV803") and slots:
        load = ctx.moves.loads.get(slots[0])
        changes.append(load.pos if load else None)
    if code == "HKV803" and event.step is not None:
        changes.append(ctx.launched.get(event.step))
    ctx.report(
        code,
        sentence(ctx, read, faults),
        [check, event.pos, *changes],
        slots=slots,
        of_read=True,
        group=group,
        request=read.request.name if read.request else None,
        check=check,
        use=event.pos if event.ev == "use" else None,
        step=event.step,
        tokens=(low, high) if high > low else None,
        believed=believed,
        actual=ctx.describe(slots[0], group) if slots else {"blocks": "none"},
        need=need_of(group),
    )


def _last_change(ctx: Context, slot: int, group: Group) -> int | None:
    """Where the block became what it is: its allocation or its last write, or new weights."""
    st = ctx.fold.st
    c = ctx.fold.component(slot, group)
    if st.cid[c] > 0 and st.epoch[c] != st.h[EPOCH]:
        return ctx.weights_pos
    pos = max(st.alloc_pos[slot], st.wpos[c])
    return pos if pos >= 0 else None
