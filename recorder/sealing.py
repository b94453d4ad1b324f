"""The process around a sealer: when it looks, what it tells, and when it ends.

`python -m hkvtool.recorder.sealing FOLDER MAX_BYTES KEEP` is what a launcher starts. It ends when
its standard input says that it is over and is closed. A launcher that dies only closes it; then it
goes on until nobody writes any more. Each second it prints a line of JSON, the `Status`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from time import monotonic, sleep, time_ns

from hkvtool.model.errors import HkvError
from hkvtool.model.recording import SWITCH
from hkvtool.recorder.sealer import Sealer

_BUSY, _IDLE = 0.02, 0.2
"""Seconds between two looks, where something came and where nothing did."""

_TOLD_EVERY = 1.0

OVER = b"over\n"
"""What a launcher says that ends."""

_LEFT_ALONE = 2.0
"""Seconds without a writer after which a sealer whose launcher died ends."""


@dataclass(frozen=True)
class Status:
    """How a recording stands: events so far, of which `dropped` are lost and `waiting` are not in
    a segment yet; bytes of all segments; rings that are sealed, and those of a flight recorder."""

    events: int
    dropped: int
    waiting: int
    bytes: int
    writers: int
    passed: int = 0
    asked: int = 0
    matched: int = 0
    resumed: int = 0
    trouble: str = ""

    def line(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_line(line: str) -> Status:
        """Raises ValueError, TypeError."""
        return Status(**json.loads(line))


@dataclass(frozen=True)
class Bounds:
    """What a recording may take: all segments together, and for how many seconds they are kept.
    Where it grows beyond `max_bytes` the oldest go if `keep` is given, else it is switched off."""

    max_bytes: int | None = None
    keep: float | None = None


class Sealing:
    """One sealer at work."""

    def __init__(self, sealer: Sealer, bounds: Bounds) -> None:
        self.sealer = sealer
        self._bounds = bounds
        self._switched = False

    def status(self) -> Status:
        """How it stands now."""
        sealer = self.sealer
        seen, ratio = sealer.seen, sealer.ratio
        return Status(
            seen.emitted, seen.dropped, sealer.waiting, sealer.bytes, sealer.writers,
            sealer.passed, ratio.asked, ratio.matched, ratio.resumed, sealer.trouble,
        )  # fmt: skip

    def run(
        self,
        stopped: Callable[[float], bool],
        alone: Callable[[], bool],
        tell: Callable[[Status], None],
    ) -> None:
        """Seal until `stopped`, which waits for so many seconds, is true; then everything that is
        there. Where the launcher is gone (`alone`), only once nobody writes any more."""
        told, idle_since = 0.0, monotonic()
        while True:
            read = self.sealer.poll()
            now = monotonic()
            if read or self.sealer.writers:
                idle_since = now
            if now - told >= _TOLD_EVERY:
                told = now
                tell(self.status())
                self.bound()
            if stopped(_BUSY if read else _IDLE) and (
                not alone() or now - idle_since > _LEFT_ALONE
            ):
                break
        self.sealer.poll(last=True)
        self.bound()
        tell(self.status())

    def bound(self) -> None:
        """Delete what is too old or too much, or stop the recording where nothing may go."""
        sealer, bounds = self.sealer, self._bounds
        held = [s for _, s in sorted(sealer.segments.items()) if not s.deleted]
        with suppress(OSError):
            if bounds.keep is not None:
                oldest = time_ns() - int(bounds.keep * 1e9)
                while held and held[0].sealed_at < oldest:
                    sealer.delete(held.pop(0))
            if bounds.max_bytes is None or sealer.bytes <= bounds.max_bytes:
                return
            if bounds.keep is None:
                self._switch_off()
                return
            while len(held) > 1 and sealer.bytes > bounds.max_bytes:
                sealer.delete(held.pop(0))

    def _switch_off(self) -> None:
        if self._switched:
            return
        self._switched = True
        switch_off(
            self.sealer.folder, f"it has {self._bounds.max_bytes:,} bytes, as many as it may"
        )


def switch_off(folder: str, reason: str) -> None:
    """Have every process that records to a folder stop. Raises OSError."""
    place = os.path.join(folder, SWITCH)
    fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w") as file:
        file.write(reason)


def main(args: list[str]) -> int:
    """Seal FOLDER, within bounds, for a launcher until it closes our standard input."""
    folder, max_bytes, keep = args
    # A terminal's Ctrl-C goes to everyone; the launcher says when it is over.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    bounds = Bounds(int(max_bytes) if max_bytes else None, float(keep) if keep else None)
    try:
        # Not at the first segment, while the rings fill.
        import pyarrow.parquet  # noqa: F401

        sealer = Sealer(folder)
    except HkvError as e:
        print(e.what, file=sys.stderr)
        return int(e.exit_code)
    closed = over = False

    def stopped(seconds: float) -> bool:
        nonlocal closed, over
        if closed:
            sleep(seconds)
        elif select.select([0], [], [], seconds)[0]:
            said = os.read(0, 4096)
            over, closed = over or said == OVER, not said
        return closed

    def tell(status: Status) -> None:
        with suppress(OSError):
            print(status.line(), flush=True)

    # A launcher that was killed has closed our standard input too.
    Sealing(sealer, bounds).run(stopped, lambda: not over, tell)
    sealer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
