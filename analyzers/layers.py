"""Which of the four layers stopped a hit, or should have, group by group in their order.

A hit passes the layers one after the other: every block whole (1), laid out as its reader expects
(2), every group able to resume at one position (3), every byte where the hardware can reach it
(4). What a group lacks of the longest hit is the third layer's to see; what is wrong with a block
it does bring is told by the rule that says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hkvtool.analyzers.context import Context
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.rules import RULES, Severity
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind
from hkvtool.state.needs import needed
from hkvtool.state.requests import Request
from hkvtool.state.resume import group_faults
from hkvtool.state.serving import filled, hashed, known

LAYERS = ("whole block", "kernel ABI", "group intersection", "alignment")
"""In the order in which a hit passes them; layer i holds the rules of family i + 1."""


class Passed(str, Enum):
    """What became of one group at one layer."""

    YES = "yes"
    STOPPED = "stopped"
    MISSED = "should have stopped"
    UNKNOWN = "not evaluable"
    NOT_REACHED = "not reached"


@dataclass(slots=True)
class Passage:
    """One group's way through the layers for one hit.

    `hit` are the tokens that the lookup found for it, None where it does not say; `why` is what
    the first layer it did not pass has to say; `gone` what became of the content it lacks.
    """

    group: str
    form: str
    hit: int | None
    layers: list[Passed] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    why: str = ""
    gone: str = ""

    @property
    def stopped_by(self) -> int | None:
        """The first layer that the group did not pass, from 0."""
        for i, passed in enumerate(self.layers):
            if passed in (Passed.STOPPED, Passed.MISSED):
                return i
        return None

    def as_json(self) -> dict[str, Any]:
        stopped = self.stopped_by
        return {
            "group": self.group,
            "form": self.form,
            "hit": self.hit,
            "layers": {
                name: passed.value for name, passed in zip(LAYERS, self.layers, strict=True)
            },
            "codes": self.codes,
            "stopped_by": None if stopped is None else LAYERS[stopped],
            "why": self.why,
            "gone": self.gone,
        }


def passages(
    ctx: Context, request: Request, lookup: Event | None, resume: Event | None, target: int
) -> list[Passage]:
    """Every participating group's way through the layers for a hit of `target` tokens, as the
    state stands at the resume (or, where there is none, later)."""
    hit: dict[str, Any] = {} if lookup is None else lookup["hit"]
    # A resume that goes on from less says nothing of the blocks that the longest hit had.
    taken = resume is not None and resume["at"] >= target and "blocks" in resume
    said = resume if taken else lookup
    blocks: dict[str, Any] = {} if said is None else said.get("blocks") or {}
    engine = request.engine
    for name in blocks:
        named = ctx.fold.group(name)
        engine = engine if named is None else named.pool.engine
    found: list[Passage] = []
    for group in ctx.groups_of(engine):
        if group.participates:
            mine = _of_table(ctx, blocks, group)
            if mine is None and taken:
                mine = []
            tokens = _of_table(ctx, hit, group)
            found.append(_passage(ctx, group, mine, tokens, target))
    return found


def _of_table(ctx: Context, said: dict[str, Any], group: Group) -> Any:
    """What is said of a group, or of one that shares its table."""
    for mate in [group, *ctx.fold.declared.mates(group)]:
        if mate.name in said:
            return said[mate.name]
    return None


def _passage(
    ctx: Context, group: Group, blocks: Sequence[int] | None, hit: int | None, target: int
) -> Passage:
    out = Passage(group.name, group.form, hit)
    if blocks is None and hit is not None and hit < target:
        out.why = f"it hits {hit:,} of {target:,} tokens"
        out.layers = [Passed.UNKNOWN, Passed.UNKNOWN, Passed.STOPPED, Passed.NOT_REACHED]
        return out
    if blocks is None:
        out.layers = [Passed.UNKNOWN] * len(LAYERS)
        return out
    # What a write or load is still to fill is judged at the use, and then a finding tells it.
    faults = [f for f in group_faults(ctx.fold, group, blocks, target) if not f.waiting]
    by_layer: dict[int, Fault] = {}
    for fault in faults:
        by_layer.setdefault(_layer(fault), fault)
    for layer in range(len(LAYERS)):
        stopped = by_layer.get(layer)
        if stopped is not None:
            out.layers.append(Passed.STOPPED)
            if not out.why:
                out.why = stopped.why
        elif out.why:
            out.layers.append(Passed.NOT_REACHED)
        else:
            out.layers.append(Passed.YES if _evaluable(ctx, layer) else Passed.UNKNOWN)
    return out


def _layer(fault: Fault) -> int:
    """The layer whose business a fault is: blocks that are not there at all are for the
    intersection to miss, whatever their form."""
    if fault.kind in (Kind.ABSENT, Kind.UNHASHED, Kind.ELSEWHERE):
        return 2
    return min(int(fault.code[3]), 4) - 1 if fault.code[3] in "1234" else 2


def _evaluable(ctx: Context, layer: int) -> bool:
    return any(ctx.evaluable(code) for code in RULES if code[3] == str(layer + 1))


def mark(passed: Iterable[Passage], findings: Iterable[Finding], went_on: bool) -> None:
    """Put the layer that should have stopped a group: of one that `went_on` all the same, and by
    the findings about what it brought."""
    by_name = {p.group: p for p in passed}
    for one in by_name.values():
        if went_on:
            one.layers = [Passed.MISSED if p is Passed.STOPPED else p for p in one.layers]
    for finding in findings:
        passage = by_name.get(finding.group or "")
        if passage is None or finding.code[3] not in "1234" or finding.code in passage.codes:
            continue
        if finding.severity is not Severity.ERROR:
            continue
        passage.codes.append(finding.code)
        if passage.stopped_by is None:
            passage.layers[int(finding.code[3]) - 1] = Passed.MISSED
            passage.why = passage.why or finding.message


def gone(ctx: Context, group: Group, target: int, writer: Request | None) -> str:
    """What became of the content that a group lacks for `target`, as far as it was the
    `writer`'s of the content that another group found."""
    spans = needed(ctx.fold, group, target)
    if writer is None or not spans:
        return ""
    st, low, high = ctx.fold.st, spans[0][0], spans[-1][1]
    since = dict(writer.left.get(group.table_id, {}))
    since.update(dict.fromkeys(writer.table(group.table_id), -1))
    taken: list[tuple[int, int]] = []
    idle: list[int] = []
    other: list[tuple[int, int]] = []
    for slot, left in since.items():
        c = ctx.fold.component(slot, group)
        if left >= 0 and st.alloc_pos[slot] > left:
            taken.append((int(st.alloc_pos[slot]), slot))
        elif known(ctx.fold, slot) and filled(ctx.fold, slot, c):
            there = st.lo[c] < high and low < st.hi[c]
            if group.form == "recurrent":
                there = st.hi[c] == high
            if not there:
                other.append((abs(int(st.hi[c]) - high), slot))
            elif hashed(ctx.fold, group, slot):
                return f"block {ctx.fold.block_of[slot]} still holds it, with a live hash"
            else:
                idle.append(slot)
    if idle:
        names = ", ".join(str(ctx.fold.block_of[s]) for s in idle[:3])
        return f"{writer.name}'s block {names} still holds it, but no live hash leads there"
    if taken:
        pos, slot = max(taken)
        owner = st.owner[slot]
        who = "another" if owner < 0 else str(ctx.fold.names.name("req", owner))
        block = ctx.fold.block_of[slot]
        return f"{writer.name}'s block {block} of it was handed to {who} at event {pos}"
    if other:
        slot = min(other)[1]
        c = ctx.fold.component(slot, group)
        held = f"the state at {st.hi[c]}"
        if group.form != "recurrent":
            held = f"tokens {st.lo[c]} to {st.hi[c]}"
        return f"{writer.name}'s block {ctx.fold.block_of[slot]} holds {held}"
    return ""
