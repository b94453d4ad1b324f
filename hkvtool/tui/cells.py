"""From what blocks are to the cells of a map: a character, a glyph and a style each.

A cell stands for one block, or for a number of neighbours once one zooms out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hkvtool.state import overview as o
from hkvtool.tui import palette as p

_HUES = len(p.HUES)
SOLID, HOLLOW = 0, _HUES * p.SHADES
EMPTY, NEVER, UNSURE, FAULT, OUT, CURSOR = (2 * _HUES * p.SHADES + i for i in range(6))
"""Numbers of styles: ``SOLID + hue * SHADES + shade`` where a request could resume, `HOLLOW` so
where not; then those that have no hue."""

COLOURINGS = ("form", "group", "request", "layer")
"""What the colour of a cell can stand for."""

_UPPER = np.array([ord(c) for c in p.LETTERS], np.uint8)
_LOWER = np.array([ord(c) for c in p.LETTERS.lower()], np.uint8)
_LAYER = np.array([0, *(int(code[3]) for code in o.CODES[1:])], np.uint8)
"""Hundreds digit of each rule of `Overview.code`."""


class Cells(NamedTuple):
    """One row of each array a cell; `chars` and `glyphs` are code points."""

    chars: Any
    glyphs: Any
    styles: Any


def of_blocks(
    seen: o.Overview, now: int, *, colouring: str = "form", faults: Any = None, inside: Any = None,
    reserved: Any = None,
) -> Cells:  # fmt: skip
    """One cell a block. `faults` marks those that a finding names, `inside` those that a filter
    lets through, `reserved` those that are never handed out; masks, or None."""
    count = len(seen.blocks)
    chars = np.full(count, ord(p.EMPTY), np.uint32)
    glyphs = np.full(count, ord(p.EMPTY), np.uint32)
    styles = np.full(count, EMPTY, np.uint16)
    flags = seen.flags
    named, known = flags & o.NAMED > 0, flags & o.KNOWN > 0
    good = seen.recoverable() & known
    content = known & (flags & (o.FILLED | o.LOADING | o.HELD) > 0)
    hue, shade = hues(seen, colouring), shades(seen.written, now)
    chars[content] = np.where(good, _UPPER[seen.form], _LOWER[seen.form])[content]
    styles[content] = (np.where(good, SOLID, HOLLOW) + hue * p.SHADES + shade)[content]
    layer = _LAYER[seen.code]
    glyphs[content] = np.where(layer > 0, ord("0") + layer, ord(p.EMPTY))[content]
    held = flags & o.HELD > 0
    glyphs[good] = np.where(held, ord(p.HELD), ord(p.FREE))[good]
    glyphs[content & (flags & o.PINNED > 0)] = ord(p.PINNED)
    glyphs[content & (flags & o.LOADING > 0)] = ord(p.PENDING)
    doubt = named & ~known
    chars[doubt] = glyphs[doubt] = ord(p.UNSURE)
    styles[doubt] = UNSURE
    glyphs[~named], styles[~named] = ord(" "), NEVER
    if reserved is not None:
        chars[reserved & ~content] = ord(p.RESERVED)
        glyphs[reserved & ~content] = ord(p.RESERVED)
    if inside is not None:
        out = ~inside & content
        styles[out] = OUT
    if faults is not None:
        styles[faults] = FAULT
        glyphs[faults] = ord(p.FAULT)
    return Cells(chars, glyphs, styles)


def of_stretches(
    seen: o.Overview, per: int, *, colouring: str = "form", faults: Any = None, inside: Any = None
) -> Cells:
    """One cell for every `per` neighbours: the commonest hue and form among those that hold
    something, shaded by how many do; solid where at least half of them could be resumed from."""
    count = len(seen.blocks)
    cells = -(-count // per)
    known = seen.flags & o.KNOWN > 0
    content = known & (seen.flags & (o.FILLED | o.LOADING | o.HELD) > 0)
    if inside is not None:
        content &= inside
    good = content & seen.recoverable()
    hue = hues(seen, colouring)

    def per_cell(mask: Any) -> Any:
        whole = count // per * per
        found = mask[:whole].reshape(-1, per).sum(axis=1, dtype=np.int32)
        return found if whole == count else np.append(found, mask[whole:].sum(dtype=np.int32))

    def by(kind: Any) -> Any:
        found = np.zeros((_HUES, cells), np.int32)
        for number in range(_HUES):
            mine = content & (kind == number)
            if mine.any():
                found[number] = per_cell(mine)
        return found

    by_hue = by(hue)
    by_form = by_hue if colouring == "form" else by(seen.form)
    held, fine = by_hue.sum(axis=0), per_cell(good)
    loading = per_cell(content & (seen.flags & o.LOADING > 0))
    doubt = per_cell((seen.flags & o.NAMED > 0) & ~known)
    form = by_form.argmax(axis=0)
    solid = 2 * fine >= np.maximum(held, 1)
    size = np.full(cells, per)
    size[-1:] = count - (cells - 1) * per if cells else per
    shade = np.clip(p.SHADES - np.ceil(held * p.SHADES / np.maximum(size, 1)), 0, p.SHADES - 1)
    chars = np.where(solid, _UPPER[form], _LOWER[form]).astype(np.uint32)
    styles = np.where(solid, SOLID, HOLLOW) + by_hue.argmax(axis=0) * p.SHADES + shade
    chars[2 * loading > held] = ord(p.PENDING)
    none = held == 0
    chars[none] = np.where(doubt > 0, ord(p.UNSURE), ord(p.EMPTY))[none]
    styles[none] = np.where(doubt > 0, UNSURE, EMPTY)[none]
    if faults is not None:
        named = per_cell(faults) > 0
        chars[named], styles[named] = ord(p.FAULT), FAULT
    return Cells(chars, chars, styles.astype(np.uint16))


def hues(seen: o.Overview, colouring: str) -> Any:
    """The number of each block's hue."""
    if colouring == "group":
        return (np.maximum(seen.by, 0) % _HUES).astype(np.uint8)
    if colouring == "request":
        # Neighbouring numbers get hues far apart.
        return (np.maximum(seen.owner, 0) * 5 % _HUES).astype(np.uint8)
    if colouring == "layer":
        return (_LAYER[seen.code] % _HUES).astype(np.uint8)
    return seen.form


def shades(written: Any, now: int) -> Any:
    """0 for what was written just now, more for what was written longer ago, by powers."""
    age = np.maximum(0, now - written)
    return np.clip(
        np.log2(age + 1) * p.SHADES / max(4.0, np.log2(now + 2)), 0, p.SHADES - 1
    ).astype(np.uint8)
