"""One way to take in a trace, timed; and the processes that do it apart from all others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from hkvtool.model.errors import HkvError


@dataclass
class Way:
    """One way to take in the events of a trace; times in seconds."""

    name: str
    events: int
    wall: float = 0.0
    cpu: float = 0.0
    peak_mib: int | None = None

    @property
    def rate(self) -> float:
        """Events a second of CPU time, which others on the machine disturb least."""
        return self.events / max(self.cpu, 1e-9)

    @contextmanager
    def timed(self, clock: Callable[[], float] = process_time) -> Iterator[None]:
        """Count what is done inside; `clock` tells CPU time, of all threads or of this one."""
        wall, cpu = perf_counter(), clock()
        try:
            yield
        finally:
            self.wall += perf_counter() - wall
            self.cpu += clock() - cpu


def child(module: str, *args: str) -> dict[str, Any]:
    """What a module says as a process of its own, in JSON. Raises HkvError."""
    ended = subprocess.run(
        [sys.executable, "-m", module, *args], capture_output=True, text=True, check=False
    )
    if ended.returncode:
        said = ended.stderr.strip().splitlines()
        raise HkvError(
            f"the measuring process ended with {ended.returncode}",
            where=said[-1] if said else "",
            hint="was there enough memory? --events takes a smaller number",
        )
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@contextmanager
def peak(way: Way) -> Iterator[None]:
    """Note the most memory that this process takes inside, where the system tells."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        yield
        return
    yield
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            way.peak_mib = int(line.split()[1]) >> 10
