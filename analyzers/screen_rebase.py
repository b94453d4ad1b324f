"""Whether memory that moves, as when an engine sleeps and wakes, moves under nobody.

Stricter than the rule (`hkvtool.analyzers.topology`), which knows what each step touches: here no
step may be under way at all.
"""

from __future__ import annotations

from typing import Any

from hkvtool.analyzers.screen_sql import codes
from hkvtool.model.event import Event

MOST_REBASES = 256
"""Beyond, the rules go through the whole trace: each is asked about by itself."""

_ACCESSES = ("write", "use", "seal", "index", "copy", "zero", "store_begin", "load_begin")

_OPEN = """
SELECT count(*) FROM (
    SELECT arg_max(ev, pos) AS last FROM events
    WHERE ev IN ({bounds}) AND pos < {pos} GROUP BY step
) WHERE last = {dispatch}
"""

_LATE = """
WITH sent AS (SELECT DISTINCT step FROM events WHERE ev = {dispatch} AND pos < {pos})
SELECT count(*) FROM events JOIN sent USING (step) WHERE ev IN ({accesses}) AND pos > {pos}
"""

_ASLEEP = "SELECT count(*) FROM events WHERE ev IN ({accesses}) AND pos > {pos} AND pos < {until}"


def moves_under_nobody(trace: Any, rebase: Event) -> bool:
    """Whether no step is under way when memory moves, none works on behind it, and nothing is
    touched while it is given up. It gives neither addresses nor geometry."""
    if "layout" in rebase or "pointers" in rebase or trace.kinds["rebase"] > MOST_REBASES:
        return False
    asked = [_OPEN, _LATE]
    if rebase.get("reason") == "sleep":
        asked.append(_ASLEEP)
    names = {
        "pos": rebase.pos, "until": _woken(trace, rebase), "accesses": codes(_ACCESSES),
        "dispatch": codes(("dispatch",)), "bounds": codes(("dispatch", "retire")),
    }  # fmt: skip
    return all(trace.select(query.format(**names)).fetchone() == (0,) for query in asked)


def _woken(trace: Any, sleep: Event) -> int:
    """Where the memory that was given up is there again, or the end of the trace."""
    for event in trace.control:
        if event.pos > sleep.pos and event.ev == "rebase" and event.get("reason") != "sleep":
            if all(event.get(key) == sleep.get(key) for key in ("pool", "group")):
                return int(event.pos)
    return int(trace.meta["last_pos"]) + 1
