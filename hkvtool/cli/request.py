"""`hkvtool request`: the history of one request."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkvtool.cli.traces import (
    LIMIT,
    TraceArgument,
    counted,
    print_events,
    print_line,
    print_table,
)
from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.model.text import compact, shown

if TYPE_CHECKING:
    from hkvtool.store import Trace

_ENDS = {"finish": "finished", "abort": "aborted"}


def command(
    trace: TraceArgument,
    request: Annotated[str, typer.Argument(metavar="ID", help="The request, as the trace says.")],
    limit: Annotated[int, typer.Option(min=0, help="Show so many events, 0 for all.")] = LIMIT,
) -> None:
    """Tell the history of one request: how it ended, what it hit group by group, its events."""
    from hkvtool.store import open_trace

    with open_trace(trace) as opened:
        told = list(opened.events(req=request, kinds=_TELLING))
        own = [event for event in told if event.req == request]
        if not own and next(opened.events(req=request), None) is None:
            raise _unknown(opened, request)
        print_line(f"{shown(request)}: {_outcome(own)}")
        print_table(("", ""), list(_facts(own, told)))
        hits = [row for event in own for row in _hits(event)]
        if hits:
            print_line()
            print_line("hits")
            print_table(("pos", "event", "tokens", "group", "hit", "route", "blocks"), hits)
        print_line()
        print_events(opened, opened.events(req=request), limit=limit)


_TELLING = {
    "admit", "refuse", "preempt", "abort", "finish", "lookup", "resume", "dispatch",
}  # fmt: skip


def _unknown(trace: Trace, request: str) -> HkvError:
    known = [str(name) for name in trace.names.values["req"][:10_000]]
    near = difflib.get_close_matches(request, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"requests here: {_some(known)}"
    return HkvError(f"no event names a request {request!r}", hint=hint)


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") if names else "none"


def _outcome(own: list[Event]) -> str:
    end = next((event for event in reversed(own) if event.ev in _ENDS), None)
    if end is None:
        return "has not ended"
    reason = f" ({shown(end['reason'])})" if "reason" in end else ""
    return f"{_ENDS[end.ev]} at {end.pos}{reason}"


def _facts(own: list[Event], told: list[Event]) -> Iterator[tuple[str, str]]:
    for key in ("external", "tenant"):
        said = next((event[key] for event in own if key in event), None)
        if said is not None:
            yield key, shown(said)
    counts = Counter(event.ev for event in told)
    yield "steps", str(counts["dispatch"])
    for kind, words in (("refuse", "had to wait"), ("preempt", "preempted")):
        if counts[kind]:
            yield words, counted(counts[kind], "time")


def _hits(event: Event) -> Iterator[tuple[Any, ...]]:
    """One row for each group that a lookup or resume names."""
    if event.ev not in ("lookup", "resume"):
        return
    hit, route = event.get("hit", {}), event.get("route", {})
    blocks = event.get("blocks", {})
    tokens = event.get("tokens" if event.ev == "lookup" else "at")
    for group in dict.fromkeys([*hit, *route, *blocks]) or [None]:
        listed = blocks.get(group)
        shown_blocks = None if listed is None else compact(listed)
        yield event.pos, event.ev, tokens, group, hit.get(group), route.get(group), shown_blocks
