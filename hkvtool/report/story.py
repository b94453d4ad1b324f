"""A finding told event by event: the check, what changed, the use, and the state at both ends."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hkvtool.model.block_state import CacheBlockState
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.rules import RULES
from hkvtool.model.text import facts_line, shown
from hkvtool.report.checked import positions, role
from hkvtool.report.narrate import lane, sentence
from hkvtool.report.table import MAX_WIDTH, Line

TOLD = 12
"""Events that a story has at most; what lies between the telling ones goes first."""

CHANGES = frozenset({
    "alloc", "free", "publish", "unpublish", "slide", "remap", "reset", "write", "seal", "index",
    "zero", "copy", "rollback", "load_begin", "load_end", "store_begin", "rebase", "weights",
    "dropped",
})  # fmt: skip
"""Events that change what a block is, or may be."""


@dataclass(frozen=True)
class Moment:
    """One event of a story: `role` is check, change, use, before or after."""

    role: str
    event: Event

    def as_json(self) -> dict[str, Any]:
        return {
            "pos": self.event.pos,
            "role": self.role,
            "lane": self.event.actor,
            "text": sentence(self.event),
            "event": dict(self.event.data),
        }


@dataclass
class Story:
    """`states` are of the finding's first block as its group sees it: before the first of the two
    telling events, and before the second."""

    finding: Finding
    moments: list[Moment]
    states: list[tuple[int, CacheBlockState | None]] = field(default_factory=list)
    left_out: int = 0
    cause: Finding | None = None
    caused: Sequence[Finding] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "finding": self.finding.as_json(),
            "story": [m.as_json() for m in self.moments],
            "left_out": self.left_out,
            "states": [
                {"before": pos, "state": None if state is None else _facts(state)}
                for pos, state in self.states
            ],
        }


def chosen(finding: Finding, named: Mapping[int, Event], between: Iterable[Event]) -> Story:
    """The story of a finding: the events it names, and as many of those `between` its ends that
    touch its blocks as there is room for, changes first."""
    moments = [Moment(_role(finding, p, named[p]), named[p])
               for p in positions(finding) if p in named]  # fmt: skip
    others = [e for e in between if e.pos not in named]
    changes = [e for e in others if e.ev in CHANGES]
    room = max(0, TOLD - len(moments))
    # The latest changes are those that the use met.
    picked = changes[-room:] if room else []
    moments += [Moment("change", e) for e in picked]
    moments.sort(key=lambda m: m.event.pos)
    return Story(finding, moments, left_out=len(changes) - len(picked))


def _role(finding: Finding, pos: int, event: Event) -> str:
    found = role(finding, pos)
    if finding.check is None and event.ev in ("lookup", "resume"):
        return "check"
    if finding.use is None and event.ev == "use":
        return "use"
    return "change" if found == "between" and event.ev in CHANGES else found


def ends(finding: Finding) -> tuple[int, int]:
    """The two telling events: check and use, or else the first and last that are named."""
    named = positions(finding)
    return finding.check or named[0], finding.use or named[-1]


def story_lines(story: Story, width: int, *, name: str = "") -> Iterator[Line]:
    """The story as lines at most `width` wide."""
    width = max(40, min(width, MAX_WIDTH))
    f = story.finding
    rule = RULES[f.code]
    heading = [f"{f.id} {f.code} {rule.name}", str(f.severity), rule.family]
    yield Line(" · ".join([*heading, *([shown(name)] if name else [])])[:width], "bold")
    yield from _wrapped(shown(f.message), width, "  ")
    if story.cause is not None:
        cause = story.cause
        yield from _wrapped(f"follows from {cause.id} {cause.code}: {shown(cause.message)}",
                            width, "  ")  # fmt: skip
    yield Line("")
    yield from _diagram(story, width)
    if any(state is not None for _, state in story.states):
        yield Line("")
        yield from _states(story, width)
    yield Line("")
    for label, text in facts_of(f):
        yield from _wrapped(text, width, f"  {label:<10}")
    for after in story.caused:
        yield from _wrapped(f"{after.id} {after.code}: {shown(after.message)}", width,
                            "  follows   ")  # fmt: skip


def facts_of(f: Finding) -> Iterator[tuple[str, str]]:
    """What each side took for true, what was, and why that is a fault, each with its label."""
    if f.believed:
        yield "believed", facts_line(f.believed)
    if f.actual:
        yield "true", facts_line(f.actual)
    if f.need:
        yield "needs", f.need
    yield "fault", f"fires when {RULES[f.code].fires}"
    yield "fix", f.fix


def _diagram(story: Story, width: int) -> Iterator[Line]:
    """A line a moment along a bar that leads from the first to the last telling one; dashed where
    no edge orders the two."""
    f = story.finding
    lanes = max((len(lane(m.event)) for m in story.moments), default=0)
    first, last = sorted(ends(f)) if story.moments else (0, 0)
    bar = "╎" if f.edge else "│"
    if story.left_out:
        yield Line(f"  {'':>7} {' '} ... {story.left_out:,} earlier changes are left out")
    for m in story.moments:
        pos = m.event.pos
        mark = " "
        if first < last:
            mark = (
                "┬" if pos == first else "┴" if pos == last else bar if first < pos < last else " "
            )
        elif pos == first:
            mark = "─"
        head = f"  {pos:>7} {mark} {m.role:<7} {lane(m.event):<{lanes}}  "
        texts = textwrap.wrap(sentence(m.event), max(20, width - len(head)),
                              break_long_words=True, break_on_hyphens=False)  # fmt: skip
        under = f"  {'':>7} {bar if first <= pos < last else ' '} "
        for i, text in enumerate(texts[:3]):
            yield Line((head if i == 0 else f"{under:<{len(head)}}") + text, _style(m.role))
        if f.edge and pos == first:
            for text in textwrap.wrap(f"no edge: {shown(f.edge)}", max(20, width - len(under) - 8)):
                yield Line(f"{under}        {text}", "yellow")


def _style(role: str) -> str:
    return {"check": "cyan", "use": "cyan", "change": "bold"}.get(role, "")


def _states(story: Story, width: int) -> Iterator[Line]:
    """The block side by side before the check and before the use."""
    columns = [(f"before {pos}", _facts(state) if state else {}) for pos, state in story.states]
    state = next(s for _, s in story.states if s is not None)
    head = f"block {shown(state.pool)}:{state.block_id} of {shown(state.group)}"
    yield Line(f"  {head:<28}" + "".join(f"{title:<24}" for title, _ in columns).rstrip())
    for key in _facts(state):
        values = [str(facts.get(key, "not there")) for _, facts in columns]
        differs = len(set(values)) > 1
        text = "".join(f"{shown(v)[:22]:<24}" for v in values).rstrip()
        line = f"  {'*' if differs else ' '} {key:<26}{text}"
        yield Line(line[:width], "bold" if differs else "")


def _facts(state: CacheBlockState) -> dict[str, Any]:
    tokens = "none" if state.tokens is None else f"{state.tokens[0]} to {state.tokens[1]}"
    recoverable = "yes" if state.recoverable else f"no ({state.why_not or 'nothing written'})"
    return {
        "form": str(state.form),
        "generation": state.generation,
        "version": state.version,
        "tokens": tokens,
        "references": state.ref_count,
        "taken last by": state.owner or "nobody",
        "hash": state.published or "none",
        "recoverable": "unknown" if state.uncertain else recoverable,
    }


def _wrapped(text: str, width: int, head: str) -> Iterator[Line]:
    lines = textwrap.wrap(
        text, width - len(head), break_long_words=True, break_on_hyphens=False
    ) or [""]  # fmt: skip
    for i, line in enumerate(lines):
        yield Line((head if i == 0 else " " * len(head)) + line)
