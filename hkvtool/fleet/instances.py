"""A fleet: a folder of traces and recordings, one an engine instance.

What a path says in the form `host=H/rank=R/time=T` is known of the instance, as in any partitioned
Parquet. A folder laid out otherwise is a fleet too; its instances go by their paths.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hkvtool.model.errors import TraceError
from hkvtool.model.recording import is_recording
from hkvtool.store.importing import import_traces
from hkvtool.store.opening import head_of, is_parquet, open_trace
from hkvtool.store.trace import Trace

PARTITIONS = ("host", "rank", "time")
"""What is known of an instance by where it lies, the coarsest first."""

_TRACES = (".duckdb", ".jsonl", ".jsonl.gz", ".parquet")


@dataclass(frozen=True, order=True)
class Instance:
    """One engine instance. `name` is its path inside the fleet, with `/` between the parts."""

    name: str
    path: str
    host: str | None = None
    rank: str | None = None
    time: str | None = None

    @staticmethod
    def of(folder: str, name: str) -> Instance:
        """The instance at a path inside a fleet."""
        said = dict(part.split("=", 1) for part in name.split("/")[:-1] if "=" in part)
        return Instance(name, os.path.join(folder, name), *(said.get(key) for key in PARTITIONS))


def instances(folder: str | os.PathLike[str]) -> list[Instance]:
    """The instances of a fleet, by name. Raises TraceError where there is none."""
    root = os.fspath(folder)
    if not os.path.isdir(root):
        raise TraceError(f"{root} is no folder", hint="a fleet is a folder of traces")
    if is_recording(root):
        raise TraceError(
            f"{root} is one recording, not a folder of them", hint=f"`hkvtool check {root}`"
        )
    found = sorted(Instance.of(root, name) for name in _names(root))
    if not found:
        raise TraceError(
            f"there is no trace and no recording in {root}",
            hint=f"`hkvtool fleet ingest NAME.hkv... -o {root}` puts some there",
        )
    return found


def _names(root: str) -> Iterator[str]:
    def unreadable(e: OSError) -> None:
        raise TraceError(f"cannot read {e.filename}: {e.strerror or e}") from e

    for folder, below, files in os.walk(root, onerror=unreadable):
        inner = os.path.relpath(folder, root)
        here = "" if inner == "." else inner.replace(os.sep, "/") + "/"
        for name in list(below):
            if name.startswith("."):
                below.remove(name)
            elif is_recording(os.path.join(folder, name)):
                below.remove(name)
                yield here + name
        for name in files:
            if name.endswith(_TRACES) and not name.startswith("."):
                yield here + name


@contextmanager
def open_instance(path: str) -> Iterator[Trace]:
    """The trace of an instance; Parquet is read into a file that goes away again, so that what is
    long is not held in memory. Raises TraceError."""
    head = None if os.path.isdir(path) else head_of(path)
    if head is None or not is_parquet(head):
        with open_trace(path) as trace:
            yield trace
        return
    with tempfile.TemporaryDirectory(prefix="hkvtool-") as aside:
        copy = Path(aside, "instance.duckdb")
        import_traces([path], copy)
        with open_trace(copy) as trace:
            yield trace
