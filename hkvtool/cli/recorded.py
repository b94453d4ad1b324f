"""What `record`, `attach` and `snapshot` have in common: before a recording and after it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hkvtool.cli.amounts import shown_bytes
from hkvtool.cli.choosing import rule_codes
from hkvtool.cli.interrupting import spelled
from hkvtool.cli.status_line import EXPECTED_BYTES, EXPECTED_EVENTS, expected_a_day
from hkvtool.cli.traces import counted, progress
from hkvtool.model.errors import Exit, HkvError, TraceError
from hkvtool.model.text import shown

if TYPE_CHECKING:
    from hkvtool.recorder.folder import Folder
    from hkvtool.recorder.sealing import Bounds
    from hkvtool.recorder.settings import Settings

_SUFFIX, _SEALED = ".duckdb", ".hkv"


def folder_of(output: Path, *, force: bool) -> Path:
    """The folder that is recorded to on the way to `output`. Raises HkvError where the trace could
    not be written in the end: that must not turn out after a day."""
    if output.suffix == _SEALED:
        return output
    if output.suffix != _SUFFIX:
        raise HkvError(f"{output}: no trace is called so", hint="name it .duckdb or .hkv")
    from hkvtool.store.destination import Destination

    Destination(output, force=force)
    return output.with_suffix(_SEALED)


def beside(recording: Path, ending: str) -> Path:
    """A file beside a recording that is named as it is, also where it is given as `.` from inside.
    Raises TraceError."""
    named = recording if recording.name not in ("", "..") else recording.resolve()
    if not named.name:
        raise TraceError(f"{recording} is no recording", hint="name a folder NAME.hkv")
    return named.with_name(named.name.removesuffix(_SEALED) + ending)


def settings_of(
    policy: str,
    ring_bytes: int | None,
    max_bytes: int | None,
    rings: Path | None,
    keep_tokens: bool,
    hash_key: Path | None,
    trigger: str | None,
) -> Settings:
    """The settings that options say. Raises HkvError."""
    from hkvtool.model.ring_format import Policy
    from hkvtool.recorder.ring import RING_BYTES
    from hkvtool.recorder.settings import (
        MAX_BYTES,
        Settings,
        SettingsError,
        fresh_key,
        policy_of,
        read_key,
    )

    try:
        named = policy_of(policy)
        if named == Policy.GROW:
            raise SettingsError("--policy grow waits for the disk: an engine must not")
        if (ring_bytes or RING_BYTES) > (max_bytes or MAX_BYTES):
            raise SettingsError("--ring-memory is less than the ring of one thread, --ring-size")
        key = fresh_key() if hash_key is None else read_key(os.fspath(hash_key))
        codes = tuple(sorted(rule_codes([trigger]))) if trigger is not None else ()
        return Settings(
            named, ring_bytes or RING_BYTES, max_bytes or MAX_BYTES, keep_tokens=keep_tokens,
            rings=os.path.abspath(rings) if rings else "", triggers=codes, key=key,
        )  # fmt: skip
    except SettingsError as e:
        raise HkvError(str(e), hint="see `hkvtool record --help`") from e


def tell_begin(folder: Folder, bounds: Bounds) -> None:
    """Say where it goes, how much that may become, and how much there is room for."""
    free = shutil.disk_usage(folder.path).free
    limit = "" if bounds.max_bytes is None else f", at most {shown_bytes(bounds.max_bytes)}"
    print(
        f"hkvtool: recording to {shown(folder.path)}; a busy engine ({EXPECTED_EVENTS:,} events/s "
        f"of {EXPECTED_BYTES} bytes) takes {shown_bytes(expected_a_day())} a day{limit}; "
        f"{shown_bytes(free)} are free",
        file=sys.stderr,
    )


def tell_kept(folder: str, place: str, target: Path) -> None:
    """Say that a recording is still there, and how the trace `target` is made of it later."""
    print(f"hkvtool: {shown(folder)} is kept", file=sys.stderr)
    if target.suffix == _SUFFIX:
        made = spelled(["hkvtool", "ingest", place, "-o", target])
        print(f"  hint: {shown(made)}", file=sys.stderr)


def ending(folder: str, output: Path, *, force: bool) -> int:
    """Make the trace of a recording that has ended, and take the recording away once all that was
    in it is in the trace."""
    from hkvtool.model.recording import remove_recording, snapshots_of

    if output.suffix == _SEALED:
        return Exit.OK
    from hkvtool.store.ingesting import ingest

    sources = [(folder, output)]
    for number, place in enumerate(snapshots_of(folder), 1):
        sources.append((place, output.with_name(f"{output.stem}-{number}{_SUFFIX}")))
    whole, nothing = True, False
    for place, target in sources:
        try:
            with progress(f"reading {os.path.basename(place)}", 100) as told:
                summary, count = ingest(
                    place, target, force=force,
                    progress=told and (lambda read, all_: told(100 * read // max(1, all_))),
                )  # fmt: skip
        except KeyboardInterrupt:
            tell_kept(folder, place, target)
            raise
        except HkvError as e:
            empty = "there is no event" in e.what
            whole &= empty
            nothing |= empty and place == folder
            what = "nothing was recorded" if empty and place == folder else e.what
            print(f"hkvtool: {shown(what)}", file=sys.stderr)
            if empty:
                print("  hint: `hkvtool doctor` says what would be recorded, run it with the "
                      "program's own Python", file=sys.stderr)  # fmt: skip
            elif e.hint:
                print(f"  hint: {shown(e.hint)}", file=sys.stderr)
            continue
        for problem in count.problems():
            print(f"hkvtool: {shown(problem)}", file=sys.stderr)
        whole &= not count.unreadable
        print(f"hkvtool: {shown(target)}: {counted(summary.events, 'event')}", file=sys.stderr)
    if not whole:
        print(f"hkvtool: {shown(folder)} is kept", file=sys.stderr)
        return Exit.UNREADABLE
    remove_recording(folder)
    return Exit.UNREADABLE if nothing else Exit.OK
