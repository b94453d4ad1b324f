"""What the screen remembers of a trace, as flat integer arrays.

Source: prior art, FastTrack epochs. Like the fold's arrays, these are indexed by functions that
run compiled; a *lane* is a number that the driver gives out, an *instance* one transfer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

(
    LANES,
    INSTANCES,
    SIGNALS,
    ENTRIES,
    RECOVERING,
    CAP,
    FREED,
    MOVED,
    DUE,
    JUDGED,
    WHY,
    GROUPS,
    POOLS,
    HASHES,
    LOADED,
    HORIZON,
    DISPATCHES,
    ASK,
    ENGINES,
    WAITED,
    TOKENS_ASKED,
    MATCHED,
    RESUMABLE,
    SETTLED,
    FREE_RECORD,
    RINGED,
    OPEN,
    STREAM,
    DUE_SINCE,
    ASKED,
    DOUBTS,
    FLOOR,
    SNAPS,
    UNSIGNALLED,
    LEASED,
    BLIND,
    FLOWN,
) = range(37)
"""Places in the header `h`: number of lanes, transfers begun, signals given, holder entries in
use, blocks on their way in, how many may be, where something was last given back, where work last
went on, resumes that a later read settles, the row whose resume was settled, what was suspicious,
number of groups, pools and hashes, whether any load began, the dispatch before which no step is
taken to be in flight, dispatches so far, why the rules are asked about a row, whether engines are
told apart, whether anybody had to wait, tokens of settled lookups (asked for, matched, resumable),
lookups settled in this batch, the first free record, what was ever put into the ring,
lookups that are open, whether buffers are held against the order of lanes, the first resume that a
later read settles, events of this batch that the rules are asked of later, whether any block is
doubted, from where on the order matters to those (-1: nowhere), how often it was noted how far
each lane is, a wait that no signal came before, whether a lease has ended, whether events were
lost, transfers begun when some last were."""
HEADER = 37

IN_FLIGHT = 64
"""Steps that may be in flight."""

STEPS = 256
"""Steps whose edges are remembered: fewer than `Order` remembers, so that no edge is claimed that
it does not have."""

SIGNAL_RING = 1024
BEGIN_RING = 4096
"""Signals and begins whose clocks are remembered; what is older gives no edge here."""

BUFFER_READS = 8
"""Reads of a buffer that a write may race with."""

READS = 4
"""Reads of a component that a write may race with; beyond, nothing is claimed."""

TRANSFER = -2
"""Stands for a lane where an index is that of an instance."""

NOBODY, MIXED = -1, -2
"""Values of `history`: no table's own accesses; those of several."""

NAMED, REQUEST, GONE, TOLD, CONCERNED, DOUBTED = 1, 2, 4, 8, 16, 32
"""Bits of `named`: some event named the holder; as a request; it has ended and is forgotten; the
rules keep account of it, so that whatever becomes of it is told to them; an event that the rules
are asked of later is its; they are asked of all that name it from here on."""

WRITTEN = 64
"""Bit of `doubt`, beside `DOUBTED`: an event that the rules are asked of later writes the block."""

STOP, STRANGE = 1, 2
"""What is said of a row beforehand: the rules are asked about it; events were lost, and among them
the dispatch of its step."""

SNAPSHOTS = 64
"""How often it is remembered how far each lane was."""

UNCAPPED = 1 << 40
"""Blocks that may be on their way in where nothing is said."""

OVER = -2
"""Value of `lookup`: the request has ended since its last one."""

UNTOLD = -2
"""Stands for an engine that nothing says; one without a name is -1."""

RING = 1 << 20
"""Integers kept of what the latest lookups found."""

ROUTES = ("reuse", "recompute", "bypass")
"""Routes that need not be asked about, in the order of their numbers."""

REUSE, OTHER = 0, len(ROUTES)
"""The number of `reuse`, and the one of every route that is not in `ROUTES`."""

MEMO = 4
"""Integers of `memo` a component: where it was found right (0: it is not), for which request, and
which tokens it holds for it."""


class Screen(NamedTuple):
    """Arrays by what indexes them, as in `hkvtool.state.arrays.Arrays`."""

    h: Any
    # lanes: how far each is, and what each knows of each
    idx: Any
    clk: Any
    # the last steps: number, dispatch (lane, index, what it knew), what its ops knew
    d_step: Any
    d_lane: Any
    d_index: Any
    d_clk: Any
    d_done: Any
    recent: Any
    # the last signals
    v_serial: Any
    g_serial: Any
    g_lane: Any
    g_index: Any
    g_clk: Any
    # the last begins and whose they are, and where each instance ended
    t_inst: Any
    t_who: Any
    x_inst: Any
    x_lane: Any
    x_index: Any
    x_clk: Any
    i_lane: Any
    i_index: Any
    # accesses of each component, and whose they are in each slot
    w_lane: Any
    w_index: Any
    r_lane: Any
    r_index: Any
    history: Any
    # the last write of each buffer (lane, index, how many entries it left valid), reads since
    b_lane: Any
    b_index: Any
    b_valid: Any
    b_read_lane: Any
    b_read_index: Any
    # who holds which slot: a hash table of entries, and lists of them by request and table
    bucket: Any
    e_req: Any
    e_slot: Any
    e_gen: Any
    e_held: Any
    e_released: Any
    e_table: Any
    e_out: Any
    e_next: Any
    e_prev: Any
    first: Any
    last: Any
    # requests
    named: Any
    ended: Any
    checked: Any
    due: Any
    rolled: Any
    lookup: Any
    # lookups whose outcome is open: position, tokens, the group that limits, how far the best of
    # those that must join hits, where it resumed and at which token, place in the ring
    k_pos: Any
    k_asked: Any
    k_best: Any
    k_limit: Any
    k_least: Any
    k_joining: Any
    k_resume: Any
    k_at: Any
    k_ring: Any
    k_next: Any
    ring: Any
    room: Any
    # what became of lookups: four integers each of this batch's; tokens lost by group
    outcome: Any
    lost: Any
    # slots and components
    reserved: Any
    mark: Any
    stored: Any
    # what was last found right of each slot and component, and since when only reads named it
    read_at: Any
    still: Any
    memo: Any
    # how often content went out and in without a use, by group and hash, else by component
    trips: Any
    block_trips: Any
    # events of this batch that the rules are asked of later; slots that they name: since when what
    # happened to them matters (by two more; 0: it does not), and what is doubtful about them
    asked: Any
    since: Any
    doubt: Any
    # where a slot was last described as it stands
    told_at: Any
    b_doubt: Any
    # how far each lane was, from time to time
    snap_pos: Any
    snap_index: Any
    # what is declared
    alike: Any
    far: Any
    sides: Any
    ratio: Any
    travels: Any
    c_table: Any
    index_of: Any
    joins: Any
    engine: Any
    column: Any
    serves: Any
    served: Any
    window: Any
    slack: Any
    sink: Any
    overlap: Any
    chunked: Any
    replayed: Any
