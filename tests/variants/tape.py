"""What a correct engine writes down: events in line order, and the device's lane behind them."""

from __future__ import annotations

from random import Random
from typing import Any

Event = dict[str, Any]

_OF_STEP = frozenset(
    {"write", "seal", "index", "zero", "copy", "use", "buffer", "select", "launch"}
)


class Tape:
    """The events of one run, with the counts that later events must state.

    Version counts are kept where a write is decided, not where its line is emitted: the device
    lane runs in the order in which steps were scheduled, so both give the same number.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._versions: dict[tuple[str, int], int] = {}
        self._wire: list[Event] = []
        self._sent = 0
        self.wired = False

    def emit(self, ev: str, **keys: Any) -> Event:
        """Append an event; keys that are None are left out."""
        event = make(ev, **keys)
        self.events.append(event)
        return event

    def next_version(self, group: str, block: int) -> int:
        """Count one more content of `block`, and say which it is."""
        version = self._versions.get((group, block), 0) + 1
        self._versions[group, block] = version
        return version

    def say_version(self, group: str, block: int, version: int) -> None:
        """Which content of `block` this is, where that is not counted."""
        self._versions[group, block] = version

    def version(self, group: str, block: int) -> int:
        return self._versions.get((group, block), 0)

    def new_generation(self, groups: list[str], blocks: list[int]) -> None:
        """Versions start again: `blocks` were allocated."""
        for group in groups:
            for block in blocks:
                self._versions.pop((group, block), None)

    def announce(self, kind: str, **keys: Any) -> None:
        """Put a KV event on the wire; the consumer gets it later, in order."""
        if not self.wired:
            return
        self._sent += 1
        event = self.emit("wire", kind=kind, wseq=self._sent, lane="pub", **keys)
        self._wire.append({**event, "lane": "recv"})

    def deliver(self, rng: Random, everything: bool = False) -> None:
        """Let the consumer apply some of what is on the wire."""
        n = len(self._wire) if everything else rng.randint(0, len(self._wire))
        self.events += self._wire[:n]
        del self._wire[:n]


class Lane:
    """A device stream: takes the accesses of each step in order and runs them when it likes."""

    def __init__(self, tape: Tape, actor: str | None) -> None:
        self.tape = tape
        self.actor = actor
        self._queue: list[tuple[int, Event]] = []

    def put(self, step: int, events: list[Event]) -> None:
        for event in events:
            if event["ev"] in _OF_STEP:
                event["step"] = step
            if self.actor is not None and "actor" not in event:
                event["actor"] = self.actor
            self._queue.append((step, event))

    def run(self, upto: int | None = None, count: int | None = None) -> None:
        """Emit what is queued: through step `upto`, or the first `count` accesses."""
        n = 0
        while n < len(self._queue):
            if upto is not None and self._queue[n][0] > upto:
                break
            if count is not None and n >= count:
                break
            n += 1
        self.tape.events += [event for _, event in self._queue[:n]]
        del self._queue[:n]

    def __len__(self) -> int:
        return len(self._queue)


def make(ev: str, **keys: Any) -> Event:
    """An event; a trailing underscore of a key is dropped (`from_`)."""
    event: Event = {"ev": ev}
    for key, value in keys.items():
        if value is not None:
            event[key.rstrip("_")] = value
    return event
