"""`hkvtool info`: what a trace holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkvtool.cli.traces import Format, TraceArgument, counted, print_json, print_line, print_table
from hkvtool.model.event import Event
from hkvtool.model.text import compact, event_line, shown

if TYPE_CHECKING:
    from hkvtool.store import Trace

_PROBLEMS_SHOWN = 5

_POOL = ("medium", "blocks", "reserved", "engine")
_GROUP = ("form", "pool", "block_tokens", "ratio", "window", "serves", "table", "participates")


def command(
    trace: TraceArgument,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Say what a trace holds: engine, evidence, pools, groups, events by kind, span, problems."""
    from hkvtool.store import open_trace

    with open_trace(trace) as opened:
        declared = list(opened.events(kinds={"pool", "group"}))
        pools = _latest(declared, "pool")
        groups = _latest(declared, "group")
        if format is Format.JSON:
            counts = {kind: n for kind, n in opened.kinds.items() if n}
            told = {"remarks": opened.remarks} if opened.remarks else {}
            print_json({**opened.meta, "kinds": counts, "pools": pools, "groups": groups, **told})
        else:
            _print(opened, pools, groups)


def _latest(events: list[Event], kind: str) -> list[dict[str, Any]]:
    """What was declared, each name as it was declared last."""
    found = {str(e[kind]): dict(e.data) for e in events if e.ev == kind and e.problem is None}
    return list(found.values())


def _print(trace: Trace, pools: list[dict[str, Any]], groups: list[dict[str, Any]]) -> None:
    meta = trace.meta
    print_line(f"{shown(trace.path)}: {counted(meta['events'], 'event')}")
    facts = [
        ("engine", meta.get("engine", "not said")),
        ("evidence", f"{', '.join(meta['evidence']) or 'none'} ({meta['evidence_source']})"),
        ("span", _span(meta)),
        ("requests", f"{meta['requests']:,}"),
        ("note", meta.get("note")),
        ("sources", _sources(meta["sources"])),
        ("lost", f"{meta['dropped']:,} events that the recorder dropped" * bool(meta["dropped"])),
    ]
    facts += [("remark", remark) for remark in trace.remarks]
    print_table(("", ""), [fact for fact in facts if fact[1]])
    if meta.get("clocks"):
        _print_clocks(meta["clocks"])
    _print_declared("pools", "pool", pools, _POOL)
    _print_declared("groups", "group", groups, _GROUP)
    print_line()
    print_line("lanes")
    print_table(("lane", "events"), [(lane, f"{n:,}") for lane, n in meta["lanes"].items()])
    print_line()
    print_line("events")
    counts = sorted(trace.kinds.items(), key=lambda item: -item[1])
    print_table(("kind", "events"), [(kind, f"{n:,}") for kind, n in counts if n and kind != "?"])
    if meta["problems"]:
        _print_problems(trace, meta["problems"])


def _span(meta: dict[str, Any]) -> str:
    text = f"positions {meta.get('first_pos', 0)} to {meta.get('last_pos', 0)}"
    if "first_ts" not in meta:
        return text + ", no clock"
    return f"{text}, {(meta['last_ts'] - meta['first_ts']) / 1e9:,.6f} s"


def _sources(sources: list[dict[str, Any]]) -> str:
    """The files, where there are several."""
    several = len(sources) > 1
    return ", ".join(f"{s['file']} (from {s['first']})" for s in sources) if several else ""


def _print_clocks(clocks: list[dict[str, Any]]) -> None:
    """What was added to the times of each machine: by its wall clock, and by edges."""
    print_line()
    print_line("clocks, in ms against the first machine")
    rows = [
        [c["host"], c["pairs"], _ms(c["offset"]), _ms(c["skew"]), c["edges"],
         f"{_ms(c['lowest']) or '-inf'} to {_ms(c['highest']) or 'inf'}"]
        for c in clocks
    ]  # fmt: skip
    print_table(
        ["machine", "clock pairs", "by wall clock", "skew by edges", "edges", "allowed"], rows
    )


def _ms(nanoseconds: int | None) -> str | None:
    return None if nanoseconds is None else f"{nanoseconds / 1e6:,.3f}"


def _print_declared(
    heading: str, kind: str, declared: list[dict[str, Any]], keys: tuple[str, ...]
) -> None:
    """A table of pools or groups, with the columns that any of them fills."""
    print_line()
    print_line(heading)
    if not declared:
        print_line("  none declared")
        return
    columns = [kind, *(key for key in keys if any(key in row for row in declared))]
    print_table(
        [name.replace("_", " ") for name in columns],
        [[_cell(row.get(name)) for name in columns] for row in declared],
    )


def _cell(value: Any) -> str | None:
    if type(value) is int:
        return f"{value:,}"
    return None if value is None else compact(value)


def _print_problems(trace: Trace, count: int) -> None:
    print_line()
    print_line(f"malformed (HKV905): {counted(count, 'event')}")
    for shown_so_far, event in enumerate(trace.events(kinds={"?"})):
        if shown_so_far == _PROBLEMS_SHOWN:
            print_line(f"  ... `hkvtool events {shown(trace.path)} --kind ?` shows all")
            break
        print_line(f"  {event.pos}  {event_line(event)}")
