"""Folders that are no folders of this machine: object stores, by whatever name pyarrow reads them.

`s3://bucket/prefix?region=…&endpoint_override=…`, `gs://`, `abfs://`, `hdfs://`, `file://`. Who may
read them is said as everywhere else, by the environment or the machine (`AWS_PROFILE`, …).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from hkvtool.model.errors import HkvError, TraceError


def is_remote(place: str) -> bool:
    """Whether a place is named as those of object stores are."""
    return "://" in place


def below(uri: str, name: str) -> str:
    """What lies in a folder under a name, with `/` between its parts."""
    base, mark, options = uri.partition("?")
    inner = quote(name, safe="/=+@,:", errors="surrogateescape")
    return f"{base.rstrip('/')}/{inner}{mark}{options}"


def opened(uri: str) -> tuple[Any, str]:
    """A file system, and the path in it. Raises TraceError."""
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        found: tuple[Any, str] = FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError, ValueError) as e:
        raise TraceError(
            f"{plain(uri)} cannot be opened: {_first(e)}",
            hint="s3://BUCKET/PREFIX, gs://…, abfs://… or another that pyarrow reads",
        ) from e
    return found


def listed(uri: str) -> list[str]:
    """The files in a folder and below it, by their paths inside it. Raises TraceError."""
    from pyarrow.fs import FileSelector, FileType

    system, root = opened(uri)
    with _told(f"{plain(uri)} cannot be listed"):
        found = system.get_file_info(FileSelector(root, recursive=True))
        start = len(root.rstrip("/")) + 1
        return [one.path[start:] for one in found if one.type == FileType.File]


def modified(uri: str) -> float:
    """When a file was written, in seconds; of a folder, 0. Raises TraceError."""
    system, path = opened(uri)
    with _told(f"{plain(uri)} cannot be read"):
        written = system.get_file_info(path).mtime_ns
    return (written or 0) / 1e9


def name_of(uri: str) -> str:
    """The last part of a path."""
    return unquote(uri.partition("?")[0].rstrip("/").rpartition("/")[2])


def fetch(uri: str, folder: str) -> str:
    """Bring a file, or a folder with all that is in it, to this machine. Raises TraceError."""
    from pyarrow.fs import FileType, LocalFileSystem, copy_files

    system, path = opened(uri)
    target = os.path.join(folder, os.path.basename(path.rstrip("/")))
    with _told(f"{plain(uri)} cannot be read"):
        kind = system.get_file_info(path).type
        if kind == FileType.NotFound:
            raise TraceError(f"there is no {plain(uri)}")
        if kind == FileType.Directory:
            os.mkdir(target)
        try:
            copy_files(
                path, target, source_filesystem=system, destination_filesystem=LocalFileSystem()
            )
        except OSError as e:
            if e.errno != errno.ENOSPC:
                raise
            raise TraceError(
                f"{plain(uri)} cannot be brought here: no space is left in {folder}",
                hint="free some space, or have TMPDIR name a folder on another disk",
            ) from e
    return target


def put(file: Path, uri: str, *, force: bool) -> None:
    """Bring a file there, whole or not at all. Raises HkvError."""
    from pyarrow.fs import FileType, LocalFileSystem, copy_files

    system, path = opened(uri)
    with _told(f"{plain(uri)} cannot be written"):
        if not force and system.get_file_info(path).type != FileType.NotFound:
            raise HkvError(f"{plain(uri)} exists", hint="--force replaces it")
        system.create_dir(os.path.dirname(path), recursive=True)
        copy_files(
            os.fspath(file), path,
            source_filesystem=LocalFileSystem(), destination_filesystem=system,
        )  # fmt: skip


@contextmanager
def _told(what: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except UnicodeError as e:
        raise TraceError(
            f"{what}: a name there is not in UTF-8", hint="rename it; a folder is read by its path"
        ) from e
    except (pa.ArrowException, OSError) as e:
        raise TraceError(f"{what}: {_first(e)}") from e


def plain(uri: str) -> str:
    """As it may be shown: without what stands before the host, which may be a key, and without
    options; a folder of this machine as it is."""
    if not is_remote(uri):
        return os.fspath(Path(uri))
    scheme, _, rest = uri.partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _first(e: BaseException) -> str:
    return next(iter(str(e).splitlines()), type(e).__name__)
