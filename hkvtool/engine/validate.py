"""The four layers that a prefix hit must pass before anything is computed behind it.

A hash match is a belief. `validate_resume` turns it into a verdict: the blocks are whole (1),
laid out as their reader expects (2), of every form that this position needs (3), and where the
hardware can address them (4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hkvtool.engine.geometry import Group, Preset
from hkvtool.model.block_state import CacheBlockState
from hkvtool.model.forms import HISTORY, Form
from hkvtool.model.rules import MISSING_FORM


@dataclass(frozen=True)
class Verdict:
    """Whether a request may resume at a position, else the layer, rule and block that forbid it."""

    ok: bool
    layer: str = ""
    code: str = ""
    group: str = ""
    block: int = -1
    why: str = ""


GOOD = Verdict(True)


def validate_resume(
    preset: Preset, at: int, blocks: Mapping[str, Sequence[CacheBlockState]],
    codecs: Mapping[str, str] | None = None,
) -> Verdict:  # fmt: skip
    """Check that every group of `preset` can resume at token `at` with these blocks.

    `blocks` gives the blocks of each table by its first group's name, in token order, as they
    stand now. Those on a lower tier are judged as the copy that will be loaded. `codecs` says
    what codec each group's producer really used where that may differ from the preset's (a tier
    filled by another version). Returns the first fault in the order of the layers.
    """
    for layer in (_whole_block, _kernel_abi, _group_intersection, _alignment):
        for table in preset.tables:
            states = blocks.get(table.name, ())
            for group in table.groups:
                verdict = layer(preset, group, at, states, codecs or {})
                if not verdict.ok:
                    return verdict
    return GOOD


def _whole_block(
    preset: Preset, group: Group, at: int, states: Sequence[CacheBlockState],
    codecs: Mapping[str, str],
) -> Verdict:  # fmt: skip
    """Layer 1: each block is live and written as far as it is relied on, in this generation."""
    for state in states:
        start, end = state.tokens or (0, 0)
        relied = min(end, at) - start
        if state.ref_count < 0 or (state.published is None and state.ref_count == 0):
            return _no(
                "whole block", "HKV102", group, state, "nothing holds it, no hash leads to it"
            )
        if group.form is not Form.RECURRENT and state.written < relied:
            return _no("whole block", "HKV101", group, state,
                       f"{state.written} of {relied} token slots are written")  # fmt: skip
    return GOOD


def _kernel_abi(
    preset: Preset, group: Group, at: int, states: Sequence[CacheBlockState],
    codecs: Mapping[str, str],
) -> Verdict:  # fmt: skip
    """Layer 2: what wrote the bytes and what will read them mean the same by them."""
    made = codecs.get(group.name, group.codec)
    if states and made != group.codec:
        return _no("kernel ABI", "HKV203", group, states[0],
                   f"it was written as {made}, the reader expects {group.codec}")  # fmt: skip
    return GOOD


def _group_intersection(
    preset: Preset, group: Group, at: int, states: Sequence[CacheBlockState],
    codecs: Mapping[str, str],
) -> Verdict:  # fmt: skip
    """Layer 3: the blocks cover what this form needs at exactly this position."""
    start, end = group.needs(at)
    covered = start
    for state in states:
        first, last = state.tokens or (0, 0)
        if state.group != group.name and state.group not in _mates(preset, group):
            return _no("group intersection", "HKV601", group, state, f"it belongs to {state.group}")
        if first > covered:
            break
        covered = max(covered, min(last, first + state.written))
    if covered >= end or start >= end:
        return GOOD
    code = "HKV102" if group.form in HISTORY else MISSING_FORM[group.form.value]
    held = states[-1] if states else None
    return _no("group intersection", code, group, held, f"tokens [{covered}, {end}) are missing")


def _alignment(
    preset: Preset, group: Group, at: int, states: Sequence[CacheBlockState],
    codecs: Mapping[str, str],
) -> Verdict:  # fmt: skip
    """Layer 4: entries end where the position cuts, and pages where the hardware can address."""
    last = states[-1] if states else None
    if group.ratio > 1 and at % group.ratio:
        return _no("alignment", "HKV404", group, last, f"{at} cuts an entry of {group.ratio}")
    if group.offset % preset.align or preset.stride % preset.align:
        return _no("alignment", "HKV401", group, last, f"pages are no multiples of {preset.align}")
    if group.offset + group.layers * group.page_bytes > preset.stride:
        return _no("alignment", "HKV402", group, last, "its pages end beyond the block")
    return GOOD


def _mates(preset: Preset, group: Group) -> set[str]:
    return {mate.name for table in preset.tables if group in table.groups for mate in table.groups}


def _no(layer: str, code: str, group: Group, state: CacheBlockState | None, why: str) -> Verdict:
    return Verdict(False, layer, code, group.name, -1 if state is None else state.block_id, why)
