"""The one boundary where errors become words on stderr and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from hkvtool.model.errors import Exit, HkvError
from hkvtool.model.text import shown

DEBUG = "HKV_DEBUG"
"""Set to 1, this environment variable adds the traceback to every error."""

_HOME = Path(__file__).parents[2]
"""What the package lies in: `site-packages`, or a checkout."""


def tell(what: str, *, where: str = "", hint: str = "") -> None:
    """Say on stderr what happened, where, and what to do next."""
    lines = [f"{_red('error:')} {shown(what)}"]
    if where:
        lines.append(f"  where: {shown(where)}")
    if hint:
        lines.append(f"  hint: {shown(hint)}")
    with suppress(OSError):  # nobody may be left to tell
        print("\n".join(lines), file=sys.stderr, flush=True)


def _red(text: str) -> str:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain or not sys.stderr.isatty() else f"\x1b[1;31m{text}\x1b[0m"


@contextmanager
def _terminable(came: list[int]) -> Iterator[None]:
    """Raise KeyboardInterrupt at a SIGTERM, which then cleans up as SIGINT does, where Python lets
    us and no program around us minds it."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def terminate(number: int, _: object) -> NoReturn:
        # What is raised may come out as another: which signal it was is told apart from it.
        came.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


_DUCKDB_INTERRUPTED = "Query interrupted"
"""What DuckDB makes of a signal that comes while it works: the KeyboardInterrupt itself is lost."""


def guarded(run: Callable[[], int | None]) -> int:
    """The exit code of `run`, whatever it raises."""
    # Python has None for a stream that was closed before it started.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is shown escaped, not a reason to fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    terminated: list[int] = []
    try:
        with _terminable(terminated):
            code = run()
            sys.stdout.flush()
        return Exit.OK if code is None else int(code)
    except KeyboardInterrupt:
        return _ended(terminated)
    except BrokenPipeError:
        _hush()
        return Exit.BROKEN_PIPE
    except Exception as e:
        if isinstance(e, RuntimeError) and str(e) == _DUCKDB_INTERRUPTED:
            return _ended(terminated)
        if os.environ.get(DEBUG):
            traceback.print_exc()
        return _explain(e)


def _ended(terminated: list[int]) -> Exit:
    """A signal ended it."""
    # An interrupt that fell into code given as text, as dataclasses make it, has `python -m` end by
    # SIGINT whatever the exit code, unless other such code has run since.
    exec("")
    with suppress(OSError):
        print("terminated" if terminated else "interrupted", file=sys.stderr)
    return Exit.TERMINATED if terminated else Exit.INTERRUPTED


def _explain(error: Exception) -> int:
    if isinstance(error, HkvError):
        tell(error.what, where=error.where, hint=error.hint)
        return error.exit_code
    if isinstance(error, OSError) and error.strerror:
        _hush()
        tell(error.strerror, where=str(error.filename or "the output"))
        return Exit.USAGE
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("hkvtool"):
        # As in an engine's environment, where the package is installed with --no-deps.
        tell(
            f"{error.name} is not installed beside hkvtool",
            where=sys.prefix,
            hint="install hkvtool with its dependencies, in an environment of its own",
        )
        return Exit.USAGE
    if isinstance(error, ModuleNotFoundError) and (_HOME / "pyproject.toml").is_file():
        # `python -m hkvtool` in a checkout takes the checkout's folder for the package, and the
        # rooms beside it are then nowhere.
        tell(
            f"{error.name} is not in {_HOME / 'hkvtool'}: this is a checkout, not an installation",
            where=os.getcwd(),
            hint="run an installed `hkvtool`, or `python -m hkvtool` in another folder",
        )
        return Exit.USAGE
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    tell(
        f"unexpected {type(error).__name__}: {error}",
        where=f"{last.filename}:{last.lineno} in {last.name}" if last else "",
        hint=f"this is a bug in hkvtool, please report it; {DEBUG}=1 shows the traceback",
    )
    return Exit.INTERNAL


def _hush() -> None:
    """Keep the interpreter from flushing to a stdout that takes nothing more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
