"""A lookup or resume, group by group: what each could bring, and which one failed first.

The moment is the cursor's, not the check's: scrubbing on shows what becomes of the blocks that
were matched until they are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.model.rules import FAMILIES, RULES, Severity
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Span
from hkvtool.state.fold import Fold
from hkvtool.state.needs import aligned, need_of, needed
from hkvtool.state.resume import group_faults, index_faults
from hkvtool.store.seeking import Moments

LAYERS = {1: "whole blocks", 2: "kernel ABI", 3: "group intersection", 4: "alignment"}
"""The four layers that a hit must pass, in order; further digits are the constraints'."""

LAYOUT_FAMILIES = "24"
"""Families whose rules hold of a group as such, not of one check."""


@dataclass(frozen=True)
class GroupHit:
    """One row of the matrix."""

    group: str
    pool: str
    form: str
    serves: str | None
    participates: bool
    hit: int | None
    route: str | None
    blocks: tuple[int, ...]
    covers: Span
    need: str
    spans: tuple[Span, ...]
    faults: tuple[Fault, ...]
    recovery: str
    told: tuple[Finding, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        """The rules that stand against it: as things are at the cursor, and by the check."""
        return tuple(dict.fromkeys([*(f.code for f in self.faults), *(f.code for f in self.told)]))

    @property
    def layer(self) -> int | None:
        """The first layer or constraint that fails, None where the group can resume."""
        return min((int(c[3]) for c in self.codes), default=None)

    @property
    def first_gap(self) -> int | None:
        """The first token that cannot be had."""
        return min((f.tokens[0] for f in self.faults), default=None)


@dataclass(frozen=True)
class Hit:
    """One check: a lookup, the resume that followed from it, or a resume by itself."""

    lookup: Event | None
    resume: Event | None
    req: str
    at: int
    asked: int
    matched: int
    groups: tuple[GroupHit, ...]

    @property
    def pos(self) -> int:
        event = self.resume or self.lookup
        assert event is not None
        return event.pos

    @property
    def vetoed_by(self) -> GroupHit | None:
        """The group that reaches least far, where another reaches further."""
        hits = [g for g in self.groups if g.participates and g.hit is not None]
        least = min(hits, key=lambda g: g.hit or 0, default=None)
        return least if least is not None and (least.hit or 0) < self.matched else None

    def block_of(self, group: str) -> tuple[str, int] | None:
        """The block of a group that one would look at first: the last that was brought."""
        row = next((g for g in self.groups if g.group == group), None)
        return None if row is None or not row.blocks else (row.pool, row.blocks[-1])

    @property
    def failing(self) -> tuple[GroupHit, ...]:
        return tuple(g for g in self.groups if g.participates and g.codes)


def with_findings(hit: Hit, report: Report) -> Hit:
    """The matrix with what the check of the trace says of this one and its groups: what became of
    it later, and what is wrong with a group's layout whoever resumes."""
    places = {e.pos for e in (hit.lookup, hit.resume) if e is not None}

    def told(row: GroupHit) -> tuple[Finding, ...]:
        return tuple(
            f for f in report.findings
            if f.group == row.group and f.severity is Severity.ERROR and not f.cause
            and (f.check in places or f.code[3] in LAYOUT_FAMILIES)
        )  # fmt: skip

    return replace(hit, groups=tuple(replace(row, told=told(row)) for row in hit.groups))


def hit_at(moments: Moments, fold: Fold, pos: int, req: str | None = None) -> Hit | None:
    """The last check at or before a position, of a request where one is named."""
    event = moments.before(pos + 1, ("lookup", "resume"), req)
    while event is not None and event.problem is not None:
        event = moments.before(event.pos, ("lookup", "resume"), req)
    if event is None:
        return None
    lookup, resume = (event, None) if event.ev == "lookup" else (None, event)
    if resume is not None:
        lookup = _lookup_of(moments, resume)
    return hit_of(fold, lookup, resume)


def _lookup_of(moments: Moments, resume: Event) -> Event | None:
    """The lookup that a resume followed from."""
    event = moments.before(resume.pos, ("lookup", "resume"), resume.req)
    return event if event is not None and event.ev == "lookup" and not event.problem else None


def hit_of(fold: Fold, lookup: Event | None, resume: Event | None) -> Hit:
    """The matrix of one check, as the fold stands."""
    event = resume or lookup
    assert event is not None
    said = {} if lookup is None else dict(lookup["hit"])
    matched = max((int(t) for t in said.values()), default=0)
    at = int(event["at"]) if resume is not None else matched
    asked = max(int((lookup.get("tokens") if lookup else None) or 0), matched, at)
    reader = fold.names.find_all("req", [str(event.req)])[0]
    rows = []
    for group in _concerned(fold, event, said):
        blocks = _brought(fold, event, group)
        if blocks is None and resume is not None and lookup is not None and "blocks" not in resume:
            blocks = _brought(fold, lookup, group)
        rows.append(_row(fold, event, group, blocks or (), at, said.get(group.name), reader))
    return Hit(lookup, resume, str(event.req), at, asked, matched, tuple(rows))


def _concerned(fold: Fold, event: Event, said: dict[str, int]) -> list[Group]:
    """The groups that a check is about: those it names, and those of the same pools that a resume
    needs."""
    named = {*said, *(event.get("blocks") or {}), *(event.get("route") or {})}
    groups = fold.declared.groups
    engines = {groups[n].pool.engine for n in named if n in groups}
    found = [
        g for g in groups.values()
        if g.name in named or (g.participates and not g.pool.tier and
                               (not engines or g.pool.engine in engines))
    ]  # fmt: skip
    return sorted(found, key=lambda g: (not g.participates, g.id))


def _brought(fold: Fold, event: Event, group: Group) -> tuple[int, ...] | None:
    named = event.get("blocks") or {}
    for mate in (group, *fold.declared.mates(group)):
        if mate.name in named:
            return tuple(named[mate.name])
    return None


def _row(
    fold: Fold, event: Event, group: Group, blocks: Sequence[int], at: int, hit: int | None,
    reader: int,
) -> GroupHit:  # fmt: skip
    spans = tuple(needed(fold, group, at)) if group.participates else ()
    faults: list[Fault] = []
    if "blocks" in event and group.participates:
        # At once: where their states are read when they are asked for, one by one takes longer.
        fold.resolve(group.pool, [block for block in blocks if block >= 0])
        faults = group_faults(fold, group, blocks, at, reader)
        served = fold.declared.served(group)
        if group.form == "indexer" and served is not None:
            theirs = _brought(fold, event, served) or ()
            faults += index_faults(fold, group, served, blocks, theirs)
    route = (event.get("route") or {}).get(group.name)
    start = max(0, aligned(group, len(blocks), at)) if blocks else at
    return GroupHit(
        group.name, group.pool.name, group.form, group.serves, group.participates, hit,
        None if route is None else str(route), tuple(blocks), (start, at if blocks else start),
        need_of(group), spans, tuple(faults), recovery(group, faults),
    )  # fmt: skip


def recovery(group: Group, faults: Sequence[Fault]) -> str:
    """What would bring back what a group lacks."""
    if not faults:
        return ""
    codes = {f.code for f in faults}
    low = min(f.tokens[0] for f in faults)
    high = max(f.tokens[1] for f in faults)
    if "HKV305" in codes:
        return "load: wait until the load has ended"
    if "HKV304" in codes:
        return f"reindex rows [{low}, {high})"
    if group.form == "recurrent":
        return "recompute from the last state that is there"
    if codes & {"HKV203", "HKV204", "HKV201", "HKV202"}:
        return "read it with the producer's layout"
    return f"load tokens [{low}, {high}) if a lower tier holds them, else recompute"


def layer_name(layer: int) -> str:
    """A layer or constraint in words."""
    return LAYERS.get(layer, FAMILIES[layer])


def told(codes: Sequence[str]) -> str:
    """Rules by code and name."""
    return ", ".join(f"{c[3:]} {RULES[c].name}" for c in codes)


def strip(row: GroupHit, end: int, width: int) -> list[str]:
    """The tokens [0, end) of a row in `width` cells: a rule's code where one fails, `ok` where
    what is needed is there, `brought` where more was brought, else nothing."""
    cells = [""] * width
    if end <= 0:
        return cells

    def put(tokens: Span, what: str) -> None:
        low, high = max(0, tokens[0]), min(end, tokens[1])
        if high <= low:
            return
        first = low * width // end
        last = max(first + 1, -(-high * width // end))
        for i in range(first, min(last, width)):
            cells[i] = what

    put(row.covers, "brought")
    for span in row.spans:
        put(span, "ok")
    held = {f.code for f in row.faults}
    for finding in row.told:
        if finding.code not in held:
            put(finding.tokens or (0, end), finding.code)
    for fault in sorted(row.faults, key=lambda f: -int(f.code[3])):
        put(fault.tokens, fault.code)
    return cells
