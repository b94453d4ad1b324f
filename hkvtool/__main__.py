"""`hkvtool`, and `python -m hkvtool`: as little as may be before Ctrl-C is taken care of."""

import _thread
import sys


def _unraised(told: "sys.UnraisableHookArgs") -> None:
    """A Ctrl-C that fell into a callback of Python's, where nothing can be raised, comes again."""
    if told.exc_type is not None and issubclass(told.exc_type, KeyboardInterrupt):
        _thread.interrupt_main()
    else:
        sys.__unraisablehook__(told)


def main() -> int:
    """Run the command line of this process and return its exit code."""
    sys.unraisablehook = _unraised
    try:
        from hkvtool.cli.app import main as run

        return run()
    except KeyboardInterrupt:
        # Where the command line itself was still being imported.
        sys.stderr.write("interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
