"""`hkvtool detach`: stop recording in a running process."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hkvtool.cli.traces import counted
from hkvtool.model.errors import HkvError


def command(
    pid: Annotated[int, typer.Argument(metavar="PID", help="The engine, or what started it.")],
) -> None:
    """Stop recording in a process and its children: the engine's own functions are put back.

    Whoever recorded it, `hkvtool record` or `attach`, ends with a usable trace.
    """
    from hkvtool.recorder.attaching import detach, processes

    stopped = [each for each in processes(pid) if detach(each)]
    if not stopped:
        raise HkvError(f"process {pid} records nothing")
    print(f"{counted(len(stopped), 'process').replace('processs', 'processes')} detached",
          file=sys.stderr)  # fmt: skip
