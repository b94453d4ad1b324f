"""A snapshot: what the rings of a recording hold at this moment, as a recording of its own.

It lies in the folder of the recording that it was taken of. The program that records goes on.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from typing import BinaryIO

from hkvtool.model.errors import HkvError
from hkvtool.model.manifest import MANIFEST, SEGMENT_SUFFIX
from hkvtool.model.recording import (
    COMPLETE,
    INCOMPLETE,
    SNAPSHOT_PREFIX,
    remove_recording,
    ring_files,
    snapshots_of,
)
from hkvtool.model.ring_format import HEADER_BYTES, Word
from hkvtool.recorder.outcome import Off

MOST = 32
"""Snapshots of one recording: a fault that comes at every step must not fill the disk."""

_TRIES = 4
_TAIL = slice(8 * Word.TAIL, 8 * Word.TAIL + 8)


def snapshot(folder: str, reason: str) -> str:
    """Copy the rings, and link what is sealed; returns the new folder. Raises HkvError."""
    number = len(snapshots_of(folder)) + 1
    if number > MOST:
        raise HkvError(f"{folder} has {MOST} snapshots already", hint="take some of them away")
    named = re.sub(r"[^A-Za-z0-9_.-]", "-", reason)[:40]
    place = os.path.join(folder, f"{SNAPSHOT_PREFIX}{number:02}-{named}.hkv")
    try:
        os.mkdir(place, 0o700)
    except OSError as e:
        raise Off.of(e, place, "save the rings to").error() from e
    try:
        shutil.copyfile(os.path.join(folder, INCOMPLETE), os.path.join(place, INCOMPLETE))
        # As a reader does: first the rings, then what a sealer has taken out of them meanwhile.
        for path in ring_files(folder):
            with suppress(FileNotFoundError):
                _copy_ring(path, os.path.join(place, os.path.basename(path)))
        # What the manifest names is there before it does, so the files are looked for behind it.
        manifest = os.path.join(folder, MANIFEST)
        with suppress(FileNotFoundError):
            _copy_manifest(manifest, os.path.join(place, MANIFEST))
        for name in sorted(os.listdir(folder)):
            if name.endswith(SEGMENT_SUFFIX):
                # Segments never change.
                with suppress(OSError):
                    os.link(os.path.join(folder, name), os.path.join(place, name))
        os.rename(os.path.join(place, INCOMPLETE), os.path.join(place, COMPLETE))
    except (OSError, HkvError) as e:
        with suppress(OSError):
            remove_recording(place)
        raise Off.of(e, place, "save the rings to").error() from e
    return place


def _copy_ring(path: str, target: str) -> None:
    """A ring as it was; once more where a sealer has given room in it back meanwhile."""
    with open(path, "rb", buffering=0) as file:
        for _ in range(_TRIES):
            file.seek(0)
            page = file.read(HEADER_BYTES)
            data = file.read()
            file.seek(0)
            if file.read(HEADER_BYTES)[_TAIL] == page[_TAIL]:
                break
    with _new(target) as out:
        out.write(page)
        out.write(data)


def _copy_manifest(path: str, target: str) -> None:
    """The manifest as far as it has grown."""
    with open(path, "rb") as source, _new(target) as out:
        shutil.copyfileobj(source, out)


def _new(path: str) -> BinaryIO:
    """A file that nobody else reads, and that was not there."""
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
