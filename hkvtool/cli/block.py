"""`hkvtool block`: the history of one block, and its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkvtool.cli.traces import (
    LIMIT,
    EventLines,
    TraceArgument,
    place,
    print_line,
    print_table,
    progress,
    say_cut,
)
from hkvtool.model.errors import HkvError
from hkvtool.model.text import shown

if TYPE_CHECKING:
    from hkvtool.model.block_state import CacheBlockState
    from hkvtool.store import Trace


def command(
    trace: TraceArgument,
    block: Annotated[str, typer.Argument(metavar="POOL:ID", help="E.g. gpu:7.")],
    at: Annotated[
        int | None, typer.Option("--at", metavar="POS", help="As of this position; else the end.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Show so many events, 0 for all.")] = LIMIT,
) -> None:
    """Tell the history of one block, generation by generation, and the state it led to.

    The state has one column for each cache group of the block's pool; `recoverable` says whether
    a request could resume from it as it stands, or which rule says no.
    """
    from hkvtool.store import open_trace

    with open_trace(trace) as opened:
        pool, number = place(opened, block)
        _print_history(opened, pool, number, at, limit)
        states = _states(opened, pool, number, at)
        print_line()
        print_line(f"state at {opened.meta.get('last_pos') if at is None else at}")
        _print_states(states)


def _print_history(trace: Trace, pool: str, block: int, at: int | None, limit: int) -> None:
    from hkvtool.store.history import history

    lines = EventLines(trace)
    generation: int | None = -1
    for count, moment in enumerate(history(trace, pool, block, at)):
        if limit and count == limit:
            say_cut(limit, "events")
            return
        if moment.generation != generation:
            if count:
                print_line()
            generation = moment.generation
            since = "before any alloc" if generation is None else f"generation {generation}"
            print_line(f"{shown(pool)}:{block}  {since}")
        lines.print(moment.event)
    if generation == -1:
        until = "" if at is None else f" up to position {at}"
        raise HkvError(f"no event names block {pool}:{block}{until}")


def _states(trace: Trace, pool: str, block: int, at: int | None) -> list[CacheBlockState]:
    """The block as each group of its block table sees it, after everything up to `at`."""
    from hkvtool.state.serving import foreign
    from hkvtool.state.view import block_state
    from hkvtool.store.moments import fold_at

    last = trace.meta.get("last_pos", 0)
    with progress("folding", min(last, last if at is None else at)) as told:
        fold = fold_at(trace, at, told)
    groups = [g for g in fold.declared.groups.values() if g.pool.name == pool]
    slot = fold.find(groups[0].pool, block) if groups else None
    if slot is not None:
        groups = [g for g in groups if not foreign(fold, g, slot)]
    found = (block_state(fold, group, block) for group in groups)
    return [state for state in found if state is not None]


def _print_states(states: list[CacheBlockState]) -> None:
    if not states:
        print_line("  none: no group keeps anything in this pool")
        return
    facts = [_facts(state) for state in states]
    rows = [(name, *(fact[name] for fact in facts)) for name in facts[0]]
    print_table(("", *(state.group for state in states)), rows)


def _facts(state: CacheBlockState) -> dict[str, Any]:
    return {
        "form": state.form,
        "residency": state.residency,
        "generation": state.generation,
        "references": state.ref_count,
        "pins": state.pins,
        "tokens": None if state.tokens is None else f"{state.tokens[0]}..{state.tokens[1]}",
        "written": state.written,
        "version": state.version,
        "published": state.published,
        "taken last by": state.owner,
        "recoverable": _recoverable(state),
    }


def _recoverable(state: CacheBlockState) -> str:
    if state.uncertain:
        return "unknown"
    return "yes" if state.recoverable else f"no ({state.why_not or 'nothing written'})"
