"""`hkvtool why`: whether the KV state is to blame for one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hkvtool.cli.traces import Format, TraceArgument, print_json, progress, watched_events
from hkvtool.model.errors import Exit, HkvError
from hkvtool.model.event import Event

if TYPE_CHECKING:
    from hkvtool.analyzers.verdict import Why
    from hkvtool.store import Trace

_LONG = 500_000
"""Events of a trace from which on it pays to see first whether anything is wrong: the compiled code
that does may have to be compiled."""


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
    from hkvtool.analyzers.verdict import Verdict, why
    from hkvtool.store import open_trace
    from hkvtool.store.identity import request_in

    with open_trace(trace) as opened:
        name = request_in(opened, request)
        facts = _facts(opened, name)
        until = _enough(opened, name, trace)
        with watched_events(opened, f"asking {trace}", until) as events:
            found = why(events, name, ended=until is None)
        if not found.span[1]:
            raise HkvError(
                f"{name!r} holds blocks, but is no request",
                hint=f"`hkvtool events {trace}` lists what happened",
            )
        if format is Format.JSON:
            print_json({"trace": trace, "asked_for": request, **found.as_json()})
        else:
            _print(found, _named_events(opened, found), trace, facts, every=every)
    if found.verdict in (Verdict.RESUMED_WRONGLY, Verdict.READ_WRONGLY):
        return Exit.FINDINGS
    return Exit.INCONCLUSIVE if found.verdict is Verdict.INCONCLUSIVE else Exit.OK


def _enough(opened: Trace, name: str, path: str) -> int | None:
    """The last event that bears on a request of a long trace in which nothing is wrong: what is
    behind it need not be gone through. None of any other trace."""
    from hkvtool.analyzers.long_check import right_of

    if opened.count < _LONG:
        return None
    with progress(f"checking {path}", opened.count) as told:
        if right_of(opened, told) is None:
            return None
    return max((event.pos for event in opened.events(req=name)), default=None)


def _facts(opened: Trace, name: str) -> list[str]:
    """What else is known of the request."""
    from hkvtool.store.identity import LIFE

    facts: dict[str, str] = {}
    for event in opened.events(req=name, kinds=LIFE):
        for key, word in (("external", "client id"), ("tenant", "tenant")):
            if event.req == name and event.get(key) is not None:
                facts.setdefault(key, f"{word} {event[key]}")
    return list(facts.values())


def _named_events(opened: Trace, found: Why) -> dict[int, Event]:
    """The events that the finding names."""
    from hkvtool.report.checked import positions

    wanted = set() if found.finding is None else set(positions(found.finding))
    if not wanted:
        return {}
    span = opened.events(since=min(wanted), until=max(wanted))
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
