"""Finding a request by the id that somebody has in hand: the engine's, a client's, a trace id."""

from __future__ import annotations

import difflib
import re
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
    as engines put prefixes and counters around the id of a client. `events` are those of `LIFE`.
    Raises HkvError where that is nobody, or several.
    """
    known = [str(name) for name in names]
    if text in known:
        return text
    external: dict[str, None] = {}
    other: dict[str, None] = {}
    for event in events:
        if event.req is None or event.problem is not None:
            continue
        if str(event.get("external")) == text:
            external[event.req] = None
        for key, value in event.data.items():
            if key not in _SAID_OTHERWISE and isinstance(value, str):
                if text == value or (len(text) >= 16 and text in re.split(r"[^0-9A-Za-z]", value)):
                    other[event.req] = None
    part = re.compile(rf"(?<![0-9A-Za-z]){re.escape(text)}(?![0-9A-Za-z])")
    for found in (external, other, {name: None for name in known if text and part.search(name)}):
        if len(found) == 1:
            return next(iter(found))
        if found:
            several = ", ".join(list(found)[:_NAMED]) + (", ..." if len(found) > _NAMED else "")
            raise HkvError(
                f"{text!r} may be any of {len(found)} requests", hint=f"say which: {several}"
            )
    near = difflib.get_close_matches(text, known[:10_000], n=1)
    some = ", ".join(known[:_NAMED]) + (", ..." if len(known) > _NAMED else "")
    hint = f"did you mean {near[0]!r}?" if near else f"requests here: {some or 'none'}"
    raise HkvError(f"no event names a request {text!r}", hint=hint)
