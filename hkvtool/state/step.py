"""One event folded into the state: the dispatch over all transitions.

Written once, run plain and compiled; see `hkvtool.state.blocks`.
"""

from __future__ import annotations

from typing import Any

from hkvtool.model.rows import FAILED, MISSING, PAD
from hkvtool.state.blocks import alloc, dispatch, forget_request, free, pin, touch, used
from hkvtool.state.codes import (
    ABORT,
    ALLOC,
    COPY,
    DISPATCH,
    FINISH,
    FREE,
    INDEX,
    LOAD_BEGIN,
    LOAD_END,
    PIN,
    PREEMPT,
    PUBLISH,
    RESET,
    ROLLBACK,
    SEAL,
    SLIDE,
    STORE_BEGIN,
    STORE_END,
    TOUCH,
    UNPIN,
    UNPUBLISH,
    USE,
    WRITE,
    ZERO,
)
from hkvtool.state.content import copy, rollback, write, zero
from hkvtool.state.hashes import (
    publish,
    reset,
    unpublish_blocks,
    unpublish_hashes,
    unpublish_pairs,
)
from hkvtool.state.transfers import begin, end


def step(
    st: Any, kind: int, pos: int, number: int, req: int, g: int, g2: int, pool: int, pool2: int,
    handle: int, t0: int, t1: int, version: int, kver: int, aux: int, flags: int, base: int,
    base2: int, blk: Any, b0: int, b1: int, blk2: Any, c0: int, c1: int, hsh: Any, h0: int, h1: int,
) -> None:  # fmt: skip
    """Fold one event that is no declaration.

    `base` and `base2` turn block ids of the near and the far pool into slots; ``blk[b0:b1]``,
    ``blk2[c0:c1]`` and ``hsh[h0:h1]`` are the event's lists. The `failed` blocks of a transfer's
    end come as ``blk``. Events that say nothing of a block's state pass.
    """
    if kind in (USE, SLIDE):
        used(st, base, blk, b0, b1, pos)
    elif kind == WRITE:
        if flags & PAD:
            used(st, base, blk, b0, b1, pos)
        else:
            write(st, g, base, blk, b0, b1, t0, t1, version, MISSING, req, number, pos)
    elif kind == ALLOC:
        alloc(st, g, base, blk, b0, b1, t0, req, pos)
    elif kind == TOUCH:
        touch(st, g, base, blk, b0, b1, req, pos)
    elif kind == FREE:
        free(st, base, blk, b0, b1, blk2, c0, c1, pos)
    elif kind == PUBLISH:
        publish(st, g, base, blk, b0, b1, hsh, h0, h1, t0, t1, version, pos)
    elif kind == UNPUBLISH:
        table = st.g_table[g] if g >= 0 else -1
        if b1 > b0 and h1 - h0 == b1 - b0:
            unpublish_pairs(st, table, base, blk, b0, b1, hsh, h0, pos)
        elif b1 > b0:
            unpublish_blocks(st, table, base, blk, b0, b1, pos)
        else:
            unpublish_hashes(st, table, hsh, h0, h1, pos)
    elif kind in (SEAL, INDEX):
        first, last = t0, t1
        if t0 == MISSING and b1 > b0 and st.start[base + blk[b0]] != MISSING:
            first = st.start[base + blk[b0]]
            last = first + (b1 - b0) * st.g_tokens[g]
        if first != MISSING:
            write(st, g, base, blk, b0, b1, first, last, version, kver, req, number, pos)
        else:
            used(st, base, blk, b0, b1, pos)
    elif kind in (STORE_BEGIN, LOAD_BEGIN):
        store = 1 if kind == STORE_BEGIN else 0
        begin(st, store, g, base, pool2, base2, handle, blk, b0, b1, blk2, c0, c1, t0, t1,
              version, kver, req, number, pos)  # fmt: skip
    elif kind in (STORE_END, LOAD_END):
        end(st, handle, 0 if flags & FAILED else 1, blk, b0, b1, base, pos)
    elif kind == COPY:
        copy(st, g, g2, base, base2, blk, b0, b1, blk2, c0, c1, number, pos)
    elif kind == ZERO:
        zero(st, g, base, blk, b0, b1, pos)
    elif kind == ROLLBACK:
        if req >= 0:
            rollback(st, req, aux, pos)
    elif kind == RESET:
        reset(st, pool)
    elif kind == PIN:
        pin(st, base, blk, b0, b1, 1, pos)
    elif kind == UNPIN:
        pin(st, base, blk, b0, b1, -1, pos)
    elif kind == DISPATCH:
        dispatch(st, number, pos)
    elif kind in (PREEMPT, ABORT, FINISH):
        if req >= 0:
            forget_request(st, req)
