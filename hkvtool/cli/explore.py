"""`hkvtool explore`: the order that fails, or none among all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkvtool.cli.fleet import RAY
from hkvtool.cli.interrupting import cached, interruptible, spelled
from hkvtool.cli.picking import root_finding
from hkvtool.cli.traces import (
    Format,
    TraceArgument,
    counted,
    place,
    print_json,
    print_line,
    print_table,
    progress,
)
from hkvtool.model.errors import Exit, HkvError
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.model.text import event_line, shown

if TYPE_CHECKING:
    from hkvtool.fleet.on_ray import Cluster
    from hkvtool.fleet.searching import Caches
    from hkvtool.replay.elsewhere import Elsewhere
    from hkvtool.replay.explore import Exploration
    from hkvtool.replay.scheduled import Scheduled
    from hkvtool.replay.schedules import Failure
    from hkvtool.replay.searched import Searched
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
    redecide: Annotated[
        bool,
        typer.Option("--redecide", help="The allocator may decide otherwise in an order."),
    ] = False,
    confirm: Annotated[
        bool, typer.Option("--confirm/--no-confirm", help="Run what fails on real caches too.")
    ] = True,
    state: Annotated[
        Path | None,
        typer.Option("--state", help="Keeps what was run, and goes on with it; else in the cache."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew.")] = False,
    ray: RAY = None,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> int:
    """Search the orders that a trace leaves open for one in which a read gets other bytes.

    Recorded outcomes are forced, so a failing order is feasible under recorded control flow;
    with --redecide an allocation or a hit that comes out otherwise in an order does. What fails is
    run on real caches too. Ctrl-C ends with what was found; the command that is printed goes on.
    With --ray a cluster runs schedules and caches, and what is found is the same.
    Exits with 1 where an order fails, 0 where none does among all or the check finds no race, 4
    where none was found among those run or evidence was lost, 130 where it was stopped before that.
    """
    from hkvtool.replay.explore import explore
    from hkvtool.replay.schedules import Runner, fingerprint, unspell
    from hkvtool.replay.searched import Searched, load
    from hkvtool.replay.window import window
    from hkvtool.store import open_trace

    if sum(one is not None for one in (finding, block, request)) > 1:
        raise HkvError("--finding, --block and --request each say what to look at", hint="give one")
    report: Report | None = None
    chosen: Finding | None = None
    with open_trace(trace) as opened:
        events = list(opened.events())
        if block is not None:
            wanted = frozenset({place(opened, block)})
        elif request is not None:
            wanted = _read_by(events, request)
        else:
            report, chosen = _race(events, finding, trace)
            if chosen is None and schedule is not None:
                raise HkvError(
                    "the check finds no race that a schedule could be of", where=trace,
                    hint="--block POOL:ID or --request R say what it is of",
                )  # fmt: skip
            if chosen is None:
                return _no_race(report, seed, budget, format)
            wanted = frozenset((str(chosen.pool), b) for b in chosen.blocks)
    found = window(events, wanted, chosen.events if chosen else [], forced=not redecide)
    caches = _caches(events, found, wanted, report, chosen) if confirm and not redecide else None
    if schedule is not None:
        order = unspell(found, schedule)
        failure = Runner(found).run(order)
        on_caches = caches(schedule) if caches and failure else None
        _print_one(found, schedule, failure, on_caches, format)
        return Exit.FINDINGS if failure else Exit.OK
    kept = state or cached("explore", f"{fingerprint(found)}-{seed}")
    known = None if fresh else _known(lambda: load(kept, found, seed), state is not None)
    known = known or Searched.of(found, seed)
    if known.ran:
        print(
            f"goes on behind {known.ran:,} schedules, kept in {shown(str(kept))}", file=sys.stderr
        )
    with _cluster(ray) as there:
        with interruptible() as stopped, progress("searching", budget) as told:
            seen = explore(
                found, budget=budget, seed=seed, stopped=stopped, known=known, told=told,
                elsewhere=_elsewhere(there, found),
            )  # fmt: skip
        failing = [one.schedule for one in seen.found[:_CONFIRMED]]
        proofs = _proofs(there, caches, failing) if caches else []
    if format is Format.JSON:
        print_json(_account(seen, chosen, budget, proofs))
    else:
        _tell(seen, chosen, proofs)
    if state is not None or not (seen.found or seen.complete):
        known.save(kept)
    if not (seen.found or seen.complete):
        named = [("--finding", chosen.id if chosen else None), ("--block", block),
                 ("--request", request), ("--seed", seed), ("--budget", budget),
                 ("--state", state), ("--ray", ray)]  # fmt: skip
        words = [word for option, value in named if value is not None for word in (option, value)]
        flags = ["--redecide"] if redecide else []
        said = "stopped" if seen.stopped else "the budget is used up"
        command_ = spelled(["hkvtool", "explore", trace, *words, *flags])
        print(f"{said}; this goes on:\n  {command_}", file=sys.stderr)
    if seen.found:
        return Exit.FINDINGS
    if seen.complete:
        return Exit.OK
    return Exit.INTERRUPTED if seen.stopped else Exit.INCONCLUSIVE


_CONFIRMED = 8
"""Failing schedules that are run on real caches."""


def _known(read: Callable[[], Searched | None], asked_for: bool) -> Searched | None:
    """What an earlier search left; what only stands in the cache and is damaged counts for
    nothing."""
    try:
        return read()
    except HkvError:
        if asked_for:
            raise
        return None


def _caches(
    events: list[Event], window: Window, places: frozenset[tuple[str, int]],
    report: Report | None, finding: Finding | None,
) -> Caches:  # fmt: skip
    from hkvtool.fleet.searching import Caches

    return Caches(events, window, places, report, finding)


@contextmanager
def _cluster(address: str | None) -> Iterator[Cluster | None]:
    if address is None:
        yield None
        return
    from hkvtool.fleet.on_ray import cluster

    with cluster(address) as there:
        yield there


def _elsewhere(there: Cluster | None, window: Window) -> Elsewhere | None:
    if there is None:
        return None
    from hkvtool.fleet.searching import OnCluster

    return OnCluster(there, window)


def _proofs(there: Cluster | None, caches: Caches, schedules: list[str]) -> list[Scheduled]:
    if there is None:
        return [caches(schedule) for schedule in schedules]
    from hkvtool.fleet.searching import on_caches_of

    return on_caches_of(there, caches, schedules)


def _race(events: list[Event], asked: str | None, trace: str) -> tuple[Report, Finding | None]:
    """The finding that is asked for, else the first race, if there is one."""
    from hkvtool.analyzers import check

    report = check(events)
    if asked is None:
        races = [f for f in report.findings if f.edge and not f.cause and f.pool and f.blocks]
        return report, races[0] if races else None
    found = root_finding(report, asked, trace)
    if not found.pool or not found.blocks:
        raise HkvError(f"{found.id} {found.code} names no block", hint="give --block or --request")
    return report, found


def _no_race(report: Report, seed: int, budget: int, format: Format) -> Exit:
    """A trace in which nothing is to be searched unasked; where evidence was lost, that is not to
    say that there is no race."""
    verdict = "nothing to search: the check finds no race"
    if format is Format.JSON:
        print_json({
            "finding": None, "code": None, "ops": 0, "races": 0, "seed": seed, "budget": budget,
            "verdict": verdict, "candidates": [], "found": [], "sampled": 0, "certificate": None,
            "stopped": False, "feasible": "under recorded control flow",
        })  # fmt: skip
    else:
        print_line(verdict)
    for why in report.inconclusive:
        print(f"inconclusive: {shown(why)}", file=sys.stderr)
    print("--block POOL:ID or --request R say what else to look at", file=sys.stderr)
    return Exit.INCONCLUSIVE if report.inconclusive else Exit.OK


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


def _tell(seen: Exploration, chosen: Finding | None, proofs: Sequence[Scheduled]) -> None:
    window = seen.window
    lanes = sorted({op.lane for op in window.ops})
    subject = f"{chosen.id} {chosen.code}: " if chosen else ""
    print_line(
        f"{subject}{counted(len(window.ops), 'op')} of {counted(len(lanes), 'lane')}, "
        f"{counted(len(window.races), 'pair')} in no order, "
        f"events {window.ops[0].pos:,} to {window.ops[-1].pos:,}"
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
    for number, found in enumerate(seen.found):
        proof = proofs[number] if number < len(proofs) else None
        _tell_failure(window, found.schedule, found.failure, proof)
        for text in found.changed:
            print_line(f"  the reference allocator decides otherwise: {text}")


def _tell_failure(window: Window, schedule: str, failure: Failure, proof: Scheduled | None) -> None:
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
    if window.forced:
        print_line("  feasible under recorded control flow")
    if proof is not None:
        print_line(f"  on real caches {proof.verdict}: {shown(proof.reason)}")
        for name, arm in (("fault", proof.fault), ("control", proof.control)):
            if arm is not None:
                print_line(f"    {name} arm  {arm.corrupt} of {arm.runs} runs corrupt; "
                           f"{arm.plan.words}")  # fmt: skip


def _print_one(
    window: Window, schedule: str, failure: Failure | None, proof: Scheduled | None, format: Format
) -> None:
    if format is Format.JSON:
        print_json({"schedule": schedule, "failure": _failure(failure), "caches": _proof(proof)})
    elif failure is None:
        print_line(f"schedule {shown(schedule)}: every read gets what it got when recorded")
    else:
        _tell_failure(window, schedule, failure, proof)


def _proof(proof: Scheduled | None) -> dict[str, Any] | None:
    return None if proof is None else proof.as_json()


def _failure(failure: Failure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    return {
        "reader": failure.reader.pos if failure.reader else None,
        "block": failure.touch.place[1],
        "due": failure.due.pos if failure.due else None,
        "found": failure.found.pos if failure.found else None,
    }


def _account(
    seen: Exploration, chosen: Finding | None, budget: int, proofs: Sequence[Scheduled]
) -> dict[str, Any]:
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
            {
                "by": f.by, "run": f.run, "schedule": f.schedule, "failure": _failure(f.failure),
                "changed": list(f.changed),
                "caches": _proof(proofs[n] if n < len(proofs) else None),
            }
            for n, f in enumerate(seen.found)
        ],
        "sampled": seen.sampled,
        "certificate": None if certificate is None else {
            "orders": certificate.orders, "blocked": certificate.blocked,
            "complete": certificate.complete,
        },
        "stopped": seen.stopped,
        "feasible": "under recorded control flow" if seen.window.forced else "as redecided",
    }  # fmt: skip
