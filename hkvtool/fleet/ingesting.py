"""Recordings and traces into a fleet: one Parquet file an instance, partitioned by host, rank and
time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from hkvtool.fleet.instances import PARTITIONS, Instance, open_instance
from hkvtool.fleet.objects import below, is_remote, modified, put
from hkvtool.model.errors import HkvError
from hkvtool.model.manifest import MANIFEST, Segment
from hkvtool.model.recording import is_recording
from hkvtool.model.ring_format import HEADER_BYTES, RingError, RingHeader
from hkvtool.model.writers import ring_files
from hkvtool.store.parquet import export_parquet
from hkvtool.store.scratch import Scratch
from hkvtool.store.trace import Trace

_RANK = re.compile(r"(?:rank|dp|tp|pp)[-_=]?(\d+)", re.IGNORECASE)
"""How engines name the processes of their ranks."""

_UNSAFE = re.compile(r"[^\w.+-]")


@dataclass(frozen=True)
class Kept:
    """Where one source went; `trouble` says why it went nowhere."""

    source: str
    path: str = ""
    events: int = 0
    trouble: HkvError | None = None


@dataclass(frozen=True)
class Ingest:
    """Puts one source into the fleet at `folder`. What is not given of `host` and `rank` is taken
    from the recording and its name."""

    folder: str
    host: str | None = None
    rank: str | None = None
    force: bool = False

    def __call__(self, source: Instance) -> Kept:
        try:
            with open_instance(source.path) as trace:
                return self._written(source, trace)
        except HkvError as e:
            return Kept(source.path, trouble=e)
        except OSError as e:
            return Kept(
                source.path,
                trouble=HkvError(
                    f"cannot write it: {e.strerror or e}", where=str(e.filename or self.folder),
                    hint="name another folder with -o",
                ),
            )  # fmt: skip

    def _written(self, source: Instance, trace: Trace) -> Kept:
        name = self._name(source, trace)
        if is_remote(self.folder):
            uri = below(self.folder, name)
            with Scratch() as aside:
                file = Path(aside, "instance.parquet")
                count = export_parquet(trace, file)
                put(file, uri, force=self.force)
            return Kept(source.path, uri, count)
        target = Path(self.folder, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        count = export_parquet(trace, target, force=self.force)
        return Kept(source.path, os.fspath(target), count)

    def _name(self, source: Instance, trace: Trace) -> str:
        """Where it goes inside the fleet."""
        # Of a remote one what was brought here says it; its time is that of the original.
        far = is_remote(source.path)
        began = min(_began(trace.path if far else source.path), default=None)
        host = self.host or source.host or (began and began[1]) or _host(trace)
        named = _RANK.search(source.name)
        rank = self.rank or source.rank or (named.group(1) if named else "0")
        if began is not None:
            wall = began[0] / 1e9
        else:
            wall = modified(source.path) if far else os.stat(source.path).st_mtime
        time = source.time or f"{datetime.fromtimestamp(wall, timezone.utc):%Y%m%dT%H%M%SZ}"
        said = zip(PARTITIONS, (host, rank, time), strict=True)
        where = [f"{key}={_UNSAFE.sub('_', value)}" for key, value in said]
        name = source.name.rstrip("/").rpartition("/")[2]
        for ending in (".gz", ".jsonl", ".duckdb", ".hkv", ".parquet"):
            name = name.removesuffix(ending)
        return "/".join((*where, f"{name}.parquet"))


def _began(path: str) -> Iterator[tuple[int, str]]:
    """What the wall clock read when each ring of a recording was begun, and on which machine."""
    if not is_recording(path):
        return
    for ring in ring_files(path):
        try:
            with open(ring, "rb") as file:
                header = RingHeader.unpack(file.read(HEADER_BYTES))
        except (OSError, RingError):
            continue
        yield header.wall, f"{header.host & 0xFFFFFFFF:08x}"
    try:
        with open(os.path.join(path, MANIFEST), encoding="utf-8") as lines:
            sealed = [ring for line in lines for ring in Segment.of_line(line).rings]
    except (OSError, ValueError, KeyError, TypeError, HkvError):
        return
    for one in sealed:
        yield one.wall, f"{one.host & 0xFFFFFFFF:08x}"


def _host(trace: Trace) -> str:
    """The machine that a trace says it is of."""
    clocks = trace.meta.get("clocks") or ()
    return str(clocks[0]["host"]) if clocks else "unknown"
