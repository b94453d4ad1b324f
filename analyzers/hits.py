"""What a lookup found against what its resume takes: blocks that nothing led to, and matched
tokens thrown away (308)."""

from __future__ import annotations

from collections.abc import Sequence

from hkvtool.analyzers.context import Context
from hkvtool.model.event import Event
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind
from hkvtool.state.fold import Fold
from hkvtool.state.needs import aligned
from hkvtool.state.reading import brought, reader_number
from hkvtool.state.requests import Request
from hkvtool.state.serving import absent_code, hashed, known, live_entries


def unhashed_faults(
    ctx: Context, event: Event, request: Request, group: Group, blocks: Sequence[int]
) -> list[Fault]:
    """Blocks of another request that no live hash led to, at the hit or now: whatever they
    hold, nothing says that it is this sequence's. Also those that the hit did not find."""
    fold = ctx.fold
    reader = reader_number(ctx, request)
    code, unit = absent_code(group), group.block_tokens
    found = _found(fold, request, group)
    start = aligned(group, len(blocks), event["at"])
    faults: list[Fault] = []
    for i, block in enumerate(blocks):
        slot = fold.slot(group.pool, block)
        if slot < 0 or not known(fold, slot) or block in group.pool.reserved:
            continue
        if fold.st.owner[slot] == reader and slot in request.held:
            continue
        if fold.st.loads[slot] > 0 or ctx.moves.load(slot) is not None:
            continue
        if not fold.hashes_known(slot):
            continue
        first = start + i * unit
        span = (max(0, first), max(0, first + unit))
        seen = request.seen.get(slot)
        if not hashed(fold, group, slot) and not (seen is not None and seen.hashed):
            faults.append(Fault(code, Kind.UNHASHED, slot, span, "no live hash leads to it"))
        elif found is not None and slot not in found and not _same_hash(fold, slot, found):
            why = "the lookup had found other blocks"
            faults.append(Fault(code, Kind.UNHASHED, slot, span, why))
    return faults


def _found(fold: Fold, request: Request, group: Group) -> set[int] | None:
    """Slots that the request's lookup found for a group, or None where it lists none."""
    lookup = request.lookup
    blocks = None if lookup is None else (lookup.get("blocks") or {}).get(group.name)
    if not blocks or group.form != "compressed":
        return None
    return {fold.slot(group.pool, b) for b in blocks}


def _same_hash(fold: Fold, slot: int, found: set[int]) -> bool:
    """Whether the block shares a hash with one that was found: a copy of the same content."""
    names = _hashes(fold, slot)
    return any(names & _hashes(fold, other) for other in found if other >= 0)


def _hashes(fold: Fold, slot: int) -> set[int]:
    return {fold.st.e_hash[entry] for entry in live_entries(fold, slot)}


def report_veto(ctx: Context, event: Event, request: Request) -> None:
    """308: one group's short hit cost tokens that another had."""
    lookup = request.lookup
    if lookup is None:
        return
    named = ((ctx.fold.group(name), tokens) for name, tokens in lookup["hit"].items())
    hits = {g: tokens for g, tokens in named if g is not None and g.participates}
    if not hits:
        return
    best = max(hits, key=lambda g: hits[g])
    worst = min(hits, key=lambda g: hits[g])
    kept = max(event["at"], hits[worst])
    lost = hits[best] - kept
    if lost <= 0:
        return
    ctx.report(
        "HKV308",
        f"request {request.name} throws away {lost} matched tokens: group {best.name} hits "
        f"{hits[best]}, but group {worst.name} only {hits[worst]}",
        [lookup.pos, event.pos],
        group=worst,
        request=request.name,
        check=lookup.pos,
        tokens=(kept, hits[best]),
        believed={"hit": {g.name: tokens for g, tokens in hits.items()}},
        actual={"resumed_at": event["at"], "limiting_group": worst.name, "lost": lost},
        blocks=brought(ctx, lookup, best) or [],
        pool=best.pool.name,
    )
