"""Traces on disk: one DuckDB file each, or JSON lines as they stand. One way to read both."""

from hkvtool.store.opening import open_trace
from hkvtool.store.trace import Trace

__all__ = ["Trace", "open_trace"]
