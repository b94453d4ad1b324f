"""Files of folders that may come from anywhere."""

from __future__ import annotations

import errno
import os
import stat


def regular(path: str, flags: int) -> int:
    """As the `opener` of `open`: a file, and never a pipe of its name, which would be waited for
    without an end. Raises OSError."""
    fd = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is no regular file", path)
