"""What a look at the columns of a trace says before it is screened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hkvtool.model.events import EVENTS

SCREENED = frozenset(EVENTS) - {"remap"}
"""Kinds of events that the screen understands; all others are for the rules."""

_TELLING = ("publish", "write", "seal", "index", "use", "store_begin", "load_begin")
"""Kinds whose remaining keys can matter to a rule."""

_KEYS = "index|gens|key|codec|peer_tokens|hashes|part|kv_version"

_NUMBERED = ("actor", "req", '"group"', "group2", "pool", "pool2", "handle", "part")
"""Columns that hold numbers of names."""

_BYTES = """
SELECT DISTINCT "group", len(blocks), regexp_extract_all(rest, '"bytes": ?([0-9]+)', 1)
FROM events WHERE ev IN ({codes}) AND rest IS NOT NULL
"""


_LARGEST = """
SELECT "group", pool, pool2, CASE WHEN ev = {copy} THEN group2 END,
    greatest(max(list_max(blocks)), max(list_max(blocks2)))
FROM events WHERE blocks IS NOT NULL OR blocks2 IS NOT NULL GROUP BY ALL
"""


def plain_enough(trace: Any) -> bool:
    """Whether a trace has nothing but what the screen understands."""
    kinds: Mapping[str, int] = trace.kinds
    if any(count and kind not in SCREENED for kind, count in kinds.items()):
        return False
    if any(trace.names.doubles(domain) for domain in ("actor", "req", "group", "pool", "handle")):
        return False
    row = trace.select(
        "SELECT count(*) "
        "FILTER (problem IS NOT NULL OR ev NOT BETWEEN 1 AND 255 OR seq IS NOT NULL), "
        f"count(*) FILTER (ev IN ({codes(_TELLING)}) AND "
        f"(contains(rest, chr(92)) OR regexp_matches(rest, '\"({_KEYS})\"'))), "
        # A buffer that is a request's is one that the rules keep account of.
        f"count(*) FILTER (ev IN ({codes(('buffer', 'launch'))}) AND rest IS NULL OR "
        f"ev IN ({codes(('buffer',))}) AND req IS NOT NULL), "
        # Only an altered file has these; whoever decodes such an event says what is wrong.
        "count(*) FILTER (NOT (json_valid(rest) AND starts_with(rest, '{')) OR "
        f"least({', '.join(_NUMBERED)}) < 0) FROM events"
    ).fetchone()
    return bool(row == (0, 0, 0, 0))


def sizes(trace: Any) -> list[tuple[int, int, list[int]]]:
    """The transfers there are, by group number, blocks, and the bytes that they say they move."""
    query = _BYTES.format(codes=codes(("store_begin", "load_begin")))
    return [
        (group, blocks, [int(size) for size in said])
        for group, blocks, said in trace.select(query).fetchall()
        if group is not None and blocks and said
    ]


def begins_of(trace: Any, handles: Iterable[int]) -> list[int]:
    """Where some transfers begin, by the numbers of their names, in order."""
    listed = ", ".join(map(str, handles))
    query = (
        f"SELECT pos FROM events WHERE ev IN ({codes(('store_begin', 'load_begin'))}) "
        f"AND handle IN ({listed}) ORDER BY pos"
    )
    return [pos for (pos,) in trace.select(query).fetchall()]


def never_signalled(trace: Any) -> list[int]:
    """The first wait for each event that no signal names, in order."""
    wait, signal = (EVENTS[kind].code for kind in ("wait", "signal"))
    query = (
        f"SELECT min(pos) AS first FROM events WHERE ev IN ({wait}, {signal}) "
        f"GROUP BY rest->>'$.event' HAVING bool_and(ev = {wait}) ORDER BY first"
    )
    return [pos for (pos,) in trace.select(query).fetchall()]


def first_dispatches(trace: Any) -> tuple[list[int], list[int]]:
    """The steps that are ever dispatched, in order of their numbers, and where they first are."""
    query = f"SELECT step, min(pos) FROM events WHERE ev = {EVENTS['dispatch'].code} GROUP BY step"
    found = sorted(trace.select(query).fetchall())
    return [step for step, _ in found], [pos for _, pos in found]


def reached(trace: Any) -> dict[str, int]:
    """By pool, one more than the largest block id that may be named there."""
    homes = {str(e["group"]): str(e["pool"]) for e in trace.control if e.ev == "group"}
    ends: dict[str, int] = {}
    query = _LARGEST.format(copy=EVENTS["copy"].code)
    for group, near, far, written, largest in trace.select(query).fetchall():
        named = [str(trace.names.name("pool", n)) for n in (near, far) if n is not None]
        for number in (group, written):
            if number is not None:
                named.append(homes.get(str(trace.names.name("group", number)), ""))
        for pool in named:
            ends[pool] = max(ends.get(pool, 0), (largest or 0) + 1)
    return ends


def too_long(layout: Mapping[str, Any], blocks: int, said: Iterable[int]) -> bool:
    """Whether a transfer may take more of each block than a page: what `alignment` looks into."""
    page, region = layout.get("page_bytes"), layout.get("region_bytes")
    if not isinstance(page, int) or not isinstance(region, int) or page <= 0:
        return isinstance(page, int) and isinstance(region, int)
    return any(
        size % blocks == 0 and size // blocks > page and (size // blocks) % page for size in said
    )


def codes(kinds: Iterable[str]) -> str:
    """The numbers of kinds of events, as a list in SQL."""
    return ", ".join(str(EVENTS[kind].code) for kind in kinds)
