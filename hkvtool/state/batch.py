"""Columns in: a stretch of a trace as the compiled fold takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A list column: row i holds ``values[offsets[i]:offsets[i + 1]]``; both int64 arrays."""

    offsets: Any
    values: Any


@dataclass(frozen=True, slots=True)
class Batch:
    """`n` consecutive rows of a trace, in order of `pos`.

    Every column is a contiguous int64 numpy array of length `n`, named as in
    `hkvtool.model.rows.Row`; absent integers are `MISSING`, absent names `NO_NAME`, absent
    lists empty. `rest` holds the JSON text of the remaining keys for the rows where there are
    any: a mapping from index in this batch to text, for control rows only (codes in
    `hkvtool.state.codes.CONTROL`).
    """

    n: int
    pos: Any
    ev: Any
    actor: Any
    step: Any
    req: Any
    group: Any
    group2: Any
    pool: Any
    pool2: Any
    handle: Any
    part: Any
    t0: Any
    t1: Any
    version: Any
    kv_version: Any
    aux: Any
    flags: Any
    blocks: ListColumn
    blocks2: ListColumn
    hashes: ListColumn
    rest: dict[int, str]
