"""What an adapter is: the code that records one engine, ours or anybody's.

An engine's own package, or one beside it, offers an adapter under the entry point group
``hkvtool.adapters``::

    [project.entry-points."hkvtool.adapters"]
    lmcache = "hkvtool_lmcache:ADAPTER"

and it is found wherever something is recorded (`hkvtool.recorder.adapters`). Most are a `HookSet`
(`hkvtool.recorder.hook_set`), which has all of this from a list of functions to wrap; that an
adapter keeps what it promises is what `hkvtool.conformance` is for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from hkvtool.recorder.attach_report import Report
    from hkvtool.recorder.recording import Recording

GROUP = "hkvtool.adapters"
"""Entry points under which adapters are found."""


@runtime_checkable
class Adapter(Protocol):
    """Records one engine. None of the four may start the engine, or import it before `attach`."""

    engine: str
    """The module whose import means that the engine is in this process. The adapter attaches
    behind that import, so what it wraps is to be there by then."""

    def declare(self) -> Report:
        """What would attach here, and the evidence that this gives; may import the engine."""

    def attach(self, recording: Recording) -> object:
        """Begin to tell `recording` what the engine does, with what it holds already. Raises where
        the engine is not as the adapter knows it, and then leaves nothing behind."""

    def detach(self, recording: Recording) -> bool:
        """Leave the engine as if nothing had been attached. False where nothing was told."""

    def geometry(self) -> Sequence[Mapping[str, Any]]:
        """The `pool`, `group` and `kernel` events told since `attach`: what the caches are like,
        for who comes later than they."""


MEMBERS = ("engine", "declare", "attach", "detach", "geometry")


def lacking(found: object) -> list[str]:
    """What an object has not that an adapter has."""
    lacks = [name for name in MEMBERS if not hasattr(found, name)]
    return lacks or [n for n in MEMBERS[1:] if not callable(getattr(found, n))]
