"""What is said about the screen: the title, the tabs, the legend, the help."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hkvtool.model.forms import NEEDS
from hkvtool.model.text import shown
from hkvtool.tui import palette as p
from hkvtool.tui.actions import ACTIONS, VIEWS, Action, keys_of
from hkvtool.tui.lines import Line, Span, heading, labelled, line, wrapped
from hkvtool.tui.mosaic import DETAIL, View

_ABOUT = {
    "map": "Every block of every pool at the cursor's moment. Upper case: a request could resume "
    "from it; lower case: not.",
    "block": "One block: its record, why it cannot be resumed from, where it lies, its life.",
    "hit": "The last lookup or resume, group by group: what each brought, which one failed first.",
    "findings": "What is wrong, by root cause: check and use, what lies between, the fix.",
    "requests": "Requests around the cursor; what matched beside what could be resumed.",
    "transfers": "Loads and stores around the cursor.",
    "ratios": "Tokens asked for, matched, and really resumable, with the reasons between.",
    "events": "The events around the cursor.",
}


def about(view: str) -> str:
    """What a view shows, in a line."""
    return _ABOUT[view]


def title_spans(
    name: str, engine: str, events: int, pos: int, last: int, moment: str, state: str, width: int
) -> Line:
    """The first line: which trace, which moment."""
    right = f"{state} event {pos:,} of {last:,}{moment} "
    facts = f"  {shown(engine)}" if engine else ""
    left = f" {shown(name)}"
    room = width - len(left) - len(right) - 2
    middle = f"{facts}  {events:,} event{'s' * (events != 1)}"
    middle = middle if len(middle) <= room else facts if len(facts) <= room else ""
    gap = " " * max(1, width - len(left) - len(middle) - len(right))
    return line((left, "bar-bold"), (middle, "bar-dim"), (gap, "bar"), (right, "bar-bold"))


_SHORT = {"requests": "Reqs", "transfers": "Xfers"}
_SHORTEST = {"block": "Blk", "findings": "Find", "requests": "Req", "transfers": "Xfer",
             "ratios": "Rat", "events": "Ev"}  # fmt: skip
"""Views where there is little room, and least."""


def tab_spans(current: str, findings: int | None, width: int) -> Line:
    """The views with their keys, in the longest words that there is room for."""
    for names in ({}, _SHORT, _SHORTEST):
        found = _tabs(current, findings, names)
        if len(found.text) <= width:
            break
    return found


def _tabs(current: str, findings: int | None, names: Mapping[str, str]) -> Line:
    spans: list[Span] = []
    for number, view in enumerate(VIEWS, 1):
        text = view.capitalize() if view == current else names.get(view, view.capitalize())
        if view == "findings" and findings:
            text += f" {findings:,}"
        role = "chosen" if view == current else ""
        spans += [(f" {number} ", "key" if view != current else "chosen"), (f"{text} ", role)]
    return line(*spans)


def tab_at(tabs: Line, x: int) -> str | None:
    """The view whose name is at a column."""
    start = 0
    for number in range(0, len(tabs.spans), 2):
        end = start + sum(len(t) for t, _ in tabs.spans[number : number + 2])
        if start <= x < end:
            return VIEWS[number // 2]
        start = end
    return None


_PAIRS = {
    "next_event": ("[ ]", "last_event"), "next_step": ("< >", "last_step"),
    "zoom_in": ("- +", "zoom_out"),
}  # fmt: skip
"""Actions that the key bar shows with the one that undoes them: a click on its left half."""


class KeyPiece(NamedTuple):
    """One action on the key bar, and the columns where it stands."""

    start: int
    keys: str
    action: Action


def key_pieces(view: str, width: int) -> list[KeyPiece]:
    """The keys that matter here, as far as there is room."""
    found: list[KeyPiece] = []
    used = 1
    # What gets one further, and out, comes first: a small screen has room for some only.
    for action in sorted(ACTIONS, key=lambda a: (a.name not in ("help", "quit"), not a.views)):
        if not action.short or (action.views and view not in action.views):
            continue
        keys = _PAIRS.get(action.name, (keys_of(action).split()[0], ""))[0]
        size = len(keys) + len(action.short) + 3
        if used + size > width:
            break
        found.append(KeyPiece(used, keys, action))
        used += size
    return found


def key_spans(view: str, width: int) -> Line:
    """The key bar."""
    spans: list[Span] = [(" ", "bar")]
    for piece in key_pieces(view, width):
        spans += [(piece.keys, "bar-bold"), (f" {piece.action.short}  ", "bar-dim")]
    used = sum(len(text) for text, _ in spans)
    return line(*spans, (" " * max(0, width - used), "bar"))


def action_at(view: str, width: int, x: int) -> str | None:
    """The action that stands at a column of the key bar."""
    piece = next((k for k in reversed(key_pieces(view, width)) if k.start <= x), None)
    if piece is None:
        return None
    if piece.action.name in _PAIRS and x == piece.start:
        return _PAIRS[piece.action.name][1]
    return piece.action.name


_MARKS = (
    (p.HELD, "a request could resume from it, and one holds it"),
    (p.FREE, "a request could resume from it, and nobody holds it"),
    ("1", "none could: it is not whole; 3: a group lacks its part; 6: it is of another form"),
    (p.PENDING, "a load into it is under way"),
    (p.PINNED, "it is pinned"),
    (p.FAULT, "the chosen finding names it"),
    (p.UNSURE, "uncertain, since events were lost"),
    (p.EMPTY, "nothing is in it"),
    (p.RESERVED, "reserved: never given out"),
)
"""The marks of the map at length."""

_AXIS = (
    ("findings", "✗ errors, ! the others, ▒ events were lost"),
    ("steps", "how many the engine dispatched"),
    ("match", "share of the tokens asked for that matched; · none did"),
    ("resumable", "share that could be resumed; ✗ none, though some matched"),
    ("transfers", "loads and stores under way"),
)
"""What the rows of the axis say."""


def legend_lines(view: View, width: int) -> Iterator[Line]:
    """What letters, glyphs and shades of the map mean."""
    spans: list[Span] = []
    if view.colouring == "form":
        for form, letter in zip(p.FORMS, p.LETTERS, strict=True):
            spans += [(f"{letter}", f"solid:{form}"), (f" {form}  ", "dim")]
    else:
        words = {"group": "a colour a group", "request": "a colour a request, its last owner",
                 "layer": "a colour a failing layer"}  # fmt: skip
        spans += [(words[view.colouring], "info"), ("  ", "dim")]
        for form, letter in zip(p.FORMS, p.LETTERS, strict=True):
            spans += [(f"{letter}", "dim"), (f" {form}  ", "dim")]
    yield line(*_whole(spans, width))
    shade = "bright: written lately" if view.per == 1 else "bright: full"
    if view.zoom == DETAIL:
        marks = [(p.HELD, "resumable, held"), (p.FREE, "and free"), ("1", "not, by layer")]
        others = [(p.PENDING, "recovering"), (p.PINNED, "pinned")]
    else:
        marks = [("C", "resumable"), ("c", "not")]
        others = [(p.PENDING, "recovering")]
    marks += [(p.FAULT, "in a finding"), *others, (p.UNSURE, "uncertain"), (p.EMPTY, "empty")]
    second: list[Span] = []
    for mark, what in marks:
        second += [(mark, "fault" if mark == p.FAULT else "bold"), (f" {what}  ", "dim")]
    yield line(*_whole([*second, (shade, "dim")], width))


def _whole(spans: list[Span], width: int) -> list[Span]:
    """As many pairs of a mark and its meaning as there is room for, and a sign where some are
    missing; help has them all."""
    if len("".join(text for text, _ in spans).rstrip()) <= width:
        return spans
    fitting, room = list[Span](), width - 1
    for mark, what in zip(spans[::2], spans[1::2], strict=False):
        room -= len(mark[0]) + len(what[0])
        if room < 0:
            break
        fitting += [mark, what]
    return [*fitting, ("…", "dim")]


def help_lines(view: str, width: int) -> Iterator[Line]:
    """Help for where one is."""
    yield heading(f"{view.capitalize()}")
    yield from wrapped(about(view), width)
    yield line("")
    names = ", ".join(VIEWS)
    yield from labelled(f"  1 to {len(VIEWS)}", names, width, column=12, head="key")
    here = [a for a in ACTIONS if view in a.views]
    others = [a for a in ACTIONS if not a.views and a.section != "Views"]
    sections = dict.fromkeys(a.section for a in others)
    for name, actions in (
        ("Here", here), *((s, [a for a in others if a.section == s]) for s in sections)
    ):  # fmt: skip
        if actions:
            yield line("")
            yield heading(name)
        for action in actions:
            yield from labelled(f"  {keys_of(action)}", action.text, width, column=12, head="key")
    yield line("")
    yield heading("Moving")
    for keys, what in (
        ("arrows", "the cursor of what has the focus; shift goes further on the map"),
        ("tab", "the focus to the next part: list, map, side, time axis"),
        ("← →", "on the time axis: scrub; the mouse clicks and drags there"),
        ("ctrl+p", "every action by name"),
    ):
        yield from labelled(f"  {keys}", what, width, column=12, head="key")
    yield line("")
    yield heading("Letters")
    for form, letter in zip(p.FORMS, p.LETTERS, strict=True):
        yield from labelled(f"  {letter}", f"{form}: needs {NEEDS[form]}", width, column=6)
    yield line("")
    yield heading("Marks")
    for mark, what in _MARKS:
        yield from labelled(f"  {mark}", what, width, column=6)
    yield line("")
    yield heading("Time axis")
    for row, what in _AXIS:
        yield from labelled(f"  {row}", what, width, column=13)


def moment_text(ts: int | None, first_ts: int | None, step: int | None) -> str:
    """When a moment is, beside its position."""
    text = f"  step {step}" if step is not None else ""
    if ts is not None and first_ts is not None:
        text += f"  {(ts - first_ts) / 1e6:,.3f} ms"
    return text


def reproduce(path: str, view: str, pos: int, block: tuple[str, int] | None, finding: str | None,
              req: str | None) -> str:  # fmt: skip
    """The command line that shows the same without a screen."""
    quoted = shown(shlex.quote(path))
    if view == "findings":
        return f"hkvtool check {quoted} --all"
    if view in ("requests", "hit") and req:
        return f"hkvtool request {quoted} {shown(shlex.quote(req))}"
    if view in ("map", "block") and block:
        return f"hkvtool block {quoted} {shown(shlex.quote(f'{block[0]}:{block[1]}'))} --at {pos}"
    return f"hkvtool events {quoted} --since {max(1, pos - 20)} --until {pos + 20}"
