"""A finding in one file: a small trace, its report and schedule, where it was made, checksums.

A bundle is a zip of a few known names. Nothing in it is code that is run, a path that is followed
or an object that is unpickled; sizes are bounded, and each file must have the checksum that the
manifest gives, so a bundle that was cut or altered is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, Any

from hkvtool.model.errors import TraceError
from hkvtool.store.destination import Destination
from hkvtool.store.lines import JsonlTrace
from hkvtool.store.opening import HEAD_BYTES, refuse_what_is_no_text
from hkvtool.store.scratch import Spool

FORMAT = "hkv-bundle/1"
MANIFEST, TRACE, REPORT, TEST = "manifest.json", "trace.jsonl", "report.json", "test_finding.py"
NAMES = frozenset({MANIFEST, TRACE, REPORT, TEST})

MOST_BYTES = 256 << 20
"""All files of a bundle together, unpacked."""

_MOST_MANIFEST = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Bundle:
    """What a manifest says."""

    finding: str
    code: str
    message: str
    schedule: str | None
    source: str
    events_before: int
    environment: dict[str, str]
    sums: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **vars(self)}


def environment() -> dict[str, str]:
    """Where a bundle is made, as far as it may matter to who gets it."""
    from hkvtool import __version__

    return {
        "hkvtool": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def write_bundle(
    output: str | os.PathLike[str], bundle: Bundle, files: dict[str, bytes], *, force: bool = False
) -> None:
    """Write a bundle; the same contents give the same bytes. Raises HkvError."""
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    manifest = Bundle(**(vars(bundle) | {"sums": sums})).as_json()
    text = json.dumps(manifest, indent=2).encode()
    with (
        Destination(output, force=force) as place,
        zipfile.ZipFile(place.path, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, data in {MANIFEST: text, **files}.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o600 << 16
            archive.writestr(info, data)


def read_manifest(path: str) -> Bundle:
    """What a bundle says of itself. Raises TraceError where it is none."""
    with _opened(path) as archive:
        return _manifest(archive, path)


class BundleTrace(JsonlTrace):
    """The trace of a bundle."""

    def __init__(self, path: str) -> None:
        self._spool = Spool()
        try:
            with _opened(path) as archive:
                self.bundle = _manifest(archive, path)
                for name in sorted(self.bundle.sums):
                    _verified(archive, name, self.bundle.sums[name], path, self._into(name))
            self._spool.file.flush()
            self._refuse_what_is_no_trace(path)
        except BaseException:
            self.close()
            raise
        super().__init__(path, self._spool.path)

    def close(self) -> None:
        self._spool.cleanup()

    def _refuse_what_is_no_trace(self, path: str) -> None:
        """A checksum proves that nothing was altered, not that a trace was packed."""
        with open(self._spool.path, "rb") as stream:
            head = stream.read(HEAD_BYTES)
        if head.startswith(b"\x1f\x8b"):
            raise TraceError(f"{path}: {TRACE} is compressed, which a bundle's trace is not")
        refuse_what_is_no_text(f"{path}: {TRACE}", head)

    def _into(self, name: str) -> IO[bytes] | None:
        return self._spool.file if name == TRACE else None


def _opened(path: str) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, NotImplementedError) as e:
        raise TraceError(f"{path} is no whole bundle: {e}", hint="it may have been cut") from None
    infos = archive.infolist()
    problem = ""
    if {info.filename for info in infos} - NAMES or len(infos) > len(NAMES):
        problem = "it holds other files than a bundle has"
    elif any(info.flag_bits & 1 for info in infos):
        problem = "it is encrypted"
    elif sum(info.file_size for info in infos) > MOST_BYTES:
        problem = f"unpacked it is larger than {MOST_BYTES >> 20} MiB"
    elif MANIFEST not in archive.namelist():
        problem = "it has no manifest"
    if problem:
        archive.close()
        raise TraceError(f"{path} is no bundle: {problem}", hint="`hkvtool bundle` makes one")
    return archive


def _manifest(archive: zipfile.ZipFile, path: str) -> Bundle:
    try:
        with archive.open(MANIFEST) as stream:
            data = json.loads(stream.read(_MOST_MANIFEST))
        if data.pop("format") != FORMAT:
            raise ValueError("it is of another format")
        bundle = Bundle(**data)
        texts = (bundle.finding, bundle.code, bundle.message, bundle.source)
        if not all(isinstance(text, str) for text in texts) or not isinstance(bundle.sums, dict):
            raise ValueError("its values are of other types")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise TraceError(f"{path}: its manifest cannot be read: {e}") from None
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError) as e:
        raise TraceError(f"{path}: its manifest is damaged: {e}") from None
    if set(archive.namelist()) != {MANIFEST, *bundle.sums} or TRACE not in bundle.sums:
        raise TraceError(f"{path}: its files are not those of its manifest")
    return bundle


def _verified(
    archive: zipfile.ZipFile, name: str, due: str, path: str, into: IO[bytes] | None
) -> None:
    """Read a file whole, within the bound, and hold it to its checksum."""
    digest, size = hashlib.sha256(), 0
    try:
        with archive.open(name) as stream:
            while chunk := stream.read(1 << 16):
                size += len(chunk)
                if size > MOST_BYTES:
                    raise TraceError(f"{path}: {name} is larger than it says")
                digest.update(chunk)
                if into is not None:
                    into.write(chunk)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as e:
        raise TraceError(f"{path}: {name} is damaged: {e}") from None
    if digest.hexdigest() != due:
        raise TraceError(f"{path}: {name} was altered: its checksum is another")
