"""Lookups and resumes as columns: what they say of each group, without an object each."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any, NamedTuple, cast

import numpy as np

from hkvtool.analyzers.screen_arrays import OTHER, ROUTES
from hkvtool.model.events import EVENTS
from hkvtool.model.rows import MISSING
from hkvtool.state.batch import Batch
from hkvtool.state.codes import BUFFER, LOOKUP, RESUME
from hkvtool.store.ahead import ahead
from hkvtool.store.conditions import ev_among
from hkvtool.store.connect import threads

MOST_GROUPS = 48
"""Groups that lookups and resumes are taken apart for; of more the rules are asked."""

_PLAIN = re.compile(r"[ !#-&(-\[\]-~]+")
"""Names of groups that need no escaping, neither in JSON nor in SQL."""

_READ_WHOLE = (
    "lookup", "resume", "refuse", "preempt", "select", "buffer", "capture", "launch", "retire",
    "admit", "abort", "finish", "lease", "wire", "fingerprint",
)  # fmt: skip
"""Kinds whose remaining keys the rules may be told."""


class Asked(NamedTuple):
    """The lookups and resumes of a batch; `at` maps its rows to theirs. By row and group: where
    its blocks begin in `blocks` and how many (-1: it names none), tokens hit, number of its route
    (-1: none)."""

    at: Any
    whole: Any
    """0: the rules are asked; 1: it names blocks; 2: it names none at all."""
    first: Any
    count: Any
    hit: Any
    route: Any
    blocks: Any
    writes: Any
    """By row of the batch: whether a buffer is written, entries valid after and read up to."""
    valid: Any
    extent: Any


def taken_apart(trace: Any, size: int) -> Generator[tuple[Batch, Any, Asked], None, None]:
    """The batches of a trace with their further columns, and what their lookups and resumes say:
    that is made while the batch before is looked at."""
    groups = trace.names.count("group")

    def made() -> Generator[tuple[Batch, Any, Asked], None, None]:
        batches = trace.batches_with(columns(trace.names, trace.kinds), size)
        with closing(batches):
            for batch, chunk in batches:
                yield batch, chunk, asked(batch, chunk, groups)

    found: Any = ahead(made()) if threads() > 1 else made()
    return cast("Generator[tuple[Batch, Any, Asked], None, None]", found)


def columns(names: Any, kinds: Mapping[str, int]) -> dict[str, str]:
    """Columns that `DuckTrace.batches_with` adds, as SQL; none that no event of a trace fills."""
    groups = [str(names.name("group", i)) for i in range(names.count("group"))]
    made = {"rest": f"CASE WHEN {_among(_READ_WHOLE)} THEN rest END"}
    if any(kinds.get(kind) for kind in ("signal", "wait", "buffer")):
        made["named"] = (
            f"CASE WHEN {_among(('signal', 'wait'))} THEN rest->>'$.event' "
            f"WHEN {_among(('buffer',))} THEN rest->>'$.name' END"
        )
    if kinds.get("buffer"):
        made["writes"] = f"CASE WHEN {_among(('buffer',))} THEN rest->>'$.op' = 'write' END"
        for name in ("valid", "extent"):
            number = f"TRY_CAST(rest->>'$.{name}' AS BIGINT)"
            made[name] = f"CASE WHEN {_among(('buffer',))} THEN {number} END"
    if kinds.get("admit"):
        made["elsewhere"] = (
            f"{_among(('admit',))} AND coalesce(contains(rest, '\"engine\"'), false)"
        )
    alike = len({name.lower() for name in groups}) < len(groups)
    if groups and len(groups) <= MOST_GROUPS and not alike and all(map(_PLAIN.fullmatch, groups)):
        form = {
            key: dict.fromkeys(groups, kind)
            for key, kind in (("blocks", ["BIGINT"]), ("hit", "BIGINT"), ("route", "VARCHAR"))
        }
        # A key that the rules compare is theirs to look at, and what is escaped may be one.
        plain = "NOT contains(rest, '\"key\"') AND NOT contains(rest, chr(92))"
        made["asked"] = (
            f"CASE WHEN {_among(('lookup', 'resume'))} AND json_valid(rest) AND {plain} "
            f"THEN json_transform(rest, '{json.dumps(form)}') END"
        )
    return made


def asked(batch: Any, chunk: Any, groups: int) -> Asked:
    """What a batch's lookups and resumes say, from its further columns; `groups` are all that the
    trace names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = np.flatnonzero((batch.ev == LOOKUP) | (batch.ev == RESUME))
    n = len(rows)
    at = np.full(batch.n, -1, np.int64)
    at[rows] = np.arange(n)
    whole = np.zeros(n, np.int64)
    first, count, hit, route = (np.full((n, groups), -1, np.int64) for _ in range(4))
    values: list[Any] = [np.zeros(0, np.int64)]
    if n and "asked" in chunk.schema.names:
        taken = chunk.column("asked").take(pa.array(rows))
        blocks, hits, routes = (taken.field(key) for key in ("blocks", "hit", "route"))
        there = _valid(taken)
        whole[there] = np.where(_valid(blocks)[there], 1, 2)
        known = pa.array(ROUTES)
        total = 0
        for g in range(groups):
            lists = blocks.field(g)
            offsets = lists.offsets.to_numpy().astype(np.int64)
            inside = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
            if inside.null_count:
                # What is no list of integers in an altered file.
                whole[:] = 0
                break
            values.append(inside.to_numpy())
            named = there & _valid(blocks) & _valid(lists)
            first[:, g] = offsets[:-1] - offsets[0] + total
            count[named, g] = np.diff(offsets)[named]
            total += len(inside)
            said = there & _valid(hits) & _valid(hits.field(g))
            hit[:, g] = np.where(said, hits.field(g).fill_null(0).to_numpy(), MISSING)
            stated = there & _valid(routes) & _valid(routes.field(g))
            numbers = pc.index_in(routes.field(g), known).fill_null(OTHER).to_numpy()
            route[stated, g] = numbers[stated]
    return Asked(
        at, whole, first.ravel(), count.ravel(), hit.ravel(), route.ravel(),
        np.concatenate(values).astype(np.int64, copy=False), *_buffers(batch, chunk),
    )  # fmt: skip


def _buffers(batch: Any, chunk: Any) -> tuple[Any, Any, Any]:
    """What buffers' events say, by row."""
    writes = np.zeros(batch.n, np.int8)
    valid, extent = np.full(batch.n, MISSING, np.int64), np.full(batch.n, MISSING, np.int64)
    if (batch.ev == BUFFER).any() and "writes" in chunk.schema.names:
        writes[:] = chunk.column("writes").fill_null(False).to_numpy(zero_copy_only=False)
        valid[:] = chunk.column("valid").fill_null(MISSING).to_numpy()
        extent[:] = chunk.column("extent").fill_null(MISSING).to_numpy()
    return writes, valid, extent


def _valid(array: Any) -> Any:
    return array.is_valid().to_numpy(zero_copy_only=False)


def _among(kinds: tuple[str, ...]) -> str:
    return ev_among(EVENTS[kind].code for kind in kinds)
