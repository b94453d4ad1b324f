"""The transitions, compiled by numba from copies of the very functions that run plain.

The compiled code is cached by the content of their sources, so that an update never meets a
stale cache; compiling takes half a minute, once a machine.
"""

from __future__ import annotations

import hashlib
import logging
import os
import types
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from hkvtool.model import events, rows
from hkvtool.state import arrays, blocks, codes, content, hashes, loop, step, transfers

_SOURCES = (blocks, content, hashes, transfers, step, loop)
"""Modules of transitions, each after those it calls. No two functions have one name."""

_INLINED = frozenset(
    [
        "step",
        "to_slots",
        "used",
        "touch",
        "free",
        "alloc",
        "write",
        "write_slot",
        "mark_bytes",
        "fresh",
        "dispatch",
    ]
)
"""Functions that are compiled into their callers: a call hands over some seventy arrays, and these
are called for nearly every event. The rest would only make compiling slower."""

_CALLED = frozenset({"run", "forget_dead"})
"""Functions that are called from Python."""

_log = logging.getLogger("hkvtool")

_compiled: dict[str, Any] = {}


def compiled(name: str) -> Any:
    """One of the transition functions, compiled at its first call."""
    if not _compiled:
        _compile()
    return _compiled[name]


def ready() -> bool:
    """Compile now what a fold will call; whether all of it was in the cache."""
    import numpy as np

    read = np.zeros(1, np.int64)
    read.flags.writeable = False
    own = np.zeros(1, np.int64)
    st = arrays.Arrays(
        *(np.zeros(arrays.HEADER, f"i{extent.width}") for extent in arrays.EXTENTS.values())
    )
    compiled("forget_dead")(st)
    compiled("run")(
        st,
        own,
        own,
        own,
        np.zeros(1, np.int8),
        *[read] * 15,
        read,
        own,
        read,
        own,
        read,
        read,
        0,
        0,
    )
    stats = [compiled(name).stats for name in ("run", "forget_dead")]
    return all(stat.cache_hits and not stat.cache_misses for stat in stats)


def compiled_with(modules: Sequence[ModuleType], called: Collection[str]) -> dict[str, Any]:
    """The functions of further modules compiled, each module after those it calls, with those of
    the fold that they call; those named in `called` can be called from here."""
    if not _compiled:
        _compile()
    found = dict(_compiled)
    _compile_modules(modules, found, called, cache_folder(modules), "the screen")
    return found


def cache_folder(more: Sequence[ModuleType] = ()) -> Path:
    """Where this version's compiled code is kept."""
    digest = hashlib.sha256()
    for module in (*_SOURCES, arrays, codes, rows, events, *more):
        digest.update(Path(str(module.__file__)).read_bytes())
    for source in (Path(__file__), Path(__file__).with_name("handed.py")):
        digest.update(source.read_bytes())
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(root) / "hkvtool" / f"numba-{digest.hexdigest()[:16]}"


def _compile() -> None:
    _compile_modules(_SOURCES, _compiled, _CALLED, cache_folder(), "the fold")


def _compile_modules(
    modules: Sequence[ModuleType], known: dict[str, Any], called: Collection[str], folder: Path,
    what: str,
) -> None:  # fmt: skip
    """Compile the functions of modules and put them among those known."""
    import numba

    settings: Any = numba.config
    settings.CACHE_DIR = str(folder)
    if not any(folder.rglob("*.nbc")):
        # Without a handler this goes to stderr: nobody should wait and not know for what.
        _log.warning("compiling %s for this machine, which takes about a minute, once", what)
    for module in modules:
        space = dict(vars(module))
        space.update({name: known[name] for name in known if name in space})
        own = [
            f for f in vars(module).values()
            if isinstance(f, types.FunctionType) and f.__module__ == module.__name__
        ]  # fmt: skip
        for function in own:
            copy = types.FunctionType(function.__code__, space, function.__name__)
            copy.__qualname__ = function.__qualname__
            copy.__module__ = function.__module__
            # Without `_nrt` every call would count references of all arrays, which costs more than
            # the work; none of these functions allocates.
            options: dict[str, Any] = {"nogil": True, "_nrt": False}
            if function.__name__ not in called:
                # What turns some seventy arrays of Python's into compiled ones takes longer to
                # compile than most of these functions.
                options.update(no_cpython_wrapper=True, no_cfunc_wrapper=True)
            if function.__name__ in _INLINED:
                options["inline"] = "always"
            try:
                jitted = numba.njit(cache=True, **options)(copy)
            except RuntimeError:
                # No folder to cache in: compiled again in every process.
                jitted = numba.njit(**options)(copy)
            space[function.__name__] = known[function.__name__] = jitted
