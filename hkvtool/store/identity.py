"""Finding a request by the id that somebody has in hand: the engine's, a client's, a trace id."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable

from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.store.trace import Trace

LIFE = frozenset({"admit", "refuse", "preempt", "abort", "finish"})
"""Events that may say under which other ids a request is known."""

_NAMED = 5
_SAID_OTHERWISE = frozenset({"ev", "req", "actor", "reason", "pool", "tenant", "engine"})


def request_in(trace: Trace, text: str) -> str:
    """The request of a trace that `text` means. Raises HkvError where it is nobody, or several."""
    return request_named(trace.events(kinds=LIFE), trace.names.values["req"], text)


def request_named(events: Iterable[Event], names: Iterable[str | int], text: str) -> str:
    """The request that `text` means, as the trace calls it.

    In this order: the engine's own id; `external` of its life events; any other id that those
    state (a trace id, also inside a `traceparent`); an id of which `text` is a delimited part,
    as engines put prefixes and counters around the id of a client. Whose of several engines in one
    recording it is, `@e2` behind an id says, `@e1` of the first; without, it may be any's. `events`
    are those of `LIFE`. Raises HkvError where that is nobody, or several.
    """
    known = [str(name) for name in names]
    wanted = _Wanted(text)
    own = {name: None for name in known if wanted.is_id(name, name)}
    external: dict[str, None] = {}
    other: dict[str, None] = {}
    for event in () if own else events:
        if event.req is None or event.problem is not None:
            continue
        if "external" in event and wanted.is_id(str(event["external"]), event.req):
            external[event.req] = None
        for key, value in event.data.items():
            if key not in _SAID_OTHERWISE and isinstance(value, str):
                if wanted.is_in(value, event.req):
                    other[event.req] = None
    part = {name: None for name in known if wanted.is_part(name)}
    for found in (own, external, other, part):
        if len(found) == 1:
            return next(iter(found))
        if found:
            several = ", ".join(_told_apart(found)[:_NAMED]) + (", ..." * (len(found) > _NAMED))
            raise HkvError(
                f"{text!r} may be any of {len(found)} requests", hint=f"say which: {several}"
            )
    near = difflib.get_close_matches(text, known[:10_000], n=1)
    some = ", ".join(known[:_NAMED]) + (", ..." if len(known) > _NAMED else "")
    hint = f"did you mean {near[0]!r}?" if near else f"requests here: {some or 'none'}"
    raise HkvError(f"no event names a request {text!r}", hint=hint)


_ENGINE = re.compile(r"@e([1-9][0-9]{0,8})$")
"""What ends the names of another engine than the first in a recording."""


def _parted(name: str) -> tuple[str, int | None]:
    """A name without its engine's number, and that, if it has one."""
    found = _ENGINE.search(name)
    return (name, None) if found is None else (name[: found.start()], int(found[1]))


class _Wanted:
    """An id that somebody asks for, of any engine or of the one named."""

    def __init__(self, text: str) -> None:
        self.text, self.engine = _parted(text)
        self._part = re.compile(rf"(?<![0-9A-Za-z]){re.escape(self.text)}(?![0-9A-Za-z])")

    def _of(self, request: str) -> bool:
        return self.engine is None or self.engine == (_parted(request)[1] or 1)

    def is_id(self, value: str, request: str) -> bool:
        return _parted(value)[0] == self.text and self._of(request)

    def is_in(self, value: str, request: str) -> bool:
        words = re.split(r"[^0-9A-Za-z]", value) if len(self.text) >= 16 else ()
        return self._of(request) and (_parted(value)[0] == self.text or self.text in words)

    def is_part(self, name: str) -> bool:
        bare = _parted(name)[0]
        return bool(self.text and self._part.search(bare)) and self._of(name)


def _told_apart(names: Iterable[str]) -> list[str]:
    """Names by which each is meant alone: the first engine's with its number too, where another
    engine has the same."""
    found = list(names)
    twice = Counter(_parted(name)[0] for name in found)
    return [f"{name}@e1" if twice[name] > 1 else name for name in found]
