"""`hkvtool why`: whether the KV state is to blame for one request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hkvtool.cli.traces import Format, TraceArgument, print_json, progress
from hkvtool.model.errors import Exit
from hkvtool.model.event import Event

if TYPE_CHECKING:
    from hkvtool.analyzers.verdict import Why
    from hkvtool.store import Trace


def command(
    trace: TraceArgument,
    request: Annotated[
        str,
        typer.Argument(
            metavar="REQUEST",
            help="The engine's id, the client's id or a trace id.",
            show_default=False,
        ),
    ],
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
    every: Annotated[
        bool, typer.Option("--all", help="Show everything, not what fits one screen.")
    ] = False,
) -> int:
    """Say whether the KV state is to blame for one request.

    It was not resumable but resumed (with the finding); or it rightly recomputed, and which group
    is why; or its KV state is exonerated, with the coverage in per cent and what could not be
    judged. With the provenance of every reused block, and of bad content who else read it, which
    copies it has, and what to purge.

    Exits with 0 where the state is exonerated or was rightly recomputed, 1 where it is to blame,
    4 where events were lost that the answer rests on.
    """
    from hkvtool.analyzers.verdict import Verdict
    from hkvtool.store import open_trace

    with open_trace(trace) as opened:
        # Standard input comes once, and is asked three things.
        source: Trace | Sequence[Event] = list(opened.events()) if trace == "-" else opened
        name, facts = _who(opened, source, request)
        found = _ask(opened, source, name, trace)
        if format is Format.JSON:
            print_json({"trace": trace, "asked_for": request, **found.as_json()})
        else:
            _print(found, _named_events(source, found), trace, facts, every=every)
    if found.verdict in (Verdict.RESUMED_WRONGLY, Verdict.READ_WRONGLY):
        return Exit.FINDINGS
    return Exit.INCONCLUSIVE if found.verdict is Verdict.INCONCLUSIVE else Exit.OK


def _who(opened: Trace, source: Trace | Sequence[Event], text: str) -> tuple[str, list[str]]:
    """The request by the engine's id, and what else is known of it."""
    from hkvtool.store.identity import LIFE, request_named

    life = [
        e for e in (source if isinstance(source, Sequence) else source.events(kinds=LIFE))
        if e.ev in LIFE
    ]  # fmt: skip
    if isinstance(source, Sequence):
        names = list(dict.fromkeys(e.req for e in source if e.req is not None))
    else:
        names = [str(n) for n in opened.names.values["req"]]
    name = request_named(life, names, text)
    facts: dict[str, str] = {}
    for event in life:
        for key, word in (("external", "client id"), ("tenant", "tenant")):
            if event.req == name and event.get(key) is not None:
                facts.setdefault(key, f"{word} {event[key]}")
    return name, list(facts.values())


def _ask(opened: Trace, source: Trace | Sequence[Event], name: str, path: str) -> Why:
    from hkvtool.analyzers.verdict import why
    from hkvtool.cli.check import counted_events

    events = source if isinstance(source, Sequence) else source.events()
    total = len(source) if isinstance(source, Sequence) else None
    with progress(f"asking {path}", total) as done:
        return why(counted_events(events, done), name)


def _named_events(source: Trace | Sequence[Event], found: Why) -> dict[int, Event]:
    """The events that the finding names."""
    told = found.finding
    if told is None:
        return {}
    wanted = {*told.events, *(p for p in (told.check, told.use) if p)}
    if not wanted:
        return {}
    span: Iterable[Event]
    if isinstance(source, Sequence):
        span = source
    else:
        span = source.events(since=min(wanted), until=max(wanted))
    return {e.pos: e for e in span if e.pos in wanted}


def _print(
    found: Why, events: dict[int, Event], path: str, facts: list[str], *, every: bool
) -> None:
    from hkvtool.cli.console import console
    from hkvtool.report.why import SCREEN, why_lines

    out = console()
    height = None if every else SCREEN
    for line in why_lines(found, events, out.width, name=path, facts=facts, height=height):
        out.print(line.text, style=line.style or None, soft_wrap=True)
