"""What is left to be said when a screen has come to the end of a trace."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from hkvtool.analyzers import screen_arrays as s
from hkvtool.analyzers.ratios import Tally
from hkvtool.analyzers.screen_fold import Suspicious
from hkvtool.analyzers.screen_sql import begins_of
from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING
from hkvtool.state import arrays as a


def events_at(trace: Any, places: Iterable[int]) -> Iterator[Event]:
    """The few events at some positions."""
    for pos in places:
        yield from trace.events(since=pos, until=pos)


def held_by_others(sc: Any, st: Any) -> bool:
    """Whether somebody who is no request holds a block: a transfer may, which gives it back."""
    used = int(sc.h[s.ENTRIES])
    held = (sc.e_held[:used] > 0) & (st.refs[sc.e_slot[:used]] > 0)
    return bool((sc.named[sc.e_req[:used][held]] & s.REQUEST == 0).any())


def never_ending(trace: Any, sc: Any, st: Any, *, over: bool) -> Iterator[Event]:
    """The begins of transfers that are under way though who wanted them has ended; `over` says
    that every request has."""
    running = np.flatnonzero(st.t_state == a.RUNNING)
    who = sc.t_who[running] - 1
    told = running[over | ((who >= 0) & (sc.ended[np.maximum(who, 0)] >= 0))].tolist()
    begun = begins_of(trace, told) if told else []
    if len(begun) != len(told):
        # In which order the rule has them hangs on what it has forgotten.
        raise Suspicious("a transfer begins again", 0)
    return events_at(trace, begun)


def settle_lookups(sc: Any, tally: Tally, groups: Sequence[str]) -> None:
    """The lookups that are open when the trace ends, and the sums of all that were settled."""
    total = tally.total
    open_ = sc.lookup[sc.lookup >= 0]
    best, least = sc.k_best[open_], sc.k_least[open_]
    at = sc.k_at[open_]
    good = np.minimum(np.where(at == MISSING, least, at), best)
    limit = sc.k_limit[open_]
    short = (limit >= 0) & (good < best)
    np.add.at(sc.lost, limit[short], (best - good)[short])
    rows = np.stack([sc.k_pos[open_], sc.k_asked[open_], best, good], axis=1)
    total.lookups.frombytes(rows[np.argsort(rows[:, 0])].tobytes())
    total.asked += int(sc.h[s.TOKENS_ASKED]) + int(rows[:, 1].sum())
    total.matched += int(sc.h[s.MATCHED]) + int(best.sum())
    total.resumable += int(sc.h[s.RESUMABLE]) + int(good.sum())
    for g in np.flatnonzero(sc.lost).tolist():
        key = "HKV308", groups[g]
        tally.losses[key] = tally.losses.get(key, 0) + int(sc.lost[g])


def in_order(lookups: array[int]) -> None:
    """Put settled lookups into the order of their positions, for whoever sums them as they come."""
    if not lookups:
        return
    table = np.frombuffer(lookups, np.int64).reshape(-1, 4)
    order = np.argsort(table[:, 0], kind="stable")
    for column in range(4):
        table[:, column] = table[order, column]
