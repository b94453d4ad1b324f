"""``python -m hkvtool.recorder.with_adapters PROGRAM …``: for engines that load no plugin.

The program runs as ``python PROGRAM …`` or ``python -m MODULE …`` would have it, with every adapter
ready to attach once its engine is imported. What it records to is said by the environment, as
`hkvtool record` says it.
"""

from __future__ import annotations

import os
import runpy
import sys

from hkvtool.recorder.environment import asked

_USAGE = "usage: python -m hkvtool.recorder.with_adapters [-m MODULE | PROGRAM] ARGUMENT …"


def main(arguments: list[str]) -> None:
    """Run what the arguments say; SystemExit with the usage where they say nothing."""
    by_name = arguments[:1] == ["-m"]
    program = arguments[by_name:]
    if not program or program[0].startswith("-"):
        raise SystemExit(_USAGE)
    if asked():
        from hkvtool.recorder.adapters import attach_later

        attach_later()
    sys.argv[:] = program
    if by_name:
        sys.path[0] = os.getcwd()
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
