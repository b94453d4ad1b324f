"""The conditions of `Trace.events` as SQL that lets through everything that fits, and little else.

`Filter` has the last word; this keeps DuckDB from handing over what it would throw away. Joins
give up the order of rows, and so do longer lists (IN, list_contains), which DuckDB turns into
joins: they are not used where a result can be long, and end in ORDER BY where it is short.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence

from hkvtool.model.events import EVENTS
from hkvtool.store.filters import Filter
from hkvtool.store.places import BEGINS, ENDS

BEGIN_CODES = frozenset(EVENTS[kind].code for kind in BEGINS)
"""Numbers of the events that begin a transfer."""

ENDING_KINDS = ("lease", *sorted(ENDS))
"""Events that may name the blocks of a transfer by its handle alone."""

_ONE_BY_ONE = 64
"""Transfers that are asked for one by one."""


def ev_among(codes: Iterable[int]) -> str:
    """A condition on `ev` that never becomes a join: every number of a kind fits a bit mask."""
    return f"({sum(1 << code for code in set(codes))}::BIGINT >> ev) & 1 = 1"


def _is(*kinds: str) -> str:
    return ev_among(EVENTS[kind].code for kind in kinds)


def span(since: int | None, until: int | None, codes: Collection[int] = ()) -> str:
    """A WHERE clause for a stretch of positions, and kinds of events where some are named."""
    return _clause(_from(since) + _until(until) + ([ev_among(codes)] if codes else []))


def queries(columns: str, wanted: Filter) -> list[str]:
    """What selects the events that fit: each event once, each answer in order. All in one would
    have to be put into order, in memory, with the long texts that some events have."""
    if wanted.block is None:
        return [f"SELECT {columns} FROM events {_where(wanted)}"]
    # What lies before `since` says where later blocks lie, so only the end is cut off.
    until = _until(wanted.until)
    *plain, joined = _names_block(int(wanted.block[1]))
    found = [f"SELECT {columns} FROM events {_clause([*until, term])}" for term in plain]
    return [*found, f"SELECT {columns} FROM events {_clause([*until, joined])}{_ORDERED}"]


def _where(wanted: Filter) -> str:
    """A WHERE clause for `wanted`, and an ORDER BY where it needs one."""
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


def naming(columns: str, block: int, first: int, last: int, until: int | None) -> str:
    """What selects the events of one stretch that name a block, but for the declarations of groups
    and what `ending` finds."""
    here, there, _, text, _ = _names_block(block)
    terms = [*_from(first), *_until(last), *_until(until), f"({here} OR {there} OR {text})"]
    return f"SELECT {columns} FROM events {_clause(terms)}{_ORDERED}"


def ending(columns: str, block: int, handles: Sequence[int], until: int | None) -> list[str]:
    """What selects the ends and leases of transfers, by number, that do not name the block."""
    here, there = _listing(block)
    terms = [
        *_until(until), _is(*ENDING_KINDS), f"NOT coalesce({here}, false)",
        f"NOT coalesce({there}, false)",
    ]  # fmt: skip
    if len(handles) > _ONE_BY_ONE:
        where = _clause([*terms, f"handle IN ({', '.join(map(str, handles))})"])
        return [f"SELECT {columns} FROM events {where}{_ORDERED}"]
    # Numbers of transfers go up with the trace: of one alone DuckDB leaves most unread.
    found = (_clause([*terms, f"handle = {handle}"]) for handle in handles)
    return [f"SELECT {columns} FROM events {where}" for where in found]


def _listing(block: int) -> tuple[str, str]:
    """Conditions that the two lists of an event hold a block."""
    return f"list_contains(blocks, {block})", f"list_contains(blocks2, {block})"


def _names_block(block: int) -> list[str]:
    """Conditions of which an event that names the block meets one, and only one. One by one: DuckDB
    leaves stretches of a trace unread that have no such block in a list, but not where that is one
    of several conditions."""
    here, there = _listing(block)
    elsewhere = _is("group", "lookup", "resume", "remap")
    begun = " UNION ALL ".join(
        f"SELECT handle FROM events WHERE {one} AND {_is(*sorted(BEGINS))}" for one in (here, there)
    )
    not_here, not_there = (f"NOT coalesce({one}, false)" for one in (here, there))
    text = f"contains(rest, '{block}') AND regexp_matches(rest, '(^|[^0-9]){block}([^0-9]|$)')"
    ended = f"{_is(*ENDING_KINDS)} AND handle IN ({begun})"
    return [
        f"{here} AND NOT {elsewhere}",
        f"{there} AND NOT {elsewhere} AND {not_here}",
        f"ev = {EVENTS['group'].code}",
        f"{_is('lookup', 'resume', 'remap')} AND {text}",
        f"{ended} AND {not_here} AND {not_there}",
    ]


def _names_request(req: str) -> str:
    if _no_unicode(req):
        # A command line may hold bytes that no trace does.
        return "false"
    in_json = json.dumps(req, ensure_ascii=False)[1:-1]
    return (
        f"(req IN (SELECT id FROM names WHERE domain = 'req' AND name = {_literal(req)}) "
        f"OR ({_is('dispatch', 'retire')} AND contains(rest, {_literal(in_json)})))"
    )


def _no_unicode(text: str) -> bool:
    """Whether it holds halves of characters, as Python keeps bytes that are no UTF-8."""
    return any("\ud800" <= c <= "\udfff" for c in text)
