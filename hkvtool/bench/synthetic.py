"""A trace of any length whose every event is right: what there is to measure a fold with.

Requests come in pairs over the same blocks, many pairs at once. The first of a pair allocates
blocks, a step writes and reads them, their hashes are published; the second looks them up, resumes
behind them, reads them and leaves; then the first leaves, and later another pair takes the blocks
again. Blocks go round the pool, so hashes are evicted just before their block is reused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hkvtool.model.event import Event
from hkvtool.model.events import EVENTS, FORMAT
from hkvtool.model.rows import MISSING, NO_NAME
from hkvtool.store.columns import Chunk, Ints, Lists
from hkvtool.store.trace import CHUNK_ROWS
from hkvtool.store.writer import TraceWriter

BLOCK_TOKENS = 16

PHASES = (
    "admit", "unpublish", "alloc", "dispatch", "write", "use", "retire", "publish",
    "lookup", "admit", "touch", "resume", "dispatch", "use", "retire", "free", "finish",
    "free", "finish",
)  # fmt: skip
"""What happens to one pair of requests, in order; `unpublish` only once the pool has gone round."""

_SECOND = range(8, 17)
"""The phases of the second request of a pair."""

_TICKS_APART = 4
"""Every tick starts a pair, and every so many ticks a pair goes on to its next phase."""

_TICKS_A_CHUNK = 4096

_CODES = np.array([EVENTS[name].code for name in PHASES], np.int64)
_DISPATCHES = [p for p, name in reversed(list(enumerate(PHASES))) if name == "dispatch"]
"""The second request's dispatch, then the first's."""


def _among(*names: str) -> npt.NDArray[np.bool_]:
    return np.isin(PHASES, names)


_WITH_BLOCKS = _among("unpublish", "alloc", "write", "use", "publish", "touch", "free")
_WITH_TOKENS = _among("alloc", "write", "use", "publish")
_WITH_STEP = _among("dispatch", "write", "use", "retire")
_WITH_REQUEST = ~_among("unpublish", "dispatch", "retire")


@dataclass(frozen=True)
class Plan:
    """How many pairs, how many blocks each, and how many pairs fill the pool once."""

    pairs: int
    per_pair: int
    round: int
    faulty: int = -1
    """The pair whose write is short, if any."""

    @property
    def pool_blocks(self) -> int:
        """Blocks of the pool; block 0 is reserved."""
        return 1 + self.round * self.per_pair

    @property
    def tokens(self) -> int:
        return self.per_pair * BLOCK_TOKENS

    @property
    def ticks(self) -> int:
        return self.pairs + _TICKS_APART * (len(PHASES) - 1)

    def blocks(self, pair: Ints) -> Ints:
        """Block ids of each pair, one row a pair."""
        return 1 + (pair % self.round)[:, None] * self.per_pair + np.arange(self.per_pair)

    def hashes(self, pair: Ints) -> Ints:
        """Numbers of the hashes of each pair, one row a pair."""
        return pair[:, None] * self.per_pair + np.arange(self.per_pair)


def synthetic_trace(
    path: str | os.PathLike[str],
    events: int,
    blocks_per_event: int = 4,
    *,
    pool_blocks: int = 1 << 16,
    faulty: bool = False,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write a trace of about `events` events, `blocks_per_event` blocks in each that names blocks.

    Returns how many events it is: every pair that starts is brought to its end. Of a `faulty` one
    a write in the middle leaves the last block out that it should fill. Memory stays bounded
    whatever the length. `progress` is told how many events have been written.
    """
    running = 1 + _TICKS_APART * len(PHASES)
    plan = Plan(
        pairs=max(1, round(events / len(PHASES))),
        per_pair=blocks_per_event,
        round=max(running, (pool_blocks - 1) // blocks_per_event),
    )
    if faulty:
        plan = replace(plan, faulty=plan.pairs // 2)
    with TraceWriter(path, force=force) as writer:
        writer.write(_declarations(plan))
        for first in range(0, plan.ticks, _TICKS_A_CHUNK):
            last = min(first + _TICKS_A_CHUNK, plan.ticks)
            writer.append(_chunk(plan, first, last, 1 + (writer.summary.last_pos or 0)))
            if progress:
                progress(writer.summary.events)
        _name(writer, "req", 2 * plan.pairs, "r%d")
        _name(writer, "hash", plan.pairs * plan.per_pair, "%016x")
        writer.end_source("synthetic")
    return writer.summary.events


def _declarations(plan: Plan) -> Iterator[Event]:
    lines: tuple[dict[str, Any], ...] = (
        {"ev": "trace", "format": FORMAT, "engine": "synthetic", "evidence": ["host", "step"]},
        {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": plan.pool_blocks, "reserved": [0]},
        {
            "ev": "group", "group": "kv", "form": "compressed", "pool": "gpu",
            "block_tokens": BLOCK_TOKENS,
        },
    )  # fmt: skip
    for pos, line in enumerate(lines, 1):
        yield Event.of(pos, line)


def _chunk(plan: Plan, first: int, last: int, pos: int) -> Chunk:
    """The events of some ticks. In tick t, pair ``t - phase * _TICKS_APART`` is in that phase."""
    tick, phase = (a.ravel() for a in np.mgrid[first:last, : len(PHASES)])
    pair = tick - phase * _TICKS_APART
    happens = (pair >= 0) & (pair < plan.pairs)
    happens &= (_CODES[phase] != EVENTS["unpublish"].code) | (pair >= plan.round)
    pair, phase = pair[happens], phase[happens]
    second = np.isin(phase, _SECOND)
    req = 2 * pair + second
    step = 2 * (pair + _TICKS_APART * np.where(second, *_DISPATCHES)) + second
    place = np.arange(pos, pos + len(pair))
    blocks = plan.blocks(pair)
    short = BLOCK_TOKENS * ((pair == plan.faulty) & _among("write")[phase])
    return Chunk(
        len(pair),
        {
            "pos": place,
            "ev": _CODES[phase],
            "ts": place * 1000,
            "req": np.where(_WITH_REQUEST[phase], req, NO_NAME),
            "group": np.where(_WITH_BLOCKS[phase], 0, NO_NAME),
            "step": np.where(_WITH_STEP[phase], step, MISSING),
            "t0": np.where(_WITH_TOKENS[phase], 0, MISSING),
            "t1": np.where(_WITH_TOKENS[phase], plan.tokens - short, MISSING),
            "aux": _aux(plan, phase),
        },
        {
            "blocks": _lists(blocks, _WITH_BLOCKS[phase]),
            "hashes": _lists(plan.hashes(pair), _among("publish")[phase]),
        },
        rest=_rest(plan, phase, req, blocks),
    )


def _aux(plan: Plan, phase: Ints) -> Ints:
    """Tokens asked for by a lookup, one more than the pair shares; tokens a resume goes on from."""
    asked = np.where(_among("lookup")[phase], plan.tokens + 1, MISSING)
    return np.where(_among("resume")[phase], plan.tokens, asked)


def _lists(rows: Ints, there: npt.NDArray[np.bool_]) -> Lists:
    """The rows that are there as a list column."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(there * rows.shape[1], out=offsets[1:])
    return Lists(offsets, rows[there].ravel(), ~there)


def _rest(plan: Plan, phase: Ints, req: Ints, blocks: Ints) -> list[str | None]:
    texts: list[str | None] = [None] * len(phase)
    for i in np.flatnonzero(_among("dispatch", "lookup", "resume")[phase]):
        name = PHASES[phase[i]]
        if name == "dispatch":
            texts[i] = f'{{"reqs":["r{req[i]}"]}}'
        else:
            ids = ",".join(map(str, blocks[i].tolist()))
            said = f'"hit":{{"kv":{plan.tokens}}}' if name == "lookup" else '"route":{"kv":"reuse"}'
            texts[i] = f'{{"blocks":{{"kv":[{ids}]}},{said}}}'
    return texts


def _name(writer: TraceWriter, domain: str, count: int, pattern: str) -> None:
    import pyarrow as pa

    for first in range(0, count, CHUNK_ROWS):
        numbers = range(first, min(first + CHUNK_ROWS, count))
        writer.add_names(domain, first, pa.array([pattern % number for number in numbers]))
