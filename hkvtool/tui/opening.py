"""Opening a trace to look around in: whatever it is in, going anywhere in it must be quick."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager

from hkvtool.model.errors import TraceError
from hkvtool.model.recording import is_recording
from hkvtool.state.fold import PLAIN_LIMIT
from hkvtool.store import Trace, open_trace
from hkvtool.store.duck import DuckTrace
from hkvtool.tui.session import Session


@contextmanager
def opened(path: str) -> Iterator[Session]:
    """A session over a trace. A recording, and JSON lines that are long, are put into a DuckDB
    file first, which is gone afterwards. Raises HkvError."""
    with tempfile.TemporaryDirectory(prefix="hkvtool-") as folder:
        if is_recording(path):
            from hkvtool.tui.live import Live

            with closing(Live(path, folder)) as live:
                yield live.first()
            return
        with _fit(path, folder) as trace:
            if trace.count >= PLAIN_LIMIT:
                _compile()
            if not trace.count:
                raise TraceError(f"{path}: there is no event in it")
            yield Session(trace, trace.path)


def _compile() -> None:
    """Compile the fold where that was never done: it takes about a minute, and what it says of
    that would be lost behind the screen."""
    from hkvtool.state import jit

    if not any(jit.cache_folder().rglob("*.nbc")):
        jit.ready()


def _fit(path: str, folder: str) -> Trace:
    trace = open_trace(path)
    if isinstance(trace, DuckTrace) or trace.count < PLAIN_LIMIT:
        return trace
    trace.close()
    from hkvtool.store.importing import import_traces

    target = os.path.join(folder, "trace.duckdb")
    import_traces([path], target)
    return open_trace(target)
