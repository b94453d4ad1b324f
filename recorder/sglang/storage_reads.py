"""The thread of HiCache that reads pages from the storage into the host's memory, ahead of need.

A request that waits is looked up in the storage by another thread. Where that has enough of it, the
scheduler takes pages of the host and hands them over; they are read in batches, and after each the
scheduler may take what has come by then and let the rest be. What was read too late, or is not
there, is the reader's until it says that it is done.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hkvtool.recorder.sglang.paths import hashes
from hkvtool.recorder.sglang.storage_tier import Part, StorageTier
from hkvtool.recorder.sglang.storage_writes import Writes

if TYPE_CHECKING:
    from hkvtool.recorder.sglang.host_tier import HostPool

READ = "hkvtool_read"
"""Attribute of the engine's operation that leads to what is known of it."""


@dataclass(eq=False)
class Read:
    """What is read for one request."""

    names: list[str]
    """Hashes of its pages, from its first token on."""
    space: str
    """The namespace that it is asked for in."""
    go: str = ""
    """The signal that hands it over."""
    at: int = 0
    """Pages that were read or tried."""
    open: list[Part] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    """Signals behind each batch, and behind the pages of other pools."""
    heard: int = 0
    """Batches of which the scheduler knows."""


class Reads:
    """What one storage is asked for."""

    def __init__(self, storage: StorageTier, writes: Writes) -> None:
        self.storage = storage
        self.writes = writes
        self.prefixes: dict[Any, Any] = {}
        """The tokens before those that are asked for, by the request's handle."""
        self.current: Read | None = None
        self.operation: Any = None
        """What is read at the moment, and what the engine calls it."""
        self.result: Any = None
        """The operation whose pages the tree takes at the moment."""
        self._seen = self._signals = 0

    # --- who is asked for ------------------------------------------------------------------

    def found(self, operation: Any) -> None:
        """The storage was asked what it has of a request."""
        if operation.handle not in self.prefixes:
            # It was to be asked before the recording began.
            return
        before, key = self.prefixes.pop(operation.handle) or (), operation.token_ids
        tokens = array("q", before)
        tokens.extend(key.raw_token_ids())
        whole = type(key)(
            tokens, extra_key=key.extra_key, is_bigram=key.is_bigram, cache_salt=key.cache_salt
        )
        state = self.storage.tier.state
        names = [state.hooks.keyed(h) for h in hashes(whole, state.page, len(whole) // state.page)]
        setattr(operation, READ, Read(names, namespace(state, key.extra_key, key.cache_salt)))

    def hand_over(self, operation: Any) -> None:
        """Pages of the host were taken for what the storage has."""
        read: Read | None = getattr(operation, READ, None)
        if read is not None:
            self._signals += 1
            read.go = f"to {self.storage.reader} {self._signals}"
            self.storage.tier.state.hooks.tell.event({"ev": "signal", "event": read.go})

    # --- the thread that reads -------------------------------------------------------------

    def begin(self, operation: Any) -> None:
        """It begins with a request."""
        read = self.current = getattr(operation, READ, None)
        self.operation = operation
        if read is not None and read.go:
            self.storage.event(self.storage.reader, ev="wait", event=read.go)

    def begin_pages(self, slots: Any, keys: Any) -> list[Part]:
        """It begins with some pages of full attention."""
        read = self.current
        if read is None:
            return []
        [*parts] = self.storage.parts(slots, keys, ())
        for part in parts:
            part.first = self._start(self.operation) + read.at
            self._begin(part, read)
        read.at += len(keys)
        return parts

    def begin_other(self, transfers: Any) -> list[Part]:
        """It begins with the pages of other pools, the last of them where the request's end."""
        read = self.current
        if read is None:
            return []
        parts = list(self.storage.parts(None, None, transfers))
        for part in parts:
            part.first = self._start(self.operation) + read.at - len(part.keys)
            self._begin(part, read)
        return parts

    def _start(self, operation: Any) -> int:
        return int(operation.storage_start) // self.storage.tier.state.page

    def _begin(self, part: Part, read: Read) -> None:
        storage, pool, first = self.storage, part.pool, part.first or 0
        part.names = list(read.names[first : first + len(part.keys)])
        part.names += [None] * (len(part.keys) - len(part.names))
        part.places = list(range(len(part.keys)))
        files = []
        if storage.known:
            storage.look(part, storage.reader)
            every = [pool.files.get(storage.file_of(pool, key)) for key in part.keys]
            part.places = [i for i, file in enumerate(every) if file is not None]
            files = [file for file in every if file is not None]
        read.open.append(part)
        if not part.places:
            return
        last = max((file.job for file in files), default=0)
        if last > self._seen:
            # It has found the files, and they are there only once they have been written.
            self._seen = last
            storage.event(storage.reader, ev="wait", event=self.writes.signal(last))
        part.handle = f"prefetch{self.operation.id}.{first}.{pool.far.name}"
        event: dict[str, Any] = {
            "ev": "load_begin", "handle": part.handle, "group": pool.far.name,
            "blocks": [part.pages[i] for i in part.places], "from": pool.name,
            "hashes": [part.names[i] for i in part.places], "key": [read.space],
            "req": str(self.operation.request_id),
        }  # fmt: skip
        if storage.known:
            # Under its key the storage may have what was stored for others.
            event["hashes"] = [file.name for file in files]
            part.blocks = event["peer"] = [file.block for file in files]
        if None in event["hashes"]:
            del event["hashes"]
        storage.event(storage.reader, **event)

    def end_pages(self, parts: list[Part], arrived: list[int]) -> None:
        """So many pages of each have come, from the first on."""
        read = self.current
        if read is None:
            return
        for part, count in zip(parts, arrived, strict=True):
            self._end(part, count)
            read.open.remove(part)
        self._signals += 1
        read.ends.append(f"{self.storage.reader} {self._signals}")
        self.storage.event(self.storage.reader, ev="signal", event=read.ends[-1])

    def _end(self, part: Part, count: int) -> None:
        storage, pool = self.storage, part.pool
        if part.handle:
            failed = [part.pages[i] for i in part.places if i >= count]
            end: dict[str, Any] = {"ev": "load_end", "handle": part.handle}
            if failed:
                end |= {"ok": False, "failed": failed}
            storage.event(storage.reader, **end)
        for key in part.keys[count:] if storage.known else ():
            if not storage.backend.exists(storage.backend._log_key(pool.engine, key)):
                storage.deleted(storage.file_of(pool, key), storage.reader, "invalidate")

    def end(self) -> None:
        """It is done with a request; what did not end by itself did not come."""
        read, self.current, self.operation = self.current, None, None
        if read is None:
            return
        for part in read.open:
            self._end(part, 0)
        read.open.clear()
        self._signals += 1
        read.ends.append(f"{self.storage.reader} {self._signals}")
        self.storage.event(self.storage.reader, ev="signal", event=read.ends[-1])

    # --- the scheduler ---------------------------------------------------------------------

    def heard(self, message: Any) -> None:
        """The scheduler reads how far it has come: of one batch, of the other pools, of all."""
        read: Read | None = getattr(message.operation, READ, None)
        if read is None:
            return
        if message.completed_req:
            known = len(read.ends)
        elif read.heard < len(read.ends):
            known = read.heard + 1
        else:
            return
        for event in read.ends[max(read.heard, known - 1) : known]:
            self.storage.tier.state.hooks.tell.event({"ev": "wait", "event": event})
        read.heard = known

    def adopt(self, pool: HostPool, pages: list[int], places: list[int]) -> None:
        """The tree has these pages, so many each behind those that it was asked behind."""
        read: Read | None = getattr(self.result, READ, None)
        if read is None:
            pool.appear(pages)
            return
        places = [self._start(self.result) + place for place in places]
        pool.publish_at(pages, [read.names[place] for place in places], places)

    def forget(self) -> None:
        """The queues are emptied."""
        self.prefixes.clear()
        self.result = None


def namespace(state: Any, extra_key: str | None, salt: str | None) -> str:
    """What a key of the storage is to hold besides the tokens."""
    if extra_key is None and salt is None:
        return "namespace="
    both = f"{extra_key}\0{salt}".encode("utf-8", "replace")
    return f"namespace={state.hooks.keyed(both)}"
