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


class Counts(NamedTuple):
    """What is in each of some stretches of neighbours: one row of each array a cell, of `hues` and
    `forms` one a number of a hue or form."""

    hues: Any
    forms: Any
    fine: Any
    loading: Any
    doubt: Any
    size: Any

    def fewer(self, times: int) -> Counts:
        """So many neighbouring cells as one."""
        starts = np.arange(0, self.size.shape[-1], times)
        return Counts(*(np.add.reduceat(column, starts, axis=-1) for column in self))

    def part(self, first: int, end: int) -> Counts:
        """Some of the cells."""
        return Counts(*(column[..., first:end] for column in self))


def counted(seen: o.Overview, per: int, *, colouring: str = "form", inside: Any = None) -> Counts:
    """How many of every `per` neighbours are what."""
    count = len(seen.blocks)
    cells = -(-count // per)
    known = seen.flags & o.KNOWN > 0
    content = known & (seen.flags & (o.FILLED | o.LOADING | o.HELD) > 0)
    if inside is not None:
        content &= inside
    good = content & seen.recoverable()
    hue = hues(seen, colouring)

    def per_cell(mask: Any) -> Any:
        if not mask.any():
            return np.zeros(cells, np.int32)
        whole = count // per * per
        found = _sums(mask[:whole], per)
        return found if whole == count else np.append(found, mask[whole:].sum(dtype=np.int32))

    def by(kind: Any) -> Any:
        return np.array([per_cell(content & (kind == number)) for number in range(_HUES)])

    by_hue = by(hue)
    size = np.full(cells, per)
    size[-1:] = count - (cells - 1) * per if cells else per
    return Counts(
        by_hue, by_hue if colouring == "form" else by(seen.form), per_cell(good),
        per_cell(content & (seen.flags & o.LOADING > 0)),
        per_cell((seen.flags & o.NAMED > 0) & ~known), size,
    )  # fmt: skip


_LANES = 8
"""Bytes that are added at once: each of them may come to 255."""


def _sums(mask: Any, per: int) -> Any:
    """How many of every `per` are set."""
    if per % _LANES or per // _LANES > 255:
        return mask.reshape(-1, per).sum(axis=1, dtype=np.int32)
    words = np.ascontiguousarray(mask).view(np.uint64).reshape(-1, per // _LANES)
    return words.sum(axis=1).view(np.uint8).reshape(-1, _LANES).sum(axis=1, dtype=np.int32)


def of_stretches(counts: Counts, faults: Any = None) -> Cells:
    """One cell for each stretch: the commonest hue and form among those that hold something, shaded
    by how many do; solid where at least half of them could be resumed from. `faults` are the cells
    in which a finding names a block."""
    held = counts.hues.sum(axis=0)
    form = counts.forms.argmax(axis=0)
    solid = 2 * counts.fine >= np.maximum(held, 1)
    shade = np.clip(
        p.SHADES - np.ceil(held * p.SHADES / np.maximum(counts.size, 1)), 0, p.SHADES - 1
    )
    chars = np.where(solid, _UPPER[form], _LOWER[form]).astype(np.uint32)
    styles = np.where(solid, SOLID, HOLLOW) + counts.hues.argmax(axis=0) * p.SHADES + shade
    chars[2 * counts.loading > held] = ord(p.PENDING)
    none, doubt = held == 0, counts.doubt > 0
    chars[none] = np.where(doubt, ord(p.UNSURE), ord(p.EMPTY))[none]
    styles[none] = np.where(doubt, UNSURE, EMPTY)[none]
    if faults is not None:
        chars[faults], styles[faults] = ord(p.FAULT), FAULT
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
