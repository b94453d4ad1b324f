"""`hkvtool explore`: the order that fails, or none among all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkvtool.cli.picking import root_finding
from hkvtool.cli.traces import Format, TraceArgument, place, print_json, print_line, print_table
from hkvtool.model.errors import Exit, HkvError
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.text import event_line, shown

if TYPE_CHECKING:
    from hkvtool.replay.explore import Exploration
    from hkvtool.replay.schedules import Failure
    from hkvtool.replay.window import Op, Window


def command(
    trace: TraceArgument,
    finding: Annotated[
        str | None,
        typer.Option("--finding", metavar="F3", help="As `check` numbers it; else the first race."),
    ] = None,
    block: Annotated[
        str | None, typer.Option("--block", metavar="POOL:ID", help="What happens to one block.")
    ] = None,
    request: Annotated[
        str | None, typer.Option("--request", metavar="R", help="Blocks that a request reads.")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option("--schedule", help="Run just this one, as printed before.")
    ] = None,
    budget: Annotated[int, typer.Option("--budget", min=1, help="Schedules at most.")] = 2000,
    seed: Annotated[int, typer.Option("--seed", help="Of the sampled ones.")] = 0,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> int:
    """Search the orders that a trace leaves open for one in which a read gets other bytes.

    Recorded outcomes are forced, so a failing order is feasible under recorded control flow.
    Exits with 1 where an order fails, 0 where none does among all, 4 where none was found among
    those run.
    """
    from hkvtool.replay.explore import explore
    from hkvtool.replay.schedules import Runner, unspell
    from hkvtool.replay.window import window
    from hkvtool.store import open_trace

    if sum(one is not None for one in (finding, block, request)) > 1:
        raise HkvError("--finding, --block and --request each say what to look at", hint="give one")
    with open_trace(trace) as opened:
        if block is not None:
            chosen, wanted = None, frozenset({place(opened, block)})
        elif request is not None:
            chosen, wanted = None, _read_by(opened.events(), request)
        else:
            chosen = _race(list(opened.events()), finding, trace)
            wanted = frozenset((str(chosen.pool), b) for b in chosen.blocks)
        around = chosen.events if chosen else []
        found = window(opened.events(), wanted, around)
    if schedule is not None:
        failure = Runner(found).run(unspell(found, schedule))
        _print_one(found, schedule, failure, format)
        return Exit.FINDINGS if failure else Exit.OK
    seen = explore(found, budget=budget, seed=seed)
    if format is Format.JSON:
        print_json(_account(seen, chosen, budget))
    else:
        _tell(seen, chosen)
    if seen.found:
        return Exit.FINDINGS
    complete = seen.certificate is not None and seen.certificate.complete
    return Exit.OK if complete else Exit.INCONCLUSIVE


def _race(events: list[Event], asked: str | None, trace: str) -> Finding:
    from hkvtool.analyzers import check

    report = check(events)
    if asked is None:
        races = [f for f in report.findings if f.edge and not f.cause and f.pool and f.blocks]
        if not races:
            raise HkvError(
                "the check finds no race", where=trace,
                hint="--block POOL:ID or --request R say what to look at",
            )  # fmt: skip
        return races[0]
    found = root_finding(report, asked, trace)
    if not found.pool or not found.blocks:
        raise HkvError(f"{found.id} {found.code} names no block", hint="give --block or --request")
    return found


def _read_by(events: Any, request: str) -> frozenset[tuple[str, int]]:
    """The blocks that a request's kernels read, from the places they had."""
    from hkvtool.state.accesses import accesses
    from hkvtool.state.fold import Fold

    fold = Fold()
    out: set[tuple[str, int]] = set()
    for event in events:
        if event.problem is not None:
            continue
        if event.ev == "use" and event.req == request:
            for access in accesses(event, fold.declared):
                if access.pool is not None:
                    out.update((access.pool.name, index) for index in access.places)
        fold.apply(event)
    if not out:
        raise HkvError(f"no read of request {request!r} is recorded")
    return frozenset(out)


def _who(op: Op | None) -> str:
    return "what was there before" if op is None else f"event {op.pos} ({op.event.ev} on {op.lane})"


def _tell(seen: Exploration, chosen: Finding | None) -> None:
    window = seen.window
    lanes = sorted({op.lane for op in window.ops})
    subject = f"{chosen.id} {chosen.code}: " if chosen else ""
    print_line(
        f"{subject}{len(window.ops)} ops of {len(lanes)} lanes, {len(window.races)} pairs in no "
        f"order, events {window.ops[0].pos:,} to {window.ops[-1].pos:,}"
    )
    if chosen and not chosen.edge and not window.races:
        print_line("no order is left open: what this finding tells happened in the recorded one")
    rows = [
        [
            f"{c.second} before {c.first}", window.ops[c.second].pos, window.ops[c.first].pos,
            "fails" if c.failure else "reads the same", c.schedule,
        ]
        for c in seen.candidates
    ]  # fmt: skip
    if rows:
        print_line()
        print_table(["candidate", "event", "before", "outcome", "schedule"], rows)
    print_line()
    print_line(f"{seen.verdict}, seed {seen.seed}")
    if seen.sampled:
        print_line(f"  sampled {seen.sampled:,}")
    if seen.certificate is not None:
        cert = seen.certificate
        print_line(f"  sleep sets: {cert.orders:,} orders run, {cert.blocked:,} blocked")
    for found in seen.found:
        _tell_failure(window, found.schedule, found.failure)


def _tell_failure(window: Window, schedule: str, failure: Failure) -> None:
    from hkvtool.replay.schedules import unspell

    print_line()
    print_line(f"  schedule {schedule}")
    touch = failure.touch
    wrong = f"the bytes of {_who(failure.found)}, not of {_who(failure.due)}"
    order = unspell(window, schedule)
    last = len(order)
    if failure.reader is None:
        print_line(f"  block {touch.place[1]} is left with {wrong}")
    else:
        print_line(f"  {_who(failure.reader)} reads block {touch.place[1]} and gets {wrong}")
        last = order.index(failure.reader.index)
    for index in order[: last + 1]:
        op = window.ops[index]
        print_line(f"    {op.lane:<20.20}  {op.pos:>7}  {event_line(op.event)}")
    print_line("  feasible under recorded control flow")


def _print_one(window: Window, schedule: str, failure: Failure | None, format: Format) -> None:
    if format is Format.JSON:
        print_json({"schedule": schedule, "failure": _failure(failure)})
    elif failure is None:
        print_line(f"schedule {shown(schedule)}: every read gets what it got when recorded")
    else:
        _tell_failure(window, schedule, failure)


def _failure(failure: Failure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    return {
        "reader": failure.reader.pos if failure.reader else None,
        "block": failure.touch.place[1],
        "due": failure.due.pos if failure.due else None,
        "found": failure.found.pos if failure.found else None,
    }


def _account(seen: Exploration, chosen: Finding | None, budget: int) -> dict[str, Any]:
    certificate = seen.certificate
    return {
        "finding": chosen.id if chosen else None,
        "code": chosen.code if chosen else None,
        "ops": len(seen.window.ops),
        "races": len(seen.window.races),
        "seed": seen.seed,
        "budget": budget,
        "verdict": seen.verdict,
        "candidates": [
            {
                "first": seen.window.ops[c.first].pos, "second": seen.window.ops[c.second].pos,
                "schedule": c.schedule, "failure": _failure(c.failure),
            }
            for c in seen.candidates
        ],
        "found": [
            {"by": f.by, "run": f.run, "schedule": f.schedule, "failure": _failure(f.failure)}
            for f in seen.found
        ],
        "sampled": seen.sampled,
        "certificate": None if certificate is None else {
            "orders": certificate.orders, "blocked": certificate.blocked,
            "complete": certificate.complete,
        },
        "feasible": "under recorded control flow",
    }  # fmt: skip
