"""Rows turned into columns, for the fold (numpy) and for DuckDB (Arrow)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from hkvtool.model.events import BY_CODE
from hkvtool.model.rows import NO_NAME, Row
from hkvtool.state.batch import Batch, ListColumn
from hkvtool.state.codes import CONTROL, FOLDED

Ints = npt.NDArray[np.int64]

LISTS = ("blocks", "blocks2", "hashes")
TEXTS = ("rest", "problem")
INTS = tuple(name for name in Row._fields if name not in LISTS + TEXTS)

ABSENT: dict[str, int] = {
    name: default for name, default in Row._field_defaults.items() if name in INTS
}
"""What stands for an absent value, by integer column; `pos` and `ev` are never absent."""

NAMED = tuple(name for name, absent in ABSENT.items() if absent == NO_NAME)
"""Columns of numbers that stand for names."""

IN_BATCH = tuple(name for name in INTS if name in Batch.__dataclass_fields__)

UNFOLDED = ("actor", "part")
"""Columns that the fold of block states does not look at."""

FILLED_BY: dict[str, frozenset[str]] = {
    "handle": frozenset({"store_begin", "load_begin", "store_end", "load_end"}),
    "pool2": frozenset({"store_begin", "load_begin"}),
    "kv_version": frozenset({"index", "store_begin", "load_begin"}),
    "aux": frozenset({"rollback", "copy"}),
}
"""Columns of which the fold looks at few kinds of events."""

FOLDED_KINDS = frozenset(BY_CODE[code].name for code in FOLDED)


@dataclass(frozen=True, slots=True)
class Lists:
    """A list column that tells an empty list from an absent one."""

    offsets: Ints
    values: Ints
    absent: npt.NDArray[np.bool_]

    @staticmethod
    def of(rows: Sequence[list[int] | None]) -> Lists:
        n = len(rows)
        offsets = np.zeros(n + 1, np.int64)
        np.cumsum(np.fromiter((len(r) if r else 0 for r in rows), np.int64, n), out=offsets[1:])
        values = np.fromiter(
            chain.from_iterable(r for r in rows if r), np.int64, count=int(offsets[-1])
        )
        return Lists(offsets, values, np.fromiter((r is None for r in rows), np.bool_, n))

    @staticmethod
    def none(n: int) -> Lists:
        """A column without a single list."""
        return Lists(np.zeros(n + 1, np.int64), np.zeros(0, np.int64), np.ones(n, np.bool_))


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows as columns; integer columns that are left out are absent throughout."""

    n: int
    ints: dict[str, Ints]
    lists: dict[str, Lists]
    rest: Sequence[str | None] | None = None
    problem: Sequence[str | None] | None = None

    @staticmethod
    def of(rows: Sequence[Row]) -> Chunk:
        columns = dict(zip(Row._fields, zip(*rows, strict=True), strict=True))
        return Chunk(
            len(rows),
            {name: np.array(columns[name], np.int64) for name in INTS},
            {name: Lists.of(columns[name]) for name in LISTS},
            columns["rest"],
            columns["problem"],
        )

    def column(self, name: str) -> Ints:
        found = self.ints.get(name)
        return np.full(self.n, ABSENT[name], np.int64) if found is None else found

    def list_column(self, name: str) -> Lists:
        return self.lists.get(name) or Lists.none(self.n)

    def batch(self, folded: bool = False) -> Batch:
        """The chunk as `Trace.batches` gives it; arrays are read-only, as from DuckDB."""
        ints: dict[str, Any] = {
            name: absent(name, self.n) if folded and name in UNFOLDED else frozen(self.column(name))
            for name in IN_BATCH
        }
        lists: dict[str, Any] = {}
        for name in LISTS:
            column = self.list_column(name)
            lists[name] = ListColumn(frozen(column.offsets), frozen(column.values))
        rest = {} if folded else self._control_rest()
        return Batch(n=self.n, rest=rest, **ints, **lists)

    def _control_rest(self) -> dict[int, str]:
        if self.rest is None:
            return {}
        rows = np.flatnonzero(np.isin(self.ints["ev"], _CONTROL)).tolist()
        return {row: text for row in rows if (text := self.rest[row]) is not None}

    def record_batch(self) -> Any:
        """The chunk as Arrow, absent values null, in the order of the table `events`."""
        import pyarrow as pa

        arrays = {}
        for name in INTS:
            if name in self.ints:
                arrays[name] = _arrow(self.ints[name], ABSENT.get(name)).cast(arrow_type(name))
            elif name == "flags":
                arrays[name] = pa.array(np.zeros(self.n, np.uint8))
            else:
                arrays[name] = pa.nulls(self.n, arrow_type(name))
        for name in LISTS:
            lists = self.list_column(name)
            arrays[name] = pa.ListArray.from_arrays(
                lists.offsets.astype(np.int32),
                pa.array(lists.values).cast(arrow_type(name).value_type),
                mask=pa.array(lists.absent),
            )
        arrays["rest"] = text_array(self.rest, self.n)
        arrays["problem"] = text_array(self.problem, self.n)
        return pa.RecordBatch.from_arrays([arrays[name] for name in Row._fields], Row._fields)


_CONTROL = np.array(sorted(CONTROL), np.int64)


def absent(name: str, n: int) -> Ints:
    """A column without a value."""
    return frozen(np.full(n, ABSENT[name], np.int64))


def frozen(values: Ints) -> Ints:
    """The array itself, made read-only."""
    values.flags.writeable = False
    return values


def _arrow(values: Ints, absent: int | None) -> Any:
    import pyarrow as pa

    # Rows hold 0 in `flags` for "none", which is a value of its own there.
    if absent is None or absent == 0:
        return pa.array(values)
    return pa.array(values, mask=values == absent)


def arrow_type(name: str) -> Any:
    """The Arrow type of a column of `events`."""
    import pyarrow as pa

    if name in ("ev", "flags"):
        return pa.uint8()
    if name == "hashes":
        return pa.list_(pa.int32())
    if name in LISTS:
        return pa.list_(pa.int64())
    if name in TEXTS:
        return pa.string()
    return pa.int32() if name in NAMED else pa.int64()


def text_array(texts: Sequence[str | None] | None, n: int) -> Any:
    """Texts as Arrow. Lone surrogates, which UTF-8 has no bytes for, become JSON escapes."""
    import pyarrow as pa

    if texts is None:
        return pa.nulls(n, pa.string())
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        return pa.array(
            [t and t.encode("utf-8", "backslashreplace").decode() for t in texts], pa.string()
        )
