"""One block in words: its record, why it cannot be resumed from, where it lies, its life."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hkvtool.model.block_state import CacheBlockState
from hkvtool.model.findings import Finding
from hkvtool.model.forms import NEEDS, Form
from hkvtool.model.rules import RULES
from hkvtool.model.text import event_line, shown
from hkvtool.store.history import Moment
from hkvtool.tui.lines import Line, fitted, heading, labelled, line, wrapped

MOST_LIFE = 400
"""Events of a life that are listed; the line above it shows all."""

_GENERATIONS = 10
"""Generations whose lines are drawn: the cursor's, those before, two behind."""

_MARKS = {
    "alloc": "A", "write": "w", "seal": "s", "index": "i", "use": "u", "free": "f", "publish": "P",
    "unpublish": "U", "touch": "t", "zero": "z", "copy": "c", "load_begin": "l", "load_end": "L",
    "store_begin": "o", "store_end": "O", "slide": "-", "pin": "p", "unpin": "q", "rollback": "r",
    "lookup": "?", "resume": "R", "state": "=", "remap": "m", "fingerprint": "#",
}  # fmt: skip
"""A letter a kind on the line of a life."""


def block_lines(
    block: tuple[str, int] | None, states: Sequence[CacheBlockState], width: int, *,
    facts: Mapping[str, Mapping[str, Any]], life: Sequence[Moment] | None, now: int,
    findings: Sequence[Finding], reserved: bool = False,
) -> Iterator[Line]:  # fmt: skip
    """Everything about one block; `life` is None while it is still being read."""
    if block is None:
        yield line(("no block chosen", "dim"))
        return
    place = f"{shown(block[0])}:{block[1]}"
    if not states:
        what = "reserved: never handed out" if reserved else "no event has named it yet"
        yield line((place, "bold"), "  ", (what, "dim"))
    else:
        yield from _shared(place, states[0], width)
    for state in states:
        yield line("")
        yield from _record(state, width)
        yield from _layout(facts.get(state.group, {}), width)
    named = [f for f in findings if f.pool == block[0] and block[1] in f.blocks]
    if named:
        yield line("")
        yield heading("named by")
        for f in named:
            yield line(
                (f"{f.id} ", "bad" if str(f.severity) == "error" else "warn"),
                fitted(f"{f.code} {RULES[f.code].name}", width - 6),
                key=("finding", f.id),
            )
    yield line("")
    yield from life_lines(life, now, width)


def _shared(place: str, s: CacheBlockState, width: int) -> Iterator[Line]:
    """What is so of the block, whichever group looks at it."""
    yield line((place, "bold"), (f"  generation {s.generation}", ""), (f"  {s.residency}", "dim"))
    yield from labelled("refs", _references(s), width)
    yield from labelled("hash", shown(s.published) if s.published else "none", width)
    yield from labelled("touched", f"at {s.last_touch}", width)


def _record(s: CacheBlockState, width: int) -> Iterator[Line]:
    """What it is to one group."""
    yield line(
        (str(s.form), f"form:{s.form}"), "  ", (shown(s.group), "bold"), (f"  v{s.version}", "dim")
    )
    if s.uncertain:
        yield line(("? uncertain", "warn"), ("  events were lost, or none described it", "dim"))
    elif s.recoverable:
        yield line(("● recoverable", "good"), ("  a request could resume from it", "dim"))
    else:
        yield from _why_not(s, width)
    tokens = "none" if s.tokens is None else f"{s.tokens[0]}..{s.tokens[1]}, {s.written} written"
    yield from labelled("tokens", tokens, width)


def _references(s: CacheBlockState) -> str:
    text = str(s.ref_count)
    if s.owner is not None:
        text += f", taken last by {shown(s.owner)}"
    return text + (f", pinned {s.pins}" if s.pins else "")


def _why_not(s: CacheBlockState, width: int) -> Iterator[Line]:
    if s.why_not is None:
        yield line(("· empty", "dim"), ("  nothing is written in this generation", "dim"))
        return
    rule = RULES[s.why_not]
    calm = s.ref_count > 0 and s.why_not in ("HKV101", "HKV305") and s.published is None
    yield line(("✗ not recoverable", "warn" if calm else "bad"), f"  {s.why_not} {rule.name}")
    yield from wrapped(why_in_words(s), width, "", indent=2)


def why_in_words(s: CacheBlockState) -> str:
    """Why a block cannot be resumed from, in a sentence about this block."""
    home = s.form if s.form is not Form.ON_DISK else None
    told = {
        "HKV101": f"{s.written} of its token slots are written in this generation; "
        "the rest never were.",
        "HKV102": "What it holds is not what its place in the prefix needs.",
        "HKV103": "Its hash is published, but the write that fills it has not come.",
        "HKV105": "What leads to it was published for an earlier content or older weights.",
        "HKV301": "It holds another version than was published for it.",
        "HKV302": "The tokens of the open unit are not in it.",
        "HKV303": "The window's tokens are not in it.",
        "HKV304": "Its index rows are missing, or not those of the data they route to.",
        "HKV305": "Its bytes are on their way."
        if s.residency == "recovering"
        else f"Its bytes are on {s.residency} only.",
        "HKV306": "It holds no state at the position it would be resumed from.",
        "HKV601": "It belongs to the block table of another form.",
    }.get(s.why_not or "", RULES[s.why_not or ""].fires + ".")
    return told if home is None else f"{told} A {home} group needs {NEEDS[home]}."


def _layout(facts: Mapping[str, Any], width: int) -> Iterator[Line]:
    if not facts:
        return
    said = [
        f"0x{v:x}" if k == "address" else f"{k.removesuffix('_bytes')} {shown(v)}"
        for k, v in facts.items()
    ]
    yield from labelled("layout", " · ".join(said), width)


def life_lines(life: Sequence[Moment] | None, now: int, width: int) -> Iterator[Line]:
    """A block's life: a line of marks a generation, then its events."""
    yield heading("life")
    if life is None:
        yield line(("reading …", "dim"))
        return
    if not life:
        yield line(("no event names it", "dim"))
        return
    there: dict[str, str] = {}
    for generation, moments in _generations(life, now):
        name = "before" if generation is None else f"gen {generation}"
        spans = [(f"{name:<8}", "label")]
        room = width - 8
        shown_moments = moments if len(moments) <= room else moments[-room:]
        for m in shown_moments:
            mark = _MARKS.get(m.event.ev, "+")
            there.setdefault(mark, m.event.ev if mark != "+" else "other")
            role = _role(m.event.ev)
            spans.append((mark, "dim" if m.event.pos > now else role))
        yield line(*spans)
    yield from wrapped("  ".join(f"{mark}={ev}" for mark, ev in there.items()), width, "dim")
    yield line("")
    past = [m for m in life if m.event.pos <= now]
    listed = life if len(life) <= MOST_LIFE else past[-MOST_LIFE:]
    if len(listed) < len(life):
        yield line((f"the latest {len(listed)} of {len(life)} events", "dim"))
    before: int | None = -1
    for m in listed:
        if m.generation != before:
            before = m.generation
            name = "before any alloc" if before is None else f"generation {before}"
            yield line((name, "label"))
        text = fitted(event_line(m.event), max(8, width - 8))
        role = "dim" if m.event.pos > now else ""
        at = "cursor" if m.event.pos == now else role
        yield line((f"{m.event.pos:>6} ", at or "label"), (text, role), key=("pos", m.event.pos))


def _generations(life: Sequence[Moment], now: int) -> Iterator[tuple[int | None, list[Moment]]]:
    found: list[tuple[int | None, list[Moment]]] = []
    for m in life:
        if not found or found[-1][0] != m.generation:
            found.append((m.generation, []))
        found[-1][1].append(m)
    here = sum(1 for _, moments in found if moments[0].event.pos <= now)
    end = min(len(found), max(here + 2, _GENERATIONS))
    return iter(found[max(0, end - _GENERATIONS) : end])


def _role(ev: str) -> str:
    if ev in ("write", "seal", "index", "zero", "load_begin", "load_end", "copy"):
        return "hue:1"
    if ev in ("use", "store_begin", "store_end", "resume", "lookup"):
        return "hue:0"
    if ev in ("publish", "unpublish"):
        return "hue:3"
    return ""
