"""`hkvtool replay`: the recorded events again, as state or on real caches."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkvtool.cli.traces import (
    LIMIT,
    EventLines,
    Format,
    TraceArgument,
    counted,
    print_json,
    print_line,
    print_table,
    progress,
    say_cut,
)
from hkvtool.model.errors import Exit, HkvError
from hkvtool.model.text import shown

if TYPE_CHECKING:
    from hkvtool.replay.stepping import Change
    from hkvtool.store import Trace


class Depth(str, Enum):
    """How deep to replay."""

    STATE = "state"
    CACHE = "cache"


class Device(str, Enum):
    """Where the device pools' bytes are."""

    CPU = "cpu"
    CUDA = "cuda"


def command(
    trace: TraceArgument,
    depth: Annotated[
        Depth | None,
        typer.Option(help="`state` folds, `cache` moves real bytes.", show_default="state"),
    ] = None,
    finding: Annotated[
        str | None,
        typer.Option("--finding", metavar="ID", help="Confirm this finding of `check`, e.g. F1."),
    ] = None,
    request: Annotated[
        str | None, typer.Option("--request", metavar="REQ", help="Only what is this request's.")
    ] = None,
    until: Annotated[
        int | None, typer.Option("--until", metavar="POS", help="Stop behind this position.")
    ] = None,
    step: Annotated[
        bool, typer.Option("--step", help="Show each event with the state it changes.")
    ] = False,
    redecide: Annotated[
        bool,
        typer.Option("--redecide", help="Let the reference allocator decide; show the difference."),
    ] = False,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=N", help="With --redecide: recovering_blocks=N."),
    ] = None,
    device: Annotated[Device, typer.Option("--device", help="For --depth cache.")] = Device.CPU,
    runs: Annotated[
        int, typer.Option("--runs", min=1, max=1000, help="Runs of each arm of a finding.")
    ] = 20,
    memory: Annotated[
        int, typer.Option("--memory", min=1, metavar="MIB", help="Most memory of the caches.")
    ] = 2048,
    free: Annotated[
        bool, typer.Option("--free", help="Lanes run unforced, --runs times: how often it fails.")
    ] = False,
    jitter: Annotated[
        int,
        typer.Option("--jitter", min=0, max=100_000, metavar="US", help="With --free: pauses."),
    ] = 0,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> int:
    """Run the recorded events again: as block states, or on real caches whose rows say whose
    bytes they are.

    At cache depth the trace is run as recorded, then each finding of `check` in two arms: the
    fault arm must read wrong bytes, the control arm, with the cause taken away, must not. Exits
    with 1 where wrong bytes were read. Stamps prove which bytes a read got and in which order
    things happened; they say nothing of an engine's numerics.
    """
    if finding is not None and depth is Depth.STATE:
        raise HkvError("a finding is confirmed on real caches", hint="leave out --depth state")
    if limit and not redecide:
        raise HkvError("--limit goes with --redecide", hint="add --redecide")
    deep = depth is Depth.CACHE or finding is not None
    if device is not Device.CPU and not deep:
        raise HkvError("state depth folds and needs no device", hint="add --depth cache")
    if free and (not deep or device is not Device.CPU):
        raise HkvError("--free lets CPU threads loose on real caches", hint="add --depth cache")
    if free and (until is not None or request is not None):
        raise HkvError("--free runs a whole trace, or one finding", hint="give --finding alone")
    if jitter and not free:
        raise HkvError("--jitter goes with --free", hint="add --free")
    if deep and (step or redecide):
        raise HkvError("--step and --redecide are of state depth", hint="leave out --depth cache")
    from hkvtool.store import open_trace
    from hkvtool.store.identity import request_in

    with open_trace(trace) as opened:
        if redecide:
            return _redecide(opened, limit or [], until, format)
        if request is not None:
            request = request_in(opened, request)
        if deep:
            _require(device)
            from hkvtool.cli import replay_cache

            setting = replay_cache.setting(list(opened.events()), device.value, runs, memory)
            as_json = format is Format.JSON
            if free:
                return replay_cache.freed(opened, setting, finding, jitter, as_json)
            return replay_cache.confirmed(opened, setting, finding, request, until, as_json)
        return _state(opened, request, until, step, format)


# --- state ---------------------------------------------------------------------------------


def _state(trace: Trace, request: str | None, until: int | None, step: bool, format: Format) -> int:
    from hkvtool.replay.stepping import Stepper, summary
    from hkvtool.store.moments import fold_at

    if step:
        wanted = None
        if request is not None:
            wanted = {e.pos for e in trace.events(until=until, req=request)}
            if not wanted:
                raise HkvError(f"no event names request {request!r}")
        _steps(trace, Stepper(), wanted, until, format)
        return Exit.OK
    if request is not None:
        raise HkvError("--request goes with --step or --depth cache", hint="add --step")
    last = trace.meta.get("last_pos", 0)
    with progress("folding", min(last, last if until is None else until)) as told:
        fold = fold_at(trace, until, told)
    facts: dict[str, Any] = {"trace": trace.path, "depth": "state"}
    facts["until"] = last if until is None else min(until, last)
    facts |= summary(fold)
    if format is Format.JSON:
        print_json(facts)
        return Exit.OK
    print_line(f"{shown(trace.path)} folded up to event {facts['until']:,}")
    print_line()
    columns = ("pool", "medium", "blocks", "named", "referenced", "published", "recovering")
    print_table(columns, [[p[c] for c in columns] for p in facts["pools"]])
    print_line()
    rows = [
        (g["group"], g["form"], g["pool"], g["filled"], g["recoverable"],
         ", ".join(f"{n} {code}" for code, n in g["why_not"].items()))
        for g in facts["groups"]
    ]  # fmt: skip
    print_table(("group", "form", "pool", "filled", "recoverable", "the others"), rows)
    return Exit.OK


def _steps(
    trace: Trace, stepper: Any, wanted: set[int] | None, until: int | None, format: Format
) -> None:
    lines = EventLines(trace)
    count = 0
    for event in trace.events(until=until):
        refused, changes = stepper.step(event)
        if wanted is not None and event.pos not in wanted:
            continue
        if format is Format.JSON:
            data = {"pos": event.pos, "event": dict(event.data), "refused": refused,
                    "changes": [c.as_json() for c in changes]}  # fmt: skip
            print(json.dumps(data))
            continue
        if count == LIMIT:
            say_cut(LIMIT, "events")
            return
        count += 1
        lines.print(event)
        if refused:
            print_line(f"      impossible as written: {shown(refused)}")
        for change in changes:
            print_line(f"      {_change(change)}")


def _change(change: Change) -> str:
    parts = []
    for name, (before, after) in change.fields.items():
        text = _value(after)
        if change.before and before is not None:
            text = f"{_value(before)} -> {text}"
        elif not change.before and after in (None, 0, False, ""):
            continue
        parts.append(f"{name} {text}")
    return f"{shown(change.pool)}:{change.block} {shown(change.group)}  " + ", ".join(parts)


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return f"{value[0]}..{value[1]}"
    return shown(value)


def _require(device: Device) -> None:
    if device is Device.CPU:
        return
    import torch

    if not torch.cuda.is_available():
        raise HkvError("torch sees no CUDA device here", hint="replay with --device cpu")


# --- redecide ------------------------------------------------------------------------------


def _redecide(trace: Trace, limits: list[str], until: int | None, format: Format) -> int:
    from hkvtool.replay.redeciding import redecide

    caps = _limits(limits)
    outcome = redecide(trace.events(until=until), caps)
    if format is Format.JSON:
        print_json({"trace": trace.path, **outcome.as_json()})
        return Exit.OK
    print_line(f"{shown(trace.path)}: {counted(outcome.decisions, 'decision')} taken again by the "
               "reference allocator")  # fmt: skip
    for line in outcome.lines():
        print_line(line)
    return Exit.OK


def _limits(given: Iterable[str]) -> dict[str, int]:
    caps: dict[str, int] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if name != "recovering_blocks" or not equals or not value.isdigit():
            raise HkvError(f"--limit {text!r} is none", hint="write recovering_blocks=N")
        caps[name] = int(value)
    return caps
