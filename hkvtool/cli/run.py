"""`hkvtool run`: a workload through the reference engine, recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkvtool.cli.traces import Format, print_json, print_table, progress
from hkvtool.model.errors import HkvError
from hkvtool.model.shipped import shipped
from hkvtool.model.text import shown

if TYPE_CHECKING:
    from hkvtool.engine.config import Config
    from hkvtool.engine.engine import Engine, Sink
    from hkvtool.engine.sequential import Count
    from hkvtool.engine.workload import Request

SHIPPED = "conversation"
"""Name of the workload that comes with the package."""


class Device(str, Enum):
    """What the reference engine allocates on."""

    CPU = "cpu"
    CUDA = "cuda"


class Layers(str, Enum):
    """Which layers of a group have bytes."""

    ONE = "one"
    ALL = "all"


MOST_BLOCKS = 10_000_000
"""Blocks of one pool: more than any machine has, few enough that their books fit in memory."""


def command(
    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            metavar="FILE",
            help="Requests in the Mooncake format, .jsonl or .gz; "
            "`conversation` is the production trace that comes with hkvtool.",
        ),
    ] = SHIPPED,
    preset: Annotated[
        str, typer.Option("--preset", metavar="NAME", help="The model's cache geometry.")
    ] = "deepseek-v4",
    requests: Annotated[
        int | None, typer.Option("--requests", min=1, help="Only the first so many.")
    ] = None,
    blocks: Annotated[
        str | None,
        typer.Option("--blocks", metavar="N|unlimited", help="Device pool; else the preset's."),
    ] = None,
    cpu_blocks: Annotated[
        int | None,
        typer.Option(
            "--cpu-blocks", min=0, max=MOST_BLOCKS, help="Host tier; else twice the pool."
        ),
    ] = None,
    disk_blocks: Annotated[
        int | None,
        typer.Option(
            "--disk-blocks",
            min=0,
            max=MOST_BLOCKS,
            help="Disk tier; else four times it, up to 1 GiB.",
        ),
    ] = None,
    sequential: Annotated[
        bool,
        typer.Option(
            "--sequential", help="One prompt after the other, whole, as cache simulators count."
        ),
    ] = False,
    sync: Annotated[
        bool, typer.Option("--sync", help="Schedule a step only when the last has retired.")
    ] = False,
    trust_hash: Annotated[
        bool, typer.Option("--trust-hash", help="Take a hash for a state, as many engines do.")
    ] = False,
    fault: Annotated[
        str | None,
        typer.Option("--fault", metavar="RULE", help="Put in the bug that this rule must find."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=N", help="recovering_blocks=N, or `none`."),
    ] = None,
    layers: Annotated[
        Layers,
        typer.Option("--layers", help="Stamps of one layer a group, or of all: for small runs."),
    ] = Layers.ONE,
    device: Annotated[
        Device, typer.Option("--device", help="Where the pool's bytes are, and its graphs.")
    ] = Device.CPU,
    seed: Annotated[int, typer.Option("--seed", help="Of aborts and rejected drafts.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to: .duckdb, .hkv or .jsonl; else nowhere."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    format: Annotated[Format, typer.Option("--format", help="How to print the account.")] = (
        Format.TABLE
    ),
) -> None:
    """Drive the reference engine with a workload and record it.

    The engine has no model: its kernels stamp and verify real bytes. What it says at the end is
    its own account; `hkvtool check` judges the trace.
    """
    from hkvtool.engine.config import Config, unlimited
    from hkvtool.engine.engine import Engine
    from hkvtool.engine.faults import fault as find_fault
    from hkvtool.engine.presets import preset as find_preset
    from hkvtool.engine.sequential import run_sequential
    from hkvtool.engine.workload import read_workload

    if device is Device.CUDA:
        _need_cuda()
    geometry = find_preset(preset)
    arrivals = list(read_workload(workload_path(workload), requests))
    if not arrivals:
        raise HkvError("there is no request in it", where=workload)
    longest = max(request.total for request in arrivals)
    if blocks == "unlimited":
        pool = unlimited(geometry, arrivals, Config.budget)
    else:
        pool = geometry.blocks if blocks is None else _number(blocks, "--blocks", "unlimited") + 1
    if sequential or blocks == "unlimited":
        # Nothing is stored in the one, nothing evicted in the other.
        cpu_blocks, disk_blocks = cpu_blocks or 0, disk_blocks or 0
    every = layers is Layers.ALL
    block_bytes = 16 * geometry.page_rows(all_layers=every)
    config = Config(
        geometry, pool,
        cpu_blocks=2 * pool if cpu_blocks is None else cpu_blocks,
        disk_blocks=_disk(block_bytes, pool) if disk_blocks is None else disk_blocks,
        asynchronous=not sync, trust_hash=trust_hash, cap=_cap(limit or []), seed=seed,
        all_layers=every, device=device.value,
    )  # fmt: skip
    if not sequential:
        config = config.fitted(longest)
        arrivals.sort(key=lambda request: request.arrival)
    what = f"{Path(workload).name}, {len(arrivals):,} requests, {pool - 1:,} blocks, seed {seed}"
    counts: list[Count] = []
    bug = None if fault is None else find_fault(fault, seed)
    with recording(output, force=force) as sink, Engine(config, sink) as engine:
        if bug is not None:
            bug.install(engine)
        with progress(f"running {geometry.name}", len(arrivals)) as told:
            queue = counted(arrivals, told)
            if sequential:
                counts = run_sequential(engine, queue, f"{what}, sequential")
            else:
                engine.run(queue, what)
        account = _account(engine, config, counts)
        if bug is not None:
            if bug.placed is None:
                raise HkvError(
                    f"{bug.code} found no place in this run",
                    hint="give it more requests, or another seed",
                )
            account["fault"] = f"{bug.code} before event {bug.placed:,}"
    if format is Format.JSON:
        print_json(account)
    else:
        print_table(["", ""], [[name.replace("_", " "), value] for name, value in account.items()])
    if output is not None:
        print(f"{shown(output)}: {engine.events:,} events", file=sys.stderr)


def _need_cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        raise HkvError(
            "torch finds no CUDA device here", hint="leave --device away: all of it runs on the CPU"
        )


def _disk(block_bytes: int, pool: int) -> int:
    """Blocks of the disk tier where nobody said: its file is allocated before it is used."""
    return min(4 * pool, (1 << 30) // block_bytes)


def workload_path(text: str) -> Path:
    """The file of a workload, or of the one that is shipped."""
    path = Path(text)
    if text == SHIPPED and not path.exists():
        return Path(str(shipped("workloads", "conversation_trace.jsonl.gz")))
    return path


def _number(text: str, option: str, other: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 0 < value <= MOST_BLOCKS:
        what = f"{option} {text}: not a number from 1 to {MOST_BLOCKS:,}"
        raise HkvError(what, hint=f"or `{other}`")
    return value


def _cap(limits: list[str]) -> int | None:
    cap: int | None = 4096
    for text in limits:
        name, _, value = text.partition("=")
        if text == "none":
            cap = None
        elif name == "recovering_blocks":
            cap = _number(value, "--limit recovering_blocks", "--limit none")
        else:
            raise HkvError(f"there is no limit {name!r}", hint="recovering_blocks=N, or none")
    return cap


def counted(arrivals: list[Request], told: Callable[[int], None] | None) -> Iterator[Request]:
    """Requests as they are taken, each told to a progress bar."""
    for number, request in enumerate(arrivals):
        if told is not None:
            told(number)
        yield request


@contextmanager
def recording(output: Path | None, *, force: bool) -> Iterator[Sink]:
    """A sink that writes a trace in the format of the file's name, whole or not at all."""
    if output is None:
        yield lambda event: None
        return
    if output.suffix == ".hkv":
        from hkvtool.recorder.recording import sink

        with sink(output, force=force) as emit:
            yield emit
        return
    if output.suffix == ".duckdb":
        with _ingested(output, force=force) as emit:
            yield emit
        return
    if output.suffix not in (".jsonl", ".json"):
        raise HkvError(f"{output}: no trace is called so", hint="name it .duckdb, .hkv or .jsonl")
    import json

    from hkvtool.store.destination import Destination

    with Destination(output, force=force) as place, place.path.open("w", encoding="utf-8") as out:
        encode = json.JSONEncoder(separators=(",", ":")).encode
        yield lambda event: print(encode(event), file=out)


@contextmanager
def _ingested(output: Path, *, force: bool) -> Iterator[Sink]:
    """A sink that records, as in any engine, and makes the trace when the recording has ended."""
    from hkvtool.recorder.recording import sink
    from hkvtool.store.destination import Destination
    from hkvtool.store.ingesting import ingest

    with Destination(output, force=force) as place:
        recording = place.scratch / f"{output.stem}.hkv"
        with sink(recording) as emit:
            yield emit
        ingest(recording, place.path)


def _account(engine: Engine, config: Config, counts: list[Count]) -> dict[str, Any]:
    """What the engine itself counted, in the order of the telling."""
    scheduler, tiers, memory = engine.scheduler, engine.tiers, engine.memory
    account: dict[str, Any] = {
        "preset": config.preset.name,
        "requests": engine.requests,
        "steps": engine.steps,
        "events": engine.events,
        "asked_tokens": scheduler.asked,
        "matched_tokens": scheduler.matched,
        "resumed_tokens": scheduler.resumed,
        "match_ratio": round(scheduler.matched / max(1, scheduler.asked), 6),
        "resumable_ratio": round(scheduler.resumed / max(1, scheduler.asked), 6),
        "evicted_blocks": engine.allocator.gpu.evictions,
        "preemptions": scheduler.preemptions,
        "stored_blocks": tiers.stored,
        "spilled_blocks": tiers.spilled,
        "loaded_blocks": tiers.loaded,
        "graph_launches": engine.tables.launches,
        "graph_bypasses": engine.tables.bypasses,
        **({"stale_replays": engine.tables.stale_replays()} if config.device != "cpu" else {}),
        "reads": memory.reads,
        "wrong_reads": memory.bad_reads,
    }
    if counts:
        half = counts[len(counts) // 2 :]
        account["last_half"] = {
            "asked_tokens": sum(count.asked for count in half),
            "matched_tokens": sum(count.matched for count in half),
            "resumed_tokens": sum(count.resumed for count in half),
        }
    if memory.mismatches:
        first = memory.mismatches[0]
        account["first_wrong_read"] = {
            "request": first.req, "step": first.step, "group": first.group,
            "block": first.block, "row": first.row,
            "expected": first.expected, "found": first.found,
        }  # fmt: skip
    return account
