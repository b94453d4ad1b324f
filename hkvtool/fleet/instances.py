"""A fleet: a folder of traces and recordings, here or in an object store, one an engine instance.

What a path says in the form `host=H/rank=R/time=T` is known of the instance, as in any partitioned
Parquet. A folder laid out otherwise is a fleet too; its instances go by their paths.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hkvtool.fleet.objects import below, fetch, is_remote, listed
from hkvtool.model.errors import TraceError
from hkvtool.model.recording import COMPLETE, INCOMPLETE, is_recording
from hkvtool.store.importing import import_traces
from hkvtool.store.opening import head_of, is_parquet, open_trace
from hkvtool.store.scratch import Scratch
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
        path = below(folder, name) if is_remote(folder) else os.path.join(folder, name)
        return Instance(name, path, *(said.get(key) for key in PARTITIONS))


def instances(folder: str | os.PathLike[str]) -> list[Instance]:
    """The instances of a fleet, by name. Raises TraceError where there is none."""
    root = os.fspath(folder)
    if is_remote(root):
        found = sorted(Instance.of(root, name) for name in _remote_names(listed(root)))
    else:
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

    for folder, inside, files in os.walk(root, onerror=unreadable):
        inner = os.path.relpath(folder, root)
        here = "" if inner == "." else inner.replace(os.sep, "/") + "/"
        for name in list(inside):
            if name.startswith("."):
                inside.remove(name)
            elif is_recording(os.path.join(folder, name)):
                inside.remove(name)
                yield here + name
        for name in files:
            wanted = name.endswith(_TRACES) and not name.startswith(".")
            if wanted and not _is_no_file(os.path.join(folder, name)):
                yield here + name


def _is_no_file(path: str) -> bool:
    """Whether it is a pipe, a socket or a device: nothing lies in them, and to open one may wait
    forever. A link that leads nowhere is a file that cannot be read, which is told."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _remote_names(files: list[str]) -> Iterator[str]:
    """The same of a listing: a recording is a folder with a marker in it."""
    marked = {name.rpartition("/")[0] for name in files
              if name.rpartition("/")[2] in (COMPLETE, INCOMPLETE)}  # fmt: skip
    # A snapshot inside of a recording is no instance of its own.
    recordings = {
        name for name in marked
        if not any(name.startswith(f"{other}/") for other in marked if other != name)
    }  # fmt: skip
    yield from (name for name in recordings if name and not _hidden(name))
    for name in files:
        parts = name.split("/")
        if any("/".join(parts[:i]) in recordings for i in range(1, len(parts))):
            continue
        if name.endswith(_TRACES) and not _hidden(name):
            yield name


def _hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


@contextmanager
def open_instance(path: str) -> Iterator[Trace]:
    """The trace of an instance; Parquet is read into a file that goes away again, so that what is
    long is not held in memory. What lies in an object store is brought here first. Raises
    TraceError."""
    if is_remote(path):
        with (
            Scratch() as aside,
            open_instance(fetch(path, aside)) as trace,
        ):
            yield trace
        return
    head = None if os.path.isdir(path) else head_of(path)
    if head is None or not is_parquet(head):
        with open_trace(path) as trace:
            yield trace
        return
    with Scratch() as aside:
        copy = Path(aside, "instance.duckdb")
        import_traces([path], copy)
        with open_trace(copy) as trace:
            yield trace
