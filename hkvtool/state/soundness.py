"""Whether arrays that come from a file can be indexed with what they hold.

The transitions trust their arrays, and compiled ones do not check an index: a file that somebody
altered must be found out before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hkvtool.state import arrays as a

PLACES = {
    "slot": ("e_slot", "own_head", "free_head", "free_tail", "free_prev", "free_next", "own_prev",
             "own_next"),
    "entry": ("first_entry", "first_of_hash", "e_next_hash", "e_next_slot"),
    "hash": ("e_hash",),
    "group": ("by", "dirt", "t_group"),
    "req": ("owner", "origin"),
}  # fmt: skip
"""Arrays of places in other arrays, by what indexes those; -1 is none."""

NOTHING: Mapping[str, Any] = {}

CHAINS = {"free_next": ("free_prev", "free_head"), "own_next": ("own_prev", "own_head")}
"""Lists: the links forth, the links back, and where they start."""


def unsound(st: a.Arrays, told: Mapping[str, Any] = NOTHING) -> str | None:
    """What is wrong with the arrays of a compiled fold, or None. `told` are all values of an array
    that are not as nobody has touched them, where that is known: the rest need not be read."""
    sizes: dict[str, int] = {}
    for field, extent in a.EXTENTS.items():
        sizes[extent.per] = len(getattr(st, field))
    used = {"entry": int(st.h[a.ENTRIES]), "arena": int(st.h[a.ARENA])}
    for per, count in used.items():
        if not 0 <= count <= sizes[per]:
            return f"{count} places of {per} in use"
    sizes.update(used)
    for to, fields in PLACES.items():
        for field in fields:
            column = told.get(field, getattr(st, field))[: used.get(a.EXTENTS[field].per)]
            if len(column) and not (column.min() >= -1 and column.max() < sizes[to]):
                return f"{field} leads nowhere"
    for field in ("e_next_hash", "e_next_slot"):
        # A chain leads from a later entry to earlier ones, and so it ends.
        column = getattr(st, field)[: used["entry"]]
        if (column >= np.arange(len(column))).any():
            return f"{field} goes round"
    for field, (back, head) in CHAINS.items():
        starts = told.get(head, getattr(st, head))
        if not _ends(getattr(st, field), getattr(st, back), starts):
            return f"{field} goes round"
    return _transfers(st, sizes)


def _ends(forth: Any, back: Any, head: Any) -> bool:
    """Whether the links agree both ways and the lists start where nothing leads to: then none of
    them goes round."""
    there = np.flatnonzero(forth >= 0)
    return bool((back[forth[there]] == there).all() and (back[head[head >= 0]] == -1).all())


def _transfers(st: a.Arrays, sizes: dict[str, int]) -> str | None:
    for handle in np.flatnonzero(st.t_state == a.RUNNING):
        first, count = int(st.t_off[handle]), int(st.t_len[handle])
        end = first + count * a.RECORD
        if first < 0 or count < 0 or end > sizes["arena"] or st.t_group[handle] < 0:
            return "a transfer lies nowhere"
        records = st.arena[first:end].reshape(count, a.RECORD)
        if count and records[:, [0, 2]].max() >= sizes["slot"]:
            return "a transfer leads nowhere"
    return None
