"""6xx: form routing. A block is read as what it is, by a route that fits its form.

What becomes of the transfers that bring blocks back (605) is in `transfers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind
from hkvtool.state.reading import Read, brought
from hkvtool.state.serving import foreign, known

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
    st, group = ctx.fold.st, read.group
    groups = list(ctx.fold.declared.groups.values())
    for slot, span in zip(read.slots, read.spans, strict=True):
        if slot < 0 or (st.table[slot] == group.table_id and st.dirt[slot] < 0):
            continue
        if ctx.fold.block_of[slot] in group.pool.reserved:
            continue
        if ctx.meant(slot, read.event.step) != st.gen[slot]:
            continue
        if foreign(ctx.fold, group, slot):
            owner = next((g for g in groups if g.table_id == st.table[slot]), None)
            why = "it was allocated for a block table that no group has any more"
            if owner is not None:
                why = f"it was allocated for group {owner.name} (form {owner.form})"
            faults.append(Fault("HKV601", Kind.FOREIGN, slot, span or (0, 0), why))
        elif _dirty(ctx, group, slot, groups):
            why = (
                f"it still holds bytes of group {groups[st.dirt[slot]].name} behind what was "
                "written, and was not zeroed"
            )
            faults.append(Fault("HKV604", Kind.DIRTY, slot, span or (0, 0), why))
    return faults


def _dirty(ctx: Context, group: Group, slot: int, groups: Sequence[Group]) -> bool:
    """Whether a block of the group's table holds leftovers that are no rows of the group."""
    st = ctx.fold.st
    # Leftovers lie in places, and a moved block's place held another block before.
    if st.dirt[slot] < 0 or group.pool.map or not known(ctx.fold, slot):
        return False
    return st.table[slot] == group.table_id and not same_rows(groups[st.dirt[slot]], group)


def residency_faults(ctx: Context, read: Read) -> list[Fault]:
    """305 and 603 (803 under a graph): the block is on a lower tier, or on its way back."""
    faults: list[Fault] = []
    st, tier = ctx.fold.st, read.group.pool.tier
    for slot, span in zip(read.slots, read.spans, strict=True):
        if slot < 0 or not (tier or st.loads[slot] > 0) or not known(ctx.fold, slot):
            continue
        tokens = span or (0, 0)
        if st.loads[slot] > 0 and ctx.meant(slot, read.event.step) == st.gen[slot]:
            if part_is_in(ctx, slot, read.event.get("part")):
                continue
            if graph_of(ctx, read.event) is not None:
                why = "a transfer into it is under way while a captured graph reads it"
                faults.append(Fault("HKV803", Kind.LOADING, slot, tokens, why))
            elif read.resume is not None and read.resume.pos < read.event.pos:
                why = "its load has not ended"
                faults.append(Fault("HKV305", Kind.LOADING, slot, tokens, why))
            else:
                why = "it is recovering: unreadable"
                faults.append(Fault("HKV603", Kind.LOADING, slot, tokens, why))
        elif tier:
            why = f"its bytes are on {read.group.pool.medium} only"
            faults.append(Fault("HKV603", Kind.LOWER_TIER, slot, tokens, why))
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
        for t in ctx.moves.running.values()
        if t.begin.ev == "load_begin" and t.group.pool is pool and block in t.begin["blocks"]
    ]
    return bool(waiting) and part not in waiting and None not in waiting


def arrived(ctx: Context, faults: Iterable[Fault], part: object) -> list[Fault]:
    """Faults of a reader of one part: that other parts are still being loaded is none."""
    return [
        f for f in faults
        if f.code != "HKV305" or f.slot < 0 or not part_is_in(ctx, f.slot, part)
    ]  # fmt: skip


class Routing(Silent):
    """602: the route that a resume states for a group does not fit its form."""

    codes = frozenset({"HKV601", "HKV602", "HKV603", "HKV604", "HKV803"})

    def before(self, event: Event) -> None:
        if event.ev != "resume":
            return
        fold = self.ctx.fold
        for name, route in (event.get("route") or {}).items():
            group = fold.group(name)
            if group is None or route in FITTING[group.form]:
                continue
            ids = brought(self.ctx, event, group) or []
            self.ctx.report(
                "HKV602",
                f"request {event.req} resumes group {group.name} by route {route}, which "
                f"does not fit form {group.form}",
                [event.pos],
                slots=[s for s in (fold.slot(group.pool, b) for b in ids) if s >= 0],
                group=group,
                request=event.req,
                check=event.pos,
                believed={"route": route},
                actual={"form": group.form},
            )
