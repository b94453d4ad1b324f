"""What becomes of an attempt to record, as a value: an engine must not meet an exception."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from hkvtool.model.errors import HkvError

_HINTS = {
    errno.ENOSPC: "give it a disk with more room, or smaller rings",
    errno.EDQUOT: "the quota is used up; record to another disk",
    errno.EFBIG: "a limit on file sizes is in force (see `ulimit -f`)",
    errno.EACCES: "record to a folder that this user may write to",
    errno.EPERM: "record to a folder that this user may write to",
    errno.EROFS: "record to a folder that can be written to",
    errno.ENOENT: "make the folder above it first",
    errno.ENOMEM: "give it smaller rings",
    errno.EMFILE: "raise the limit of open files (see `ulimit -n`)",
}


@dataclass(frozen=True)
class Off:
    """Nothing is recorded, why, and what to do about it."""

    what: str
    where: str
    hint: str = ""

    @staticmethod
    def of(error: Exception, where: str | os.PathLike[str], doing: str = "record to") -> Off:
        """From what the system said."""
        path = os.fspath(where)
        what = f"cannot {doing} {path}"
        if isinstance(error, OSError):
            said = error.strerror or str(error)
            return Off(f"{what}: {said}", path, _HINTS.get(error.errno or 0, ""))
        if isinstance(error, HkvError):
            return Off(f"{what}: {error.what}", path, error.hint)
        return Off(f"{what}: {type(error).__name__}: {error}", path)

    def error(self) -> HkvError:
        """For callers that stop when there is no recording."""
        return HkvError(self.what, hint=self.hint)
