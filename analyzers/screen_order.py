"""Happens-before for the screen: the edges of `hkvtool.state.order`, or fewer.

Runs compiled. Clocks lie in rows of as many integers as there are lanes. What a ring has
forgotten gives no edge: then an access is suspicious that was ordered after all.
"""

from __future__ import annotations

from typing import Any

from hkvtool.analyzers.screen_arrays import (
    BEGIN_RING,
    DISPATCHES,
    HORIZON,
    IN_FLIGHT,
    INSTANCES,
    LANES,
    SIGNAL_RING,
    SIGNALS,
    STEPS,
    TRANSFER,
)
from hkvtool.model.rows import MISSING
from hkvtool.state.codes import (
    DISPATCH,
    LOAD_BEGIN,
    LOAD_END,
    RETIRE,
    SIGNAL,
    STORE_BEGIN,
    STORE_END,
    WAIT,
)


def learn(sc: Any, lane: int, source: int, index: int, clocks: Any, row: int) -> None:
    """From here on `lane` is ordered after thing `index` of `source`, and what that one knew."""
    n = sc.h[LANES]
    if source == lane or sc.clk[lane * n + source] >= index:
        return
    for other in range(n):
        if clocks[row * n + other] > sc.clk[lane * n + other]:
            sc.clk[lane * n + other] = clocks[row * n + other]
    if index > sc.clk[lane * n + source]:
        sc.clk[lane * n + source] = index


def remember(sc: Any, lane: int, clocks: Any, row: int) -> None:
    """Keep what `lane` knows in a row of clocks."""
    n = sc.h[LANES]
    for other in range(n):
        clocks[row * n + other] = sc.clk[lane * n + other]


def step_row(sc: Any, step: int) -> Any:
    """The row of a step, begun where there is none."""
    r = step % STEPS
    if sc.d_step[r] != step:
        n = sc.h[LANES]
        sc.d_step[r] = step
        sc.d_lane[r] = -1
        for other in range(n):
            sc.d_done[r * n + other] = 0
    return r


def feed(sc: Any, kind: int, pos: int, lane: int, step: int, name: int, handle: int) -> None:
    """The next event; `name` is the number of the event that a signal or wait names."""
    n = sc.h[LANES]
    sc.idx[lane] += 1
    index = sc.idx[lane]
    r = -1
    if step != MISSING and kind != DISPATCH and kind != RETIRE:
        r = step_row(sc, step)
        if sc.d_lane[r] >= 0:
            learn(sc, lane, sc.d_lane[r], sc.d_index[r], sc.d_clk, r)
    if kind == WAIT:
        serial = sc.v_serial[name]
        if serial > 0 and sc.g_serial[serial % SIGNAL_RING] == serial:
            g = serial % SIGNAL_RING
            learn(sc, lane, sc.g_lane[g], sc.g_index[g], sc.g_clk, g)
    elif kind == RETIRE:
        p = step % STEPS
        if sc.d_step[p] == step:
            for other in range(n):
                if sc.d_done[p * n + other] > sc.clk[lane * n + other]:
                    sc.clk[lane * n + other] = sc.d_done[p * n + other]
    elif kind in (STORE_END, LOAD_END):
        instance = sc.t_inst[handle] if 0 <= handle < len(sc.t_inst) else 0
        x = instance % BEGIN_RING
        if instance > 0 and sc.x_inst[x] == instance:
            learn(sc, lane, sc.x_lane[x], sc.x_index[x], sc.x_clk, x)
        sc.i_lane[instance] = lane
        sc.i_index[instance] = index
    if kind == SIGNAL:
        sc.h[SIGNALS] += 1
        serial = sc.h[SIGNALS]
        g = serial % SIGNAL_RING
        sc.v_serial[name] = serial
        sc.g_serial[g] = serial
        sc.g_lane[g] = lane
        sc.g_index[g] = index
        remember(sc, lane, sc.g_clk, g)
    elif kind == DISPATCH:
        p = step_row(sc, step)
        sc.d_lane[p] = lane
        sc.d_index[p] = index
        recent = sc.h[DISPATCHES] % IN_FLIGHT
        sc.h[HORIZON] = sc.recent[recent]
        sc.recent[recent] = pos
        sc.h[DISPATCHES] += 1
        remember(sc, lane, sc.d_clk, p)
    elif kind in (STORE_BEGIN, LOAD_BEGIN) and 0 <= handle < len(sc.t_inst):
        sc.h[INSTANCES] += 1
        instance = sc.h[INSTANCES]
        x = instance % BEGIN_RING
        sc.t_inst[handle] = instance
        sc.x_inst[x] = instance
        sc.x_lane[x] = lane
        sc.x_index[x] = index
        sc.i_lane[instance] = -1
        remember(sc, lane, sc.x_clk, x)
    if r >= 0:
        for other in range(n):
            if sc.clk[lane * n + other] > sc.d_done[r * n + other]:
                sc.d_done[r * n + other] = sc.clk[lane * n + other]
        if index > sc.d_done[r * n + lane]:
            sc.d_done[r * n + lane] = index


def over(sc: Any, lane: int, index: int, now: int) -> Any:
    """Whether an access has surely ended before the present event of lane `now` starts."""
    if lane == TRANSFER:
        lane, index = sc.i_lane[index], sc.i_index[index]
        if lane < 0:
            return False
    if lane == now:
        return index < sc.idx[now]
    return sc.clk[now * sc.h[LANES] + lane] >= index
