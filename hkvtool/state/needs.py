"""Which tokens a group must hold so that a request can resume: the needs table of `hkv/1`."""

from __future__ import annotations

from hkvtool.model.forms import NEEDS, Form
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Span
from hkvtool.state.fold import Fold


def needed(fold: Fold, group: Group, at: int) -> list[Span]:
    """Token ranges that `group` must hold so that a request can resume at `at`, ascending."""
    if at <= 0:
        return []
    form = group.form
    if form == "recurrent":
        return [(at - 1, at)]
    if form == "tail":
        start = max(0, at - at % fold.declared.ratio_served(group) - group.overlap)
        return [(start, at)] if start < at else []
    if form == "swa":
        return _window(group, at)
    end = at - at % max(group.ratio, fold.declared.ratio_served(group))
    return [(0, end)] if end > 0 else []


def _window(group: Group, at: int) -> list[Span]:
    if group.replayed:
        return []
    start = max(0, at - group.window + 1 - group.slack)
    if group.chunked:
        start = at - at % group.window if group.window > 0 else 0
    spans = [(start, at)] if start < at else []
    sink = min(group.sink, start)
    return [(0, sink), *spans] if sink > 0 else spans


def aligned(group: Group, blocks: int, at: int) -> int:
    """First token of the first of `blocks` blocks whose last one holds token ``at - 1``."""
    unit = group.block_tokens
    return (at - 1) // unit * unit - (blocks - 1) * unit


def pieces(group: Group, blocks: int, tokens: Span, at: int) -> list[Span]:
    """What each of `blocks` blocks, right-aligned at `at`, holds of `tokens`; empty ranges where
    that is nothing."""
    unit = group.block_tokens
    first = aligned(group, blocks, at)
    out: list[Span] = []
    for start in range(first, first + blocks * unit, unit):
        low = max(tokens[0], start)
        out.append((low, max(low, min(tokens[1], start + unit))))
    return out


def need_of(group: Group) -> str:
    """The row of the needs table that a group must meet, in words."""
    return f"{group.form}: {NEEDS[Form(group.form)]}"
