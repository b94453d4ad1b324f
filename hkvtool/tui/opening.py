"""Opening a trace to look around in: whatever it is in, going anywhere in it must be quick."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

from hkvtool.model.errors import TraceError
from hkvtool.model.recording import Stage, is_recording, stage_of
from hkvtool.state.fold import PLAIN_LIMIT
from hkvtool.state.untouched import keep_little
from hkvtool.store import Trace, open_trace
from hkvtool.store.duck import DuckTrace
from hkvtool.store.opening import head_of, is_duckdb
from hkvtool.store.scratch import Scratch
from hkvtool.tui.session import Session

DUCKDB_BYTES = 96 << 20
"""What DuckDB may hold of a trace that is looked at: a view asks for a few thousand events."""


@contextmanager
def opened(path: str, check: bool | None = None, *, wait: bool = False) -> Iterator[Session]:
    """A session over a trace. A recording that still runs is followed; with `wait` also one that
    has no event yet, and `check` says whether it is checked on the way. What has ended, and JSON
    lines that are long, are put into a DuckDB file first, which is gone afterwards. Raises
    HkvError."""
    if is_recording(path) and stage_of(path) is Stage.RECORDING:
        from hkvtool.tui.live import Live

        with closing(Live(path, check)) as live:
            if not live.begin() and not wait:
                hint = "it is being recorded; try again when something has happened"
                raise TraceError(f"{path}: there is no event in it yet", hint=hint)
            yield live.session
        return
    with Scratch() as folder, _fit(path, folder) as trace:
        if trace.count >= PLAIN_LIMIT:
            keep_little()
            _compile()
        if not trace.count:
            raise TraceError(f"{path}: there is no event in it")
        yield Session(trace, trace.path, given=path)


def _compile() -> None:
    """Compile the fold where that was never done: it takes about a minute, and what it says of
    that would be lost behind the screen."""
    from hkvtool.state import jit

    if not any(jit.cache_folder().rglob("*.nbc")):
        jit.ready()


def _fit(path: str, folder: str) -> Trace:
    if not is_recording(path) and is_duckdb(head_of(path) or b""):
        return DuckTrace(path, DUCKDB_BYTES)
    trace = open_trace(path)
    if isinstance(trace, DuckTrace) or trace.count < PLAIN_LIMIT:
        return trace
    trace.close()
    target = os.path.join(folder, "trace.duckdb")
    if is_recording(path):
        from hkvtool.store.ingesting import ingest

        ingest(path, target)
    else:
        from hkvtool.store.importing import import_traces

        import_traces([path], target)
    return DuckTrace(target, DUCKDB_BYTES)
