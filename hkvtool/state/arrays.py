"""The state of every block as flat integer arrays.

The transition functions index these and nothing else, so the same source runs on Python lists
(short traces, the guard) and, compiled, on numpy arrays (long traces).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hkvtool.model.rows import MISSING, NO_NAME

UNKNOWN, FROM_STATE, ALLOCATED = 0, 1, 2
"""Values of `known`: nothing was said of the block; a `state` event named it; an `alloc` did."""

PENDING, VOIDED = -2, -3
"""`pver` of a hash that was published before the write that fills its block, and of one whose
tokens were rejected since."""

POSITIONED, VAGUE, COUNTED = 0, 1, 2
"""Values of `vague`: the runs say which tokens are held; nothing is claimed; only a number of
slots from the block's start is known (in `hi`)."""

NEXT_CID, COMPONENTS, ENTRIES, ARENA, TABLES, EPOCH, MAPPED, USED, LIVE, MOVING = range(10)
"""Places in the header `h`: next content id, components a slot is laid out for, hash entries in
use, arena in use, number of tables, weights epoch, whether any pool has a remap, components that
some group has, live hash entries, transfers under way."""
HEADER = 10

IDLE, RUNNING, ENDED = 0, 1, 2
"""Values of `t_state`."""

STEPS = 1024
"""Steps whose dispatch is remembered: two integers each in `steps`, number and position."""

RECORD = 14
"""Arena integers a block of a transfer: slot, generation, peer slot, peer generation, then the
content that was captured where it is read (see `content` in transitions)."""


class Arrays(NamedTuple):
    """Arrays by what indexes them.

    A *slot* is one block of one pool. A *component* is one group's share of a slot:
    ``slot * h[COMPONENTS] + g_comp[group]``. An *entry* is one live or dead hash. `steps`
    remembers where the last `STEPS` steps were dispatched.
    """

    h: Any
    steps: Any
    # slots
    gen: Any
    refs: Any
    pins: Any
    known: Any
    owner: Any
    touch: Any
    alloc_pos: Any
    last_alloc: Any
    free_pos: Any
    start: Any
    table: Any
    loads: Any
    unsure: Any
    unhashed: Any
    live: Any
    first_entry: Any
    free_prev: Any
    free_next: Any
    own_prev: Any
    own_next: Any
    by: Any
    dirt: Any
    slot_pool: Any
    # components
    cid: Any
    ver: Any
    kver: Any
    lo: Any
    hi: Any
    lo2: Any
    hi2: Any
    cgen: Any
    vague: Any
    origin: Any
    epoch: Any
    wpos: Any
    cpos: Any
    pver: Any
    pgen: Any
    pub_hi: Any
    # pools
    base: Any
    size: Any
    tier: Any
    free_head: Any
    free_tail: Any
    recur: Any
    # groups
    g_table: Any
    g_comp: Any
    g_tokens: Any
    g_form: Any
    g_pool: Any
    mirror: Any
    # requests
    own_head: Any
    next_token: Any
    # hashes and entries
    first_of_hash: Any
    e_hash: Any
    e_slot: Any
    e_table: Any
    e_gen: Any
    e_hi: Any
    e_live: Any
    e_epoch: Any
    e_pos: Any
    e_next_hash: Any
    e_next_slot: Any
    # transfers
    t_state: Any
    t_store: Any
    t_group: Any
    t_off: Any
    t_len: Any
    arena: Any


class Extent(NamedTuple):
    """What one array is indexed by, the value of a place nobody has touched, and the bytes that an
    integer of it takes where that matters."""

    per: str
    empty: int
    width: int = 8


_SLOT = {
    "touch": -1, "alloc_pos": -1, "last_alloc": -1, "free_pos": -1, "owner": NO_NAME,
    "start": MISSING, "table": -1, "first_entry": -1, "free_prev": -1, "free_next": -1,
    "own_prev": -1, "own_next": -1, "by": -1, "dirt": -1,
}  # fmt: skip
_COMPONENT = {
    "kver": MISSING, "cgen": -1, "origin": NO_NAME, "wpos": -1, "cpos": -1, "pver": -1,
    "pgen": -1, "pub_hi": MISSING,
}  # fmt: skip


_FLAGS = frozenset({"known", "unsure", "unhashed", "vague", "e_live"})
"""Arrays of a few small values."""

_COUNTED = frozenset(
    {
        "owner", "touch", "alloc_pos", "last_alloc", "free_pos", "table", "loads", "live", "pins",
        "first_entry", "free_prev", "free_next", "own_prev", "own_next", "by", "dirt", "slot_pool",
        "origin", "wpos", "cpos", "own_head", "first_of_hash", "e_hash", "e_slot", "e_table",
        "e_pos", "e_next_hash", "e_next_slot", "epoch", "e_epoch",
    }
)  # fmt: skip
"""Arrays of positions, of numbers of what a trace names, and of counts of its events: none is
larger than the trace is long, or its names are many. What events state is none of these."""


def _width(name: str) -> int:
    return 1 if name in _FLAGS else 4 if name in _COUNTED else 8


def _extents() -> dict[str, Extent]:
    """Fields in order: the name prefix or place in `Arrays` decides what indexes them."""
    out: dict[str, Extent] = {}
    fields = Arrays._fields
    first_component, first_pool = fields.index("cid"), fields.index("base")
    for i, name in enumerate(fields):
        if name == "h":
            out[name] = Extent("header", 0)
        elif name == "steps":
            out[name] = Extent("steps", -1)
        elif i < first_component:
            out[name] = Extent("slot", _SLOT.get(name, 0))
        elif i < first_pool:
            out[name] = Extent("component", _COMPONENT.get(name, 0))
        elif name in ("base", "size", "tier"):
            out[name] = Extent("pool", 0)
        elif name in ("free_head", "free_tail"):
            out[name] = Extent("pool", -1)
        elif name == "recur":
            out[name] = Extent("pool_component", 0)
        elif name.startswith("g_"):
            out[name] = Extent("group", -1)
        elif name == "mirror":
            out[name] = Extent("group_pool", -1)
        elif name == "own_head":
            out[name] = Extent("req", -1)
        elif name == "next_token":
            out[name] = Extent("req_table", 0)
        elif name == "first_of_hash":
            out[name] = Extent("hash", -1)
        elif name.startswith("e_"):
            out[name] = Extent("entry", -1)
        elif name.startswith("t_"):
            out[name] = Extent("handle", 0)
        else:
            out[name] = Extent("arena", 0)
    return {name: extent._replace(width=_width(name)) for name, extent in out.items()}


EXTENTS: dict[str, Extent] = _extents()
"""What indexes each array."""

FORMS = ("compressed", "tail", "swa", "indexer", "recurrent")
"""Home forms by the number they have in `g_form`."""
COMPRESSED, TAIL, SWA, INDEXER, RECURRENT = range(5)
