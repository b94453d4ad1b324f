"""The conditions of `Trace.events` as SQL that lets through everything that fits, and little else.

`Filter` has the last word; this keeps DuckDB from handing over what it would throw away. Joins
give up the order of rows, and so do longer lists (IN, list_contains), which DuckDB turns into
joins: they are not used where a result can be long, and end in ORDER BY where it is short.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from hkvtool.model.events import EVENTS
from hkvtool.store.filters import Filter


def ev_among(codes: Iterable[int]) -> str:
    """A condition on `ev` that never becomes a join: every number of a kind fits a bit mask."""
    return f"({sum(1 << code for code in set(codes))}::BIGINT >> ev) & 1 = 1"


def _is(*kinds: str) -> str:
    return ev_among(EVENTS[kind].code for kind in kinds)


def span(since: int | None, until: int | None, codes: Collection[int] = ()) -> str:
    """A WHERE clause for a stretch of positions, and kinds of events where some are named."""
    return _clause(_from(since) + _until(until) + ([ev_among(codes)] if codes else []))


def where(wanted: Filter) -> str:
    """A WHERE clause for `wanted`, and an ORDER BY where it needs one."""
    if wanted.block is not None:
        # What lies before `since` says where later blocks lie, so only the end is cut off.
        return _clause([*_until(wanted.until), _names_block(int(wanted.block[1]))]) + _ORDERED
    terms = _from(wanted.since) + _until(wanted.until)
    if wanted.kinds is not None:
        known = [EVENTS[kind].code for kind in wanted.kinds if kind in EVENTS]
        terms.append(ev_among([0, *known]))
    if wanted.req is not None:
        return _clause([*terms, _names_request(str(wanted.req))]) + _ORDERED
    return _clause(terms)


_ORDERED = " ORDER BY pos"


def _from(since: int | None) -> list[str]:
    return [] if since is None else [f"pos >= {int(since)}"]


def _until(until: int | None) -> list[str]:
    return [] if until is None else [f"pos <= {int(until)}"]


def _clause(terms: list[str]) -> str:
    return f"WHERE {' AND '.join(terms)}" if terms else ""


def _literal(text: str) -> str:
    """A string in SQL. Parameters would do, but DuckDB does not stream a query that has some."""
    quoted = text.replace("'", "''")
    return f"'{quoted}'"


def _names_block(block: int) -> str:
    here = f"(list_contains(blocks, {block}) OR list_contains(blocks2, {block}))"
    return (
        f"({here} OR {_is('group')} "
        f"OR ({_is('lookup', 'resume', 'remap')} AND contains(rest, '{block}') "
        f"AND regexp_matches(rest, '(^|[^0-9]){block}([^0-9]|$)')) "
        f"OR handle IN (SELECT handle FROM events "
        f"WHERE {_is('store_begin', 'load_begin')} AND {here}))"
    )


def _names_request(req: str) -> str:
    in_json = json.dumps(req, ensure_ascii=False)[1:-1]
    return (
        f"(req IN (SELECT id FROM names WHERE domain = 'req' AND name = {_literal(req)}) "
        f"OR ({_is('dispatch', 'retire')} AND contains(rest, {_literal(in_json)})))"
    )
