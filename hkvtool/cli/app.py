"""The entry point: arguments in, exit code out."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hkvtool.cli.errors import guarded


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. Nothing but SystemExit escapes."""
    args = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _run(args))


def _run(args: list[str]) -> int | None:
    if args in (["--version"], ["-V"]):
        from hkvtool import __version__

        print(f"hkvtool {__version__}")
        return None
    from hkvtool.cli.group import run

    return run(args)
