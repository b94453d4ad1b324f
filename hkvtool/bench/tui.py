"""What looking around in a large trace costs: the terminal application, driven without a terminal.

The trace is synthetic: a pool of as many blocks as asked for, all of them used. The application is
measured in a process of its own, so that its peak of memory is its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter, process_time
from typing import Any

from hkvtool.bench.synthetic import synthetic_trace
from hkvtool.model.errors import HkvError
from hkvtool.store.scratch import Scratch

SIZE = (120, 40)

_TIMES, _SEEKS = 5, 12
"""How often each thing is done."""

_WAIT = 0.005
"""Seconds between two looks at whether it is: each takes processor time that is counted too."""


@dataclass
class Cost:
    """One thing that a person does: milliseconds of each time, until the screen has settled."""

    what: str
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


@dataclass
class Costs:
    """All of them, over one trace."""

    events: int
    blocks: int
    costs: list[Cost]
    peak_mib: int

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def tui_costs(
    events: int, blocks: int, keep: Path | None, progress: Callable[[int], None] | None = None
) -> Costs:
    """Write a trace and measure the application over it. Raises HkvError."""
    with Scratch() as folder:
        path = keep or Path(folder) / "bench.duckdb"
        if keep is None or not keep.exists():
            synthetic_trace(path, events, pool_blocks=blocks, progress=progress)
        run = subprocess.run(
            [sys.executable, "-m", "hkvtool.bench.tui", os.path.abspath(path)],
            capture_output=True, text=True, env={**os.environ, "TEXTUAL_ANIMATIONS": "none"},
        )  # fmt: skip
        if run.returncode:
            raise HkvError(f"the application failed: {run.stderr.strip().splitlines()[-1:]}")
        found = json.loads(run.stdout)
    costs = [Cost(**cost) for cost in found.pop("costs")]
    return Costs(costs=costs, **found)


def main(path: str) -> None:
    """Measure in this process and print JSON."""
    print(json.dumps(asyncio.run(_measured(path)).facts()))


def peak_mib() -> int:
    """The most memory that this process has had. What `getrusage` says of that counts what its
    parent had when it was started."""
    with open("/proc/self/status", encoding="ascii") as file:
        return int(file.read().partition("VmHWM:")[2].split()[0]) >> 10


async def _measured(path: str) -> Costs:
    from hkvtool.tui.app import Tui
    from hkvtool.tui.map_view import MapView
    from hkvtool.tui.opening import opened

    costs: list[Cost] = []

    async def timed(what: str, do: Callable[[], Any], done: Callable[[], bool]) -> None:
        cost = next((c for c in costs if c.what == what), None)
        if cost is None:
            cost = Cost(what)
            costs.append(cost)
        wall, cpu = perf_counter(), process_time()
        found = do()
        if found is not None:
            await found
        while not done():
            await asyncio.sleep(_WAIT)
        cost.wall.append(1000 * (perf_counter() - wall))
        cost.cpu.append(1000 * (process_time() - cpu))

    wall, cpu = perf_counter(), process_time()
    with opened(path) as session:
        app = Tui(session, name=Path(path).name, check=False)
        opening = Cost("open the trace", [1000 * (perf_counter() - wall)],
                       [1000 * (process_time() - cpu)])  # fmt: skip
        wall, cpu = perf_counter(), process_time()
        async with app.run_test(size=SIZE) as pilot:
            costs += [
                opening,
                Cost("first paint", [1000 * (perf_counter() - wall)],
                     [1000 * (process_time() - cpu)]),
            ]  # fmt: skip
            await timed("first state", lambda: None, lambda: app.quiet)
            await timed("compiled code loaded, behind it", lambda: None, lambda: app.loaded)
            view = app.query_one("#mosaic", MapView)
            rng = Random(1)
            blocks = sum(len(pool.seen.blocks) for pool in app.look.pools) if app.look else 0

            def lines() -> None:
                for y in range(view.size.height):
                    view.render_line(y)

            def pressed(key: str) -> Callable[[], Any]:
                return lambda: pilot.press(key)

            def gone(pos: int) -> Callable[[], Any]:
                return lambda: app.go(pos)

            def turned(name: str) -> Callable[[], Any]:
                return lambda: app.action_view(name)

            def settled() -> bool:
                return app.quiet

            def other_block() -> None:
                assert app.look is not None
                app.choose_block((app.look.pools[0].name, rng.randrange(1, blocks)))

            for _ in range(_TIMES):
                await timed("draw the map again", lines, lambda: True)
            for _ in range(_SEEKS):
                await timed("seek anywhere", gone(rng.randrange(session.first, session.last)),
                            lambda: app.settled)  # fmt: skip
                # The life of a block, where none was chosen before, is told below.
                while not app.quiet:
                    await asyncio.sleep(_WAIT)
            for _ in range(_TIMES):
                await timed("the whole life of another block", other_block, settled)
            for key, what in (
                ("right_square_bracket", "next event"), ("left_square_bracket", "event before"),
                ("greater_than_sign", "next step"), ("minus", "zoom out"), ("plus", "zoom in"),
                ("c", "colour by another"),
            ):  # fmt: skip
                for _ in range(_TIMES):
                    await timed(what, pressed(key), settled)
            for name in ("hit", "events", "requests"):
                await timed(f"open {name}", turned(name), settled)
        return Costs(session.trace.count, blocks, costs, peak_mib())


if __name__ == "__main__":
    main(sys.argv[1])
