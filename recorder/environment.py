"""The environment variables that ask a process to record, guard or be there to be asked.

Kept apart from what they lead to: an engine loads its plugin in every process, and one that nobody
asked for anything should pay no more than a look at its environment.
"""

from __future__ import annotations

import os
import sys

RECORD, ATTACH = "HKV_RECORD", "HKV_ATTACH"
JOIN = "HKV_JOIN"
"""Set by who began a recording: it is to be joined, and not begun anew once it has ended."""

GUARD = "HKV_GUARD"

ADAPTERS = "HKV_ADAPTERS"
"""Which adapters may be used, where not every one that is installed."""

_SESSION = "hkvtool.recorder.session"


def asked() -> bool:
    """Whether this process records, is guarded or may be asked to: by its environment, or because
    the program itself has loaded what recordings are begun with."""
    return _SESSION in sys.modules or any(os.environ.get(v) for v in (RECORD, ATTACH, GUARD))
