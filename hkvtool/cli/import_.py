"""`hkvtool import`: JSON lines, or another tool's format, into a trace."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from hkvtool.cli.traces import counted, progress
from hkvtool.model.errors import HkvError
from hkvtool.model.text import shown

_TOLD_PROBLEMS = 5


def command(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="hkv/1 JSON lines (gzipped or not), Parquet that `export` wrote, `-` for stdin; "
            "or what --from lists. Several of hkv/1 are parts of one recording, in this order.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write; else FILE.duckdb beside the first."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FORMAT",
            help="kv-events, dynamo, lmcache, trtllm, kv-canary, torch-memory, cache-files, "
            "mooncake or hkv; else its content says.",
        ),
    ] = None,
    hash_key: Annotated[
        Path | None,
        typer.Option(
            "--hash-key", metavar="FILE", help="Of other formats, key of the hashes; else random."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Read hkv/1 JSON lines, or another tool's format, into a DuckDB trace.

    Another tool's format tells what it tells: rules whose evidence it lacks are not evaluable. What
    cannot be read of it is named with its offset and is a gap of the trace. Requests in the
    Mooncake format go through the reference engine, as `hkvtool run` has them.

    Of hkv/1 nothing is lost: unknown keys, lines that cannot be read and line numbers are kept, and
    `hkvtool export` gives the same events back. But of a line longer than 16 MiB, which no event
    is, only the first 4,096 bytes are kept. The trace appears under its name when all of it is on
    disk.
    """
    from hkvtool.store.importing import default_output, import_traces

    if _foreign(files, output, format, hash_key, force):
        return
    target = output or default_output(files[0])
    sizes = {file: os.path.getsize(file) for file in files if os.path.isfile(file)}
    before = {file: sum(list(sizes.values())[:i]) for i, file in enumerate(sizes)}
    with progress(f"reading {Path(files[0]).name}", sum(sizes.values()) or None) as told:
        summary = import_traces(
            files,
            target,
            force=force,
            progress=told and (lambda file, read: told(before.get(file, 0) + read)),
        )
    bad = int(summary.kinds[0])
    also = f", {bad:,} of them malformed (HKV905)" if bad else ""
    print(f"{shown(target)}: {counted(summary.events, 'event')}{also}", file=sys.stderr)


def _foreign(
    files: list[str], output: Path | None, format: str | None, hash_key: Path | None, force: bool
) -> bool:
    """Import a file of another format, if it is one."""
    from hkvtool.importers import mooncake
    from hkvtool.importers.importing import import_foreign, named, sniffed
    from hkvtool.recorder.vllm.privacy import Keyed
    from hkvtool.store.importing import default_output
    from hkvtool.store.opening import refuse_own_output

    source = Path(files[0])
    if format == "hkv" or (format is None and (files[0] == "-" or not _there(source))):
        return False
    if format == mooncake.NAME or (format is None and mooncake.sniff(source)):
        from hkvtool.cli.run import command as run

        _alone(files, mooncake.NAME)
        run(workload=files[0], output=output or default_output(files[0]), force=force)
        return True
    importer = sniffed(source) if format is None else named(format)
    if importer is None:
        return False
    _alone(files, importer.name)
    target = output or default_output(files[0].rstrip("/"))
    refuse_own_output(source, target, "trace")
    with progress(f"reading {source.name}", None):
        events, problems = import_foreign(
            importer, source, target, Keyed(_name(hash_key)), force=force
        )
    for problem in problems[:_TOLD_PROBLEMS]:
        print(f"hkvtool: {shown(problem)}", file=sys.stderr)
    if len(problems) > _TOLD_PROBLEMS:
        print(f"hkvtool: {len(problems):,} such in all", file=sys.stderr)
    print(f"{shown(target)}: {counted(events, 'event')}, from {importer.what}", file=sys.stderr)
    return True


def _there(source: Path) -> bool:
    """Whether it can be looked at more than once: a file or a folder that is no recording."""
    from hkvtool.model.recording import is_recording

    return source.is_file() or (source.is_dir() and not is_recording(os.fspath(source)))


def _alone(files: list[str], name: str) -> None:
    if len(files) > 1:
        raise HkvError(
            f"{len(files)} files of format {name}", hint="such are imported one at a time"
        )


def _name(hash_key: Path | None) -> Callable[[bytes], str] | None:
    """Names under the key in a file; None for a key of this import's own. Raises HkvError."""
    from hkvtool.recorder.settings import read_key
    from hkvtool.recorder.vllm.privacy import names_under

    return None if hash_key is None else names_under(read_key(os.fspath(hash_key)))
