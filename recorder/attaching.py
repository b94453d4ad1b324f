"""Recording a process that runs already, and did load us: it is asked to, and asked to stop."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic, sleep

from hkvtool.model.errors import HkvError
from hkvtool.recorder.control import ask, family, listening
from hkvtool.recorder.folder import Folder
from hkvtool.recorder.launcher import SealerProcess
from hkvtool.recorder.sealing import Bounds, Status

_LOOK = 0.2


def processes(pid: int) -> list[int]:
    """A process and its children, as far as they can be asked. Raises HkvError where none can."""
    found = listening(family(pid))
    if not found:
        # Says what is wrong with the one that was meant.
        ask(pid, {"op": "status"})
        found = [pid]
    return found


def attach(
    pid: int,
    folder: Folder,
    *,
    bounds: Bounds,
    duration: float | None,
    told: Callable[[Status | None], None],
) -> tuple[Status | None, str]:
    """Record a process and its children to `folder` until they end, are detached, or `duration` is
    over; a KeyboardInterrupt ends it too. The last status, and what became of the sealer where that
    was not well. Raises HkvError where no process begins."""
    asked = processes(pid)
    sealer = SealerProcess(folder.path, bounds, folder.descriptors)
    begun: list[int] = []
    refused = ""
    try:
        for each in asked:
            answer = ask(each, {"op": "record", "folder": folder.path})
            if answer.get("ok"):
                begun.append(each)
            else:
                refused = f"process {each}: {answer.get('what')}"
        if not begun:
            raise HkvError(f"nothing can be recorded: {refused}")
        until = None if duration is None else monotonic() + duration
        while any(map(records, begun)) and (until is None or monotonic() < until):
            told(sealer.look())
            sleep(_LOOK)
    except KeyboardInterrupt:
        pass
    finally:
        for each in begun:
            detach(each)
        trouble = sealer.end()
    return sealer.status, trouble or refused


def records(pid: int) -> bool:
    """Whether a process records at this moment."""
    try:
        return bool(os.path.exists(f"/proc/{pid}") and ask(pid, {"op": "status"}).get("folder"))
    except HkvError:
        return False


def detach(pid: int) -> bool:
    """Have a process stop recording; its hooks are taken out. False where it did not record."""
    try:
        return bool(ask(pid, {"op": "stop"}).get("ok"))
    except HkvError:
        return False
