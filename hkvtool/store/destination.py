"""A file that is there whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from hkvtool.model.errors import HkvError
from hkvtool.store.scratch import PREFIX

_LEFT_AFTER = 60.0
"""Seconds without a write after which an unlocked folder was left by a process that is gone."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What writing fails with, and does not say of which file."""

_STEM = 64
"""Characters of the target's name that its folder is named after."""

_BY_LIBRARIES = (".duckdb", ".parquet")
"""What DuckDB and Arrow write, which take names in UTF-8 only."""


def in_utf8(path: str | os.PathLike[str]) -> bool:
    """Whether a name is in UTF-8; what a file system has need not be."""
    return not any("\ud800" <= c <= "\udfff" for c in os.fspath(path))


class Destination:
    """A place to write a file to, put under its name only when all of it is on disk.

    As a context it makes a private folder beside the target; `path` is where to write. Leaving
    the context without an error puts the file in place, with one it leaves nothing behind.
    The folder also takes what a database writes beside itself. It is locked while it is in use, so
    that what a killed process left of an earlier attempt is known and taken away. An existing file
    is replaced only with `force`. The file can be read by its owner only: traces reveal traffic.
    """

    def __init__(self, target: str | os.PathLike[str], *, force: bool = False) -> None:
        self.target = Path(target)
        self.force = force
        self._folder: Path | None = None
        self._lock: int | None = None
        self._check()

    @property
    def path(self) -> Path:
        assert self._folder is not None, "use it as a context"
        return self._folder / self.target.name

    @property
    def scratch(self) -> Path:
        """A folder that goes away with everything in it."""
        assert self._folder is not None, "use it as a context"
        return self._folder

    def __enter__(self) -> Destination:
        # The name is known before the folder is there, so that an interrupt finds it at any time.
        name = f".{self.target.name[:_STEM]}.{secrets.token_hex(4)}"
        self._folder = self.target.with_name(name)
        self._sweep()
        try:
            self._folder.mkdir(0o700)
            self._lock = _locked(self._folder)
        except OSError as e:
            raise self.failure(e) from e
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._place()
            elif isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
                raise error
        except OSError as e:
            raise self.failure(e) from e
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def failure(self, error: OSError) -> HkvError:
        """What to tell of a failed write."""
        hint = {
            errno.ENOSPC: "free some space, or write to another disk with -o",
            errno.EDQUOT: "the quota is used up; write elsewhere with -o",
            errno.EFBIG: "a limit on file sizes is in force (see `ulimit -f`)",
            errno.EACCES: "write to another folder with -o",
            errno.EROFS: "write to another folder with -o",
            errno.ENOENT: "make the folder first",
        }.get(error.errno or 0, "")
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full and self.target.parent.name.startswith(PREFIX):
            hint = "free some space, or point TMPDIR to a larger disk"
        reason = error.strerror or str(error)
        return HkvError(f"cannot write {self.target}: {reason}", hint=hint)

    def _check(self) -> None:
        if str(self.target) == "-":
            raise HkvError("this is written to a file, not to stdout", hint="name it with -o")
        if self.target.suffix in _BY_LIBRARIES and not in_utf8(self.target):
            raise HkvError(
                f"cannot write {self.target}: its name is not in UTF-8",
                hint="write elsewhere with -o",
            )
        try:
            mode = os.stat(self.target).st_mode
        except FileNotFoundError:
            parent = self.target.parent
            if not parent.is_dir():
                reason = "is not a folder" if parent.exists() else "there is no such folder"
                raise HkvError(
                    f"cannot write {self.target}: {reason}: {parent}", hint="make the folder first"
                ) from None
            return
        except OSError as e:
            raise self.failure(e) from e
        if not stat.S_ISREG(mode):
            what = "a folder" if stat.S_ISDIR(mode) else "no regular file"
            raise HkvError(f"cannot write {self.target}: it is {what}", hint="name a file with -o")
        if not self.force:
            raise self._exists()

    def _sweep(self) -> None:
        """Take away what a killed process left of an earlier attempt at this target."""
        ours = re.compile(re.escape(f".{self.target.name[:_STEM]}.") + "[0-9a-f]{8}")
        with suppress(OSError):
            for place in self.target.parent.iterdir():
                if ours.fullmatch(place.name) and _left(place):
                    lock = _locked(place)
                    if lock is not None:
                        shutil.rmtree(place, ignore_errors=True)
                        os.close(lock)

    def _exists(self) -> HkvError:
        return HkvError(
            f"{self.target} exists already",
            hint="--force replaces it; -o writes elsewhere",
        )

    def _place(self) -> None:
        os.chmod(self.path, 0o600)
        _sync(self.path)
        if self.force:
            os.replace(self.path, self.target)
        else:
            self._place_beside_nothing()
        _sync(self.target.parent)

    def _place_beside_nothing(self) -> None:
        """Put the file in place unless another writer was faster."""
        try:
            os.link(self.path, self.target)
        except FileExistsError:
            raise self._exists() from None
        except OSError:
            # Some file systems have no hard links; there the check is all we have.
            if os.path.lexists(self.target):
                raise self._exists() from None
            os.replace(self.path, self.target)


def _locked(folder: Path) -> int | None:
    """An open folder that is locked for as long as this process holds it; None where another one
    does, or the file system has no locks."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _left(folder: Path) -> bool:
    """Whether nothing was written to a folder of ours for a while."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return False
    times = [status.st_mtime, *(file.lstat().st_mtime for file in folder.iterdir())]
    return max(times) < time.time() - _LEFT_AFTER


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as e:
        # Some network file systems take no fsync of a folder.
        if e.errno not in (errno.EINVAL, errno.EBADF):
            raise
    finally:
        os.close(fd)
